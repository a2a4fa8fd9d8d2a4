// Predicts the memory of training by a dry run of one step.
#include "examples/support/memory_need.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/check.hpp>
#include <heed/core/dry_run.hpp>
#include <heed/core/mode.hpp>
#include <heed/core/random.hpp>
#include <heed/optim/ranks/ranks.hpp>

namespace heed::examples {

namespace {

// Memory besides tensors: code and libraries that the run uses first, and pages of a checkpoint being written. Its
// tensors are written without a copy.
constexpr double kProgram = 10 << 20, kWritten = 24 << 20;

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

double bytes_of(const Tensor& x) { return static_cast<double>(heed::bytes_of(x.dtype(), x.numel())); }

double held_by_pool() {
  const MemoryUse use = memory_use();
  return static_cast<double>(use.current) + static_cast<double>(use.cached);
}

}  // namespace

TrainingMemory predict_training_memory(const std::vector<NamedParameter>& parameters, const Optimizer& optimizer,
                                       const RunOptions& options, const std::function<Tensor()>& loss,
                                       const std::function<void()>& evaluation) {
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
      const MatmulPrecision scope(options.precision);
      {
        Tape tape;
        tape.backward(loss());
      }
      const Evaluation mode;
      if (evaluation) evaluation();
    } catch (const Error&) {
      ran = false;
    }
  });
  for (const NamedParameter& p : parameters) p.parameter->zero_grad();
  if (!ran) return {};
  double checkpoint = 0, let_go = 0, sums = 0;
  for (const NamedParameter& p : parameters) {
    checkpoint += bytes_of(*p.parameter);
    if (p.parameter->requires_grad()) sums += bytes_of(*p.parameter);
  }
  const double ranks = options.ranks.communicator == nullptr ? 1 : options.ranks.communicator->size();
  sums *= std::floor(std::log2(std::max(1.0, static_cast<double>(options.shards) / ranks)));  // of the shards before
  for (const NamedTensor& state : optimizer.state()) checkpoint += bytes_of(state.tensor);
  if (options.checkpoint.loaded)
    for (const auto& [name, tensor] : options.checkpoint.loaded->tensors) let_go += bytes_of(tensor);
  const double step = held_by_pool() - held + sums, files = kProgram + std::min(checkpoint, kWritten);
  return {static_cast<double>(memory_use().peak) + sums, std::max(resident, resident - let_go + step) + files};
}

}  // namespace heed::examples
