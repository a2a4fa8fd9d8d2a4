// Folders that are replaced whole or not at all.
#include <fcntl.h>
#include <sys/file.h>

#include <heed/data/detail/new_folder.hpp>
#include <map>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using detail::NewFolder;
using test::contains;
using test::error_of;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

using Contents = std::map<std::string, std::string>;

Contents contents_of(const fs::path& folder) {
  Contents all;
  for (const auto& entry : fs::directory_iterator(folder))
    all[entry.path().filename().string()] = test::bytes_of(entry.path());
  return all;
}

bool is_letter(const std::string& name) { return name.size() == 1; }

void replace_folder(const fs::path& path, const Contents& contents) {
  NewFolder folder("save", path, is_letter);
  for (const auto& [name, bytes] : contents) detail::replace_file("save", folder.file(name), bytes);
  folder.finish();
}

}  // namespace

TEST_CASE("new folder: a new one, an empty one and one with files are replaced, and nothing else remains") {
  const TemporaryFolder t;
  const fs::path path = t.path / "parent" / "model";
  const Contents first = {{"a", "1"}, {"b", "22"}}, second = {{"b", "3"}, {"c", ""}};
  replace_folder(path, first);
  CHECK(contents_of(path) == first);
  replace_folder(path / "", second);  // with a slash at the end
  CHECK(contents_of(path) == second);
  replace_folder(path, {});
  CHECK(fs::is_empty(path));
  fs::permissions(path, fs::perms::owner_all);
  replace_folder(path, first);
  CHECK(contents_of(path) == first);
  CHECK(fs::status(path).permissions() == fs::perms::owner_all);
  fs::create_directory_symlink(path, t.path / "link");
  replace_folder(t.path / "link", second);
  CHECK(fs::is_symlink(t.path / "link"));
  CHECK(contents_of(path) == second);
  CHECK(test::files_in(t.path / "parent") == 1);
}

TEST_CASE("new folder: after an error, the old one is unchanged") {
  const TemporaryFolder t;
  const fs::path path = t.path / "model", temporary = t.path / "model.tmp";
  const Contents old = {{"a", "1"}};
  replace_folder(path, old);
  {
    NewFolder folder("save", path, is_letter);
    detail::replace_file("save", folder.file("a"), "2");
    CHECK(fs::exists(temporary / "a"));
  }
  CHECK(contents_of(path) == old);
  CHECK_FALSE(fs::exists(temporary));
  t.write("model/notes.txt", "mine");
  const std::string lost = "save: " + path.string() +
                           " contains notes.txt, which would be lost: the folder is replaced "
                           "as a whole; give a new or an empty folder";
  CHECK(error_of([&] { replace_folder(path, old); }) == lost);
  CHECK(contents_of(path).size() == 2);
  fs::remove(path / "notes.txt");
  {
    NewFolder folder("save", path, is_letter);
    t.write("model/notes.txt", "mine");  // while the new folder is written
    CHECK(error_of([&] { folder.finish(); }) == lost);
  }
  CHECK_FALSE(fs::exists(temporary));
  fs::create_directory(path / "b");
  fs::remove(path / "notes.txt");
  CHECK(contains(error_of([&] { replace_folder(path, old); }), "contains b, which would be lost"));
}

TEST_CASE("new folder: remains of killed programs are used, and other files are not removed") {
  const TemporaryFolder t;
  const fs::path path = t.path / "model", temporary = t.path / "model.tmp";
  fs::create_directory(temporary);
  t.write("model.tmp/a", "old");
  t.write("model.tmp/b.tmp", "old");
  replace_folder(path, {{"c", "1"}});
  CHECK(contents_of(path) == Contents{{"c", "1"}});
  fs::create_directory(temporary);
  t.write("model.tmp/notes.txt", "mine");
  CHECK(error_of([&] { replace_folder(path, {}); }) ==
        "save: " + temporary.string() + " contains notes.txt, and writing model needs an empty folder of that name");
  CHECK(test::bytes_of(temporary / "notes.txt") == "mine");
}

TEST_CASE("new folder: places that cannot be replaced, and other programs") {
  const TemporaryFolder t;
  t.write("file", "1");
  CHECK(error_of([&] { replace_folder(t.path / "file", {}); }) ==
        "save: " + (t.path / "file").string() + " is a file; it must be a folder, or not exist");
  CHECK(contains(error_of([&] { replace_folder(t.path / "file" / "model", {}); }), "model.tmp cannot be made"));
  CHECK(contains(error_of([&] { replace_folder(".", {}); }), "is the current folder, which cannot be replaced"));
  const fs::path path = t.path / "model";
  {
    const NewFolder other("save", path, is_letter);
    CHECK(error_of([&] { replace_folder(path, {}); }) ==
          "save: another program is writing " + path.string() + "; only one program may write it");
    CHECK(fs::exists(t.path / "model.tmp"));
  }
  replace_folder(path, {{"a", "1"}});
  NewFolder folder("save", path, is_letter);
  const detail::Descriptor locked(path, O_RDONLY | O_DIRECTORY);
  REQUIRE(::flock(locked.get(), LOCK_EX | LOCK_NB) == 0);  // as a program that removes the folder it replaced
  CHECK(contains(error_of([&] { folder.finish(); }), "save: another program is writing "));
  CHECK(contents_of(path) == Contents{{"a", "1"}});
}
