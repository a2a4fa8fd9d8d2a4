// heed's layers as ONNX operators. Each function adds the nodes of a layer to a graph and returns the name of the
// result. `path` is the path of the layer in the model; names of weights begin with it. Weights of linear layers are
// stored as [in, out]. Dropout is omitted. Internal.
#pragma once
#include <heed/io/onnx_graph.hpp>
#include <heed/layers/feed_forward.hpp>
#include <heed/layers/norm.hpp>
#include <heed/layers/transformer.hpp>
#include <string>

namespace heed::detail {

inline constexpr const char* kExportOnnx = "export_onnx";  // begins messages

// Values that all blocks share. Empty where the model does not use them.
struct OnnxShared {
  std::string mask_bias = {};      // float32 [batch, 1, 1, length]: 0, or a very negative number for a masked key
  std::string value_mask = {};     // float32 [batch, 1, length, 1]: 1, or 0 for a masked key
  std::string distances = {};      // int64 [length, length]: key position - query position; for relative positions
  std::string cos = {}, sin = {};  // float32 [length, key_size / 2]: of rotary positions
};

// x [..., in] -> [..., out]. Throws Error for a layer with adapters.
std::string onnx_linear(OnnxGraph& g, const std::string& x, const Linear& layer, const std::string& path);
// [..., width] -> [..., width].
std::string onnx_norm(OnnxGraph& g, const std::string& x, const Norm& layer, const std::string& path);
// The activation of a kind, without its gate. x and the result have the same shape.
std::string onnx_activation(OnnxGraph& g, const std::string& x, FeedForwardKind kind);
// [..., width] -> [..., width].
std::string onnx_feed_forward(OnnxGraph& g, const std::string& x, const FeedForward& layer, const std::string& path);
// Self-attention with softmax: [batch, length, width] -> [batch, length, width]. Throws Error for another mechanism.
std::string onnx_attention(OnnxGraph& g, const std::string& x, const MultiHeadAttention& layer,
                           const OnnxShared& shared, const std::string& path);
// [batch, length, width] -> [batch, length, width]. Throws Error for a block with cross-attention.
std::string onnx_block(OnnxGraph& g, const std::string& x, const TransformerBlock& block, const OnnxShared& shared,
                       const std::string& path);

}  // namespace heed::detail
