#include "examples/support/memory_need.hpp"

#include <unistd.h>

#include <fstream>
#include <heed/core/check.hpp>
#include <heed/core/detail/dry_run.hpp>
#include <heed/core/random.hpp>

namespace heed::examples {

namespace {

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

double held_by_pool() {
  const MemoryUse use = memory_use();
  return static_cast<double>(use.current) + static_cast<double>(use.cached);
}

}  // namespace

TrainingMemory predict_training_memory(const std::function<void()>& step, double checkpoint_bytes) {
  struct Restore {
    Rng rng = default_rng();
    ~Restore() {
      default_rng() = rng;
      release_cached_memory();
    }
  } const restore;
  release_cached_memory();
  const double held = held_by_pool(), resident = resident_bytes();
  reset_peak_memory();
  bool ran = true;
  detail::dry_run([&] {
    try {
      step();
    } catch (const Error&) {
      ran = false;
    }
  });
  if (!ran) return {};
  const MemoryUse use = memory_use();
  return {static_cast<double>(use.peak), resident + held_by_pool() - held + checkpoint_bytes};
}

}  // namespace heed::examples
