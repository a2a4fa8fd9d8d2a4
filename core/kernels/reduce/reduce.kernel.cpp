// Reductions of rows and columns, the place of an extremum, and the derivatives that spread a number over a row.
#include "reduce.hpp"

#include "tree.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// Calls body(f) with f(x, c), the function that is summed.
template <class T, class Body>
inline void with_map(Reduction op, Body body) {
  using B = Batch<T>;
  switch (op) {
    case Reduction::abs: return body([](B x, B) { return abs(x); });
    case Reduction::square: return body([](B x, B) { return x * x; });
    case Reduction::difference: return body([](B x, B c) { return x - c; });
    case Reduction::deviation: return body([](B x, B c) { return (x - c) * (x - c); });
    case Reduction::exp: return body([](B x, B c) { return exp(x - c); });
    case Reduction::equal: return body([](B x, B c) { return select((x == c) | isnan(x), B(T(1)), B(T(0))); });
    default: return body([](B x, B) { return x; });
  }
}

template <class T>
void rows(Reduction op, const T* x, int64_t stride, int64_t rows, int64_t n, const T* center, T* y) {
  const auto each = [&](auto reduce) {
    for (int64_t r = 0; r < rows; ++r) y[r] = reduce(x + r * stride, r);
  };
  if (op == Reduction::max) {
    each([n](const T* p, int64_t) { return row_max<T>(n, [p](int64_t i, auto at) { return at.load(p + i); }); });
  } else if (op == Reduction::max_abs) {
    each([n](const T* p, int64_t) { return row_max<T>(n, [p](int64_t i, auto at) { return abs(at.load(p + i)); }); });
  } else if (op == Reduction::min) {
    each([n](const T* p, int64_t) { return row_min<T>(n, [p](int64_t i, auto at) { return at.load(p + i); }); });
  } else {
    with_map<T>(op, [&](auto f) {
      const auto sums = [&](const auto& sum) {
        each([&](const T* p, int64_t r) __attribute__((always_inline)) {
          const Batch<T> c(center != nullptr ? center[r] : T(0));
          return sum([p, c, f](int64_t i, auto at) { return f(at.load(p + i), c); });
        });
      };
      if (n < kSumStep<T>)
        sums([n](const auto& g) __attribute__((always_inline)) { return step_sum<T>(n, g); });
      else if (n <= kSumBlock<T>)
        sums([n](const auto& g) __attribute__((always_inline)) { return block_sum<T>(n, g); });
      else
        sums([n](const auto& g) __attribute__((always_inline)) { return tree_sum<T>(n, g); });
    });
    return;
  }
  // Turns -0 into +0: which zero is the extremum depends on the order of the level.
  sweep<T>(rows, [y](int64_t r, auto at) { at.store(y + r, at.load(y + r) + Batch<T>(T(0))); });
}

// Eight rows are combined pairwise, then with the result of the rows above: eight streams in one pass.
template <class T, class F, class Op>
inline void combine_columns(const T* x, int64_t stride, int64_t rows, int64_t columns, T* y, F f, Op op) {
  int64_t r = 0;
  for (; r + 8 <= rows; r += 8) {
    const T* p = x + r * stride;
    sweep<T>(columns, [&](int64_t j, auto at) {
      const auto row = [&](int64_t i) { return f(at.load(p + i * stride + j), j, at); };
      const Batch<T> v = op(op(op(row(0), row(1)), op(row(2), row(3))), op(op(row(4), row(5)), op(row(6), row(7))));
      at.store(y + j, r == 0 ? v : op(at.load(y + j), v));
    });
  }
  for (; r < rows; ++r) {
    const T* p = x + r * stride;
    sweep<T>(columns, [&](int64_t j, auto at) {
      const Batch<T> v = f(at.load(p + j), j, at);
      at.store(y + j, r == 0 ? v : op(at.load(y + j), v));
    });
  }
}

