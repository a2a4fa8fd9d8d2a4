// Saving on failing disks and in programs that are killed: the file is always either the complete old or the complete
// new one.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <heed/data/checkpoint.hpp>
#include <heed/data/detail/disk.hpp>
#include <sstream>

#include "tests/data/checkpoint_model.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/run.hpp"
#include "tests/tools/size_limit.hpp"

using namespace heed;
using heed::test::bytes_of, heed::test::Failing, heed::test::quoted, heed::test::Ran, heed::test::run;
using test::contains;
using test::error_of;
using test::files_in;
using test::TemporaryFolder;
namespace fs = std::filesystem;

static const std::string kTool = quoted(test::checkpoint_tool());

static std::string save(const fs::path& file, int step) {
  return kTool + " save " + quoted(file.string()) + " " + std::to_string(step);
}
static std::string version_of(const fs::path& file) {
  return run("exec " + kTool + " tell " + quoted(file.string())).output;
}

static Checkpoint small(int step) {
  Checkpoint c;
  c.counters["step"] = static_cast<std::uint64_t>(step);
  c.tensors["model/x"] = Tensor::zeros({1000});
  return c;
}

TEST_CASE("checkpoint disk: a program killed at any call of a save leaves the old file or the new one") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "c.h5", log = folder.path.string() + ".log";
  int number = 0;
  for (const char* mode : {"kill", "tear"}) {
    for (int chunk : {0, 8192}) {
      if (!test::is_taken(number++, 4)) continue;
      fs::remove(file);
      REQUIRE(run(save(file, 1)).exit_code == 0);
      int at = 1, now_new = 0;
      for (;; ++at) {
        INFO(mode << " at call " << at << ", chunk " << chunk);
        REQUIRE(at < 100);
        const Ran ran = run(save(file, 2), Failing{folder.path, mode, at, chunk});
        if (ran.signal == 0) break;
        REQUIRE(ran.signal == SIGKILL);
        const std::string version = version_of(file);
        CHECK((version == "1\n" || version == "2\n"));
        now_new += version == "2\n";
        CHECK(files_in(folder.path) <= 2);
        // Files that remain do not disturb later saves, which remove them.
        REQUIRE(run(save(file, 1)).output.empty());
        CHECK(version_of(file) == "1\n");
        CHECK(files_in(folder.path) == 1);
      }
      CHECK(version_of(file) == "2\n");
      CHECK(now_new == 1);  // killed after the rename, before the folder was synced
      CHECK(at >= (chunk == 0 ? 7 : 12));
    }
  }
  REQUIRE(run(save(file, 3), Failing{folder.path, "", 0, 0, log}).exit_code == 0);
  std::istringstream lines(bytes_of(log));
  std::vector<std::string> names;
  for (std::string call, name, path; lines >> call >> name >> path;) names.push_back(name);
  CHECK(names ==
        std::vector<std::string>{"open", "ftruncate", "write", "write", "pwrite", "fsync", "rename", "fsync"});
  fs::remove(log);
}

TEST_CASE("checkpoint disk: if any call of a save fails, the old file stays alone, with one sentence") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "c.h5";
  const std::pair<const char*, const char*> modes[] = {{"enospc", "No space left on device"},
                                                       {"eio", "Input/output error"},
                                                       {"eacces", "Permission denied"},
                                                       {"erofs", "Read-only file system"}};
  int number = 0;
  for (const auto& failure : modes) {
    const char *mode = failure.first, *reason = failure.second;  // clang 14 cannot capture structured bindings in INFO
    for (int chunk : {0, 8192}) {
      if (!test::is_taken(number++, 3)) continue;
      REQUIRE(run(save(file, 1)).exit_code == 0);
      int at = 1;
      for (;; ++at) {
        INFO(mode << " at call " << at << ", chunk " << chunk);
        REQUIRE(at < 100);
        if (!test::is_taken(at, 4) && at < 12) continue;
        const Ran ran = run(save(file, 2), Failing{folder.path, mode, at, chunk});
        if (ran.exit_code == 0) break;
        CHECK(ran.exit_code == 1);
        CHECK(ran.output.substr(0, 17) == "save_checkpoint: ");
        CHECK(contains(ran.output, reason));
        CHECK(std::count(ran.output.begin(), ran.output.end(), '\n') == 1);
        CHECK(files_in(folder.path) == 1);
        const std::string version = version_of(file);
        if (contains(ran.output, "may be lost in a power cut")) {
          CHECK(version == "2\n");
          REQUIRE(run(save(file, 1)).exit_code == 0);
        } else {
          CHECK(version == "1\n");
        }
      }
      CHECK(at >= (chunk == 0 ? 7 : 12));
    }
  }
}

