#include "examples/support/program.hpp"

#include <cstdio>
#include <filesystem>
#include <new>

namespace heed::examples {

int run_program(CommandLine& line, int argc, char** argv, const std::function<int()>& work) {
  if (const std::optional<int> code = line.parse(argc, argv)) return *code;
  try {
    return work();
  } catch (const UsageError& e) {
    return line.refuse(e.what());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: the system has no more memory\n", line.program().c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", line.program().c_str(), e.what());
  }
  return 1;
}

int run_tutorial(const std::string& about, int argc, char** argv, const std::vector<FileFlag>& files,
                 const std::function<int()>& lesson) {
  CommandLine line(about, std::filesystem::path(argv[0]).filename().string());
  for (const FileFlag& f : files) line.add(f.flag, *f.file, f.help, anything("FILE"));
  return run_program(line, argc, argv, lesson);
}

}  // namespace heed::examples
