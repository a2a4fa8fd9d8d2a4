// The check of all files of a run: paths that cannot be written, and files with two uses under any names.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <heed/data/detail/file_target.hpp>
#include <heed/data/files.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

struct Places {
  TemporaryFolder folder;
  fs::path here = fs::current_path();

  Places() {
    fs::current_path(folder.path);
    folder.write("text", "a text\n");
    fs::create_directories("f/g");
    folder.write("f/in", "another\n");
    ::mkfifo("pipe", 0666);
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    ::close(fd);
    fs::create_symlink("loop", "loop");
    fs::create_symlink("none/x", "dangling");
    fs::create_symlink("text", "soft");
    fs::create_symlink("soft", "softer");
    fs::create_hard_link("text", "hard");
    fs::create_symlink("f", "folder_link");
  }
  ~Places() { fs::current_path(here); }

  // The message. Checks that the error is a FileError and that no file has changed.
  std::string refusal(const std::vector<FileUse>& files) const {
    const auto before = test::state_of(folder.path);
    std::string message;
    try {
      check_files("op", files);
    } catch (const FileError& e) {
      message = e.what();
    }
    CHECK(test::state_of(folder.path) == before);
    return message;
  }
  std::string target(const std::string& path, FileRole role) const { return refusal({{"--it", path, role}}); }
};

constexpr FileRole kWritten[] = {FileRole::output, FileRole::checkpoint, FileRole::log};

}  // namespace

TEST_CASE("files: targets that cannot be written are refused, and nothing is made or changed") {
  const Places p;
  const std::string long_name(256, 'x');
  for (const FileRole role : kWritten) {
    const std::string log = role == FileRole::log ? ", a pipe or a terminal" : "";
    CHECK(p.target("f", role) == "op: --it: f is a folder; it must be a file" + log);
    CHECK(p.target("folder_link", role) == "op: --it: folder_link is a folder; it must be a file" + log);
    CHECK(p.target("socket", role) == "op: --it: socket is a socket; it must be a file" + log);
    CHECK(p.target("loop", role) == "op: --it: loop is a link that leads to itself; it must be a file");
    CHECK(p.target("none/x", role) == "op: --it: there is no folder none for x");
    CHECK(p.target("dangling", role) == "op: --it: there is no folder none for x");
    CHECK(p.target("text/x", role) == "op: --it: there is no folder text for x");
    CHECK(p.target("new/", role) == "op: --it: the path «new/» has no file name");
    CHECK(p.target(long_name, role) == "op: --it: " + long_name + " cannot be written: File name too long");
    CHECK(p.target("new", role) == "");
    CHECK(p.target("text", role) == "");
    CHECK(p.target("", role) == "");
  }
  CHECK(p.target("f/../new/", FileRole::log) == "op: --it: the path «f/../new/» has no file name");
  for (const FileRole role : {FileRole::output, FileRole::checkpoint}) {
    CHECK(p.target("pipe", role) == "op: --it: pipe is a pipe; it must be a file");
    CHECK(p.target("/dev/null", role) == "op: --it: /dev/null is a device; it must be a file");
    const std::string name(252, 'x');
    CHECK(p.target(name, role) == "op: --it: " + name + ".tmp cannot be written: File name too long");
  }
  CHECK(p.target("pipe", FileRole::log) == "");
  CHECK(p.target("/dev/null", FileRole::log) == "");
  // The name is deleted, so a file with that name would be another file.
  const int fd = ::open("gone", O_RDWR | O_CREAT, 0666);
  fs::remove("gone");
  const std::string open = "/proc/self/fd/" + std::to_string(fd);
  CHECK(p.target(open, FileRole::output) == "op: --it: " + open + " is an open file without a name");
  ::close(fd);
}

TEST_CASE("files: folders that no file can be made in") {
  const Places p;
  fs::permissions("f", fs::perms::owner_read | fs::perms::owner_exec);
  fs::permissions("text", fs::perms::owner_read);
  {
    const test::Unprivileged user;
    CHECK(p.target("f/x", FileRole::output) == "op: --it: f/x.tmp cannot be written: Permission denied");
    CHECK(p.target("f/x", FileRole::checkpoint) == "op: --it: f/x.tmp cannot be written: Permission denied");
    CHECK(p.target("f/x", FileRole::log) == "op: --it: f/x cannot be written: Permission denied");
    CHECK(p.target("text", FileRole::log) == "op: --it: text cannot be written: Permission denied");
  }
  fs::permissions("f", fs::perms::owner_all);
  fs::create_directories("locked/in");
  fs::permissions("locked", fs::perms::none);
  {
    const test::Unprivileged user;
    CHECK(p.target("locked/in/x", FileRole::output) ==
          "op: --it: locked/in/x.tmp cannot be written: Permission denied");
  }
  fs::permissions("locked", fs::perms::owner_all);
}

