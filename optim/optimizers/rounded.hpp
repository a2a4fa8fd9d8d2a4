// Rounding of the numbers that ranks send in bfloat16 (RunOptions::communication_dtype). Internal: included by sources
// only.
#pragma once
#include <heed/core/kernels/elementwise/elementwise.hpp>
#include <heed/core/kernels/optimizer.hpp>
#include <heed/optim/optimizers/parameter_group.hpp>
#include <utility>
#include <vector>

namespace heed::detail {

inline const kernels::SentKernels& sent_kernels() { return kernels::optimizer_kernels().sent; }

// Rounds to nearest, ties to even.
inline void round(bfloat16* to, const float* from, Index n) {
  kernels::elementwise_table().bf16.round(&to->bits, from, n);
}
inline void widen(float* to, const bfloat16* from, Index n) {
  kernels::elementwise_table().bf16.widen(to, &from->bits, n);
}

// values += added, the change that another rank's step made.
inline void add_rounded(float* values, const bfloat16* added, Index n) { sent_kernels().add(values, &added->bits, n); }

// Rounds the change of a step: added = rounded(values - old), values = old + added. `added` may be null.
inline void round_step(float* values, const float* old, bfloat16* added, Index n) {
  sent_kernels().step(values, old, added == nullptr ? nullptr : &added->bits, n);
}

// Rounds several arrays in one parallel pass.
class Rounding {
 public:
  void add(bfloat16* to, const float* from, Index count) {
    chunks_.add(static_cast<int>(runs_.size()), count);
    runs_.push_back({to, from});
  }
  void run() const {
    chunks_.run([this](Index, const Chunk& c) {
      const auto& [to, from] = runs_[static_cast<std::size_t>(c.parameter)];
      round(to + c.begin, from + c.begin, c.count);
    });
  }

 private:
  Chunks chunks_;
  std::vector<std::pair<bfloat16*, const float*>> runs_;
};

}  // namespace heed::detail
