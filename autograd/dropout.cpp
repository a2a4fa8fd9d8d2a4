// dropout(), whose mask is computed again in backward.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <heed/autograd/elementwise.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/kernels/random/dropout.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <heed/core/tensor.hpp>

namespace heed {
namespace {

constexpr Index kGroup = kernels::kDropoutGroup;

// y (+)= mask * scale * x. The derivative is the same function. A scale of 0 drops all elements, also those that a mask
// keeps.
void apply(const kernels::DropoutMask& mask, double scale, const Tensor& x, const Tensor& y, bool accumulate) {
  const Index n = x.numel();
  if (scale == 0) {
    if (!accumulate) std::memset(y.raw(), 0, static_cast<std::size_t>(n) * size_of(y.dtype()));
    return;
  }
  parallel_for((n + kGroup - 1) / kGroup, 256, [&](Index first, Index last) {
    const Index begin = first * kGroup, size = std::min(n, last * kGroup) - begin;
    detail::with_float(x.dtype(), [&]<class T>(T) {
      kernels::of<T>(kernels::dropout_table())(mask, first, size, x.ptr<T>() + begin, static_cast<T>(scale),
                                               y.ptr<T>() + begin, accumulate);
    });
  });
}

}  // namespace

Tensor dropout(In x, double p) {
  check(x->defined() && (x.dtype() == DType::float32 || x.dtype() == DType::float64), x.where(), "dropout: x is ",
        x.tensor(), "; it must be float32 or float64");
  check(p >= 0 && p <= 1, x.where(), "dropout: p is ", p, "; it must be in [0, 1]");
  if (p == 0 || !is_training()) return x;
  Rng& rng = default_rng();
  const auto groups = static_cast<std::uint64_t>((x.numel() + kGroup - 1) / kGroup);
  const std::uint64_t position = rng.advance(groups * kernels::kDropoutBlocks);
  const auto threshold = static_cast<std::uint32_t>(std::min(std::round(p * 0x1p32), 0x1p32 - 1));
  const kernels::DropoutMask mask = {rng.seed(), rng.stream(), position, threshold};
  const double scale = dropout_scale(p);
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  apply(mask, scale, x->dense(), y, false);
  record("dropout", x.where(), y, {x}, saved(), [mask, scale](Grads& d, const Tensor& dy) {
    if (const Target dx = d.dense(0)) apply(mask, scale, dy, dx.gradient, dx.accumulate);
  });
  return y;
}

}  // namespace heed
