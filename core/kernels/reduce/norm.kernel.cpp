// LayerNorm and RMSNorm of rows: forward, and the gradients of x, weight and bias.
#include "norm.hpp"

#include "../simd/lane_sums.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class T>
constexpr bool kHasBf16 = sizeof(T) == 4;

// Means of squares below this value lose digits; such rows are scaled first.
template <class T>
constexpr T kMinSquare = sizeof(T) == 4 ? T(1e-30) : T(1e-290);

// (x - mean - rest) rstd, where shift = -rest rstd.
template <class T, bool kCentred>
inline Batch<T> normal_at(Batch<T> x, T mean, T shift, T rstd) {
  if constexpr (kCentred)
    return fma(x - Batch<T>(mean), Batch<T>(rstd), Batch<T>(shift));
  else
    return x * Batch<T>(rstd);
}

// sqrt(variance + eps), from the mean of squared distances to a point that is `rest` away from the mean.
template <class T>
inline T root_of(T square, T rest, T eps) {
  const T v = square - rest * rest;
  return static_cast<T>(::sqrt((v < T(0) ? T(0) : v) + eps));
}

// The mean, rest and rstd of a row whose squares overflow, or underflow where eps does not hide this. Computed in units
// of the row's largest |x|. The results are right if they fit in T, and NaN if the row holds NaN or infinity.
template <class T, bool kCentred>
void extreme_row(const T* x, int64_t n, T eps, T& mean, T& rest, T& rstd) {
  const Batch<T> zero(T(0));
  Batch<T> greatest = zero;
  sweep<T>(n, [&](int64_t j, auto at) { greatest = max(greatest, abs(at.load(x + j))); });
  const T unit = reduce_max(greatest);
  if (!(unit > T(0))) return;
  const auto scaled = [&](int64_t j, auto at) { return at.load(x + j) / Batch<T>(unit); };
  T centre(0), lost(0);
  if constexpr (kCentred) {
    mean = lane_sum<T>(n, scaled) / static_cast<T>(n) * unit;
    centre = mean / unit;
  }
  T sums[2];  // of distances, and of their squares
  sum_lanes(n, sums, [&](int64_t j, auto at, Batch<T>(&sum)[2]) {
    const Batch<T> d = at.keep(scaled(j, at) - Batch<T>(centre));
    sum[0] = sum[0] + d;
    sum[1] = fma(d, d, sum[1]);
  });
  if constexpr (kCentred) lost = sums[0] / static_cast<T>(n);
  rest = lost * unit;
  rstd = T(1) / root_of(sums[1] / static_cast<T>(n), lost, eps / unit / unit) / unit;
}

// R rows at once, so that their chains of sums overlap and each load of the weight serves R rows. A row's values do not
// depend on R. A second pass over the row, which is in cache, computes the variance. It is the mean of squared
// distances from the rounded mean, minus the square of the rounding error.
template <class T, bool kCentred, int R>
void forward_rows(const NormForward<T>& a, int64_t first, int64_t n, T eps) {
  const T* x = a.x + first * n;
  T* y = a.y + first * n;
  T mean[R] = {}, rest[R] = {}, shift[R], rstd[R], square[R];
  // The sums of Q rows at once stay in registers, one or two numbers per row.
  constexpr int Q = rows_of_sums<T>(R);
  if constexpr (kCentred) {
    for (int q = 0; q < R; q += Q) {
      T sums[Q];
      sum_lanes(n, sums, [p = x + q * n, n](int64_t j, auto at, Batch<T>(&sum)[Q]) __attribute__((always_inline)) {
        unroll<Q>([&](auto r) __attribute__((always_inline)) { sum[r] = sum[r] + at.load(p + r * n + j); });
      });
      for (int r = 0; r < Q; ++r) mean[q + r] = sums[r] / static_cast<T>(n);
    }
  }
  for (int q = 0; q < R; q += Q) {
    T sums[kCentred ? 2 * Q : Q];
    Batch<T> m[Q];
    unroll<Q>([&](auto r) { m[r] = Batch<T>(mean[q + r]); });
    sum_lanes(n, sums, [&, p = x + q * n](int64_t j, auto at, auto& sum) __attribute__((always_inline)) {
      unroll<Q>([&](auto r) __attribute__((always_inline)) {
        const Batch<T> d = at.load(p + r * n + j, mean[q + r]) - m[r];
        sum[r] = fma(d, d, sum[r]);
        if constexpr (kCentred) sum[Q + r] = sum[Q + r] + d;
      });
    });
    for (int r = 0; r < Q; ++r) {
      square[q + r] = sums[r] / static_cast<T>(n);
      if constexpr (kCentred) rest[q + r] = sums[Q + r] / static_cast<T>(n);
    }
  }
  for (int r = 0; r < R; ++r) {
    rstd[r] = T(1) / root_of(square[r], rest[r], eps);
    if (!(square[r] + eps > kMinSquare<T> && square[r] < kInfinity<T>)) [[unlikely]]
      extreme_row<T, kCentred>(x + r * n, n, eps, mean[r], rest[r], rstd[r]);
    a.rstd[first + r] = rstd[r];
    if constexpr (kCentred) a.mean[first + r] = mean[r], a.rest[first + r] = rest[r];
    shift[r] = -rest[r] * rstd[r];
  }
  sweep<T>(n, [&](int64_t j, auto at) {
    const Batch<T> w = a.weight ? at.load(a.weight + j) : Batch<T>(T(1));
    const Batch<T> b = a.bias ? at.load(a.bias + j) : Batch<T>(T(0));
    for (int r = 0; r < R; ++r) {
      const Batch<T> normal = normal_at<T, kCentred>(at.load(x + r * n + j), mean[r], shift[r], rstd[r]);
      if constexpr (kHasBf16<T>)
        if (a.normal) at.store_rounded(a.normal + (first + r) * n + j, normal);
      at.store(y + r * n + j, fma(normal, w, b));
    }
  });
}

