// Activations. A formula's backward gives dx from x and dy, or, where it says y, from y and dy.
#include "elementwise_loops.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

template <class V>
using S = Constants<V>;

// s(x), and 1 - s(x) = s(-x) without cancellation.
template <class V>
inline V sigmoid_and_rest(V x, V& rest) {
  const V e = exp(-abs(x)), large = V(1) / (V(1) + e), small = e * large;
  const auto negative = x < V(0);
  rest = select(negative, large, small);
  return select(negative, small, large);
}

struct Sigmoid {
  template <class V>
  static V forward(V x, S<V>) {
    return sigmoid(x);
  }
  template <class V>
  static V backward(V y, V dy, S<V>) {
    return dy * (V(1) - y) * y;
  }
};

struct Tanh {
  template <class V>
  static V forward(V x, S<V>) {
    return tanh(x);
  }
  template <class V>
  static V backward(V y, V dy, S<V>) {
    return dy * fnma(y, y, V(1));
  }
};

struct Relu {  // NaN stays
  template <class V>
  static V forward(V x, S<V>) {
    return select(x <= V(0), V(0), x);
  }
  template <class V>
  static V backward(V y, V dy, S<V>) {
    return select(y <= V(0), V(0), dy);
  }
};

struct LeakyRelu {  // x, or a x below 0
  template <class V>
  static V forward(V x, S<V> s) {
    return select(x > V(0), x, s.a * x);
  }
  template <class V>
  static V backward(V x, V dy, S<V> s) {
    return select(x > V(0), dy, s.a * dy);
  }
};

struct Elu {  // x, or a (e^x - 1) below 0
  template <class V>
  static V forward(V x, S<V> s) {
    return select(x > V(0), x, s.a * expm1(x));
  }
  template <class V>
  static V backward(V x, V dy, S<V> s) {
    return select(x > V(0), dy, dy * (s.a * exp(x)));
  }
};

// x P(x) with P(x) = (1 + erf(x / sqrt 2)) / 2; the derivative is P(x) + x e^(-x^2 / 2) / sqrt(2 pi).
struct Gelu {
  template <class V>
  static V forward(V x, S<V>) {
    return gelu_exact(x);
  }
  template <class V>
  static V backward(V x, V dy, S<V>) {
    const V cdf = fma(V(0.5), erf(x * V(0.70710678118654752440)), V(0.5));
    const V pdf = V(0.39894228040143267794) * exp(V(-0.5) * (x * x));
    return dy * fma(x, pdf, cdf);
  }
};

// x s(u) with s the sigmoid and u = 2 sqrt(2/pi) (x + 0.044715 x^3); the derivative is s + x s (1 - s) u'.
// Beyond |x| = 30 the second term is 0: clamping x there keeps 0 * infinity out.
struct GeluTanh {
  template <class V>
  static V forward(V x, S<V>) {
    return gelu_tanh(x);
  }
  template <class V>
  static V backward(V x, V dy, S<V>) {
    constexpr double c = 2 * 0.79788456080286535588, k = 0.044715;
    const V z = quick_min(V(30), quick_max(V(-30), x)), z2 = z * z;
    V rest;
    const V s = sigmoid_and_rest(z * fma(z2, V(c * k), V(c)), rest), slope = fma(z2, V(3 * c * k), V(c));
    return dy * fma(z * slope, s * rest, s);
  }
};

// x s(x); the derivative is s (1 + x (1 - s)).
struct Silu {
  template <class V>
  static V forward(V x, S<V>) {
    return x / (V(1) + exp(-x));
  }
  template <class V>
  static V backward(V x, V dy, S<V>) {
    V rest;
    const V s = sigmoid_and_rest(x, rest);
    return dy * s * fma(x, rest, V(1));
  }
};

// log(1 + e^(a x)) / a = max(x, 0) + log(1 + e^(-|a x|)) / a for a > 0; the derivative is s(a x).
struct Softplus {
  template <class V>
  static V forward(V x, S<V> s) {
    return max(x, V(0)) + log1p(exp(-abs(s.a * x))) / s.a;
  }
  template <class V>
  static V backward(V x, V dy, S<V> s) {
    return dy * sigmoid(s.a * x);
  }
};

}  // namespace

extern const ActivationTable activation_table;
const ActivationTable activation_table = {{unary_kernel<Sigmoid>, unary_kernel<Tanh>, unary_kernel<Relu>,
                                           unary_kernel<LeakyRelu>, unary_kernel<Elu>, unary_kernel<Gelu>,
                                           unary_kernel<GeluTanh>, unary_kernel<Silu>, unary_kernel<Softplus>}};

}  // namespace heed::kernels::HEED_LEVEL
