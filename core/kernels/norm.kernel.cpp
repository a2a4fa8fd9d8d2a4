#include "norm.hpp"

#include "simd.hpp"
//
#include "sweep.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// R rows at once, so that their chains of sums overlap and each load of the weight serves R rows. A row's own values do
// not depend on R. The variance is the mean of squared distances from the mean, in a second pass over the row, which is
// in cache.
template <class T, bool kCentred, int R>
void forward_rows(const NormForward<T>& a, int64_t first, int64_t n, T eps) {
  const T* x = a.x + first * n;
  T* y = a.y + first * n;
  T mean[R] = {}, rstd[R];
  if constexpr (kCentred) {
    Batch<T> sum[R];
    for (int r = 0; r < R; ++r) sum[r] = Batch<T>(T(0));
    sweep<T>(n, [&](int64_t j, auto at) {
      for (int r = 0; r < R; ++r) sum[r] = sum[r] + at.load(x + r * n + j);
    });
    for (int r = 0; r < R; ++r) a.mean[first + r] = mean[r] = reduce_add(sum[r]) / static_cast<T>(n);
  }
  Batch<T> squares[R];
  for (int r = 0; r < R; ++r) squares[r] = Batch<T>(T(0));
  sweep<T>(n, [&](int64_t j, auto at) {
    for (int r = 0; r < R; ++r) {
      const Batch<T> d = at.load(x + r * n + j, mean[r]) - Batch<T>(mean[r]);
      squares[r] = fma(d, d, squares[r]);
    }
  });
  for (int r = 0; r < R; ++r)
    a.rstd[first + r] = rstd[r] = T(1) / static_cast<T>(::sqrt(reduce_add(squares[r]) / static_cast<T>(n) + eps));
  sweep<T>(n, [&](int64_t j, auto at) {
    const Batch<T> w = a.weight ? at.load(a.weight + j) : Batch<T>(T(1));
    const Batch<T> b = a.bias ? at.load(a.bias + j) : Batch<T>(T(0));
    for (int r = 0; r < R; ++r) {
      const Batch<T> normal = (at.load(x + r * n + j) - Batch<T>(mean[r])) * Batch<T>(rstd[r]);
      at.store(y + r * n + j, fma(normal, w, b));
    }
  });
}

// With n^ = (x - mean) rstd, g = weight dy and means over the row:
//   dx = rstd (g - mean(g) - n^ mean(g n^)), without mean(g) for rms_norm;  dweight = sum(dy n^);  dbias = sum(dy)
template <class T, bool kCentred, int R>
void backward_rows(const NormBackward<T>& a, int64_t first, int64_t n) {
  const T* x = a.x + first * n;
  const T* dy = a.dy + first * n;
  T* dx = a.dx ? a.dx + first * n : nullptr;
  T mean[R] = {}, rstd[R], mean_g[R] = {}, mean_gn[R] = {};
  for (int r = 0; r < R; ++r) {
    if constexpr (kCentred) mean[r] = a.mean[first + r];
    rstd[r] = a.rstd[first + r];
  }
  const auto normal_at = [&](int r, int64_t j, auto at) {
    return (at.load(x + r * n + j, mean[r]) - Batch<T>(mean[r])) * Batch<T>(rstd[r]);
  };
  if (dx) {
    Batch<T> g_sum[R], gn_sum[R];
    for (int r = 0; r < R; ++r) g_sum[r] = gn_sum[r] = Batch<T>(T(0));
    sweep<T>(n, [&](int64_t j, auto at) {
      const Batch<T> w = a.weight ? at.load(a.weight + j) : Batch<T>(T(1));
      for (int r = 0; r < R; ++r) {
        const Batch<T> g = at.load(dy + r * n + j) * w;
        if constexpr (kCentred) g_sum[r] = g_sum[r] + g;
        gn_sum[r] = fma(g, normal_at(r, j, at), gn_sum[r]);
      }
    });
    for (int r = 0; r < R; ++r) {
      if constexpr (kCentred) mean_g[r] = reduce_add(g_sum[r]) / static_cast<T>(n);
      mean_gn[r] = reduce_add(gn_sum[r]) / static_cast<T>(n);
    }
  }
  sweep<T>(n, [&](int64_t j, auto at) {
    const Batch<T> w = a.weight ? at.load(a.weight + j) : Batch<T>(T(1));
    Batch<T> dweight(T(0)), dbias(T(0));
    for (int r = 0; r < R; ++r) {
      const Batch<T> normal = normal_at(r, j, at), d = at.load(dy + r * n + j);
      dweight = fma(d, normal, dweight);
      dbias = dbias + d;
      if (dx) {
        const Batch<T> v = Batch<T>(rstd[r]) * fnma(normal, Batch<T>(mean_gn[r]), d * w - Batch<T>(mean_g[r]));
        at.store(dx + r * n + j, a.accumulate ? at.load(dx + r * n + j) + v : v);
      }
    }
    if (a.dweight) at.store(a.dweight + j, at.load(a.dweight + j) + dweight);
    if (a.dbias) at.store(a.dbias + j, at.load(a.dbias + j) + dbias);
  });
}

template <class T, bool kCentred>
void forward(const NormForward<T>& a, int64_t rows, int64_t n, T eps) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) forward_rows<T, kCentred, 4>(a, r, n, eps);
  for (; r < rows; ++r) forward_rows<T, kCentred, 1>(a, r, n, eps);
}

template <class T, bool kCentred>
void backward(const NormBackward<T>& a, int64_t rows, int64_t n) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) backward_rows<T, kCentred, 4>(a, r, n);
  for (; r < rows; ++r) backward_rows<T, kCentred, 1>(a, r, n);
}

template <class T>
void sum_rows(const T* x, int64_t rows, int64_t n, int64_t stride, T* out, bool accumulate) {
  sweep<T>(n, [&](int64_t j, auto at) {
    Batch<T> sum = accumulate ? at.load(out + j) : Batch<T>(T(0));
    for (int64_t r = 0; r < rows; ++r) sum = sum + at.load(x + r * stride + j);
    at.store(out + j, sum);
  });
}

template <class T>
constexpr NormKernels<T> kernels_of = {forward<T, true>, backward<T, true>, forward<T, false>, backward<T, false>,
                                       sum_rows<T>};

}  // namespace

extern const NormTable norm_kernels;
const NormTable norm_kernels = {kernels_of<float>, kernels_of<double>};

}  // namespace heed::kernels::HEED_LEVEL
