// The optimizers' updates of a part of a parameter, and kernels for clipping, averaging and sending.
#include "optimizer.hpp"

#include "simd/simd.hpp"
//
#include "simd/sweep.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class T>
inline Batch<T> all_lanes(double x) {
  return Batch<T>(static_cast<T>(x));
}

// d = scale * g + l2 * p;  b = momentum * b + undampened * d;  p -= lr * (nesterov ? d + momentum * b : b)
template <class T>
void sgd(T* p, const T* g, T* buffer, int64_t n, const SgdScalars& s) {
  const Batch<T> scale = all_lanes<T>(s.gradient_scale), l2 = all_lanes<T>(s.l2), lr = all_lanes<T>(s.lr);
  if (buffer == nullptr) {
    return sweep<T>(n, [=](int64_t i, auto at) {
      const Batch<T> w = at.load(p + i);
      at.store(p + i, fnma(lr, fma(l2, w, scale * at.load(g + i)), w));
    });
  }
  const Batch<T> momentum = all_lanes<T>(s.momentum), undampened = all_lanes<T>(s.undampened);
  const Batch<T> ahead = all_lanes<T>(s.nesterov ? 1 : 0), onward = all_lanes<T>(s.nesterov ? s.momentum : 1);
  sweep<T>(n, [=](int64_t i, auto at) {
    const Batch<T> w = at.load(p + i), d = fma(l2, w, scale * at.load(g + i));
    const Batch<T> b = fma(momentum, at.load(buffer + i), undampened * d);
    at.store(buffer + i, b);
    at.store(p + i, fnma(lr, fma(ahead, d, onward * b), w));
  });
}

// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  p = keep p - step_size m / (sqrt(v) inverse_bias + eps)
template <class T, bool kAmsgrad>
void adam_body(T* p, const T* g, T* mean, T* square, T* highest, int64_t n, const AdamScalars& s) {
  const Batch<T> scale = all_lanes<T>(s.gradient_scale), l2 = all_lanes<T>(s.l2), keep = all_lanes<T>(s.keep);
  const Batch<T> beta1 = all_lanes<T>(s.beta1), share1 = all_lanes<T>(1 - s.beta1);
  const Batch<T> beta2 = all_lanes<T>(s.beta2), share2 = all_lanes<T>(1 - s.beta2);
  const Batch<T> step_size = all_lanes<T>(s.step_size), inverse_bias = all_lanes<T>(s.inverse_bias),
                 eps = all_lanes<T>(s.eps);
  sweep<T>(n, [=](int64_t i, auto at) {
    const Batch<T> w = at.load(p + i), d = fma(l2, w, scale * at.load(g + i));
    const Batch<T> m = fma(beta1, at.load(mean + i), share1 * d);
    const Batch<T> v = fma(beta2, at.load(square + i), share2 * d * d);
    at.store(mean + i, m);
    at.store(square + i, v);
    Batch<T> judged = v;
    if constexpr (kAmsgrad) {
      judged = max(at.load(highest + i), v);
      at.store(highest + i, judged);
    }
    at.store(p + i, keep * w - step_size * m / fma(sqrt(judged), inverse_bias, eps));
  });
}

template <class T>
void adam(T* p, const T* g, T* mean, T* square, T* highest, int64_t n, const AdamScalars& s) {
  if (highest != nullptr)
    adam_body<T, true>(p, g, mean, square, highest, n, s);
  else
    adam_body<T, false>(p, g, mean, square, highest, n, s);
}

// v = alpha v + (1 - alpha) g^2;  centered: m = alpha m + (1 - alpha) g, v' = v - m^2, else v' = v
// u = g / (sqrt(v') + eps);  with momentum: b = momentum b + u, u = b;  p -= lr u
template <class T, bool kCentered, bool kMomentum>
void rmsprop_body(T* p, const T* g, T* square, T* mean, T* buffer, int64_t n, const RmspropScalars& s) {
  const Batch<T> scale = all_lanes<T>(s.gradient_scale), l2 = all_lanes<T>(s.l2), lr = all_lanes<T>(s.lr);
  const Batch<T> alpha = all_lanes<T>(s.alpha), share = all_lanes<T>(1 - s.alpha), eps = all_lanes<T>(s.eps);
  const Batch<T> momentum = all_lanes<T>(s.momentum), zero = all_lanes<T>(0);
  sweep<T>(n, [=](int64_t i, auto at) {
    const Batch<T> w = at.load(p + i), d = fma(l2, w, scale * at.load(g + i));
    Batch<T> v = fma(alpha, at.load(square + i), share * d * d);
    at.store(square + i, v);
    if constexpr (kCentered) {
      const Batch<T> m = fma(alpha, at.load(mean + i), share * d);
      at.store(mean + i, m);
      v = max(fnma(m, m, v), zero);  // a variance that rounding made negative is 0, not NaN
    }
    Batch<T> u = d / (sqrt(v) + eps);
    if constexpr (kMomentum) {
      u = fma(momentum, at.load(buffer + i), u);
      at.store(buffer + i, u);
    }
    at.store(p + i, fnma(lr, u, w));
  });
}

template <class T>
void rmsprop(T* p, const T* g, T* square, T* mean, T* buffer, int64_t n, const RmspropScalars& s) {
  if (mean != nullptr && buffer != nullptr)
    rmsprop_body<T, true, true>(p, g, square, mean, buffer, n, s);
  else if (mean != nullptr)
    rmsprop_body<T, true, false>(p, g, square, mean, buffer, n, s);
  else if (buffer != nullptr)
    rmsprop_body<T, false, true>(p, g, square, mean, buffer, n, s);
  else
    rmsprop_body<T, false, false>(p, g, square, mean, buffer, n, s);
}

