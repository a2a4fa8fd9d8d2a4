// Runs the work of a program: flags, files, errors and exit codes.
#include "examples/support/program.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <heed/core/check.hpp>
#include <heed/data/text.hpp>
#include <heed/plot/plot.hpp>
#include <new>
#include <system_error>

namespace heed::examples {

namespace {

namespace fs = std::filesystem;

constexpr const char* kNoMemory = "the system is out of memory";
// No reason is known: an exception with a reason needs memory too.
constexpr const char* kNoReason =
    "the program ended without an error message, possibly because the system is out of memory";

// The text for an error of the system. EAGAIN is returned if a thread cannot be started.
constexpr const char* kNoThread =
    "a thread cannot be started: the system is out of memory, or a limit is reached (ulimit -u, ulimit -v)";
const char* words_of(const std::system_error& e) {
  if (e.code() == std::errc::resource_unavailable_try_again) return kNoThread;
  return e.code() == std::errc::not_enough_memory ? kNoMemory : e.what();
}
const char* words_of(const std::exception& e) {  // TBB gives this reason in the text only
  return std::strstr(e.what(), "pthread_create has failed") != nullptr ? kNoThread : e.what();
}

// Handles an exception outside run_program(): in main() before it, on a thread, or in a function that must not throw.
// Prints one line on stderr and exits with 1 instead of SIGABRT.
[[noreturn]] void end_by_exception() {
  char what[1000];  // on the stack: there may be no memory left
  const auto keep = [&what](const char* text) { std::snprintf(what, sizeof what, "%s", text); };
  keep(kNoReason);
  try {
    if (std::current_exception()) std::rethrow_exception(std::current_exception());
  } catch (const std::bad_alloc&) {
    keep(kNoMemory);
  } catch (const std::system_error& e) {
    keep(words_of(e));
  } catch (const std::exception& e) {
    keep(words_of(e));
  } catch (...) {
  }
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
  std::_Exit(1);
}
[[maybe_unused]] const std::terminate_handler before = std::set_terminate(end_by_exception);

// If the caller closed a standard stream, the next file opened would get its number, and prints would be written to
// that file. Opens the null device instead. Writing to it is an error, except on standard error.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0)
      // open() returns the lowest free number, which is that of the stream.
      static_cast<void>(!::open("/dev/null", stream == STDOUT_FILENO ? O_RDONLY : O_RDWR));
}

void print_error(const std::string& program, const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", program.c_str(), printable(what).c_str());
}

int flushed(CommandLine& line, int code) {
  try {
    flush_output();
    return code;
  } catch (const Error& e) {
    print_error(line.program(), e.what());
    return code == 0 ? 1 : code;
  }
}

}  // namespace

void flush_output() {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  const std::string reason = errno != 0 ? std::string(": ") + std::strerror(errno) : "";
  if (!failed) return;
  std::clearerr(stdout);  // reported once
  fail("standard output cannot be written", reason);
}

// A text for a terminal: control characters, which could move the cursor or change the terminal's state, are escapes.
static std::string without_control(const std::string& text) {
  std::string shown;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of("\n\t", begin), text.size());
    shown += printable(std::string_view(text).substr(begin, end - begin));
    if (end < text.size()) shown += text[end];
    begin = end + 1;
  }
  return shown;
}

void print_text(const std::string& text) {
  static const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const std::string& shown = terminal ? without_control(text) : text;
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

void print_piece(Index, const std::string& piece) {
  print_text(piece);
  flush_output();
}

void check_files(const CommandLine& line, const std::vector<FileUse>& more) {
  std::vector<FileUse> files = line.files();
  files.insert(files.end(), more.begin(), more.end());
  check_files("", files);
}

int ranks_by_mpirun() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* size = std::getenv(name)) return std::atoi(size);
  return 0;
}

int run_program(CommandLine& line, int argc, char** argv, const std::function<int()>& work) {
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // printing beyond the limit on file sizes is then an error of the print
  try {
    if (const std::optional<int> code = line.parse(argc, argv)) return flushed(line, *code);
    if (ranks_by_mpirun() < 2) check_files(line, {});  // otherwise run_on_ranks() checks them on rank 0
    return flushed(line, work());
  } catch (const UsageError& e) {
    return line.refuse(e.what());
  } catch (const FileError& e) {
    return line.refuse(e.what());
  } catch (const std::bad_alloc&) {
    print_error(line.program(), kNoMemory);
  } catch (const std::system_error& e) {
    print_error(line.program(), words_of(e));
  } catch (const std::exception& e) {
    print_error(line.program(), words_of(e));
  }
  return 1;
}

int run_tutorial(const std::string& about, int argc, char** argv, const FileFlag& flag,
                 const std::function<int(const std::string& file)>& lesson) {
  CommandLine line(about, std::filesystem::path(argv[0]).filename().string());
  std::string file;
  if (!flag.flag.empty()) line.add(flag.flag, file, flag.help, file_name("FILE", FileRole::output));
  return run_program(line, argc, argv, [&] {
    if (flag.flag == "--plot") check_plot(file);
    return lesson(file);
  });
}
int run_tutorial(const std::string& about, int argc, char** argv, const std::function<int()>& lesson) {
  return run_tutorial(about, argc, argv, {}, [&](const std::string&) { return lesson(); });
}

}  // namespace heed::examples
