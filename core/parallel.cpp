// The threads of parallel loops: their number, and loops over ranges. scheduler.cpp runs the loops.
#include <heed/core/parallel.hpp>
//
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <heed/core/check.hpp>
#include <heed/core/dry_run.hpp>
#include <heed/core/scheduler.hpp>
#include <locale>
#include <mutex>

namespace heed {
namespace {

std::mutex pool_mutex;
std::atomic<int> current_threads{0};

// The CPU quota of the cgroup in whole threads, rounded up; 0 if there is none. TBB respects affinity, but not quotas.
int cgroup_threads() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");  // the quota, or "max", and the period
  file.imbue(std::locale::classic());
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || period <= 0) return 0;
  return std::max(1, static_cast<int>(quota / period + 0.999));
}

}  // namespace

int available_threads() {
  cpu_set_t set;
  int n = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = std::max(1, CPU_COUNT(&set));
  const int quota = cgroup_threads();
  return quota > 0 ? std::min(n, quota) : n;
}

void set_threads(int n) {
  require(n >= 0, "set_threads: n is ", n, "; it must be 0 (all) or more");
  const std::lock_guard lock(pool_mutex);
  const int requested = n == 0 ? available_threads() : n;
  if (requested == current_threads) return;
  detail::start_threads(requested);
  current_threads = requested;
}

int threads() {
  if (current_threads == 0) set_threads(0);
  return current_threads;
}

namespace detail {

void parallel_ranges(Index n, Index grain, RangeFunction f, void* context) {
  if (in_dry_run()) return;
  const Chunks chunks{n, grain, f, context};
  if (threads() == 1) {
    note_thread();
    for (Index c = 0; c < chunks.count(); ++c) chunks.run(c);
    return;
  }
  run_on_threads(chunks, threads());
}

}  // namespace detail
}  // namespace heed
