// Rounding of the numbers that ranks send in bfloat16 (RankOptions::dtype). Private to optim/ranks.
#pragma once
#include <heed/core/kernels/elementwise/elementwise.hpp>
#include <heed/core/kernels/optimizer.hpp>
#include <heed/optim/optimizers/optimizer.hpp>
#include <vector>

namespace heed::detail {

inline const kernels::SentKernels& sent_kernels() { return kernels::optimizer_table().sent; }

// An array to round.
struct Rounding {
  bfloat16* to;
  const float* from;
  Index count;
};
// Rounds several arrays in one parallel pass, to nearest, ties to even.
inline void round(const std::vector<Rounding>& arrays) {
  for_each_chunk(arrays, [](const Rounding& a, Index first, Index n) {
    kernels::elementwise_table().bf16.round(&a.to[first].bits, a.from + first, n);
  });
}

// values += added, the change that another rank's step made.
inline void add_rounded(float* values, const bfloat16* added, Index n) { sent_kernels().add(values, &added->bits, n); }

// Rounds the change of a step: added = rounded(values - old), values = old + added. `added` may be null.
inline void round_step(float* values, const float* old, bfloat16* added, Index n) {
  sent_kernels().step(values, old, added == nullptr ? nullptr : &added->bits, n);
}

// A step of an optimizer in parts. If it rounds, the change of each weight is rounded to bfloat16.
class RoundedStep {
 public:
  // Begins the step, and updates the parameters that are updated as a whole.
  RoundedStep(Optimizer& optimizer, double gradient_scale, bool rounds);
  bool has_work(std::size_t parameter) const { return rounds_ || !(*updated_)[parameter]; }  // for update()
  // Updates a chunk, on any thread. If the step rounds, `added` receives the rounded changes. It may be null.
  void update(const Chunk& chunk, bfloat16* added) const;
  void end() { optimizer_.end_step(); }

 private:
  Optimizer& optimizer_;
  double gradient_scale_;
  bool rounds_;
  std::vector<Tensor> old_;           // [parameter] if the step rounds: values before the step, of whole parameters
  const std::vector<bool>* updated_;  // [parameter]: whether it was updated as a whole
};

}  // namespace heed::detail
