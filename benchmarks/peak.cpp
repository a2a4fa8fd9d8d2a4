// Measures limits of the machine.
#include "benchmarks/peak.hpp"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <heed/core/tensor.hpp>
#include <span>
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

// Binds this thread to one processor, if the system permits.
void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Round-trip time of a cache line between two processors, in seconds. Two threads count in turn; each writes its own
// cache line and waits for the other's. The median of short runs, so that an interrupt affects only one run.
double round_trip(int here, int there, double budget) {
  constexpr int kTurns = 50;  // turns per run, so that the cost of the clock is small
  constexpr int kEnd = -1;
  struct alignas(128) Line {  // 128: processors fetch lines in pairs
    std::atomic<int> value{0};  // aligned to 128 since processors fetch lines in pairs
  } ping, pong;
  std::thread answers([&] {
    pin_to(there);
    for (int last = 0;;) {
      const int seen = ping.value.load(std::memory_order_acquire);
      if (seen == kEnd) return;
      if (seen != last) pong.value.store(last = seen, std::memory_order_release);
    }
  });
  std::vector<double> runs;
  std::thread requests([&] {  // a separate thread, since the caller must not stay bound to a processor
    pin_to(here);
    int count = 0;
    const auto turns = [&] {
      for (int i = 0; i < kTurns; ++i) {
        ping.value.store(++count, std::memory_order_release);
        while (pong.value.load(std::memory_order_acquire) != count) {
        }
      }
    };
    turns();  // until both threads have started
    for (const double start = seconds(); runs.empty() || seconds() - start < budget;) {
      const double t = seconds();
      turns();
      runs.push_back((seconds() - t) / kTurns);
    }
    ping.value.store(kEnd, std::memory_order_release);
  });
  requests.join();
  answers.join();
  return median(std::move(runs));
}

}  // namespace

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

DType take_dtype(int& argc, char**& argv) {
  if (argc < 3 || std::strcmp(argv[1], "--dtype") != 0) return DType::float32;
  const bool narrow = std::strcmp(argv[2], "bf16") == 0;
  argc -= 2, argv += 2;
  return narrow ? DType::bfloat16 : DType::float32;
}

double read_seconds(int threads, const std::vector<std::span<const char>>& blocks) {
  typedef std::uint32_t Vector __attribute__((vector_size(16), aligned(4), may_alias));
  constexpr std::size_t line = 64, ahead = 1024;
  std::atomic<std::uint32_t> sums{0};
  // Vector loads and prefetching keep many cache lines in flight, so that memory is the limit and not the core.
  const auto read = [&](std::size_t t) {
    Vector sum[4] = {};
    for (const std::span<const char> block : blocks) {
      const std::size_t lines = block.size() / line, n = static_cast<std::size_t>(threads);
      const char* end = block.data() + lines * (t + 1) / n * line;
      for (const char* p = block.data() + lines * t / n * line; p < end; p += line) {
        __builtin_prefetch(p + ahead, 0, 2);
        for (int i = 0; i < 4; ++i) sum[i] += reinterpret_cast<const Vector*>(p)[i];
      }
    }
    const Vector all = sum[0] + sum[1] + sum[2] + sum[3];
    sums += all[0] + all[1] + all[2] + all[3];  // keeps the compiler from removing the loads
  };
  std::vector<std::thread> others;
  const double start = seconds();
  for (int t = 1; t < threads; ++t) others.emplace_back(read, static_cast<std::size_t>(t));
  read(0);
  for (std::thread& t : others) t.join();
  return seconds() - start;
}

double read_bandwidth(int threads) {
  static const Tensor memory = Tensor::zeros({Index{1} << 28});
  const std::span<const char> all(static_cast<const char*>(memory.raw()), std::size_t{1} << 30);
  double best = read_seconds(threads, {all});
  for (int pass = 0; pass < 4; ++pass) best = std::min(best, read_seconds(threads, {all}));
  return static_cast<double>(all.size()) / best;
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
