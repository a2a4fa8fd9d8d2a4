// The largest and smallest elements along axes, with their positions; any() and all().
#include <algorithm>
#include <bit>
#include <cmath>
#include <heed/autograd/reductions.hpp>
#include <heed/core/index.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/reduce/reduce.hpp>
#include <limits>
#include <numeric>

namespace heed {
namespace {

using detail::Grouped;
using detail::Groups;

void check_not_empty(const char* op, In x, const Groups& g) {
  check(g.n > 0, x.where(), op, ": x is ", x.tensor(), "; the reduced axes must not be empty");
  check(g.n <= std::numeric_limits<std::int32_t>::max(), x.where(), op, ": ", g.n,
        " elements are reduced to one; they must be fewer than 2^31");
}

// Positions over several reduced axes count in row-major order, whatever the order in memory.
Tensor row_major(const Tensor& x, unsigned reduced) { return std::popcount(reduced) > 1 ? x.dense() : x; }

void check_ordered(const char* op, In x) {
  check(x->defined() && x.dtype() != DType::bool8, x.where(), op, ": x is ", x.tensor(),
        "; it must be floating or int32");
}

Tensor extreme_values(kernels::Reduction reduction, const Grouped& g) {
  if (g.x.dtype() == DType::int32) return detail::extreme_integers(reduction == kernels::Reduction::max, g);
  return detail::reduce(reduction, g);
}

Tensor extremum(const char* op, kernels::Reduction reduction, In x, const Axes& axes, bool keepdim) {
  check_ordered(op, x);
  const unsigned reduced = axes.of(op, x);
  check_not_empty(op, x, Groups(x, reduced));  // before anything is copied
  const Grouped g(x, reduced);
  const Tensor values = extreme_values(reduction, g);
  Tensor y = g.to_result(values, keepdim);
  record(op, x.where(), y, {x}, saved(x.tensor(), values),
         [reduced](Grads& d, const Tensor& dy, const Tensor& in, const Tensor& extreme) {
           if (!d.needs(0)) return;
           const Grouped groups(in, reduced);
           Tensor dx = Tensor::empty(groups.shape(), dy.dtype());
           const Tensor each = detail::share(groups, extreme, groups.from_result(dy));
           detail::spread(kernels::Spread::equal, groups, {extreme, {}}, each, dx, false);
           d.add(0, groups.to_input(dx));
         });
  return y;
}

Tensor place_of(const char* op, kernels::Reduction reduction, In x, std::optional<Exactly<int>> axis, bool keepdim) {
  check_ordered(op, x);
  const unsigned reduced = (axis ? Axes(*axis) : Axes()).of(op, x);
  check_not_empty(op, x, Groups(x, reduced));
  note_reads({x});
  const Grouped g(row_major(x, reduced), reduced);
  const Tensor values = extreme_values(reduction, g);
  const Tensor place = x.dtype() == DType::int32 ? detail::find_integers(g, values) : detail::find(g, values);
  return g.to_result(place, keepdim);
}

// any(): true if an element is true (`target`). all(): false if an element is false (not `target`).
Tensor of_mask(const char* op, bool target, In mask, const Axes& axes, bool keepdim) {
  check(mask.dtype() == DType::bool8, mask.where(), op, ": the mask is ", mask.tensor(), "; it must be bool8");
  note_reads({mask});
  const Grouped g(mask, axes.of(op, mask));
  Tensor y = Tensor::full(g.result_shape(), target ? 0 : 1, DType::bool8);
  const bool* x = g.x.ptr<bool>();
  bool* to = y.ptr<bool>();
  parallel_for_each(g.outer, grain_for(g.n * g.inner), [&](Index o) {
    for (Index i = 0; i < g.n; ++i)
      for (Index j = 0; j < g.inner; ++j)
        if (x[(o * g.n + i) * g.inner + j] == target) to[o * g.inner + j] = target;
  });
  return g.to_result(y, keepdim);
}

// The positions of the k best of n values, in order, for each line.
template <class T>
void best_places(const T* x, Index n, Index k, bool largest, Tensor& at) {
  if (at.numel() == 0) return;
  std::int32_t* to = at.ptr<std::int32_t>();
  ThreadScratch<std::int32_t> scratch(n);
  parallel_for_each(at.numel() / k, grain_for(4 * n), [&](Index r) {
    std::int32_t* places = scratch.mine();
    const T* line = x + r * n;
    const auto greater = [line](std::int32_t i, std::int32_t j) {
      return line[i] > line[j] || (std::isnan(line[i]) && !std::isnan(line[j]));
    };
    const auto better = [&](std::int32_t i, std::int32_t j) {
      if (largest ? greater(i, j) : greater(j, i)) return true;
      return i < j && !(largest ? greater(j, i) : greater(i, j));
    };
    std::iota(places, places + n, 0);
    std::partial_sort_copy(places, places + n, to + r * k, to + (r + 1) * k, better);
  });
}

}  // namespace

Tensor max(In x, const Axes& axes, bool keepdim) { return extremum("max", kernels::Reduction::max, x, axes, keepdim); }
Tensor min(In x, const Axes& axes, bool keepdim) { return extremum("min", kernels::Reduction::min, x, axes, keepdim); }
Tensor argmax(In x, std::optional<Exactly<int>> axis, bool keepdim) {
  return place_of("argmax", kernels::Reduction::max, x, axis, keepdim);
}
Tensor argmin(In x, std::optional<Exactly<int>> axis, bool keepdim) {
  return place_of("argmin", kernels::Reduction::min, x, axis, keepdim);
}

Tensor any(In mask, const Axes& axes, bool keepdim) { return of_mask("any", true, mask, axes, keepdim); }
Tensor all(In mask, const Axes& axes, bool keepdim) { return of_mask("all", false, mask, axes, keepdim); }

TopK top_k(In x, Exactly<Index> k, Exactly<int> axis, bool largest) {
  detail::check_float("top_k", x);
  if (x.rank() == 0 && k == 1) {
    const TopK one = top_k(In(x->unsqueeze(0), x.where()), k, axis, largest);
    return {one.values.squeeze(0), one.indices.squeeze(0)};
  }
  const int a = detail::axis_of("top_k", x, axis);
  check(k >= 0 && k <= x.shape()[a], x.where(), "top_k: k is ", Index{k}, " but x is ", x.tensor(),
        "; it must be in [0, ", x.shape()[a], "], the size of axis ", a);
  const Tensor lines = detail::widened(x->transpose(a, -1)).dense();
  Tensor at = Tensor::empty(lines.shape().with(-1, k), DType::int32);
  detail::with_float(lines.dtype(), [&]<class T>(T) { best_places(lines.ptr<T>(), lines.dim(-1), k, largest, at); });
  const Tensor indices = at.transpose(a, -1).dense();
  Tensor y = Tensor::empty(indices.shape(), x.dtype());
  detail::gather(x, a, indices, y);
  record("top_k", x.where(), y, {x}, saved(indices), [a](Grads& d, const Tensor& dy, const Tensor& places) {
    Target t = d.dense(0);
    if (!t) return;
    if (!t.accumulate) t.gradient.zero_();
    detail::scatter_add(t.gradient, a, places, dy);
  });
  return {y, indices};
}

}  // namespace heed
