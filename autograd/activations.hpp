// Activation functions, of float32 and float64, named and behaving as PyTorch's. One kernel forward and one backward
// each.
#pragma once
#include <heed/autograd/elementwise.hpp>

namespace heed {

enum class Gelu { none, tanh };  // PyTorch's `approximate`: exact, or the tanh form that GPT-2 uses

inline Tensor sigmoid(In x) { return detail::unary<"sigmoid">(x); }  // 1 / (1 + e^-x)
inline Tensor tanh(In x) { return detail::unary<"tanh">(x); }
inline Tensor relu(In x) { return detail::unary<"relu">(x); }  // derivative 0 at 0
inline Tensor leaky_relu(In x, double negative_slope = 0.01) { return detail::unary<"leaky_relu">(x, negative_slope); }
// alpha (e^x - 1) below 0 (Clevert et al., 2016)
inline Tensor elu(In x, double alpha = 1) { return detail::unary<"elu">(x, alpha); }
// x P(N(0, 1) < x) (Hendrycks and Gimpel, 2016)
inline Tensor gelu(In x, Gelu approximate = Gelu::none) {
  return approximate == Gelu::tanh ? detail::unary<"gelu_tanh">(x) : detail::unary<"gelu">(x);
}
inline Tensor silu(In x) { return detail::unary<"silu">(x); }  // x sigmoid(x), also called swish
inline Tensor softsign(In x) { return detail::unary<"softsign">(x); }  // x / (1 + |x|)
Tensor softplus(In x, double beta = 1);  // log(1 + e^(beta x)) / beta; beta must be above 0

}  // namespace heed