TEST_CASE("checkpoint disk: if any call of HDF5 has no memory, there is one sentence, and the old file stays") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "c.h5";
  REQUIRE(run(save(file, 1)).exit_code == 0);
  const std::string type = "checkpoint: HDF5 has no memory for a type",
                    settings = "save_checkpoint: HDF5 has no memory for its settings";
  const auto check = [&](const std::string& program, const std::string& call, const std::string& sentence) {
    INFO(program, " with ", call);
    const Ran ran = run(program, {.prefix = folder.path, .hdf5 = call});
    CHECK(ran.exit_code == 1);
    CHECK(ran.output == sentence + "\n");
    CHECK(files_in(folder.path) == 1);
    CHECK(version_of(file) == "1\n");
  };
  const std::pair<const char*, std::string> saving[] = {
      {"H5Pcreate:1", settings},
      {"H5Pcreate:2", settings},
      {"H5Pcreate:5", settings},
      {"H5FDregister:1", settings},
      {"H5Pset_driver:1", settings},
      {"H5Pset_userblock:1", settings},
      {"H5Pset_char_encoding:1", settings},
      {"H5Screate:1", settings},
      {"H5Tenum_create:1", type},
      {"H5Tenum_insert:2", type},
      {"H5Tcopy:1", type},
      {"H5Tset_size:1", type},
      {"H5Fcreate:1", "save_checkpoint: HDF5 cannot create a file in memory"},
      {"H5Gcreate2:1", "save_checkpoint: HDF5 cannot create the section model; is the memory full?"},
      {"H5Dcreate2:2", "save_checkpoint: HDF5 cannot create model/few; is the memory full?"},
      {"H5Dget_offset:1", "save_checkpoint: HDF5 cannot allocate model/numbers; is the memory full?"},
      {"H5Dwrite:2", "save_checkpoint: HDF5 cannot write model/few; is the memory full?"},
      {"H5Acreate2:1", "save_checkpoint: HDF5 cannot create the attribute format"},
      {"H5Awrite:1", "save_checkpoint: HDF5 cannot write the attribute format"},
      {"H5Fflush:1", "save_checkpoint: HDF5 cannot finish the file; is the memory full?"},
      {"H5Pset_libver_bounds:1", "save_checkpoint: this version of HDF5 writes an unknown superblock"},
  };
  for (const auto& c : saving) check(save(file, 2), c.first, c.second);
}

TEST_CASE("checkpoint disk: short and interrupted writes are taken up again") {
  const TemporaryFolder folder;
  const fs::path a = folder.path / "a.h5", b = folder.path / "b.h5";
  REQUIRE(run(save(a, 1), Failing{folder.path, "", 0, 777}).exit_code == 0);
  REQUIRE(run(save(b, 1)).exit_code == 0);
  CHECK(bytes_of(a) == bytes_of(b));
}

TEST_CASE("checkpoint disk: a limit on file sizes") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "c.h5";
  save_checkpoint(file, small(1));
  const std::string before = bytes_of(file);
  const test::SizeLimit limit;
  limit.set(2048);  // the signal of the limit would end this program
  const std::string message = error_of([&] { save_checkpoint(file, small(2)); });
  limit.lift();
  CHECK(message == "save_checkpoint: " + file.string() + " could not be written: File too large after 2048 of " +
                       std::to_string(before.size()) + " bytes; the previous file is unchanged");
  CHECK(bytes_of(file) == before);
  CHECK(files_in(folder.path) == 1);
  sigset_t pending;
  ::sigpending(&pending);
  CHECK(sigismember(&pending, SIGXFSZ) == 0);
}

