// Saving takes memory for one image of the file, loading for one image besides the tensors.
#include <cstring>
#include <heed/data/checkpoint.hpp>

#include "tests/data/checkpoint_model.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/seal.hpp"

using namespace heed;
using test::TemporaryFolder;

// Bytes of a line of /proc/self/status.
static double status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key + ":")) return 1024 * std::stod(line.substr(key.size() + 1));
  }
  return 0;
}

// How far resident memory rises above its start while f runs; negative where the system does not tell.
template <class F>
static double peak_growth(F&& f) {
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew
  const double before = status_bytes("VmRSS"), peak = status_bytes("VmHWM");
  if (before == 0 || peak > before + 8e6) return -1;
  f();
  return status_bytes("VmHWM") - before;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators keep what was freed
TEST_CASE("checkpoint memory: one image of the file to save, one besides the tensors to load") {
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

TEST_CASE("checkpoint memory: a file of 16 TiB, nearly all of it a hole, is one sentence") {
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
