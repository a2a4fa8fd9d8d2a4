// heed's layers as ONNX operators.
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/io/onnx_layers.hpp>
#include <numbers>
#include <optional>

namespace heed::detail {

std::string onnx_linear(OnnxGraph& g, const std::string& x, const Linear& layer, const std::string& path) {
  require(!layer.lora, kExportOnnx, ": ", path, " has adapters; they must be merged first (merge_lora)");
  const std::string y = g.add("MatMul", {x, g.weight(path + ".weight", layer.weight.detach().t())});
  return layer.bias.defined() ? g.add("Add", {y, g.weight(path + ".bias", layer.bias.detach())}) : y;
}

// ---- Norms ----

static std::string norm_of(OnnxGraph& g, const std::string& x, const LayerNorm& layer, const std::string& path) {
  std::vector<std::string> inputs = {x, g.weight(path + ".weight", layer.weight.detach())};
  if (layer.bias.defined()) inputs.push_back(g.weight(path + ".bias", layer.bias.detach()));
  return g.add("LayerNormalization", inputs, {{"axis", -1}, {"epsilon", layer.eps}});
}

// Opset 17 has no operator for it.
static std::string norm_of(OnnxGraph& g, const std::string& x, const RMSNorm& layer, const std::string& path) {
  const std::string mean = g.add("ReduceMean", {g.add("Mul", {x, x})}, {{"axes", std::vector<Index>{-1}}});
  const std::string rms = g.add("Sqrt", {g.add("Add", {mean, g.number(layer.eps)})});
  const Tensor weight = layer.weight.detach();
  const Tensor factor = layer.unit_offset ? weight.to(DType::float64) + 1 : weight;
  return g.add("Mul", {g.add("Div", {x, rms}), g.weight(path + ".weight", factor)});
}

std::string onnx_norm(OnnxGraph& g, const std::string& x, const Norm& layer, const std::string& path) {
  return std::visit([&](const auto& chosen) { return norm_of(g, x, chosen, path); }, layer.layer);
}

// ---- The feed-forward part ----

// x * 0.5 * (1 + y), for both forms of gelu.
static std::string half_gelu(OnnxGraph& g, const std::string& x, const std::string& y) {
  return g.add("Mul", {g.add("Mul", {x, g.add("Add", {y, g.number(1)})}), g.number(0.5)});
}

std::string onnx_activation(OnnxGraph& g, const std::string& x, FeedForwardKind kind) {
  switch (kind) {
    case FeedForwardKind::relu: return g.add("Relu", {x});
    case FeedForwardKind::gelu:
    case FeedForwardKind::geglu:
      return half_gelu(g, x, g.add("Erf", {g.add("Div", {x, g.number(std::numbers::sqrt2)})}));
    case FeedForwardKind::gelu_tanh:
    case FeedForwardKind::geglu_tanh: {  // tanh(sqrt(2 / pi) (x + 0.044715 x^3))
      const std::string cube = g.add("Mul", {g.add("Mul", {x, x}), x});
      const std::string sum = g.add("Add", {x, g.add("Mul", {cube, g.number(0.044715)})});
      return half_gelu(g, x, g.add("Tanh", {g.add("Mul", {sum, g.number(std::sqrt(2 / std::numbers::pi))})}));
    }
    case FeedForwardKind::silu:
    case FeedForwardKind::swiglu: return g.add("Mul", {x, g.add("Sigmoid", {x})});
    case FeedForwardKind::relu_squared: {
      const std::string y = g.add("Relu", {x});
      return g.add("Mul", {y, y});
    }
  }
  return {};
}

std::string onnx_feed_forward(OnnxGraph& g, const std::string& x, const FeedForward& layer, const std::string& path) {
  std::string h = onnx_linear(g, x, layer.up, path + ".up");
  if (is_gated(layer.activation)) {
    const std::vector<std::string> parts = g.split(h, {layer.hidden(), layer.hidden()});
    h = g.add("Mul", {onnx_activation(g, parts[0], layer.activation), parts[1]});
  } else {
    h = onnx_activation(g, h, layer.activation);
  }
  return onnx_linear(g, h, layer.down, path + ".down");
}

// ---- Attention ----

// [batch, length, heads * size] -> [batch, heads, length, size]
static std::string split_heads_of(OnnxGraph& g, const std::string& x, Index heads, Index size) {
  const std::string split = g.add("Reshape", {x, g.integers({0, 0, heads, size})});
  return g.add("Transpose", {split}, {{"perm", std::vector<Index>{0, 2, 1, 3}}});
}

// Rotary positions: pairs are element i and i + size / 2.
static std::string rotated(OnnxGraph& g, const std::string& x, Index size, const OnnxShared& shared) {
  const std::vector<std::string> half = g.split(x, {size / 2, size / 2});
  const auto times = [&](int i, const std::string& factor) {
    return g.add("Mul", {half[static_cast<std::size_t>(i)], factor});
  };
  const std::string first = g.add("Sub", {times(0, shared.cos), times(1, shared.sin)});
  const std::string second = g.add("Add", {times(1, shared.cos), times(0, shared.sin)});
  return g.add("Concat", {first, second}, {{"axis", -1}});
}

// Repeats the heads of keys or values [batch, kv_heads, length, size] for the query heads that share them.
static std::string repeated(OnnxGraph& g, const std::string& x, const MultiHeadAttentionOptions& o, Index size) {
  if (o.kv_heads == o.heads) return x;
  const std::string column = g.add("Unsqueeze", {x, g.integers({2})});
  const std::string heads = g.add("Expand", {column, g.integers({1, 1, o.heads / o.kv_heads, 1, 1})});
  return g.add("Reshape", {heads, g.integers({0, o.heads, -1, size})});
}

// The scores [batch, heads, length, length] plus the bias of relative positions.
static std::string with_relative(OnnxGraph& g, const std::string& scores, const RelativePositionBias& layer,
                                 const OnnxShared& shared, const std::string& path) {
  const Index clip = layer.weight.dim(1) / 2;
  const std::string near = g.add("Clip", {shared.distances, g.integer(-clip), g.integer(clip)});
  const std::string entries = g.add("Add", {near, g.integer(clip)});
  const std::string table = g.weight(path + ".weight", layer.weight.detach());
  return g.add("Add", {scores, g.add("Gather", {table, entries}, {{"axis", 1}})});
}

// The factor of the queries. Throws Error unless the layer uses softmax attention.
static double scale_of(const MultiHeadAttention& layer, const std::string& path) {
  const auto* softmax = layer.mechanism.get<SoftmaxAttention>();
  require(softmax != nullptr, kExportOnnx, ": ", path, " is ", layer.mechanism.name(),
          " attention; only softmax attention can be written to ONNX");
  const MultiHeadAttentionOptions& o = layer.options();
  const double scale = softmax->scale.value_or(1 / std::sqrt(static_cast<double>(o.key_size)));
  return o.query_scale > 0 ? scale * o.query_scale : scale;
}

std::string onnx_attention(OnnxGraph& g, const std::string& x, const MultiHeadAttention& layer,
                           const OnnxShared& shared, const std::string& path) {
  const MultiHeadAttentionOptions& o = layer.options();
  const double scale = scale_of(layer, path);
  const std::string product = onnx_linear(g, x, layer.qkv.value(), path + ".qkv");
  const std::vector<std::string> parts =
      g.split(product, {o.heads * o.key_size, o.kv_heads * o.key_size, o.kv_heads * o.value_size});
  std::string q = split_heads_of(g, parts[0], o.heads, o.key_size);
  std::string k = split_heads_of(g, parts[1], o.kv_heads, o.key_size);
  const std::string v = split_heads_of(g, parts[2], o.kv_heads, o.value_size);
  if (layer.q_norm) q = norm_of(g, q, *layer.q_norm, path + ".q_norm");
  if (layer.k_norm) k = norm_of(g, k, *layer.k_norm, path + ".k_norm");
  if (o.rope) q = rotated(g, q, o.key_size, shared), k = rotated(g, k, o.key_size, shared);
  q = g.add("Mul", {q, g.number(scale)});
  k = g.add("Transpose", {repeated(g, k, o, o.key_size)}, {{"perm", std::vector<Index>{0, 1, 3, 2}}});
  std::string scores = g.add("MatMul", {q, k});
  if (layer.relative) scores = with_relative(g, scores, *layer.relative, shared, path + ".relative");
  const std::string weights = g.add("Softmax", {g.add("Add", {scores, shared.mask_bias})}, {{"axis", -1}});
  // Values of masked keys are 0, so a row whose keys are all masked gives zeros.
  const std::string values = repeated(g, g.add("Mul", {v, shared.value_mask}), o, o.value_size);
  const std::string sums =
      g.add("Transpose", {g.add("MatMul", {weights, values})}, {{"perm", std::vector<Index>{0, 2, 1, 3}}});
  const std::string merged = g.add("Reshape", {sums, g.integers({0, 0, o.heads * o.value_size})});
  return onnx_linear(g, merged, layer.proj, path + ".proj");
}

std::string onnx_block(OnnxGraph& g, const std::string& x, const TransformerBlock& block, const OnnxShared& shared,
                       const std::string& path) {
  require(!block.cross, kExportOnnx, ": ", path, " attends to a memory; only encoders can be written to ONNX");
  const auto norm = [&](const std::string& h, const Norm& layer, const char* name) {
    return onnx_norm(g, h, layer, path + name);
  };
  const auto add = [&](const std::string& h, const std::string& y) { return g.add("Add", {h, y}); };
  const auto attention = [&](const std::string& h) {
    return onnx_attention(g, h, block.attention, shared, path + ".attention");
  };
  const auto mlp = [&](const std::string& h) { return onnx_feed_forward(g, h, block.mlp, path + ".mlp"); };
  if (!*block.options().norm_first) {
    const std::string h = norm(add(x, attention(x)), block.norm1, ".norm1");
    return norm(add(h, mlp(h)), block.norm2, ".norm2");
  }
  const auto post_norm = [&](const std::string& y, const std::optional<Norm>& layer, const char* name) {
    return layer ? norm(y, *layer, name) : y;
  };
  const std::string h = add(x, post_norm(attention(norm(x, block.norm1, ".norm1")), block.post_norm1, ".post_norm1"));
  return add(h, post_norm(mlp(norm(h, block.norm2, ".norm2")), block.post_norm2, ".post_norm2"));
}

}  // namespace heed::detail
