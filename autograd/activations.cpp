// Formulas and derivatives stand in core/kernels/elementwise_activations.kernel.cpp.
#include <heed/autograd/activations.hpp>
#include <heed/autograd/elementwise_detail.hpp>

namespace heed {

using detail::Keep;
using detail::unary;
using kernels::ActivationKind;

Tensor sigmoid(In x) { return unary("sigmoid", ActivationKind::sigmoid, Keep::output, x); }
Tensor tanh(In x) { return unary("tanh", ActivationKind::tanh, Keep::output, x); }
Tensor relu(In x) { return unary("relu", ActivationKind::relu, Keep::output, x); }
Tensor leaky_relu(In x, double negative_slope) {
  return unary("leaky_relu", ActivationKind::leaky_relu, Keep::input, x, negative_slope);
}
Tensor elu(In x, double alpha) { return unary("elu", ActivationKind::elu, Keep::input, x, alpha); }
Tensor gelu(In x, Gelu approximate) {
  return unary("gelu", approximate == Gelu::tanh ? ActivationKind::gelu_tanh : ActivationKind::gelu, Keep::input, x);
}
Tensor silu(In x) { return unary("silu", ActivationKind::silu, Keep::input, x); }
Tensor softplus(In x, double beta) {
  check(beta > 0, x.where(), "softplus: beta is ", beta, "; it must be above 0");
  return unary("softplus", ActivationKind::softplus, Keep::input, x, beta);
}

}  // namespace heed
