#include "examples/support/program.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <heed/core/check.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/text.hpp>
#include <heed/plot/plot.hpp>
#include <new>

namespace heed::examples {

namespace {

namespace fs = std::filesystem;

// A standard stream that the caller closed would be the number of the next file that is opened, and prints would go
// there. In its place: nothing to read, nothing to write to but, for errors, the null device.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0)
      // The lowest free number is the stream's.
      static_cast<void>(!::open("/dev/null", stream == STDOUT_FILENO ? O_RDONLY : O_RDWR));
}

void say(const CommandLine& line, const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", line.program().c_str(), printable(what).c_str());
}

// The files that stand for one that is written, until it is whole and while it is being written.
std::vector<fs::path> places_of(const fs::path& file, bool replaced) {
  std::vector<fs::path> places = {file};
  for (const char* beside : {".tmp", ".lock"})
    if (replaced) (places.emplace_back(file) += beside);
  return places;
}

void check_pair(const FlagFile& a, bool a_replaced, const FlagFile& b, bool b_replaced) {
  for (const fs::path& x : places_of(a.file, a_replaced))
    for (const fs::path& y : places_of(b.file, b_replaced))
      if (same_file(x, y))
        throw UsageError(a.flag + " is " + a.file.string() + " and " + b.flag + " " + b.file.string() +
                         (x == a.file && y == b.file ? ", the same file" : ", both of which need " + x.string()) +
                         "; they must be different files");
}

int flushed(CommandLine& line, int code) {
  try {
    flush_output();
    return code;
  } catch (const Error& e) {
    say(line, e.what());
    return code == 0 ? 1 : code;
  }
}

}  // namespace

void flush_output() {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  const std::string reason = errno != 0 ? std::string(": ") + std::strerror(errno) : "";
  if (!failed) return;
  std::clearerr(stdout);  // it is told once
  fail("standard output cannot be written", reason);
}

void print_piece(Index, const std::string& piece) {
  std::fputs(piece.c_str(), stdout);
  flush_output();
}

void check_files(const FlagFiles& files) {
  std::vector<std::pair<FlagFile, bool>> written;
  for (const FlagFile& f : files.replaced)
    if (!f.file.empty()) written.emplace_back(f, true);
  for (const FlagFile& f : files.logs)
    if (!f.file.empty()) written.emplace_back(f, false);
  std::vector<FlagFile> read;
  for (const FlagFile& f : files.read) {
    if (f.file.empty() || written.empty()) continue;
    std::error_code ignored;  // who reads it will tell that it is not there
    for (const fs::path& file : fs::is_directory(f.file, ignored) ? text_files({f.file}) : std::vector{f.file})
      read.push_back({f.flag, file});
  }
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto& [file, replaced] = written[i];
    for (const FlagFile& other : read) check_pair(file, replaced, other, false);
    for (std::size_t j = i + 1; j < written.size(); ++j)
      check_pair(file, replaced, written[j].first, written[j].second);
  }
  for (const FlagFile& f : files.logs)
    if (!f.file.empty()) check_log(f.file);
}

int run_program(CommandLine& line, int argc, char** argv, const std::function<int()>& work) {
  open_standard_streams();
  if (const std::optional<int> code = line.parse(argc, argv)) return flushed(line, *code);
  try {
    return flushed(line, work());
  } catch (const UsageError& e) {
    return line.refuse(e.what());
  } catch (const std::bad_alloc&) {
    say(line, "the system has no more memory");
  } catch (const std::exception& e) {
    say(line, e.what());
  }
  return 1;
}

int run_tutorial(const std::string& about, int argc, char** argv, const FileFlag& flag,
                 const std::function<int(const std::string& file)>& lesson) {
  CommandLine line(about, std::filesystem::path(argv[0]).filename().string());
  std::string file;
  if (!flag.flag.empty()) line.add(flag.flag, file, flag.help, file_name("FILE"));
  return run_program(line, argc, argv, [&] {
    if (flag.flag == "--plot") check_plot(file);
    return lesson(file);
  });
}
int run_tutorial(const std::string& about, int argc, char** argv, const std::function<int()>& lesson) {
  return run_tutorial(about, argc, argv, {}, [&](const std::string&) { return lesson(); });
}

}  // namespace heed::examples
