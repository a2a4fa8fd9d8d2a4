// The position-wise network of a Transformer block.
#include <heed/layers/feed_forward.hpp>

namespace heed {

static Index hidden_size(Index width, const FeedForwardOptions& o) {
  require(o.hidden >= 0, "FeedForward: hidden is ", o.hidden, "; it must be 0 (the default) or more");
  if (o.hidden > 0) return o.hidden;
  return o.activation == FeedForwardKind::swiglu ? (width * 8 / 3 + 7) / 8 * 8 : 4 * width;
}

FeedForward::FeedForward(Exactly<Index> width, Rng& rng, const FeedForwardOptions& o)
    : up(width, hidden_size(width, o) * (o.activation == FeedForwardKind::swiglu ? 2 : 1), rng, {.bias = o.bias}),
      down(hidden_size(width, o), width, rng, {.bias = o.bias}),
      activation(o.activation),
      drop{o.dropout} {}

Tensor FeedForward::operator()(In x) const {
  const auto with = [&](Activation a) { return drop(feed_forward(x, up.weight, up.bias, down.weight, down.bias, a)); };
  switch (activation) {
    case FeedForwardKind::relu: return with(Activation::relu);
    case FeedForwardKind::gelu: return with(Activation::gelu);
    case FeedForwardKind::gelu_tanh: return with(Activation::gelu_tanh);
    case FeedForwardKind::silu: return with(Activation::silu);
    case FeedForwardKind::relu_squared: return with(Activation::relu_squared);
    case FeedForwardKind::swiglu: break;
  }
  const Tensor h = up(x);
  const Index n = hidden();
  return drop(down(silu(h.slice(-1, 0, n)) * h.slice(-1, n, 2 * n)));
}

}  // namespace heed
