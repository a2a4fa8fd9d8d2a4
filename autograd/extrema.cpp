#include <bit>
#include <heed/autograd/extrema.hpp>
#include <heed/core/parallel.hpp>
#include <limits>

namespace heed {
namespace {

using detail::Grouped;
using detail::Groups;
using kernels::Reduction;

void check_some(const char* op, In x, const Groups& g) {
  check(g.n > 0, x.where(), op, ": x is ", x.tensor(), "; the axes that are reduced must have elements");
  check(g.n <= std::numeric_limits<std::int32_t>::max(), x.where(), op, ": ", g.n,
        " elements are reduced to one; they must be fewer than 2^31");
}

void check_dtype(const char* op, In x) {
  check(x.dtype() == DType::float32 || x.dtype() == DType::float64, x.where(), op, ": x is ", x.tensor(),
        "; it must be float32 or float64");
}

// dx[outer, place, inner] += dy[outer, inner].
template <class T>
void add_at(const Groups& g, const std::int32_t* place, const T* dy, T* dx) {
  parallel_for(g.outer, std::max<Index>(1, 32768 / g.inner), [&](Index b, Index e) {
    for (Index o = b; o < e; ++o)
      for (Index j = 0; j < g.inner; ++j) dx[(o * g.n + place[o * g.inner + j]) * g.inner + j] += dy[o * g.inner + j];
  });
}

Tensor scatter(const Groups& g, const Tensor& place, const Tensor& dy) {
  Tensor dx = Tensor::zeros(g.shape(), dy.dtype());
  if (dx.numel() == 0) return dx;
  if (dy.dtype() == DType::float64)
    add_at(g, place.ptr<std::int32_t>(), dy.ptr<double>(), dx.ptr<double>());
  else
    add_at(g, place.ptr<std::int32_t>(), dy.ptr<float>(), dx.ptr<float>());
  return dx;
}

// Several reduced axes count in row-major order, whatever their order in memory.
Tensor row_major(const Tensor& x, unsigned reduced) { return std::popcount(reduced) > 1 ? x.dense() : x; }

Tensor extremum(const char* op, Reduction reduction, In x, const Axes& axes, bool keepdim) {
  check_dtype(op, x);
  const unsigned reduced = axes.of(op, x);
  const Grouped g(row_major(x, reduced), reduced);
  check_some(op, x, g);
  const Tensor values = detail::reduce(reduction, g);
  const Tensor place = wants_gradient({x}) ? detail::find(g, values) : Tensor();
  Tensor y = g.to_result(values, keepdim);
  const Groups& groups = g;
  record(op, x.where(), y, {x}, saved(place), [groups](Grads& d, const Tensor& dy, const Tensor& at) {
    if (d.wants(0)) d.add(0, groups.to_input(scatter(groups, at, groups.from_result(dy))));
  });
  return y;
}

Tensor place_of(const char* op, Reduction reduction, In x, std::optional<int> axis, bool keepdim) {
  check_dtype(op, x);
  const unsigned reduced = axis ? 1u << detail::axis_of(op, x, *axis) : (1u << x.rank()) - 1u;
  const Grouped g(row_major(x, reduced), reduced);
  check_some(op, x, g);
  return g.to_result(detail::find(g, detail::reduce(reduction, g)), keepdim);
}

}  // namespace

Tensor max(In x, const Axes& axes, bool keepdim) { return extremum("max", Reduction::max, x, axes, keepdim); }
Tensor min(In x, const Axes& axes, bool keepdim) { return extremum("min", Reduction::min, x, axes, keepdim); }
Tensor argmax(In x, std::optional<int> axis, bool keepdim) {
  return place_of("argmax", Reduction::max, x, axis, keepdim);
}
Tensor argmin(In x, std::optional<int> axis, bool keepdim) {
  return place_of("argmin", Reduction::min, x, axis, keepdim);
}

}  // namespace heed
