// Checkpoint files: a file that is not a checkpoint, or damaged, is refused with one sentence before HDF5 reads a byte.
// Saving needs memory for one image of the file, and loading needs one image in addition to the tensors.
#include <sys/stat.h>

#include <cstring>
#include <heed/data/checkpoint.hpp>
#include <heed/data/detail/checkpoint_hdf5.hpp>

#include "tests/data/checkpoint_model.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/seal.hpp"

using namespace heed;
using heed::test::bytes_of;
using heed::test::sealed;
using test::contains;
using test::error_of;
using test::TemporaryFolder;

static Checkpoint small() {
  Checkpoint c;
  c.counters["step"] = 12;
  c.texts["config"] = "{}";
  c.tensors["model/x"] = Tensor::arange(4, DType::float32);
  return c;
}

namespace {

struct Case {
  TemporaryFolder folder;
  std::string good;

  Case() {
    save_checkpoint(folder.path / "good.h5", small());
    good = bytes_of(folder.path / "good.h5");
  }
  // The message of loading these bytes, without the path of the folder.
  std::string load(const std::string& bytes) const {
    folder.write("x.h5", bytes);
    return load_file("x.h5");
  }
  std::string load_file(const std::string& name) const {
    std::string message = error_of([&] { load_checkpoint(folder.path / name); });
    const std::string prefix = folder.path.string() + "/";
    for (auto place = message.find(prefix); place != std::string::npos; place = message.find(prefix)) {
      message.erase(place, prefix.size());
    }
    return message;
  }
};

}  // namespace

TEST_CASE("checkpoint damage: the seal is as specified") {
  const Case c;
  CHECK(sealed(c.good) == c.good);
  CHECK(c.load(c.good).empty());
}

TEST_CASE("checkpoint damage: a file cut at any length is refused") {
  const Case c;
  CHECK(c.load("") == "load_checkpoint: x.h5 is empty; it must be a heed checkpoint");
  int refused = 0;
  c.folder.write("x.h5", c.good);
  for (std::size_t n = c.good.size() - 1; n > 0; --n) {
    std::filesystem::resize_file(c.folder.path / "x.h5", n);  // writing the file again each time would be slow
    const std::string expected =
        n < 512 ? "load_checkpoint: x.h5 is truncated: it ends after " + std::to_string(n) + " bytes, within its header"
                : "load_checkpoint: x.h5 is truncated: it has " + std::to_string(n) + " of " +
                      std::to_string(c.good.size()) + " bytes";
    refused += c.load_file("x.h5") == expected;
  }
  CHECK(refused == static_cast<int>(c.good.size()) - 1);
}

TEST_CASE("checkpoint damage: a file with any byte changed is refused") {
  const Case c;
  int refused = 0, named = 0;
  std::fstream file(c.folder.write("x.h5", c.good), std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](std::size_t i, int byte) {
    file.seekp(static_cast<std::streamoff>(i)).put(static_cast<char>(byte)).flush();
  };
  for (std::size_t i = 0; i < c.good.size(); ++i) {
    for (int mask : {1, 0x80, 0xff}) {
      put(i, c.good[i] ^ mask);
      const std::string message = c.load_file("x.h5");
      refused += message != "";
      named += i < 32 || contains(message, "load_checkpoint: x.h5 is damaged: its content has the hash ");
    }
    put(i, c.good[i]);
  }
  CHECK(c.load_file("x.h5").empty());
  CHECK(refused == 3 * static_cast<int>(c.good.size()));
  CHECK(named == refused);
}

TEST_CASE("checkpoint damage: zeros and other bytes at the end") {
  const Case c;
  const std::string size = std::to_string(c.good.size());
  for (std::size_t n : {1, 8, 512, 4096}) {
    CHECK(c.load(c.good + std::string(n, '\0')) == "load_checkpoint: x.h5 is damaged: it has " +
                                                       std::to_string(c.good.size() + n) + " bytes; it must have " +
                                                       size);
    if (n >= c.good.size()) continue;
    std::string tail = c.good;
    std::fill(tail.end() - static_cast<std::ptrdiff_t>(n), tail.end(), '\0');
    if (tail != c.good) CHECK(contains(c.load(tail), "is damaged"));
  }
  CHECK(contains(c.load(c.good.substr(0, 512) + std::string(c.good.size() - 512, '\0')), "is damaged"));
}

