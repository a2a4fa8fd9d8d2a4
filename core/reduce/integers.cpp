// Reductions of int32 and bool8, as plain loops over contiguous memory.
#include <algorithm>
#include <atomic>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/reduce/reduce.hpp>
#include <limits>

namespace heed::detail {
namespace {

using Wide = std::int64_t;  // holds the sum of 2^32 int32

constexpr Index kFoldColumns = 1024;  // columns per block
constexpr Index kRunColumns = 64;     // running sums per task

// Calls f(bool{}) or f(std::int32_t{}).
template <class F>
void with_integer(DType dtype, F f) {
  if (dtype == DType::bool8)
    f(bool{});
  else
    f(std::int32_t{});
}

// y[j] = f(... f(f(start, x[0, j]), x[1, j]) ...) for rows that are `step` apart.
template <class T, class F>
void fold_block(const T* x, Index rows, Index step, Index columns, Wide start, F f, Wide* y) {
  if (columns == 1) {  // in a register
    Wide value = start;
    for (Index i = 0; i < rows; ++i) value = f(value, static_cast<Wide>(x[i * step]));
    *y = value;
    return;
  }
  std::fill_n(y, columns, start);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j) y[j] = f(y[j], static_cast<Wide>(x[i * step + j]));
}

// y[outer, inner] = x[outer, n, inner] folded along n; `start` if n is 0. Many rows are folded in blocks, then the
// results of the blocks are folded. outer, inner > 0.
template <class T, class F>
void fold(const T* x, Index outer, Index n, Index inner, Wide start, F f, Wide* y) {
  const Index wide = std::min(inner, kFoldColumns), parts = (inner + kFoldColumns - 1) / kFoldColumns;
  const Index block_rows = grain_for(wide), blocks = std::max<Index>(1, (n + block_rows - 1) / block_rows);
  const auto run = [&](Wide* to) {
    const Index work = wide * std::clamp<Index>(n, 1, block_rows);
    parallel_for_each(outer * blocks * parts, grain_for(work), [&](Index i) {
      const Index part = i % parts, block = i / parts % blocks, o = i / parts / blocks;
      const Index column = part * kFoldColumns, row = block * block_rows;
      fold_block(x + (o * n + row) * inner + column, std::min(block_rows, n - row), inner,
                 std::min(kFoldColumns, inner - column), start, f, to + (o * blocks + block) * inner + column);
    });
  };
  if (blocks == 1) return run(y);
  Scratch<Wide> partial(static_cast<std::size_t>(outer * blocks * inner));
  run(partial.data());
  fold<Wide>(partial.data(), outer, blocks, inner, start, f, y);
}

// The fold of each group, as int32 of g.result_shape(). narrow() converts a result to int32.
template <class F, class Narrow>
Tensor folded(const Grouped& g, Wide start, F f, Narrow narrow) {
  Tensor y = Tensor::empty(g.result_shape(), DType::int32);
  if (y.numel() == 0) return y;
  Scratch<Wide> results(static_cast<std::size_t>(y.numel()));
  with_integer(g.x.dtype(), [&]<class T>(T) { fold(g.x.ptr<T>(), g.outer, g.n, g.inner, start, f, results.data()); });
  // Serial: which of several results an Error shows must not depend on threads.
  std::transform(results.data(), results.data() + y.numel(), y.ptr<std::int32_t>(), narrow);
  return y;
}

// The value as int32. Throws Error if it does not fit.
std::int32_t fitting(const char* op, const char* what, const Where& where, Wide value) {
  constexpr Wide low = std::numeric_limits<std::int32_t>::min(), high = std::numeric_limits<std::int32_t>::max();
  check(value <= high, where, op, ": ", what, " is ", value, "; int32 holds at most ", high,
        ": convert to float64 first");
  check(value >= low, where, op, ": ", what, " is ", value, "; int32 holds at least ", low,
        ": convert to float64 first");
  return static_cast<std::int32_t>(value);
}

// y = the running sums of contiguous x. Returns the first place, in row-major order, whose sum does not fit int32, or
// -1 if all sums fit.
template <class T>
Index run_sums(const T* x, std::int32_t* y, Index outer, Index n, Index inner) {
  constexpr Index none = std::numeric_limits<Index>::max();
  std::atomic<Index> first = none;
  const Index parts = (inner + kRunColumns - 1) / kRunColumns;
  const Index work = std::max<Index>(1, n * std::min(inner, kRunColumns));
  parallel_for_each(outer * parts, grain_for(work), [&](Index task) {
    const Index o = task / parts, from = task % parts * kRunColumns, columns = std::min(kRunColumns, inner - from);
    Wide sums[kRunColumns] = {};
    for (Index i = 0; i < n; ++i) {
      for (Index j = 0; j < columns; ++j) {
        const Index at = (o * n + i) * inner + from + j;
        sums[j] += static_cast<Wide>(x[at]);
        y[at] = static_cast<std::int32_t>(sums[j]);
        if (y[at] == sums[j]) continue;
        Index seen = first.load();
        while (at < seen && !first.compare_exchange_weak(seen, at)) {
        }
      }
    }
  });
  const Index found = first.load();
  return found == none ? -1 : found;
}

}  // namespace

Tensor sum_integers(const char* op, In x, unsigned reduced, bool keepdim) {
  const Grouped g(x, reduced);
  const auto add = [](Wide a, Wide b) { return a + b; };
  return g.to_result(folded(g, 0, add, [&](Wide v) { return fitting(op, "the sum", x.where(), v); }), keepdim);
}

Tensor extreme_integers(bool greatest, const Grouped& g) {
  const auto narrow = [](Wide v) { return static_cast<std::int32_t>(v); };
  if (greatest)
    return folded(
        g, std::numeric_limits<Wide>::min(), [](Wide a, Wide b) { return std::max(a, b); }, narrow);
  return folded(
      g, std::numeric_limits<Wide>::max(), [](Wide a, Wide b) { return std::min(a, b); }, narrow);
}

Tensor find_integers(const Grouped& g, const Tensor& value) {
  Tensor y = Tensor::empty(g.result_shape(), DType::int32);
  if (y.numel() == 0) return y;
  const std::int32_t *x = g.x.ptr<std::int32_t>(), *v = value.ptr<std::int32_t>();
  std::int32_t* at = y.ptr<std::int32_t>();
  parallel_for_each(g.outer, grain_for(g.n * g.inner), [&](Index o) {
    for (Index i = g.n - 1; i >= 0; --i)  // from the end, so that the first place is written last
      for (Index j = o * g.inner; j < (o + 1) * g.inner; ++j)
        if (x[(o * (g.n - 1) + i) * g.inner + j] == v[j]) at[j] = static_cast<std::int32_t>(i);
  });
  return y;
}

Tensor cumsum_integers(const char* op, In x, int axis) {
  const Shape& shape = x.shape();
  const Index n = shape[axis], outer = shape.first(axis).numel(), inner = shape.last(shape.rank() - axis - 1).numel();
  Tensor y = Tensor::empty(shape, DType::int32);
  const Tensor from = x->dense();
  with_integer(x.dtype(), [&]<class T>(T) {
    const auto* values = from.ptr<T>();
    const Index place = run_sums(values, y.ptr<std::int32_t>(), outer, n, inner);
    if (place < 0) return;
    Wide sum = 0;
    for (Index at = place, i = place / inner % n; i >= 0; --i, at -= inner) sum += static_cast<Wide>(values[at]);
    fitting(op, "a running sum", x.where(), sum);
  });
  return y;
}

}  // namespace heed::detail