TEST_CASE("files: existing files at the temporary and lock names of an output") {
  const Places p;
  const std::string by = " needs a file of that name; remove it, or choose another name";
  fs::rename("pipe", "x.tmp");
  fs::create_symlink("text", "y.tmp");
  fs::create_directory("z.lock");
  for (const FileRole role : {FileRole::output, FileRole::checkpoint}) {
    CHECK(p.target("x", role) == "op: --it: x.tmp is a pipe, but writing x" + by);
    CHECK(p.target("y", role) == "op: --it: y.tmp is a link, but writing y" + by);
  }
  CHECK(p.target("z", FileRole::output) == "");
  CHECK(p.target("z", FileRole::checkpoint) == "op: --it: z.lock is a folder, but writing z" + by);
  const std::string mark = detail::kLockMark;
  for (const std::string& left : {mark, mark.substr(0, 9), std::string(mark.size(), '\0'),
                                  mark.substr(0, 9) + std::string(5, '\0'), std::string(9, '\0') + mark.substr(9)}) {
    p.folder.write("cut.lock", left);
    CHECK(p.target("cut", FileRole::checkpoint) == "");
  }
  p.folder.write("mine.lock", "mine");
  CHECK(p.target("mine", FileRole::checkpoint) ==
        "op: --it: mine.lock is not a lock of heed, but locking mine needs a file of that name; move it, or choose "
        "another name");
}

TEST_CASE("files: one file with two uses is refused under any names") {
  const Places p;
  const std::string whole = p.folder.path / "text";
  const int fd = ::open("text", O_RDONLY);
  const std::string open = "/proc/self/fd/" + std::to_string(fd);
  for (const FileRole role : kWritten)
    for (const std::string& name : {std::string("text"), std::string("./f/../text"), std::string("soft"),
                                    std::string("softer"), std::string("hard"), whole, open}) {
      INFO(name);
      const std::string both = "op: --it is " + name + " and --in text, the same file; they must be different files";
      CHECK(p.refusal({{"--it", name, role}, {"--in", "text", FileRole::input}}) == both);
      CHECK(p.refusal({{"--in", "text", FileRole::input}, {"--it", name, role}}) == both);
      CHECK(contains(p.refusal({{"--it", name, role}, {"--log", "text", FileRole::log}}), "the same file"));
    }
  ::close(fd);
  CHECK(p.refusal({{"--a", "text", FileRole::input}, {"--b", "hard", FileRole::input}}) == "");
  // Names that are free.
  fs::create_symlink("new", "to_new");
  for (const char* name : {"new", "./new", "f/../new", "to_new", "folder_link/../new"})
    CHECK(contains(p.refusal({{"--a", "new", FileRole::log}, {"--b", name, FileRole::checkpoint}}), "the same file"));
  CHECK(contains(p.refusal({{"--a", "f/new", FileRole::log}, {"--b", "folder_link/new", FileRole::output}}), "same"));
  // Temporary and lock names, also those of the target of a link.
  fs::create_symlink("f/new.h5", "link.h5");
  for (const char* ending : {".tmp", ".lock"}) {
    const std::string name = std::string("f/new.h5") + ending;
    CHECK(p.refusal({{"--a", "link.h5", FileRole::checkpoint}, {"--b", name, FileRole::log}}) ==
          "op: --a is link.h5 and --b " + name + ", both of which need " + name + "; they must be different files");
    p.folder.write(name, "");
    CHECK(contains(p.refusal({{"--a", "link.h5", FileRole::checkpoint}, {"--b", name, FileRole::input}}), "both of"));
    fs::remove(name);
  }
  // A folder represents its files.
  CHECK(contains(p.refusal({{"--data", "f", FileRole::input}, {"--log", "f/in", FileRole::log}}), "the same file"));
  CHECK(p.refusal({{"--data", "f", FileRole::input}, {"--log", "f/new", FileRole::log}}) == "");
  CHECK(p.refusal({{"--data", "none", FileRole::input}, {"--log", "f/new", FileRole::log}}) == "");
  CHECK(p.refusal({{"--a", "/dev/null", FileRole::log}, {"--b", "/dev/null", FileRole::log}}) == "");
}

TEST_CASE("files: a log may be standard output or error, but no other file may") {
  const Places p;
  // Redirects the stream during the check only, so that output of doctest is not written to the file.
  const auto refusal_at = [&](const char* file, int stream, const FileUse& use) {
    const int kept = ::dup(stream), to = ::open(file, O_WRONLY | O_APPEND);
    ::dup2(to, stream);
    const std::string message = error_of([&] { check_files("op", {use, {"--log", "log", FileRole::log}}); });
    ::dup2(kept, stream);
    ::close(kept), ::close(to);
    return message;
  };
  const std::string different = "; they must be different files";
  CHECK(refusal_at("hard", 1, {"--data", "text", FileRole::input}) ==
        "op: --data is text, and standard output goes to text" + different);
  CHECK(refusal_at("hard", 2, {"--plot", "text", FileRole::output}) ==
        "op: --plot is text, and standard error goes to text" + different);
  CHECK(refusal_at("text", 1, {"--log", "/dev/stdout", FileRole::log}) == "");
  p.folder.write("c.h5.tmp", "");
  CHECK(refusal_at("c.h5.tmp", 2, {"--checkpoint", "c.h5", FileRole::checkpoint}) ==
        "op: --checkpoint is c.h5, and standard error goes to c.h5.tmp" + different);
}

TEST_CASE("files: without an operation, the message begins with the flag") {
  CHECK(error_of([] {
          check_files("", {{"--log", "none/x", FileRole::log}});
        }) == "--log: there is no folder none for x");
  CHECK(error_of([] { check_place("op", "none/x"); }) == "op: there is no folder none for x");
}
