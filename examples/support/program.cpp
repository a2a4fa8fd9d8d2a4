#include "examples/support/program.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <new>

namespace heed::examples {
namespace {

int usage_error(const CLI::App& app, const char* what) {
  std::fprintf(stderr, "%s: %s (%s --help lists the flags)\n", app.get_name().c_str(), what, app.get_name().c_str());
  return 2;
}

}  // namespace

int run_program(CLI::App& app, int argc, char** argv, const std::function<int()>& work) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& e) {
    return usage_error(app, e.what());
  }
  try {
    return work();
  } catch (const UsageError& e) {
    return usage_error(app, e.what());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: the system has no more memory\n", app.get_name().c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), e.what());
  }
  return 1;
}

int run_tutorial(const std::string& about, int argc, char** argv, const std::vector<FileFlag>& files,
                 const std::function<int()>& lesson) {
  CLI::App app(about, std::filesystem::path(argv[0]).filename().string());
  for (const FileFlag& f : files) app.add_option(f.flag, *f.file, f.help)->type_name("FILE");
  return run_program(app, argc, argv, lesson);
}

}  // namespace heed::examples
