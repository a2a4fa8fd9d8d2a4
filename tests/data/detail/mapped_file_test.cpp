// Mapped files: content, moves, memory that is released, and refusals.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <heed/data/detail/disk.hpp>
#include <heed/data/detail/mapped_file.hpp>
#include <vector>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using detail::MappedFile;
using test::error_of;
namespace fs = std::filesystem;

static std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST_CASE("mapped file: has the bytes of the file, and keeps them when it is moved") {
  const test::TemporaryFolder folder;
  const fs::path path = folder.write("x", std::string("a\0b", 3));
  MappedFile file("op", path);
  CHECK(text_of(file) == std::string("a\0b", 3));
  const std::byte* place = file.bytes().data();
  MappedFile moved(std::move(file));
  CHECK(moved.bytes().data() == place);
  MappedFile other("op", folder.write("other", "other"));
  other = std::move(moved);
  CHECK(text_of(other) == std::string("a\0b", 3));
  // The old content stays when the file is replaced or removed.
  detail::replace_file("op", path, "new content");
  CHECK(text_of(other) == std::string("a\0b", 3));
  fs::remove(path);
  CHECK(text_of(other) == std::string("a\0b", 3));
}

TEST_CASE("mapped file: an empty file has no bytes") {
  const test::TemporaryFolder folder;
  const MappedFile file("op", folder.write("empty", ""));
  CHECK(file.bytes().empty());
  file.forget(file.bytes());
}

TEST_CASE("mapped file: the memory of a part is released, and read again") {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::string text;
  for (std::size_t i = 0; i < 8 * page + 5; ++i) text += static_cast<char>('a' + i * 7 % 26);
  const test::TemporaryFolder folder;
  const MappedFile file("op", folder.write("x", text));
  for (const auto& [begin, count] : std::vector<std::pair<std::size_t, std::size_t>>{
           {0, text.size()}, {page + 3, page}, {2 * page, 1}, {8 * page, 5}, {8 * page + 5, 0}}) {
    CHECK(text_of(file) == text);
    file.forget(file.bytes().subspan(begin, count));
  }
  CHECK(text_of(file) == text);
}

// Bytes of files that are in the memory of this process.
static double mapped_memory() {
  std::ifstream in("/proc/self/statm");
  double all = 0, resident = 0, shared = 0;
  REQUIRE(static_cast<bool>(in >> all >> resident >> shared));
  return shared * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

TEST_CASE("mapped file: released memory is no longer counted") {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  const test::TemporaryFolder folder;
  const MappedFile file("op", folder.write("x", std::string(kBytes, 'x')));
  const double before = mapped_memory();
  CHECK(std::ranges::count(file.bytes(), std::byte{'x'}) == static_cast<std::ptrdiff_t>(kBytes));
  CHECK(mapped_memory() - before > 0.9 * kBytes);
  file.forget(file.bytes().first(kBytes / 2));
  CHECK(std::abs(mapped_memory() - before - 0.5 * kBytes) < 0.1 * kBytes);
  file.forget(file.bytes());
  CHECK(std::abs(mapped_memory() - before) < 0.1 * kBytes);
}

TEST_CASE("mapped file: errors begin with the op and name the file") {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const fs::path& path) { return error_of([&] { MappedFile("load_x", path); }); };
  const std::string place = folder.path.string();
  CHECK(refusal(folder.path / "none\n") == "load_x: there is no file " + place + "/none\\n");
  CHECK(refusal(folder.path) == "load_x: " + place + " is a folder; it must be a file");
  REQUIRE(::mkfifo((folder.path / "pipe").c_str(), 0600) == 0);
  CHECK(refusal(folder.path / "pipe") == "load_x: " + place + "/pipe is not a regular file");
  const fs::path locked = folder.write("locked", "x");
  fs::permissions(folder.path, fs::perms::owner_all | fs::perms::others_exec);
  fs::permissions(locked, fs::perms::none);
  const test::Unprivileged user;
  CHECK(refusal(locked) == "load_x: " + place + "/locked cannot be read: Permission denied");
}
