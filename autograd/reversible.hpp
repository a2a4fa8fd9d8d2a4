// Reversible residual blocks: stacks of layers whose activations are computed again from the result.
//
// Example:
//
//   Rng rng(1);
//   const Linear a(4, 4, rng), b(4, 4, rng);
//   const ReversibleBlock block{[&](In x) { return tanh(a(x)); }, [&](In x) { return b(x); }};
//   const Tensor x = rng.normal({3, 4});
//   const Tensor y = reversible({block, block}, x, x);  // [2, 3, 4]: y[0] and y[1]
#pragma once
#include <functional>
#include <heed/core/tensor.hpp>
#include <vector>

namespace heed {

// The functions of a block. Their results have the shape and dtype of their input.
struct ReversibleBlock {
  std::function<Tensor(const Tensor&)> f = {};  // of x2
  std::function<Tensor(const Tensor&)> g = {};  // of y1
};

// The last (y1, y2) as [2, ...], where the x1 and x2 of a block are the y1 and y2 of the block before it, and
//
//   y1 = x1 + f(x2)      y2 = x2 + g(y1)
//
// (Gomez, Ren, Urtasun, Grosse, "The reversible residual network", 2017; Reformer: Kitaev, Kaiser, Levskaya, 2020.)
// Backward computes x2 = y2 - g(y1) and x1 = y1 - f(x2), and runs f and g a second time on an inner tape, as
// recompute() does. So only the last y1 and y2 are kept, for any number of blocks. f and g follow the rules of
// recompute(): gradients flow to x1, x2 and to parameters, and random numbers are from default_rng().
//
// x1 and x2 are float32 or bfloat16, and sums are float64 in multiples of 2^-36: below 2^17 they are exact, so that
// both runs have the same bits. Backward throws Error if they differ. float64 sums are rounded, so that gradients agree
// to rounding with those of a tape that keeps all values. Throws Error for other dtypes or shapes.
Tensor reversible(const std::vector<ReversibleBlock>& blocks, In x1, In x2);

}  // namespace heed
