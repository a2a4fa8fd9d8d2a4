// Losses of pairs of numbers: single losses, their sums, and their derivatives.
#include "pointwise.hpp"

#include "../simd/lane_sums.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

// Each loss has value(a, i, at) for the elements from i on, and its derivatives by x and by t.

template <class T>
Batch<T> difference(const PointwiseInputs<T>& a, int64_t i, auto at) {
  return at.load(a.x + i) - at.load(a.t + i);
}

// (x - t)^2
template <class T>
struct Mse {
  static Batch<T> value(const PointwiseInputs<T>& a, int64_t i, auto at) {
    const Batch<T> d = difference(a, i, at);
    return d * d;
  }
  static void derivative(const PointwiseInputs<T>& a, int64_t i, auto at, Batch<T>& dx, Batch<T>& dt) {
    const Batch<T> d = difference(a, i, at);
    dx = d + d;
    dt = neg(dx);
  }
};

// |x - t|; the derivative at 0 is 0
template <class T>
struct L1 {
  static Batch<T> value(const PointwiseInputs<T>& a, int64_t i, auto at) { return abs(difference(a, i, at)); }
  static void derivative(const PointwiseInputs<T>& a, int64_t i, auto at, Batch<T>& dx, Batch<T>& dt) {
    const Batch<T> d = difference(a, i, at), zero(T(0));
    dx = select(d > zero, Batch<T>(T(1)), select(d < zero, Batch<T>(T(-1)), d));
    dt = neg(dx);
  }
};

// d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with d = x - t. The derivative is d, clamped to +-delta.
template <class T>
struct Huber {
  static Batch<T> value(const PointwiseInputs<T>& a, int64_t i, auto at) {
    const Batch<T> d = abs(difference(a, i, at)), delta(a.delta), half(T(0.5));
    return select(d <= delta, half * d * d, delta * (d - half * delta));
  }
  static void derivative(const PointwiseInputs<T>& a, int64_t i, auto at, Batch<T>& dx, Batch<T>& dt) {
    dx = max(Batch<T>(-a.delta), min(Batch<T>(a.delta), difference(a, i, at)));
    dt = neg(dx);
  }
};

// With u = log(1 + e^-x) = -log sigmoid(x), w and p the weights: w ((1 - t) x + k u), k = 1 + (p - 1) t.
// u = log(1 + e^-|x|) - min(x, 0), so that no exponential overflows and no small u is lost:
//   value = w ((x < 0 ? -p t x : (1 - t) x) + k log(1 + e^-|x|))
//   dx = w ((1 - t) - k sigmoid(-x)) = w (x < 0 ? k s - p t : (1 - t) - k s), s = sigmoid(-|x|)
//   dt = w ((p - 1) u - x) = w ((p - 1) log(1 + e^-|x|) - (x < 0 ? p x : x)), without inf - inf
template <class T>
struct BinaryCrossEntropy {
  static Batch<T> value(const PointwiseInputs<T>& a, int64_t i, auto at) {
    const Batch<T> x = at.load(a.x + i), t = at.load(a.t + i), zero(T(0)), one(T(1));
    const Batch<T> p = a.pos_weight ? at.load(a.pos_weight + i) : one;
    const Batch<T> linear = select(x < zero, neg(p) * t * x, (one - t) * x);
    const Batch<T> v = fma(fma(p - one, t, one), log1p(exp(-abs(x))), linear);
    return a.weight ? at.load(a.weight + i) * v : v;
  }
  static void derivative(const PointwiseInputs<T>& a, int64_t i, auto at, Batch<T>& dx, Batch<T>& dt) {
    const Batch<T> x = at.load(a.x + i), t = at.load(a.t + i), zero(T(0)), one(T(1));
    const Batch<T> p = a.pos_weight ? at.load(a.pos_weight + i) : one;
    const Batch<T> w = a.weight ? at.load(a.weight + i) : one;
    const Batch<T> e = exp(-abs(x)), ks = fma(p - one, t, one) * (e / (one + e));
    dx = w * select(x < zero, ks - p * t, one - t - ks);
    dt = w * ((p - one) * log1p(e) - select(x < zero, p * x, x));
  }
};

