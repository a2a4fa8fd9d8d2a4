// parallel_for and its threads: coverage, chunks, slots and exceptions.
#include <atomic>
#include <chrono>
#include <heed/core/check.hpp>
#include <heed/core/parallel.hpp>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

struct Threads {  // sets the number of threads within the scope
  explicit Threads(int n) { set_threads(n); }
  ~Threads() { set_threads(0); }
};

using Chunk = std::pair<Index, Index>;

std::set<Chunk> chunks_of(Index n, Index grain) {
  std::mutex mutex;
  std::set<Chunk> seen;
  parallel_for(n, grain, [&](Index b, Index e) {
    const std::lock_guard lock(mutex);
    CHECK(seen.emplace(b, e).second);
  });
  return seen;
}

}  // namespace

TEST_CASE("parallel: the same chunks of a fixed grain at any number of threads") {
  for (const int n : {1, 2, 3, 8}) {
    const Threads scope(n);
    CHECK(threads() == n);
    CHECK(chunks_of(10, 3) == std::set<Chunk>{{0, 3}, {3, 6}, {6, 9}, {9, 10}});
    CHECK(chunks_of(9, 3) == std::set<Chunk>{{0, 3}, {3, 6}, {6, 9}});
    CHECK(chunks_of(3, 3) == std::set<Chunk>{{0, 3}});
    CHECK(chunks_of(1, 100) == std::set<Chunk>{{0, 1}});
    CHECK(chunks_of(0, 3).empty());
    CHECK(chunks_of(-5, 3).empty());
    CHECK(chunks_of(1000, 1).size() == 1000);
  }
}

