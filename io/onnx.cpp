// Writes encoders as ONNX files: inputs, positions, outputs.
#include <cmath>
#include <heed/autograd/embedding.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/mode.hpp>
#include <heed/data/text.hpp>
#include <heed/io/onnx.hpp>
#include <heed/io/onnx_layers.hpp>
#include <limits>
#include <utility>

namespace heed {
namespace {

using detail::OnnxGraph;
using detail::OnnxShared;
using detail::OnnxType;

// Builds the graph of an encoder.
class OnnxEncoder {
 public:
  OnnxEncoder(const GPT& model, const OnnxOptions& options) : model_(model), options_(options) {}

  OnnxGraph build() {
    ids_ = g_.input("input_ids", OnnxType::int64, {"batch", "length"});
    mask_ = as_type(as_type(g_.input("attention_mask", OnnxType::int64, {"batch", "length"}), OnnxType::boolean),
                    OnnxType::float32);
    std::string h = embedded();
    const OnnxShared shared = shared_values();
    const Transformer& transformer = model_.transformer;
    for (std::size_t i = 0; i < transformer.blocks.size(); ++i)
      h = onnx_block(g_, h, transformer.blocks[i], shared, "blocks." + std::to_string(i));
    if (transformer.norm) h = onnx_norm(g_, h, *transformer.norm, "norm");
    if (options_.hidden) g_.output("last_hidden_state", h, {"batch", "length", width()});
    if (options_.logits) g_.output("logits", logits_of(h), {"batch", "length", model_.options().vocabulary});
    if (options_.pooling) g_.output("sentence_embedding", pooled(h, *options_.pooling), {"batch", width()});
    return std::move(g_);
  }

 private:
  const GPT& model_;
  const OnnxOptions& options_;
  OnnxGraph g_;
  std::string ids_, mask_;  // int64 and float32 [batch, length]; the mask is 0 or 1
  std::string positions_;   // int64 [length], after the first call of positions()
  std::string table_;       // the embedding [vocabulary, width]

  Index width() const { return model_.options().blocks.attention.width; }
  std::string as_type(const std::string& x, OnnxType type) {
    return g_.add("Cast", {x}, {{"to", static_cast<Index>(type)}});
  }
  std::string unsqueeze(const std::string& x, const std::vector<Index>& axes) {
    return g_.add("Unsqueeze", {x, g_.integers(axes)});
  }

  // 0 where the mask is 1, and the lowest number where it is 0.
  std::string mask_bias(const std::string& mask) {
    const std::string masked = g_.add("Sub", {g_.number(1), mask});
    return g_.add("Mul", {masked, g_.number(std::numeric_limits<float>::lowest())});
  }

  // int64 [length]: 0, 1, ...
  const std::string& positions() {
    if (!positions_.empty()) return positions_;
    const std::string length = g_.add("Gather", {g_.add("Shape", {ids_}), g_.integer(1)});
    return positions_ = g_.add("Range", {g_.integer(0), length, g_.integer(1)});
  }

  // The rows of a table [context, n] for the positions: [length, n]. Gather fails for positions after the context.
  std::string rows_at_positions(const std::string& name, const Tensor& table) {
    return g_.add("Gather", {g_.weight(name, table), positions()});
  }

  // The input of the first block: [batch, length, width].
  std::string embedded() {
    const GPTOptions& o = model_.options();
    const TokenInput& input = model_.input;
    table_ = g_.weight("tokens.weight", input.tokens->weight.detach());
    std::string h = g_.add("Gather", {table_, ids_});
    if (o.scaled_embedding) h = g_.add("Mul", {h, g_.number(std::sqrt(static_cast<double>(width())))});
    if (input.positions)
      h = g_.add("Add", {h, rows_at_positions("positions.weight", input.positions->weight.detach())});
    if (o.positions == PositionKind::sinusoidal)
      h = g_.add("Add", {h, rows_at_positions("positions.sinusoidal", sinusoidal_positions(o.context, width()))});
    if (input.types) {
      const std::string types = g_.input("token_type_ids", OnnxType::int64, {"batch", "length"});
      h = g_.add("Add", {h, g_.add("Gather", {g_.weight("types.weight", input.types->weight.detach()), types})});
    }
    return input.norm ? onnx_norm(g_, h, *input.norm, "input_norm") : h;
  }