template <class T>
void columns(Reduction op, const T* x, int64_t stride, int64_t rows, int64_t columns, const T* center, T* y) {
  using B = Batch<T>;
  const auto greater = [](B a, B b) { return max(a, b); };
  const auto same = [](B v, int64_t, auto) { return v; };
  if (op == Reduction::max) {
    combine_columns(x, stride, rows, columns, y, same, greater);
  } else if (op == Reduction::max_abs) {
    combine_columns(
        x, stride, rows, columns, y, [](B v, int64_t, auto) { return abs(v); }, greater);
  } else if (op == Reduction::min) {
    combine_columns(x, stride, rows, columns, y, same, [](B a, B b) { return min(a, b); });
  } else {
    with_map<T>(op, [&](auto f) {
      const auto add = [](B a, B b) { return a + b; };
      if (center == nullptr)
        combine_columns(
            x, stride, rows, columns, y, [f](B v, int64_t, auto) { return f(v, B(T(0))); }, add);
      else
        combine_columns(
            x, stride, rows, columns, y, [f, center](B v, int64_t j, auto at) { return f(v, at.load(center + j)); },
            add);
    });
  }
}

template <class T>
void find_rows(const T* x, int64_t rows, int64_t n, const T* value, int32_t* place) {
  for (int64_t r = 0; r < rows; ++r, x += n) {
    const Batch<T> target(value[r]);
    int64_t i = 0;
    for (; i + kWidth<T> <= n; i += kWidth<T>) {
      const Batch<T> v = load(x + i);
      if (any((v == target) | isnan(v))) break;
    }
    while (i + 1 < n && !(x[i] == value[r] || x[i] != x[i])) ++i;
    place[r] = static_cast<int32_t>(i);
  }
}

template <class T>
void find_columns(const T* x, int64_t rows, int64_t columns, const T* value, int32_t* place) {
  for (int64_t r = rows - 1; r >= 0; --r) {  // from the last row up, so that the first match remains
    const T* p = x + r * columns;
    for (int64_t j = 0; j < columns; ++j)
      place[j] = ((p[j] == value[j]) | (p[j] != p[j])) ? static_cast<int32_t>(r) : place[j];
  }
}

template <class T, class Body>
inline void with_spread(Spread op, Body body) {
  using B = Batch<T>;
  switch (op) {
    case Spread::deviation: return body([](B x, B c, B rest, B a) { return a * ((x - c) - rest); });
    case Spread::exp: return body([](B x, B c, B, B a) { return a * exp(x - c); });
    case Spread::sign:
      return body([](B x, B, B, B a) {
        const B zero(T(0));
        return select(x > zero, a, select(x < zero, neg(a), a * x));  // a * x: 0 at 0, NaN at NaN
      });
    case Spread::equal: return body([](B x, B c, B, B a) { return select((x == c) | isnan(x), a, B(T(0))); });
  }
}

template <class T>
void spread_rows(Spread op, const T* x, int64_t rows, int64_t n, SpreadFactors<T> by, T* dx, bool accumulate) {
  const T *center = by.center, *rest = by.rest, *a = by.a;
  with_spread<T>(op, [&](auto f) {
    for (int64_t r = 0; r < rows; ++r) {
      const T* p = x + r * n;
      T* q = dx + r * n;
      const Batch<T> c(center != nullptr ? center[r] : T(0)), left(rest != nullptr ? rest[r] : T(0)), factor(a[r]);
      sweep<T>(n, [&](int64_t i, auto at) { store_or_add(at, q + i, f(at.load(p + i), c, left, factor), accumulate); });
    }
  });
}

template <class T>
void spread_columns(Spread op, const T* x, int64_t rows, int64_t columns, SpreadFactors<T> by, T* dx, bool accumulate) {
  const T *center = by.center, *rest = by.rest, *a = by.a;
  with_spread<T>(op, [&](auto f) {
    for (int64_t r = 0; r < rows; ++r) {
      const T* p = x + r * columns;
      T* q = dx + r * columns;
      sweep<T>(columns, [&](int64_t j, auto at) {
        const Batch<T> c = center != nullptr ? at.load(center + j) : Batch<T>(T(0));
        const Batch<T> left = rest != nullptr ? at.load(rest + j) : Batch<T>(T(0));
        store_or_add(at, q + j, f(at.load(p + j), c, left, at.load(a + j)), accumulate);
      });
    }
  });
}

template <class T>
constexpr ReduceKernels<T> kernels_of = {rows<T>,         columns<T>,     find_rows<T>,
                                         find_columns<T>, spread_rows<T>, spread_columns<T>};

}  // namespace

extern const ReduceTable reduce_table;
const ReduceTable reduce_table = {kernels_of<float>, kernels_of<double>};

}  // namespace heed::kernels::HEED_LEVEL
