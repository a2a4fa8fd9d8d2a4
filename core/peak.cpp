// Measures the peak rates of the machine: floating-point operations and memory bandwidth.
#include <heed/core/kernels/peak.hpp>
#include <heed/core/parallel.hpp>
//
#include <time.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace heed {
namespace {

// Processor time of this thread, in seconds. Time in which the thread waited for a core is not included.
double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Runs work(thread), which returns the amount of work done, on `count` threads that begin together. Returns the sum of
// the threads' rates in the best of `runs` runs. Runs are short, so that in some run no thread shares the units or
// caches of its core with others.
template <class F>
double best_rate(int count, int runs, F&& work) {
  std::vector<double> rates(static_cast<std::size_t>(count * runs));
  std::atomic<int> ready{0};
  const auto on_thread = [&](int thread) {
    work(thread);
    ready.fetch_add(1);
    while (ready.load() < count) std::this_thread::yield();
    for (int run = 0; run < runs; ++run) {
      const double begin = processor_seconds();
      const double done = work(thread);
      rates[static_cast<std::size_t>(run * count + thread)] = done / (processor_seconds() - begin);
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < count; ++thread) others.emplace_back(on_thread, thread);
  on_thread(0);
  for (std::thread& t : others) t.join();
  double best = 0;
  for (int run = 0; run < runs; ++run) {
    double sum = 0;
    for (int thread = 0; thread < count; ++thread) sum += rates[static_cast<std::size_t>(run * count + thread)];
    best = std::max(best, sum);
  }
  return best;
}

}  // namespace

double peak_flops(DType operands, int on_threads) {
  const kernels::PeakTable& loops = kernels::peak_table();
  kernels::PeakLoop loop = operands == DType::float64 ? loops.float64 : loops.float32;
  if (operands == DType::bfloat16 && kernels::bf16_peak_loop() != nullptr) loop = kernels::bf16_peak_loop();
  constexpr long kRounds = 100000;  // makes a short run: see best_rate()
  constexpr int kRuns = 50;
  return best_rate(on_threads > 0 ? on_threads : threads(), kRuns, [&](int) { return loop(kRounds); });
}

double peak_bandwidth() {
  constexpr std::size_t kAll = std::size_t{128} << 20;  // larger than most caches
  const int count = threads();
  const std::size_t size = std::max(kAll / static_cast<std::size_t>(2 * count), std::size_t{1} << 20);
  std::vector<char> memory(2 * size * static_cast<std::size_t>(count));  // memory_use() must not count it
  return best_rate(count, 8, [&](int thread) {
    char* to = memory.data() + 2 * size * static_cast<std::size_t>(thread);
    std::memcpy(to, to + size, size);
    return 2.0 * static_cast<double>(size);
  });
}

}  // namespace heed
