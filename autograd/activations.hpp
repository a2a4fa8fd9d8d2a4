// Activation functions, of float32 and float64, named and behaving as PyTorch's. One kernel forward and one backward
// each.
#pragma once
#include <heed/autograd/record.hpp>

namespace heed {

enum class Gelu { none, tanh };  // PyTorch's `approximate`: exact, or the tanh form that GPT-2 uses

Tensor sigmoid(In x);  // 1 / (1 + e^-x)
Tensor tanh(In x);
Tensor relu(In x);  // derivative 0 at 0
Tensor leaky_relu(In x, double negative_slope = 0.01);
Tensor elu(In x, double alpha = 1);                // alpha (e^x - 1) below 0 (Clevert et al., 2016)
Tensor gelu(In x, Gelu approximate = Gelu::none);  // x P(N(0, 1) < x) (Hendrycks and Gimpel, 2016)
Tensor silu(In x);                                 // x sigmoid(x), also called swish
Tensor softplus(In x, double beta = 1);            // log(1 + e^(beta x)) / beta; beta must be above 0

}  // namespace heed