TEST_CASE("disk: a lock file of heed is removed, and a user's file with that name is kept") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "c.h5", lock = folder.path / "c.h5.lock";
  { const heed::detail::PlaceLock place("op", file); }
  CHECK(files_in(folder.path) == 0);
  std::string left;
  {
    const heed::detail::PlaceLock place("op", file);
    left = bytes_of(lock);
    CHECK(error_of([&] { const heed::detail::PlaceLock second("op", file); }) ==
          "op: another program is writing " + file.string() + "; only one program may write it");
  }
  // Locks of programs that were killed, also during the write.
  for (const std::string& content : {left, left.substr(0, 3)}) {
    folder.write("c.h5.lock", content);
    { const heed::detail::PlaceLock place("op", file); }
    CHECK(files_in(folder.path) == 0);
  }
  for (const std::string& content : {std::string("mine"), left + "and mine"}) {
    folder.write("c.h5.lock", content);
    CHECK(contains(error_of([&] { const heed::detail::PlaceLock place("op", file); }),
                   "c.h5.lock is not a lock of heed"));
    CHECK(bytes_of(lock) == content);
  }
  folder.write("c.h5.lock", "");
  { const heed::detail::PlaceLock place("op", file); }
  CHECK(bytes_of(lock) == "");
  CHECK(files_in(folder.path) == 1);
  fs::remove(lock);
  {  // A file that replaced the lock belongs to another program.
    const heed::detail::PlaceLock place("op", file);
    fs::remove(lock);
    folder.write("c.h5.lock", "other");
  }
  CHECK(bytes_of(lock) == "other");
}

TEST_CASE("disk: a log on a pipe without a reader is an Error, instead of a run that waits") {
  const TemporaryFolder folder;
  const fs::path pipe = folder.path / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0666) == 0);
  CHECK(error_of([&] { heed::detail::LogFile log(pipe); }) ==
        "log: " + pipe.string() + " cannot be written: it is a pipe without a reader");
}

// Runs a script in a separate mount namespace, where $D is a new file system of 256 kB. False if that is not permitted.
static bool run_on_disk(const fs::path& folder, const std::string& script, Ran& ran) {
  const std::string d = quoted(folder.string());
  ran = run("exec unshare -m sh -c " + quoted("mount -t tmpfs -o size=256k none " + d + " || exit 99; TOOL=" + kTool +
                                              "; D=" + d + "; " + script));
  const bool mounted = !contains(ran.output, "unshare") && ran.exit_code != 99;
  if (!mounted) MESSAGE("skipped: file systems cannot be mounted here: " << ran.output);
  return mounted;
}

TEST_CASE("checkpoint disk: a disk that is really full") {
  const TemporaryFolder folder;
  Ran ran;
  const std::string script =
      "$TOOL save $D/c.h5 1; head -c 180k /dev/zero > $D/filler; $TOOL save $D/c.h5 2; echo $?; $TOOL tell $D/c.h5; ls "
      "$D";
  if (!run_on_disk(folder.path, script, ran)) return;
  const std::string name = (folder.path / "c.h5").string();
  CHECK(contains(ran.output, "save_checkpoint: " + name + " could not be written: No space left on device after "));
  CHECK(contains(ran.output, " bytes; the previous file is unchanged\n1\n1\nc.h5\nfiller\n"));
}

TEST_CASE("checkpoint disk: a folder that is really read-only") {
  const TemporaryFolder folder;
  Ran ran;
  const std::string script =
      "$TOOL save $D/c.h5 1; mount -o remount,ro $D; $TOOL save $D/c.h5 2; echo $?; $TOOL tell $D/c.h5";
  if (!run_on_disk(folder.path, script, ran)) return;
  CHECK(ran.output == "save_checkpoint: " + (folder.path / "c.h5").string() +
                          ".tmp cannot be written: Read-only file system\n1\n1\n");
}