TEST_CASE("checkpoint damage: foreign files") {
  const Case c;
  const std::string foreign = "load_checkpoint: x.h5 is not a heed checkpoint";
  CHECK(c.load("#!/bin/sh\n") == foreign);
  CHECK(c.load(std::string(100000, '\0')) == foreign);
  CHECK(c.load("PK\3\4" + std::string(5000, 'x')) == foreign);
  const std::string unsealed =
      "load_checkpoint: x.h5 is HDF5 but not sealed as a heed checkpoint; docs/checkpoint_format.md has the script "
      "that "
      "seals it";
  CHECK(c.load(c.good.substr(512)) == unsealed);
  CHECK(c.load(std::string(512, '\0') + c.good.substr(512)) == unsealed);
  CHECK(c.load(sealed(std::string(3000, 'x'))) ==
        "load_checkpoint: x.h5 is sealed, but its content is not an HDF5 file with a user block of 512 bytes");
  CHECK(c.load(sealed(std::string(512, 'x'))) ==
        "load_checkpoint: x.h5 is sealed, but its content is not an HDF5 file with a user block of 512 bytes");
}

TEST_CASE("checkpoint damage: newer and impossible versions") {
  const Case c;
  CHECK(c.load(sealed(c.good, 2)) ==
        "load_checkpoint: x.h5 has format 2, but this version of heed reads formats up to 1; use a newer version");
  CHECK(c.load(sealed(c.good, 0)) == "load_checkpoint: x.h5 is damaged: its header is invalid");
  CHECK(c.load(sealed(c.good, 1, 1024)) == "load_checkpoint: x.h5 is damaged: its header is invalid");
}

TEST_CASE("checkpoint damage: paths that are not files") {
  const Case c;
  CHECK(c.load_file("none.h5") == "load_checkpoint: there is no file none.h5");
  CHECK(c.load_file("none/none.h5") == "load_checkpoint: there is no file none/none.h5");
  CHECK(c.load_file("good.h5/x.h5") == "load_checkpoint: good.h5/x.h5 cannot be read: Not a directory");
  std::filesystem::create_directory(c.folder.path / "folder");
  CHECK(c.load_file("folder") == "load_checkpoint: folder is a folder; it must be a file");
  REQUIRE(::mkfifo((c.folder.path / "pipe").c_str(), 0600) == 0);
  CHECK(c.load_file("pipe") == "load_checkpoint: pipe is not a regular file");
  CHECK(error_of([] { load_checkpoint("/dev/null"); }) == "load_checkpoint: /dev/null is not a regular file");
  // The kernel reports 4096 bytes for this file, but returns fewer.
  CHECK(error_of([] { load_checkpoint("/sys/devices/system/cpu/online"); }) ==
        "load_checkpoint: /sys/devices/system/cpu/online was truncated while it was read");
  CHECK(error_of([] { load_checkpoint(""); }) == "load_checkpoint: there is no file ");
}

// A line of /proc/self/status, in bytes.
static double status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key + ":")) return 1024 * std::stod(line.substr(key.size() + 1));
  }
  return 0;
}

// Growth of the peak of resident memory while f runs; negative if the system does not report it.
template <class F>
static double peak_growth(F&& f) {
  std::ofstream("/proc/self/clear_refs") << 5;  // resets the peak
  const double before = status_bytes("VmRSS"), peak = status_bytes("VmHWM");
  if (before == 0 || peak > before + 8e6) return -1;
  f();
  return status_bytes("VmHWM") - before;
}

#if !defined(HEED_SANITIZED)  // their allocators keep freed memory
TEST_CASE("checkpoint memory: one image of the file to save, and one in addition to the tensors to load") {
  const TemporaryFolder folder;
  const double size = 96e6;
  Checkpoint c;
  for (int i = 0; i < 8; ++i)
    c.tensors["model/" + std::to_string(i)] = Tensor::ones({static_cast<Index>(size / 4 / 8)});
  const double save = peak_growth([&] { save_checkpoint(folder.path / "a.h5", c); });
  c = {};
  Checkpoint loaded;
  const double load = peak_growth([&] { loaded = load_checkpoint(folder.path / "a.h5"); });
  if (save < 0 || load < 0) {
    MESSAGE("skipped: the peak of resident memory cannot be reset here");
    return;
  }
  CHECK(save < 1.15 * size);
  CHECK(load < 2.15 * size);
  CHECK(loaded.tensors.size() == 8);
}

TEST_CASE("checkpoint memory: a sparse file of 16 TiB is refused with one sentence") {
  const TemporaryFolder folder;
  const std::uint64_t size = (std::uint64_t{1} << 44) - 4096;
  std::string header = test::sealed(std::string(520, '\0'));
  std::memcpy(&header[16], &size, 8);
  const std::filesystem::path file = folder.write("x.h5", header);
  std::error_code refused;
  std::filesystem::resize_file(file, size, refused);
  if (refused) {
    MESSAGE("skipped: this file system has no files of 16 TiB");
    return;
  }
  CHECK(test::error_of([&] { load_checkpoint(file); }) ==
        "load_checkpoint: " + file.string() + " has 17592186040320 bytes, and there is no memory for them");
}
#endif
