// Numbers as ranks send them each other where that is in bfloat16 (RunOptions::communication_dtype). Internal: included
// by sources only.
#pragma once
#include <heed/core/kernels/elementwise.hpp>
#include <heed/core/kernels/optimizer.hpp>
#include <heed/optim/parameter_group.hpp>
#include <utility>
#include <vector>

namespace heed::detail {

inline const kernels::SentKernels& sent_kernels() { return kernels::optimizer_kernels().sent; }

// Each to the nearest, of two the one whose last bit is 0.
inline void round(bfloat16* to, const float* from, Index n) {
  kernels::elementwise_table().bf16.round(&to->bits, from, n);
}
inline void widen(float* to, const bfloat16* from, Index n) {
  kernels::elementwise_table().bf16.widen(to, &from->bits, n);
}

// values += added: what another rank's step adds to them.
inline void add_rounded(float* values, const bfloat16* added, Index n) { sent_kernels().add(values, &added->bits, n); }

// What a step added to values that were `old`, rounded: `added`, unless null, and values = old + added.
inline void round_step(float* values, const float* old, bfloat16* added, Index n) {
  sent_kernels().step(values, old, added == nullptr ? nullptr : &added->bits, n);
}

// Runs of any length, which are rounded together.
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
