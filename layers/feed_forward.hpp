// The position-wise network of a Transformer block, and dropout.
//
// Example:
//
//   Rng rng(1);
//   const FeedForward network(16, rng, {.hidden = 64, .activation = FeedForwardKind::swiglu, .dropout = 0.1});
//   const Tensor y = network(rng.normal({2, 10, 16}));
#pragma once
#include <heed/autograd/elementwise.hpp>
#include <heed/layers/linear.hpp>

namespace heed {

// Dropout (Srivastava et al. 2014). Draws from default_rng(). Returns its input outside training.
struct Dropout {
  double p = 0.5;  // share of elements set to 0; the others are divided by 1 - p

  Tensor operator()(In x) const { return dropout(x, p); }  // any shape

  void members(auto&&) {}  // none
};

// The activation of FeedForward. The gated kinds: down(activation(gate(x)) * up(x)) (Shazeer, "GLU variants improve
// Transformer", 2020), with silu in swiglu, gelu in geglu and gelu_tanh in geglu_tanh (Gemma). The others:
// down(activation(up(x))). gelu is exact: x times the normal distribution function. gelu_tanh is its approximation by
// tanh, used in GPT-2. relu_squared is relu(x)^2 (Primer, So et al. 2021).
enum class FeedForwardKind { relu, gelu, gelu_tanh, silu, swiglu, relu_squared, geglu, geglu_tanh };

// Whether the kind is gated.
constexpr bool is_gated(FeedForwardKind kind) {
  return kind == FeedForwardKind::swiglu || kind == FeedForwardKind::geglu || kind == FeedForwardKind::geglu_tanh;
}
// The activation function of a kind: silu(x) for swiglu.
Tensor activate(In x, FeedForwardKind kind);

// Options of FeedForward.
struct FeedForwardOptions {
  // 0: 4 times the width; for gated kinds 8/3 times the width, rounded up to a multiple of 8, for the same number of
  // parameters.
  Index hidden = 0;
  FeedForwardKind activation = FeedForwardKind::gelu;
  double dropout = 0;  // of the result, during training
  bool bias = true;
};

// The position-wise network of a Transformer block.
struct FeedForward {
  Linear up;                   // [hidden, width]; for gated kinds [2 hidden, width], gate first
  Linear down;                 // [width, hidden]
  FeedForwardKind activation;  // of the hidden layer
  Dropout drop;                // of the result

  // Throws Error for a negative hidden size.
  FeedForward(Exactly<Index> width, Rng& rng, const FeedForwardOptions& options = {});

  // [..., width] -> [..., width]. `again`: how backward gets x without keeping it (linear()). Gated networks use it.
  Tensor operator()(In x, const Recomputed& again = {}) const;
  Index hidden() const { return down.weight.dim(1); }  // size of the hidden layer

  // The parameters of up and down. For gated kinds, up is two maps of hidden() rows: see MemberVisitor::stacked.
  void members(auto&& visit) {
    visit.stacked("up", up, {hidden()});
    visit("down", down);
  }
};

}  // namespace heed
