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

static Activation activation_of(FeedForwardKind kind) {
  switch (kind) {
    case FeedForwardKind::relu: return Activation::relu;
    case FeedForwardKind::gelu:
    case FeedForwardKind::geglu: return Activation::gelu;
    case FeedForwardKind::gelu_tanh:
    case FeedForwardKind::geglu_tanh: return Activation::gelu_tanh;
    case FeedForwardKind::relu_squared: return Activation::relu_squared;
    case FeedForwardKind::silu:
    case FeedForwardKind::swiglu: break;
  }
  return Activation::silu;
}

Tensor FeedForward::operator()(In x, const Recomputed& again) const {
  const bool adapted = up.lora || down.lora;
  const bool quantized = is_quantized(up.weight.dtype()) || is_quantized(down.weight.dtype());
  const Activation act = activation_of(activation);
  if (!is_gated(activation))
    return drop(adapted || quantized ? down(activate(up(x), activation))
                                     : feed_forward(x, up.weight, up.bias, down.weight, down.bias, act));
  // Backward keeps the hidden layer, as products read it, and computes its gated half again, as feed_forward() does.
  const bool narrow = matmul_precision() == DType::bfloat16 && x.dtype() != DType::float64;
  const Tensor h = up(x, narrow ? std::optional(DType::bfloat16) : std::nullopt, again);
  return drop(down(gated(h, act), {}, {h, [act](const Recomputed& kept) { return gated(kept.from, act); }}));
}

}  // namespace heed
