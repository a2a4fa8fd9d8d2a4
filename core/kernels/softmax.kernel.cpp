#include "softmax.hpp"

#include "reduce_tree.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// softmax: e = e^(x - m) with m the greatest, y = e / sum(e); log: y = (x - m) - log(sum(e)).
template <class T>
void rows(bool log_of, const T* x, int64_t rows, int64_t n, T* y) {
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const Batch<T> m(row_max<T>(n, [x](int64_t i, auto k) { return load(x + i, k); }));
    if (log_of) {
      const T sum = tree_sum<T>(n, [x, m](int64_t i, auto k) { return exp(load(x + i, k) - m); });
      const Batch<T> shift(first_lane(log(Batch<T>(sum))));
      each_vector<T>(n, [&](int64_t i, auto k) { store(y + i, (load(x + i, k) - m) - shift, k); });
    } else {
      const T sum = tree_sum<T>(n, [x, y, m](int64_t i, auto k) {
        const Batch<T> e = exp(load(x + i, k) - m);
        store(y + i, e, k);
        return e;
      });
      const Batch<T> scale(T(1) / sum);
      each_vector<T>(n, [&](int64_t i, auto k) { store(y + i, load(y + i, k) * scale, k); });
    }
  }
}

// softmax: dx = y (dy - sum(dy y)); log: dx = dy - e^y sum(dy).
template <class T>
void rows_backward(bool log_of, const T* y, const T* dy, int64_t rows, int64_t n, T* dx, bool accumulate) {
  for (int64_t r = 0; r < rows; ++r, y += n, dy += n, dx += n) {
    const auto put = [&](int64_t i, Batch<T> v, auto k) { store(dx + i, accumulate ? load(dx + i, k) + v : v, k); };
    if (log_of) {
      const Batch<T> sum(tree_sum<T>(n, [dy](int64_t i, auto k) { return load(dy + i, k); }));
      each_vector<T>(n, [&](int64_t i, auto k) { put(i, fnma(exp(load(y + i, k)), sum, load(dy + i, k)), k); });
    } else {
      const Batch<T> sum(tree_sum<T>(n, [y, dy](int64_t i, auto k) { return load(y + i, k) * load(dy + i, k); }));
      each_vector<T>(n, [&](int64_t i, auto k) { put(i, load(y + i, k) * (load(dy + i, k) - sum), k); });
    }
  }
}

// The sum of f(0), ..., f(n - 1): blocks of 32 are combined pairwise, as in tree_sum.
template <class T, class F>
inline Batch<T> column_sum(int64_t n, F f) {
  Batch<T> level[44];
  int64_t i = 0, blocks = 0;
  for (; i + 32 <= n; ++blocks) {
    Batch<T> s = f(i);
    for (const int64_t end = i + 32; ++i < end;) s = s + f(i);
    int bit = 0;
    for (; blocks >> bit & 1; ++bit) s = level[bit] + s;
    level[bit] = s;
  }
  Batch<T> s(T(0));
  for (; i < n; ++i) s = s + f(i);
  for (int bit = 0; blocks >> bit != 0; ++bit)
    if (blocks >> bit & 1) s = level[bit] + s;
  return s;
}

template <class T>
void columns(bool log_of, const T* x, int64_t stride, int64_t n, int64_t columns, T* y) {
  each_vector<T>(columns, [&](int64_t j, auto k) {
    const T* p = x + j;
    T* q = y + j;
    Batch<T> m = load(p, k);
    for (int64_t i = 1; i < n; ++i) m = max(m, load(p + i * stride, k));
    const Batch<T> sum = column_sum<T>(n, [&](int64_t i) {
      const Batch<T> e = exp(load(p + i * stride, k) - m);
      if (!log_of) store(q + i * stride, e, k);
      return e;
    });
    if (log_of) {
      const Batch<T> shift = log(sum);
      for (int64_t i = 0; i < n; ++i) store(q + i * stride, (load(p + i * stride, k) - m) - shift, k);
    } else {
      const Batch<T> scale = Batch<T>(T(1)) / sum;
      for (int64_t i = 0; i < n; ++i) store(q + i * stride, load(q + i * stride, k) * scale, k);
    }
  });
}

template <class T>
void columns_backward(bool log_of, const T* y, const T* dy, int64_t stride, int64_t n, int64_t columns, T* dx,
                      bool accumulate) {
  each_vector<T>(columns, [&](int64_t j, auto k) {
    const T *p = y + j, *g = dy + j;
    T* q = dx + j;
    const Batch<T> sum = column_sum<T>(n, [&](int64_t i) {
      const Batch<T> d = load(g + i * stride, k);
      return log_of ? d : d * load(p + i * stride, k);
    });
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = i * stride;
      const Batch<T> v =
          log_of ? fnma(exp(load(p + at, k)), sum, load(g + at, k)) : load(p + at, k) * (load(g + at, k) - sum);
      store(q + at, accumulate ? load(q + at, k) + v : v, k);
    }
  });
}

template <class T>
constexpr SoftmaxKernels<T> kernels_of = {rows<T>, columns<T>, rows_backward<T>, columns_backward<T>};

}  // namespace

extern const SoftmaxTable softmax_table;
const SoftmaxTable softmax_table = {kernels_of<float>, kernels_of<double>};

}  // namespace heed::kernels::HEED_LEVEL
