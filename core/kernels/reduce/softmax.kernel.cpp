// Softmax and log-softmax of rows and of columns, forward and backward.
#include "softmax.hpp"

#include "tree.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// softmax: e = e^(x - m) with m the maximum, y = e / sum(e); log: y = (x - m) - log(sum(e)).
template <class T>
void rows(bool log_of, const T* x, int64_t rows, int64_t n, T* y) {
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const Batch<T> m(row_max<T>(n, [x](int64_t i, auto at) { return at.load(x + i); }));
    if (log_of) {
      const T sum = tree_sum<T>(n, [x, m](int64_t i, auto at) { return exp(at.load(x + i) - m); });
      const Batch<T> shift(first_lane(log(Batch<T>(sum))));
      sweep<T>(n, [&](int64_t i, auto at) { at.store(y + i, (at.load(x + i) - m) - shift); });
    } else {
      const T sum = tree_sum<T>(n, [x, y, m](int64_t i, auto at) {
        const Batch<T> e = exp(at.load(x + i) - m);
        at.store(y + i, e);
        return e;
      });
      const Batch<T> scale(T(1) / sum);
      sweep<T>(n, [&](int64_t i, auto at) { at.store(y + i, at.load(y + i) * scale); });
    }
  }
}

// softmax: dx = y (dy - sum(dy y)); log: dx = dy - e^y sum(dy).
template <class T>
void rows_backward(bool log_of, const T* y, const T* dy, int64_t rows, int64_t n, T* dx, bool accumulate) {
  for (int64_t r = 0; r < rows; ++r, y += n, dy += n, dx += n) {
    if (log_of) {
      const Batch<T> sum(tree_sum<T>(n, [dy](int64_t i, auto at) { return at.load(dy + i); }));
      sweep<T>(n, [&](int64_t i, auto at) {
        store_or_add(at, dx + i, fnma(exp(at.load(y + i)), sum, at.load(dy + i)), accumulate);
      });
    } else {
      const Batch<T> sum(tree_sum<T>(n, [y, dy](int64_t i, auto at) { return at.load(y + i) * at.load(dy + i); }));
      sweep<T>(n, [&](int64_t i, auto at) {
        store_or_add(at, dx + i, at.load(y + i) * (at.load(dy + i) - sum), accumulate);
      });
    }
  }
}

// The sum of f(0), ..., f(n - 1). Blocks of 32 are combined pairwise, as in tree_sum.
template <class T, class F>
inline Batch<T> column_sum(int64_t n, F f) {
  PairwiseSum<T, 1> sum;
  int64_t i = 0;
  while (i + 32 <= n) {
    Batch<T> s = f(i);
    for (const int64_t end = i + 32; ++i < end;) s = s + f(i);
    sum.add({s});
  }
  Batch<T> rest[1] = {Batch<T>(T(0))};
  for (; i < n; ++i) rest[0] = rest[0] + f(i);
  sum.add_to(rest);
  return rest[0];
}

template <class T>
void columns(bool log_of, const T* x, const SoftmaxColumns& of, T* y) {
  const int64_t stride = of.stride, n = of.n;
  sweep<T>(of.columns, [&](int64_t j, auto at) {
    const T* p = x + j;
    T* q = y + j;
    Batch<T> m = at.load(p);
    for (int64_t i = 1; i < n; ++i) m = max(m, at.load(p + i * stride));
    const Batch<T> sum = column_sum<T>(n, [&](int64_t i) {
      const Batch<T> e = exp(at.load(p + i * stride) - m);
      if (!log_of) at.store(q + i * stride, e);
      return e;
    });
    if (log_of) {
      const Batch<T> shift = log(sum);
      for (int64_t i = 0; i < n; ++i) at.store(q + i * stride, (at.load(p + i * stride) - m) - shift);
    } else {
      const Batch<T> scale = Batch<T>(T(1)) / sum;
      for (int64_t i = 0; i < n; ++i) at.store(q + i * stride, at.load(q + i * stride) * scale);
    }
  });
}

template <class T>
void columns_backward(bool log_of, const T* y, const T* dy, const SoftmaxColumns& of, T* dx, bool accumulate) {
  const int64_t stride = of.stride, n = of.n;
  sweep<T>(of.columns, [&](int64_t j, auto at) {
    const T *p = y + j, *g = dy + j;
    T* q = dx + j;
    const Batch<T> sum = column_sum<T>(n, [&](int64_t i) {
      const Batch<T> d = at.load(g + i * stride);
      return log_of ? d : d * at.load(p + i * stride);
    });
    for (int64_t i = 0; i < n; ++i) {
      const int64_t place = i * stride;
      const Batch<T> v = log_of ? fnma(exp(at.load(p + place)), sum, at.load(g + place))
                                : at.load(p + place) * (at.load(g + place) - sum);
      store_or_add(at, q + place, v, accumulate);
    }
  });
}

template <class T>
constexpr SoftmaxKernels<T> kernels_of = {rows<T>, columns<T>, rows_backward<T>, columns_backward<T>};

}  // namespace

extern const SoftmaxTable softmax_table;
const SoftmaxTable softmax_table = {kernels_of<float>, kernels_of<double>};

}  // namespace heed::kernels::HEED_LEVEL
