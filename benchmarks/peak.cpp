#include "benchmarks/peak.hpp"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <heed/core/tensor.hpp>
#include <thread>
#include <vector>

namespace heed::benchmarks {
namespace {

// The processors that this process may use.
std::vector<int> processors() {
  std::vector<int> found;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return found;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) found.push_back(cpu);
  return found;
}

// Keeps this thread on one processor. Where that is refused, it runs where the system puts it.
void stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Seconds that a cache line takes from one processor to the other and back: two threads count in turn, each in a line
// of its own that the other waits for. The median of short runs, so that an interrupt spoils one of them alone.
double round_trip(int here, int there, double budget) {
  constexpr int kTurns = 50;  // of a run, which the clock then costs little
  constexpr int kEnd = -1;
  struct alignas(128) Line {  // 128: processors fetch lines in pairs
    std::atomic<int> value{0};
  } ping, pong;
  std::thread answers([&] {
    stay_on(there);
    for (int last = 0;;) {
      const int seen = ping.value.load(std::memory_order_acquire);
      if (seen == kEnd) return;
      if (seen != last) pong.value.store(last = seen, std::memory_order_release);
    }
  });
  std::vector<double> runs;
  std::thread asks([&] {  // not the caller, which would stay on its processor afterwards
    stay_on(here);
    int count = 0;
    const auto turns = [&] {
      for (int i = 0; i < kTurns; ++i) {
        ping.value.store(++count, std::memory_order_release);
        while (pong.value.load(std::memory_order_acquire) != count) {
        }
      }
    };
    turns();  // until both threads are there
    for (const double start = seconds(); runs.empty() || seconds() - start < budget;) {
      const double t = seconds();
      turns();
      runs.push_back((seconds() - t) / kTurns);
    }
    ping.value.store(kEnd, std::memory_order_release);
  });
  asks.join();
  answers.join();
  std::nth_element(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2), runs.end());
  return runs[runs.size() / 2];
}

}  // namespace

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

DType take_dtype(int& argc, char**& argv) {
  if (argc < 3 || std::strcmp(argv[1], "--dtype") != 0) return DType::float32;
  const bool narrow = std::strcmp(argv[2], "bf16") == 0;
  argc -= 2, argv += 2;
  return narrow ? DType::bfloat16 : DType::float32;
}

double read_bandwidth(int threads) {
  constexpr Index bytes = Index{1} << 30;
  static const Tensor memory = Tensor::zeros({bytes / 4});
  const auto* data = reinterpret_cast<const std::uint64_t*>(memory.raw());
  const Index words = bytes / 8 / threads / 64 * 64;  // of a thread
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads) * 8);
  const auto read = [&](int t) {
    std::uint64_t sum[8] = {};
    for (const std::uint64_t *p = data + t * words, *end = p + words; p < end; p += 8)
      for (int i = 0; i < 8; ++i) sum[i] += p[i];
    for (int i = 0; i < 8; ++i) sums[static_cast<std::size_t>(t) * 8] += sum[i];
  };
  double best = 0;
  for (int run = 0; run < 4; ++run) {
    std::vector<std::thread> others;
    const double start = seconds();
    for (int t = 1; t < threads; ++t) others.emplace_back(read, t);
    read(0);
    for (std::thread& t : others) t.join();
    best = std::max(best, static_cast<double>(words * 8 * threads) / (seconds() - start));
  }
  for (const std::uint64_t sum : sums)
    if (sum != 0) std::abort();  // the sums are wanted
  return best;
}

double core_to_core(int threads) {
  const std::vector<int> cores = processors();
  const std::size_t n = std::min(cores.size(), static_cast<std::size_t>(threads));
  double farthest = 0;
  for (std::size_t i = 1; i < n; ++i)
    farthest = std::max(farthest, round_trip(cores[0], cores[i], 0.02 / static_cast<double>(n - 1)));
  return farthest;
}

}  // namespace heed::benchmarks