  OnnxShared shared_values() {
    OnnxShared shared;
    shared.mask_bias = mask_bias(unsqueeze(mask_, {1, 2}));
    shared.value_mask = unsqueeze(mask_, {1, 3});
    for (const TransformerBlock& block : model_.transformer.blocks) {
      const MultiHeadAttentionOptions& o = block.attention.options();
      if (o.rope && shared.cos.empty()) add_rope(shared, o);
      if (o.relative_clip > 0 && shared.distances.empty())
        shared.distances = g_.add("Sub", {unsqueeze(positions(), {0}), unsqueeze(positions(), {1})});
    }
    return shared;
  }

  // Turning the vector (1, ..., 1, 0, ..., 0) of each position gives the cosines, then the sines.
  void add_rope(OnnxShared& shared, const MultiHeadAttentionOptions& o) {
    const Index context = model_.options().context, half = o.key_size / 2;
    RopeOptions options{.scaling = o.rope_scaling};
    if (o.rope_base > 0) options.base = o.rope_base;
    const Tensor ones = concatenate({Tensor::ones({context, half}), Tensor::zeros({context, half})}, 1);
    const std::vector<std::string> parts =
        g_.split(rows_at_positions("positions.rope", rope(ones, options)), {half, half});
    shared.cos = parts[0], shared.sin = parts[1];
  }

  std::string logits_of(const std::string& h) {
    const GPTOptions& o = model_.options();
    const std::string weight = o.tied ? g_.add("Transpose", {table_}, {{"perm", std::vector<Index>{1, 0}}})
                                      : g_.weight("output", model_.output.detach().t());
    std::string y = h;
    if (const auto& t = model_.transform) {
      y = onnx_activation(g_, onnx_linear(g_, y, t->dense, "transform.dense"), t->activation);
      y = onnx_norm(g_, y, t->norm, "transform.norm");
    }
    std::string logits = g_.add("MatMul", {y, weight});
    if (model_.output_bias.defined())
      logits = g_.add("Add", {logits, g_.weight("output_bias", model_.output_bias.detach())});
    if (o.logit_cap == 0) return logits;
    const std::string cap = g_.number(o.logit_cap);
    return g_.add("Mul", {g_.add("Tanh", {g_.add("Div", {logits, cap})}), cap});
  }

  // One vector per row: [batch, width].
  std::string pooled(const std::string& h, const SentencePooling& pooling) {
    const std::string y = row_vector(h, pooling.kind);
    if (!pooling.normalized) return y;
    const std::string length = g_.add("ReduceL2", {y}, {{"axes", std::vector<Index>{1}}});
    return g_.add("Div", {y, g_.add("Max", {length, g_.number(1e-12)})});
  }

  std::string row_vector(const std::string& h, SentencePooling::Kind kind) {
    if (kind == SentencePooling::Kind::first) return g_.add("Gather", {h, g_.integer(0)}, {{"axis", 1}});
    const std::string mask = unsqueeze(mask_, {2});
    if (kind == SentencePooling::Kind::max) {
      const std::string unmasked = g_.add("Add", {h, mask_bias(mask)});
      return g_.add("ReduceMax", {unmasked}, {{"axes", std::vector<Index>{1}}, {"keepdims", 0}});
    }
    const std::string axis = g_.integers({1});
    const std::string sum = g_.add("ReduceSum", {g_.add("Mul", {h, mask}), axis}, {{"keepdims", 0}});
    const std::string count = g_.add("ReduceSum", {mask, axis}, {{"keepdims", 0}});
    return g_.add("Div", {sum, g_.add("Max", {count, g_.number(1)})});
  }
};

void check_export(const GPT& model, const OnnxOptions& options) {
  using detail::kExportOnnx;
  require(!model.options().causal, kExportOnnx,
          ": the model is causal; only encoders can be written to ONNX: a BERT, or a GPT with causal = false");
  require(!model.options().blocks.reversible, kExportOnnx, ": the blocks are reversible; they must be ordinary blocks");
  require(options.hidden || options.logits || options.pooling, kExportOnnx,
          ": no output is chosen; hidden or logits must be true, or pooling set");
  for (const auto& [key, text] : options.metadata)
    require(!find_invalid_utf8(key) && !find_invalid_utf8(text), kExportOnnx, ": the metadata ", excerpt(key), " = ",
            excerpt(text), " is not UTF-8");
}

}  // namespace

void export_onnx(const std::filesystem::path& file, const GPT& model, const OnnxOptions& options) {
  check_export(model, options);
  const NoTape no_tape;
  OnnxEncoder(model, options).build().save(detail::kExportOnnx, file, options.metadata);
}

}  // namespace heed
