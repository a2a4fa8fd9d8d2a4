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

// Srivastava et al. 2014. Draws from default_rng(); passes everything through outside training.
struct Dropout {
  double p = 0.5;  // share of elements set to zero; the others are scaled by 1 / (1 - p)

  Tensor operator()(In x) const { return dropout(x, p); }

  void members(auto&&) {}
};

// gelu: x by the normal distribution's function, exactly; gelu_tanh: its approximation by tanh, GPT-2's. relu_squared:
// relu(x)^2, Primer's (So et al. 2021). swiglu: down(silu(gate(x)) * up(x)), Shazeer 2020. The others:
// down(activation(up(x))).
enum class FeedForwardKind { relu, gelu, gelu_tanh, silu, swiglu, relu_squared };

struct FeedForwardOptions {
  Index hidden =
      0;  // 0: four times the width; for swiglu 8/3 of it, rounded up to a multiple of 8, for equal parameters
  FeedForwardKind activation = FeedForwardKind::gelu;
  double dropout = 0;
  bool bias = true;
};

struct FeedForward {
  Linear up;    // [hidden, width]; for swiglu [2 hidden, width], the gate's rows first
  Linear down;  // [width, hidden]
  FeedForwardKind activation;
  Dropout drop;

  FeedForward(Exactly<Index> width, Rng& rng, const FeedForwardOptions& options = {});

  Tensor operator()(In x) const;  // [..., width] -> [..., width]
  Index hidden() const { return down.weight.dim(1); }

  void members(auto&& visit) {
    visit.stacked("up", up, {hidden()});
    visit("down", down);
  }
};

}  // namespace heed
