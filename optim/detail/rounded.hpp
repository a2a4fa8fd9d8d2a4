// Numbers as ranks send them each other where that is in bfloat16 (RunOptions::communication_dtype). Internal: included
// by sources only.
#pragma once
#include <heed/core/kernels/elementwise.hpp>
#include <heed/core/kernels/optimizer.hpp>
#include <heed/optim/parameter_group.hpp>
#include <utility>
#include <vector>

namespace heed::detail {

// Each to the nearest, of two the one whose last bit is 0.
inline void round(bfloat16* to, const float* from, Index n) {
  if (n > 0) kernels::elementwise_table().bf16.round(&to->bits, from, n);
}
inline void widen(float* to, const bfloat16* from, Index n) {
  if (n > 0) kernels::elementwise_table().bf16.widen(to, &from->bits, n);
}

// x = rounded x, of a chunk.
inline void round_in_place(float* x, Index n) {
  std::uint16_t rounded[Chunks::kLongest];
  const kernels::Bf16Kernels& bf16 = kernels::elementwise_table().bf16;
  bf16.round(rounded, x, n);
  bf16.widen(x, rounded, n);
}

// values += added, of a chunk: what another rank's step adds to them.
inline void add_rounded(float* values, const bfloat16* added, Index n) {
  float wide[Chunks::kLongest];
  widen(wide, added, n);
  kernels::optimizer_kernels().f32.add(values, wide, n);
}

// What a step added to a chunk of values that were `old`, rounded: `added`, unless null, and values = old + added.
inline void round_step(float* values, const float* old, bfloat16* added, Index n) {
  float step[Chunks::kLongest];
  for (Index i = 0; i < n; ++i) step[i] = values[i] - old[i];
  if (added != nullptr) round(added, step, n);
  round_in_place(step, n);
  for (Index i = 0; i < n; ++i) values[i] = old[i] + step[i];
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
