// pad(): elements of one value before and after the elements of x.
#include <algorithm>
#include <heed/autograd/convolution.hpp>
#include <heed/core/dtype.hpp>

namespace heed {
namespace {

// The elements that x and its padded copy share: along axis i, `size[i]` elements from `in_x[i]` and `in_y[i]` on.
struct Shared {
  Shape size, in_x, in_y;

  Tensor of(const Tensor& x, const Shape& begin) const {
    Tensor part = x;
    for (int a = 0; a < x.rank(); ++a) part = part.slice(a, begin[a], begin[a] + size[a]);
    return part;
  }
};

// Adds an axis with these amounts before and after it. Returns the size of the padded axis.
Index add_axis(In x, Index size, Index before, Index after, Shared& shared) {
  constexpr Index kMax = Index{1} << 61;
  check(before > -kMax && before < kMax && after > -kMax && after < kMax && size + before + after >= 0, x.where(),
        "pad: x is ", x.tensor(), " and the amounts ", before, " and ", after, " are added to an axis of ", size,
        "; the result must have a size of 0 or more, below 2^62");
  const Index first = std::clamp<Index>(-before, 0, size), last = std::clamp(size + after, first, size);
  shared.size.push_back(last - first);
  shared.in_x.push_back(first);
  shared.in_y.push_back(std::max<Index>(0, before));
  return size + before + after;
}

}  // namespace

Tensor pad(In x, const Shape& amounts, double value) {
  check(x->defined() && !is_quantized(x.dtype()), x.where(), "pad: x is ", x.tensor(), "; it must not be quantized");
  check(amounts.rank() % 2 == 0 && amounts.rank() <= 2 * x.rank(), x.where(), "pad: x is ", x.tensor(),
        " and the amounts are ", amounts, "; give pairs, before and after, from the last axis, at most one per axis");
  check(holds(x.dtype(), value), x.where(), "pad: x is ", x.tensor(), " and the value is ", value, "; ", x.dtype(),
        " must hold it exactly");
  Shared shared;
  Shape shape;
  for (int a = 0; a < x.rank(); ++a) {
    const int at = 2 * (x.rank() - 1 - a);  // the pairs begin with the last axis
    const bool given = at < amounts.rank();
    shape.push_back(add_axis(x, x.dim(a), given ? amounts[at] : 0, given ? amounts[at + 1] : 0, shared));
  }
  Tensor y = Tensor::full(shape, value, x.dtype());
  Tensor inside = shared.of(y, shared.in_y);
  detail::copy_values(inside, shared.of(x->detach(), shared.in_x));
  record("pad", x.where(), y, {x}, saved(), [shared](Grads& d, const Tensor& dy) {
    const Tensor g = shared.of(dy, shared.in_y);
    const Target dx = d.strided(0);
    if (!dx) return;
    Tensor all = dx.gradient;
    if (!dx.accumulate && g.shape() != all.shape()) all.zero_();
    Tensor part = shared.of(all, shared.in_x);
    dx.accumulate ? detail::add_values(part, g) : detail::copy_values(part, g);
  });
  return y;
}

}  // namespace heed