// sum += g^2;  p -= lr g / (sqrt(sum) + eps)
template <class T>
void adagrad(T* p, const T* g, T* sum, int64_t n, const AdagradScalars& s) {
  const Batch<T> scale = all_lanes<T>(s.gradient_scale), l2 = all_lanes<T>(s.l2);
  const Batch<T> eps = all_lanes<T>(s.eps), lr = all_lanes<T>(s.lr);
  sweep<T>(n, [=](int64_t i, auto at) {
    const Batch<T> w = at.load(p + i), d = fma(l2, w, scale * at.load(g + i));
    const Batch<T> total = fma(d, d, at.load(sum + i));
    at.store(sum + i, total);
    at.store(p + i, w - lr * d / (sqrt(total) + eps));
  });
}

// p = keep p - lr sign(beta1 m + (1 - beta1) g);  m = beta2 m + (1 - beta2) g.  The sign of NaN is NaN.
template <class T>
void lion(T* p, const T* g, T* mean, int64_t n, const LionScalars& s) {
  const Batch<T> scale = all_lanes<T>(s.gradient_scale), keep = all_lanes<T>(s.keep), lr = all_lanes<T>(s.lr);
  const Batch<T> beta1 = all_lanes<T>(s.beta1), share1 = all_lanes<T>(1 - s.beta1);
  const Batch<T> beta2 = all_lanes<T>(s.beta2), share2 = all_lanes<T>(1 - s.beta2), zero = all_lanes<T>(0);
  sweep<T>(n, [=](int64_t i, auto at) {
    const Batch<T> d = scale * at.load(g + i), m = at.load(mean + i);
    const Batch<T> c = fma(beta1, m, share1 * d);
    Batch<T> move = select(c > zero, lr, c);  // 0 and NaN stay as they are
    move = select(c < zero, neg(lr), move);
    at.store(p + i, keep * at.load(p + i) - move);
    at.store(mean + i, fma(beta2, m, share2 * d));
  });
}

// 16 running sums, whatever the width. For float, whose squares are exact, the bits are the same on every level.
template <class T>
double sum_squares(const T* x, int64_t n) {
  constexpr int kSums = 16;
  double sum[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int k = 0; k < kSums; ++k) sum[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
  for (int k = 0; i < n; ++i, ++k) sum[k] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (int half = kSums / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) sum[k] += sum[k + half];
  return sum[0];
}

template <class T>
void scale(T* x, int64_t n, double factor) {
  const Batch<T> f = all_lanes<T>(factor);
  sweep<T>(n, [=](int64_t i, auto at) { at.store(x + i, f * at.load(x + i)); });
}

template <class T>
void clamp(T* x, int64_t n, double limit) {
  const Batch<T> high = all_lanes<T>(limit), low = all_lanes<T>(-limit);
  sweep<T>(n, [=](int64_t i, auto at) { at.store(x + i, min(max(at.load(x + i), low), high)); });
}

template <class T>
void average(T* mean, const T* x, int64_t n, double new_share) {
  const Batch<T> share = all_lanes<T>(new_share);
  sweep<T>(n, [=](int64_t i, auto at) {
    const Batch<T> m = at.load(mean + i);
    at.store(mean + i, fma(share, at.load(x + i) - m, m));
  });
}

template <class T>
void swap_values(T* x, T* y, int64_t n) {
  sweep<T>(n, [=](int64_t i, auto at) {
    const Batch<T> a = at.load(x + i), b = at.load(y + i);
    at.store(x + i, b);
    at.store(y + i, a);
  });
}

template <class T>
void add(T* sum, const T* x, int64_t n) {
  sweep<T>(n, [=](int64_t i, auto at) { at.store(sum + i, at.load(sum + i) + at.load(x + i)); });
}

void round_sent(float* x, int64_t n) {
  sweep<float>(n, [=](int64_t i, auto at) { at.store(x + i, rounded(at.load(x + i))); });
}

void add_both_sent(float* sum, const float* x, int64_t n) {
  sweep<float>(n, [=](int64_t i, auto at) { at.store(sum + i, rounded(at.load(sum + i)) + rounded(at.load(x + i))); });
}

void add_sent(float* sum, const uint16_t* x, int64_t n) {
  sweep<float>(n, [=](int64_t i, auto at) {
    at.store(sum + i, at.load(sum + i) + at.template load_as<float>(x + i));
  });
}

void step_sent(float* p, const float* old, uint16_t* added, int64_t n) {
  sweep<float>(n, [=](int64_t i, auto at) {
    const Batch<float> before = at.load(old + i), step = at.load(p + i) - before;
    if (added != nullptr) at.store_rounded(added + i, step);
    at.store(p + i, before + rounded(step));
  });
}

template <class T>
constexpr OptimizerKernels<T> kernels_of = {sgd<T>,   adam<T>,  rmsprop<T>, adagrad<T>,     lion<T>, sum_squares<T>,
                                            scale<T>, clamp<T>, average<T>, swap_values<T>, add<T>};

}  // namespace

extern const OptimizerTable optimizer_table;
const OptimizerTable optimizer_table = {{kernels_of<float>, kernels_of<double>},
                                        {round_sent, add_both_sent, add_sent, step_sent}};

}  // namespace heed::kernels::HEED_LEVEL
