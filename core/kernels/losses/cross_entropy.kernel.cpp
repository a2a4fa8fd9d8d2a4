// Cross-entropy of rows of logits: loss and gradient.
#include "cross_entropy.hpp"

#include "../simd/lane_sums.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// The maximum, or -inf if n is 0. NaN may be skipped.
template <class T>
T greatest_of(const T* x, int64_t n) {
  const T lowest = -kInfinity<T>;
  Batch<T> top[4] = {Batch<T>(lowest), Batch<T>(lowest), Batch<T>(lowest), Batch<T>(lowest)};
  int64_t i = 0;
  for (; i + 4 * kWidth<T> <= n; i += 4 * kWidth<T>)
    for (int k = 0; k < 4; ++k) top[k] = quick_max(load(x + i + k * kWidth<T>), top[k]);
  sweep<T>(n - i, [&](int64_t j, auto at) { top[0] = quick_max(at.load(x + i + j, lowest), top[0]); });
  return reduce_max(quick_max(quick_max(top[0], top[1]), quick_max(top[2], top[3])));
}

// Returns sum(exp(x)) / exp(base), so that logits of any size lose no precision. The row is processed in pieces that
// stay in L1, and the sum is relative to the largest logit so far. -inf is a logit like any other. NaN or +inf makes
// the sum NaN.
template <class T>
T sum_exp(const T* x, int64_t n, T& base) {
  constexpr int64_t piece = 2048;
  const T lowest = -kInfinity<T>;
  T greatest = lowest, sum = 0;
  base = 0;
  for (int64_t begin = 0; begin < n; begin += piece) {
    const int64_t size = n - begin < piece ? n - begin : piece;
    const T* p = x + begin;
    const T highest = greatest_of(p, size);
    if (highest > greatest) {
      if (sum != T(0)) sum *= first_lane(exp(Batch<T>(base - highest)));
      greatest = base = highest;
    }
    const Batch<T> b(base);
    sum += lane_sum<T>(size, [=](int64_t i, auto at) { return exp(at.load(p + i, lowest) - b); });
  }
  return sum;
}

// With w the class weights, W their sum, s the smoothing, t the target, C classes, lse = base + log_sum:
//   loss = (1 - s) w_t (lse - x_t) + s/C sum_c w_c (lse - x_c)
template <class T>
void forward(const CrossEntropy<T>& c, const T* logits, const int32_t* targets, T* loss, T* lse, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* x = logits + r * c.classes;
    T &base = lse[2 * r], &log_sum = lse[2 * r + 1];
    if (r % kWidth<T> == 0) {  // the logarithms of a whole vector of sums
      alignas(64) T sums[kWidth<T>];
      const int64_t n = rows - r < kWidth<T> ? rows - r : kWidth<T>;
      for (int64_t i = 0; i < kWidth<T>; ++i)
        sums[i] = i < n ? sum_exp(x + i * c.classes, c.classes, lse[2 * (r + i)]) : T(1);
      store_aligned(sums, log(load_aligned(sums)));
      for (int64_t i = 0; i < n; ++i) lse[2 * (r + i) + 1] = sums[i];
    }
    loss[r] = T(0);
    if (targets[r] == c.ignore_index) continue;
    loss[r] = (c.weight ? c.weight[targets[r]] : T(1)) * (base - x[targets[r]] + log_sum);
    if (c.smoothing == T(0)) continue;
    const T sum = lane_sum<T>(c.classes, [&](int64_t i, auto at) {
      const Batch<T> w = c.weight ? at.load(c.weight + i) : Batch<T>(T(1));
      return at.keep(w * (Batch<T>(base) - at.load(x + i) + Batch<T>(log_sum)));
    });
    loss[r] = (T(1) - c.smoothing) * loss[r] + c.smoothing / static_cast<T>(c.classes) * sum;
  }
}

// With p = exp(x - lse), the softmax, and g the gradient of the row's loss:
//   dx_c = g ((1 - s) w_t + s W / C) p_c - g (1 - s) w_t [c = t] - g s w_c / C
template <class T>
void backward(const CrossEntropy<T>& c, const T* logits, const int32_t* targets, const T* lse,
              CrossEntropyGradient<T> d, int64_t rows) {
  const bool accumulate = d.accumulate;
  for (int64_t r = 0; r < rows; ++r) {
    const T* x = logits + r * c.classes;
    T* dx = d.dlogits + r * c.classes;
    if (targets[r] == c.ignore_index) {
      if (!accumulate) memset(dx, 0, static_cast<size_t>(c.classes) * sizeof(T));
      continue;
    }
    const T g = d.dy[r * d.dy_stride] * d.scale;
    const T at_target = g * (T(1) - c.smoothing) * (c.weight ? c.weight[targets[r]] : T(1));
    const T even = g * c.smoothing / static_cast<T>(c.classes);
    const Batch<T> factor(at_target + even * c.weight_sum), base(lse[2 * r]), log_sum(lse[2 * r + 1]);
    sweep<T>(c.classes, [&](int64_t i, auto at) {
      Batch<T> v = factor * exp(at.load(x + i) - base - log_sum);
      if (even != T(0)) v = v - Batch<T>(even) * (c.weight ? at.load(c.weight + i) : Batch<T>(T(1)));
      at.store(dx + i, accumulate ? at.load(dx + i) + v : v);
    });
    dx[targets[r]] -= at_target;
  }
}

template <class T>
constexpr CrossEntropyKernels<T> kernels_of = {forward<T>, backward<T>};

}  // namespace

extern const CrossEntropyTable cross_entropy_table;
const CrossEntropyTable cross_entropy_table = {kernels_of<float>, kernels_of<double>};

}  // namespace heed::kernels::HEED_LEVEL