// With n^ = (x - mean) rstd, g = weight dy and means over the row:
//   dx = rstd (g - mean(g) - n^ mean(g n^)), without mean(g) for rms_norm;  dweight = sum(dy n^);  dbias = sum(dy)
// kKept: n^ is a.normal.
template <class T, bool kCentred, bool kKept, int R>
void backward_rows(const NormBackward<T>& a, int64_t first, int64_t n) {
  const T* x = kKept ? nullptr : a.x + first * n;
  [[maybe_unused]] const uint16_t* kept = kKept ? a.normal + first * n : nullptr;
  const T* dy = a.dy + first * n;
  T* dx = a.dx ? a.dx + first * n : nullptr;
  T mean[R] = {}, shift[R] = {}, rstd[R], mean_g[R] = {}, mean_gn[R] = {};
  for (int r = 0; r < R; ++r) {
    rstd[r] = a.rstd[first + r];
    if constexpr (kCentred && !kKept) mean[r] = a.mean[first + r], shift[r] = -a.rest[first + r] * rstd[r];
  }
  const auto normal = [&](int r, int64_t j, auto at) {
    if constexpr (kKept) return at.template load_as<T>(kept + r * n + j);
    return normal_at<T, kCentred>(at.load(x + r * n + j, mean[r]), mean[r], shift[r], rstd[r]);
  };
  if (dx) {
    constexpr int Q = rows_of_sums<T>(R);  // as in forward_rows
    for (int q = 0; q < R; q += Q) {
      T sums[kCentred ? 2 * Q : Q];
      sum_lanes(n, sums, [&, q](int64_t j, auto at, auto& sum) __attribute__((always_inline)) {
        const Batch<T> w = a.weight ? at.load(a.weight + j) : Batch<T>(T(1));
        unroll<Q>([&](auto r) __attribute__((always_inline)) {
          const Batch<T> g = at.load(dy + (q + r) * n + j) * w;
          sum[r] = fma(g, normal(q + r, j, at), sum[r]);
          if constexpr (kCentred) sum[Q + r] = sum[Q + r] + g;
        });
      });
      for (int r = 0; r < Q; ++r) {
        mean_gn[q + r] = sums[r] / static_cast<T>(n);
        if constexpr (kCentred) mean_g[q + r] = sums[Q + r] / static_cast<T>(n);
      }
    }
  }
  sweep<T>(n, [&](int64_t j, auto at) {
    const Batch<T> w = a.weight ? at.load(a.weight + j) : Batch<T>(T(1));
    Batch<T> dweight(T(0)), dbias(T(0));
    for (int r = 0; r < R; ++r) {
      const Batch<T> nr = normal(r, j, at), d = at.load(dy + r * n + j);
      dweight = fma(d, nr, dweight);
      dbias = dbias + d;
      if (dx) {
        const Batch<T> v = Batch<T>(rstd[r]) * fnma(nr, Batch<T>(mean_gn[r]), d * w - Batch<T>(mean_g[r]));
        store_or_add(at, dx + r * n + j, v, a.accumulate);
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

template <class T, bool kCentred, bool kKept>
void backward_all(const NormBackward<T>& a, int64_t rows, int64_t n) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) backward_rows<T, kCentred, kKept, 4>(a, r, n);
  for (; r < rows; ++r) backward_rows<T, kCentred, kKept, 1>(a, r, n);
}

template <class T, bool kCentred>
void backward(const NormBackward<T>& a, int64_t rows, int64_t n) {
  if constexpr (kHasBf16<T>)
    if (a.normal) return backward_all<T, kCentred, true>(a, rows, n);
  backward_all<T, kCentred, false>(a, rows, n);
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

extern const NormTable norm_table;
const NormTable norm_table = {kernels_of<float>, kernels_of<double>};

}  // namespace heed::kernels::HEED_LEVEL
