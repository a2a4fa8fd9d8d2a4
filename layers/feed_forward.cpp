// The position-wise network of a Transformer block.
#include <heed/layers/feed_forward.hpp>

namespace heed {

static Index hidden_size(Index width, const FeedForwardOptions& o) {
  require(o.hidden >= 0, "FeedForward: hidden is ", o.hidden, "; it must be 0 (the default) or more");
  if (o.hidden > 0) return o.hidden;
  return is_gated(o.activation) ? (width * 8 / 3 + 7) / 8 * 8 : 4 * width;
}

FeedForward::FeedForward(Exactly<Index> width, Rng& rng, const FeedForwardOptions& o)
    : up(width, hidden_size(width, o) * (is_gated(o.activation) ? 2 : 1), rng, {.bias = o.bias}),
      down(hidden_size(width, o), width, rng, {.bias = o.bias}),
      activation(o.activation),
      drop{o.dropout} {}

Tensor activate(In x, FeedForwardKind kind) {
  switch (kind) {
    case FeedForwardKind::relu: return relu(x);
    case FeedForwardKind::gelu:
    case FeedForwardKind::geglu: return gelu(x);
    case FeedForwardKind::gelu_tanh:
    case FeedForwardKind::geglu_tanh: return gelu(x, Gelu::tanh);
    case FeedForwardKind::silu:
    case FeedForwardKind::swiglu: return silu(x);
    case FeedForwardKind::relu_squared: return square(relu(x));
  }
  return {};
}

Tensor FeedForward::operator()(In x) const {
  const auto with = [&](Activation a) { return drop(feed_forward(x, up.weight, up.bias, down.weight, down.bias, a)); };
  switch (activation) {
    case FeedForwardKind::relu: return with(Activation::relu);
    case FeedForwardKind::gelu: return with(Activation::gelu);
    case FeedForwardKind::gelu_tanh: return with(Activation::gelu_tanh);
    case FeedForwardKind::silu: return with(Activation::silu);
    case FeedForwardKind::relu_squared: return with(Activation::relu_squared);
    default: break;
  }
  const Tensor h = up(x);
  const Index n = hidden();
  return drop(down(activate(h.slice(-1, 0, n), activation) * h.slice(-1, n, 2 * n)));
}

}  // namespace heed