// The value where the probability is 0: 0 for every finite or infinite x, NaN for NaN.
template <class T>
Batch<T> nothing(Batch<T> x) {
  return select(isnan(x), x, Batch<T>(T(0)));
}

// t (log t - x), which is 0 where t is 0
template <class T>
struct Kl {
  static Batch<T> value(const PointwiseInputs<T>& a, int64_t i, auto at) {
    const Batch<T> x = at.load(a.x + i), t = at.load(a.t + i);
    return select(t == Batch<T>(T(0)), nothing(x), t * (log(t) - x));
  }
  static void derivative(const PointwiseInputs<T>& a, int64_t i, auto at, Batch<T>& dx, Batch<T>& dt) {
    const Batch<T> t = at.load(a.t + i);
    dx = neg(t);
    dt = log(t) + Batch<T>(T(1)) - at.load(a.x + i);
  }
};

// e^t (t - x), which is 0 where e^t is 0
template <class T>
struct KlLog {
  static Batch<T> value(const PointwiseInputs<T>& a, int64_t i, auto at) {
    const Batch<T> q = exp(at.load(a.t + i));
    return select(q == Batch<T>(T(0)), nothing(at.load(a.x + i)), neg(q) * difference(a, i, at));
  }
  static void derivative(const PointwiseInputs<T>& a, int64_t i, auto at, Batch<T>& dx, Batch<T>& dt) {
    const Batch<T> q = exp(at.load(a.t + i));
    dx = neg(q);
    dt = select(q == Batch<T>(T(0)), nothing(at.load(a.x + i)), q * (Batch<T>(T(1)) - difference(a, i, at)));
  }
};

template <class T, class F>
auto dispatch(Pointwise loss, F f) {
  switch (loss) {
    case Pointwise::mse: return f(Mse<T>{});
    case Pointwise::l1: return f(L1<T>{});
    case Pointwise::huber: return f(Huber<T>{});
    case Pointwise::binary_cross_entropy: return f(BinaryCrossEntropy<T>{});
    case Pointwise::kl: return f(Kl<T>{});
    default: return f(KlLog<T>{});
  }
}

template <class T>
void each(Pointwise loss, const PointwiseInputs<T>& a, int64_t n, T* y) {
  dispatch<T>(loss, [&](auto l) { sweep<T>(n, [&](int64_t i, auto at) { at.store(y + i, l.value(a, i, at)); }); });
}

// Pieces are summed in T, and the sums of pieces in float64.
template <class T>
double sum(Pointwise loss, const PointwiseInputs<T>& a, int64_t n) {
  return dispatch<T>(loss, [&](auto l) {
    constexpr int64_t piece = 512;
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += piece) {
      total += static_cast<double>(lane_sum<T>(n - begin < piece ? n - begin : piece, [&](int64_t i, auto at) {
        return at.keep(l.value(a, begin + i, at));
      }));
    }
    return total;
  });
}

template <class T>
void backward(Pointwise loss, const PointwiseInputs<T>& a, int64_t n, PointwiseGradients<T> d) {
  const T* dy = d.dy;
  const T scale = d.scale;
  const bool per_element = d.dy_stride != 0, accumulate_dx = d.accumulate_dx, accumulate_dt = d.accumulate_dt;
  T *dx = d.dx, *dt = d.dt;
  dispatch<T>(loss, [&](auto l) {
    sweep<T>(n, [&](int64_t i, auto at) {
      const Batch<T> g = Batch<T>(scale) * (per_element ? at.load(dy + i) : Batch<T>(dy[0]));
      Batch<T> by_x, by_t;
      l.derivative(a, i, at, by_x, by_t);
      if (dx) at.store(dx + i, accumulate_dx ? at.load(dx + i) + g * by_x : g * by_x);
      if (dt) at.store(dt + i, accumulate_dt ? at.load(dt + i) + g * by_t : g * by_t);
    });
  });
}

template <class T>
constexpr PointwiseKernels<T> kernels_of = {each<T>, sum<T>, backward<T>};

}  // namespace

extern const PointwiseTable pointwise_table;
const PointwiseTable pointwise_table = {kernels_of<float>, kernels_of<double>};

}  // namespace heed::kernels::HEED_LEVEL