TEST_CASE("parallel: one chunk runs on the calling thread, many on several") {
  const Threads scope(2);
  threads_seen();
  std::thread::id ran;
  parallel_for(5, 5, [&](Index, Index) { ran = std::this_thread::get_id(); });
  CHECK(ran == std::this_thread::get_id());
  CHECK(threads_seen() == 0);
  std::atomic<int> inside{0};
  // On a busy machine the second thread may start late.
  int seen = 0;
  const auto start = std::chrono::steady_clock::now();
  while (seen < 2 && std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
    inside = 0;
    parallel_for(2, 1, [&](Index, Index) {
      ++inside;
      for (int i = 0; i < 100 && inside < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    seen = threads_seen();
  }
  CHECK(seen == 2);
}

TEST_CASE("parallel: inside of parallel work, and from several threads") {
  const Threads scope(3);
  std::vector<int> sums(50);
  std::vector<std::thread> callers;
  for (std::size_t t = 0; t < 50; t += 10) {
    callers.emplace_back([&sums, t] {
      parallel_for(10, 1, [&](Index b, Index e) {
        for (; b < e; ++b) {
          std::atomic<int> sum{0};
          parallel_for(100, 7, [&](Index from, Index to) { sum += static_cast<int>(to - from); });
          sums[t + static_cast<std::size_t>(b)] = sum;
        }
      });
    });
  }
  for (std::thread& t : callers) t.join();
  for (const int s : sums) CHECK(s == 100);
}

TEST_CASE("parallel: an exception reaches the caller, and work goes on after it") {
  for (const int n : {1, 4}) {
    const Threads scope(n);
    CHECK(error_of([] { parallel_for(100, 1, [](Index b, Index) { require(b != 57, "chunk ", b); }); }) == "chunk 57");
    CHECK(chunks_of(4, 2).size() == 2);
  }
}

TEST_CASE("parallel: threads that stay awake run the same chunks, each once") {
  for (const int n : {1, 2, 3, 8}) {
    const Threads scope(n);
    const AwakeThreads awake;
    CHECK(chunks_of(10, 3) == std::set<Chunk>{{0, 3}, {3, 6}, {6, 9}, {9, 10}});
    CHECK(chunks_of(1000, 1).size() == 1000);
    std::vector<int> runs(64);
    for (int loop = 0; loop < 3000; ++loop) {
      if (loop % 1000 == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the other threads have fallen
                                                                    // asleep
      const AwakeThreads again;
      parallel_for(64, 1 + loop % 7, [&](Index b, Index e) {
        for (; b < e; ++b) ++runs[static_cast<std::size_t>(b)];
      });
    }
    for (const int r : runs) CHECK(r == 3000);
  }
}

TEST_CASE("parallel: threads that stay awake are seen, have slots of their own, and pass exceptions on") {
  const Threads scope(3);
  const AwakeThreads awake;
  threads_seen();
  int seen = 0;
  const auto start = std::chrono::steady_clock::now();
  while (seen < 3 && std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
    std::atomic<int> inside{0}, clashes{0};
    std::atomic<bool> taken[3] = {};
    parallel_for(30, 1, [&](Index, Index) {
      ++inside;
      if (taken[thread_slot()].exchange(true)) ++clashes;
      for (int i = 0; i < 10 && inside < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      taken[thread_slot()] = false;
    });
    CHECK(clashes == 0);
    seen = threads_seen();
  }
  CHECK(seen == 3);
  for (int i = 0; i < 200; ++i)
    CHECK(error_of([] { parallel_for(100, 1, [](Index b, Index) { require(b != 57, "chunk ", b); }); }) == "chunk 57");
  CHECK(chunks_of(4, 2).size() == 2);
}

TEST_CASE("parallel: threads stay awake for one of several callers, loops inside of loops, other numbers of threads") {
  const Threads scope(3);
  std::vector<std::atomic<int>> sums(5);
  std::vector<std::thread> callers;
  for (std::size_t t = 0; t < 5; ++t)
    callers.emplace_back([&sums, t] {
      const AwakeThreads awake;
      for (int loop = 0; loop < 50; ++loop)
        parallel_for(10, 1, [&](Index b, Index e) {
          for (; b < e; ++b)
            parallel_for(100, 7, [&](Index from, Index to) { sums[t] += static_cast<int>(to - from); });
        });
    });
  for (std::thread& t : callers) t.join();
  for (const auto& sum : sums) CHECK(sum == 50 * 10 * 100);
  const AwakeThreads awake;
  for (const int n : {2, 4, 1, 3}) {
    set_threads(n);
    CHECK(chunks_of(1000, 1).size() == 1000);
  }
}

TEST_CASE("parallel: chunks of a loop that run at once have different slots while other threads run loops, too") {
  const Threads two(2);
  std::atomic<int> shared{0};
  const auto caller = [&](int pause) {
    for (int round = 0; round < 500; ++round) {
      const AwakeThreads awake;
      for (int loop = 0; loop < 20; ++loop) {
        if (loop % 7 == pause) std::this_thread::sleep_for(std::chrono::microseconds(100 * (1 + pause)));
        std::atomic<int> inside[2] = {};
        parallel_for(8, 1, [&](Index, Index) {
          std::atomic<int>& slot = inside[thread_slot()];
          if (++slot > 1) ++shared;
          for (const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(2);
               std::chrono::steady_clock::now() < end;) {
          }
          --slot;
        });
      }
    }
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) callers.emplace_back(caller, i);
  for (std::thread& t : callers) t.join();
  CHECK(shared == 0);
}

TEST_CASE("parallel: the number of threads") {
  CHECK(available_threads() >= 1);
  set_threads(5);
  CHECK(threads() == 5);
  set_threads(0);
  CHECK(threads() == available_threads());
  CHECK(contains(error_of([] { set_threads(-1); }), "set_threads: n is -1; it must be 0 (all) or more"));
  CHECK(threads() == available_threads());
}

TEST_CASE("parallel: the machine's measured peaks do not drop while other threads are busy") {
  const double idle = peak_flops(), memory = peak_bandwidth();
  CHECK(idle > 1e8);
  CHECK(memory > 1e8);
  CHECK(peak_flops(DType::float32, 1) > 0.4 * idle / threads());
  CHECK(peak_flops(DType::bfloat16) > 0.4 * idle);  // bfloat16 dot products, or else float32 arithmetic
  CHECK(peak_flops(DType::float64) < 0.8 * idle);
  std::atomic<bool> over{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 10 * available_threads(); ++i)
    others.emplace_back([&] {
      while (!over.load(std::memory_order_relaxed)) {
      }
    });
  const double busy = peak_flops();
  over = true;
  for (std::thread& t : others) t.join();
  CHECK(busy > 0.4 * idle);  // by wall time it would be a tenth; two threads that share a core's units halve it
}
