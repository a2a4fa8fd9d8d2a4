// The memory pool: alignment, reuse, statistics, and running out of memory.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <heed/core/memory.hpp>
#include <heed/core/tensor.hpp>
#include <iostream>
#include <thread>
#include <vector>

#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/run.hpp"

using namespace heed;
using test::contains;
using test::error_of;

TEST_CASE("pool: blocks are aligned, writable to the last byte and apart from each other, at every size") {
  std::vector<std::size_t> sizes = {0};
  for (std::size_t power = 0; power < 24; ++power)
    for (const int d : {-1, 0, 1}) sizes.push_back((std::size_t{1} << power) + static_cast<std::size_t>(d));
  for (std::size_t s = 1; s < 1200; s += 37) sizes.push_back(s);
  struct Block {
    unsigned char* data;
    std::size_t bytes;
  };
  std::vector<Block> blocks;
  const MemoryUse before = memory_use();
  std::size_t requested = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    auto* p = static_cast<unsigned char*>(pool::allocate(sizes[i]));
    CHECK(reinterpret_cast<std::uintptr_t>(p) % 64 == 0);
    std::memset(p, static_cast<int>(i % 251), sizes[i]);
    blocks.push_back({p, sizes[i]});
    requested += sizes[i];
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    bool kept = true;
    for (std::size_t k = 0; k < blocks[i].bytes; ++k) kept = kept && blocks[i].data[k] == i % 251;
    CHECK(kept);
  }
  const std::size_t used = memory_use().current - before.current;
  CHECK(used >= requested);
  CHECK(used <= requested + requested / 4 + 64 * sizes.size());
  for (const Block& b : blocks) pool::deallocate(b.data, b.bytes);
  CHECK(memory_use().current == before.current);
}

TEST_CASE("pool: a freed block serves the next request of its size, without a call of the system") {
  release_cached_memory();
  CHECK(memory_use().cached == 0);
  { const Tensor x = Tensor::empty({1000}); }
  const MemoryUse warm = memory_use();
  CHECK(warm.cached >= 4000);
  for (int i = 0; i < 50; ++i) {
    const Tensor x = Tensor::empty({1000 - i % 3});
    CHECK(memory_use().current > warm.current);
  }
  CHECK(memory_use().system_allocations == warm.system_allocations);
  CHECK(memory_use().current == warm.current);
  CHECK(memory_use().cached == warm.cached);
  release_cached_memory();
  CHECK(memory_use().cached == 0);
  const Tensor again = Tensor::empty({1000});
  CHECK(memory_use().system_allocations > warm.system_allocations);
}

TEST_CASE("pool: what memory holds that nobody wrote, for the case below") {
  const void* last = nullptr;
  {
    const Tensor x = Tensor::full({1000}, 3);
    last = x.ptr<float>();
  }
  const Tensor y = Tensor::empty({1000});
  REQUIRE(static_cast<const void*>(y.ptr<float>()) == last);
  bool all_nan = true;
  for (const double v : y.to_vector<double>()) all_nan = all_nan && std::isnan(v);
  std::cout << "pool: " << (all_nan ? "NaN" : "the last owner's") << "\n";
}

TEST_CASE("pool: new memory is full of NaN if HEED_FILL_MEMORY is 1, and by default under the address sanitizer") {
#if defined(HEED_SANITIZED_ADDRESS)
  const std::string by_default = "NaN";
#else
  const std::string by_default = "the last owner's";
#endif
  const std::string self = test::emulator() + test::quoted(std::filesystem::read_symlink("/proc/self/exe").string()) +
                           " --test-case='pool: what memory holds*'";
  const auto with = [&](const std::string& value) {
    return test::run("HEED_FILL_MEMORY=" + value + " " + self).output;
  };
  CHECK(contains(with("1"), "pool: NaN\n"));
  CHECK(contains(with("0"), "pool: the last owner's\n"));
  CHECK(contains(with(""), "pool: " + by_default + "\n"));
}

#if defined(__linux__) && !defined(HEED_SANITIZED_ADDRESS)
TEST_CASE("pool: blocks of every size give their pages back to the system, and serve again") {
  const auto resident = [] {
    std::ifstream file("/proc/self/statm");
    std::size_t all = 0, pages = 0;
    file >> all >> pages;
    return pages * 4096;
  };
  for (const std::size_t bytes :
       {std::size_t{16} << 10, std::size_t{100} << 10, std::size_t{1} << 20, std::size_t{4} << 20}) {
    CAPTURE(bytes);
    const std::size_t count = (std::size_t{64} << 20) / bytes;
    std::vector<unsigned char*> blocks(count);
    const auto take = [&](int value) {
      for (auto& p : blocks) p = static_cast<unsigned char*>(pool::allocate(bytes)), std::memset(p, value, bytes);
      bool kept = true;
      for (const auto* p : blocks) kept = kept && p[0] == value && p[bytes / 2] == value && p[bytes - 1] == value;
      CHECK(kept);
    };
    const auto give_back = [&] {
      for (auto* p : blocks) pool::deallocate(p, bytes);
    };
    take(1);
    const std::size_t full = resident();
    give_back();
    release_cached_memory();
    CHECK(resident() + (std::size_t{48} << 20) < full);
    const std::size_t requested = memory_use().system_allocations;
    take(2);
    CHECK(memory_use().system_allocations == requested + count);
    give_back();
    release_cached_memory();
  }
}
#endif

TEST_CASE("pool: the peak is the maximum use since its reset") {
  reset_peak_memory();
  const std::size_t start = memory_use().peak;
  CHECK(start == memory_use().current);
  { const Tensor a = Tensor::empty({1 << 18}), b = Tensor::empty({1 << 18}); }
  const Tensor c = Tensor::empty({1 << 18});
  CHECK(memory_use().peak >= start + (2u << 20));
  CHECK(memory_use().peak < start + (3u << 20));
  reset_peak_memory();
  CHECK(memory_use().peak == memory_use().current);
}

TEST_CASE("pool: more than the system has is an Error, which changes no count") {
  const char* expected = "memory: cannot allocate 4611686018427387904 bytes; ";
  const std::string of_tensor = error_of([] { Tensor::empty({Index{1} << 60}); });
  CHECK(contains(of_tensor, expected));
  CHECK(contains(of_tensor, " bytes are in use by tensors"));
  reset_peak_memory();
  const MemoryUse before = memory_use();
  CHECK(contains(error_of([] { pool::allocate(std::size_t{1} << 62); }), expected));
  CHECK(memory_use().current == before.current);
  CHECK(memory_use().peak == before.peak);
  CHECK(memory_use().system_allocations == before.system_allocations);
}

TEST_CASE("pool: threads allocate and free at the same time") {
  const std::size_t before = memory_use().current;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &wrong] {
      for (int i = 0; i < 2000; ++i) {
        Scratch<int> scratch(static_cast<std::size_t>(1 + i % 100));
        std::fill_n(scratch.data(), scratch.size(), t);
        for (std::size_t k = 0; k < scratch.size(); ++k) wrong += scratch[k] == t ? 0 : 1;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(memory_use().current == before);
}