TEST_CASE("checkpoint disk: paths where no file can be made") {
  const TemporaryFolder folder;
  const std::string d = folder.path.string() + "/";
  const auto message = [&](const std::string& name) { return error_of([&] { save_checkpoint(d + name, small(1)); }); };
  CHECK(message("none/c.h5") == "save_checkpoint: there is no folder " + d + "none for c.h5");
  folder.write("text", "x");
  CHECK(message("text/c.h5") == "save_checkpoint: there is no folder " + d + "text for c.h5");
  fs::create_directory(d + "folder");
  CHECK(message("folder") == "save_checkpoint: " + d + "folder is a folder; it must be a file");
  CHECK(message("folder/") == "save_checkpoint: the path «" + d + "folder/» has no file name");
  CHECK(error_of([] { save_checkpoint("", small(1)); }) == "save_checkpoint: the path «» has no file name");
  fs::create_directory(d + "c.h5.tmp");
  CHECK(message("c.h5") == "save_checkpoint: " + d +
                               "c.h5.tmp is a folder, but writing c.h5 needs a file of that name; "
                               "remove it, or choose another name");
  const std::string longest(250, 'x');
  CHECK(message(longest + "xxxxx") ==
        "save_checkpoint: " + d + longest + "xxxxx.tmp cannot be written: File name too long");
}

TEST_CASE("checkpoint disk: a longer temporary file of a killed program is overwritten") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "c.h5";
  folder.write("c.h5.tmp", std::string(1 << 20, 'x'));
  save_checkpoint(file, small(4));
  CHECK(load_checkpoint(file).counter("step") == 4);
  CHECK(files_in(folder.path) == 1);
}

TEST_CASE("checkpoint disk: two programs do not write the same checkpoint at the same time") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "c.h5";
  const int other = ::open((file.string() + ".tmp").c_str(), O_WRONLY | O_CREAT, 0666);
  REQUIRE(::flock(other, LOCK_EX) == 0);
  REQUIRE(::write(other, "half", 4) == 4);
  CHECK(error_of([&] { save_checkpoint(file, small(1)); }) ==
        "save_checkpoint: another program is writing " + file.string() + "; only one program may write it");
  CHECK(bytes_of(file.string() + ".tmp") == "half");
  ::close(other);
  save_checkpoint(file, small(1));
  CHECK(load_checkpoint(file).counter("step") == 1);
}

TEST_CASE("checkpoint disk: a symbolic link stays one and its target is replaced") {
  const TemporaryFolder folder;
  fs::create_directory(folder.path / "disk");
  fs::create_symlink("disk/real.h5", folder.path / "c.h5");
  fs::create_symlink("disk/new.h5", folder.path / "n.h5");
  save_checkpoint(folder.path / "disk/real.h5", small(1));
  save_checkpoint(folder.path / "c.h5", small(2));
  CHECK(fs::is_symlink(folder.path / "c.h5"));
  CHECK(load_checkpoint(folder.path / "disk/real.h5").counter("step") == 2);
  CHECK(files_in(folder.path / "disk") == 1);
  save_checkpoint(folder.path / "n.h5", small(3));  // to a target that does not exist yet
  CHECK(load_checkpoint(folder.path / "n.h5").counter("step") == 3);
}

TEST_CASE("checkpoint disk: a relative path, in the working folder") {
  const TemporaryFolder folder;
  const fs::path here = fs::current_path();
  fs::current_path(folder.path);
  const std::string message = error_of([] { save_checkpoint("c.h5", small(5)); });
  const std::uint64_t step = message.empty() ? load_checkpoint("c.h5").counter("step") : 0;
  fs::current_path(here);
  CHECK(message.empty());
  CHECK(step == 5);
}
