// Encoders as ONNX files: the nodes of a small model, outputs by onnxruntime, equal bytes, errors.
#include <algorithm>
#include <cmath>
#include <heed/core/parallel.hpp>
#include <heed/data/npy.hpp>
#include <heed/io/onnx.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/lora.hpp>
#include <heed/layers/model.hpp>
#include <heed/layers/model_config.hpp>
#include <set>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::error_of;
using test::TemporaryFolder;
namespace fs = std::filesystem;
using PoolingKind = SentencePooling::Kind;

namespace {

BERTOptions small_bert() {
  return {.vocabulary = 11, .context = 16, .blocks = {.layers = 2, .attention = {.width = 8, .heads = 2}}};
}

// A model whose weights are all far from their initial values.
BERT model_of(const BERTOptions& options, const MechanismFactory& mechanism = softmax_mechanism) {
  Rng rng(1);
  BERT model(options, rng, mechanism);
  for (const NamedParameter& p : named_parameters(model))
    p.parameter->copy_(*p.parameter + rng.normal(p.parameter->shape(), 0, 0.3));
  return model;
}

struct Variant {
  std::string name;
  BERT model;
  SentencePooling pooling;
};

// All options of encoders, in few models.
std::vector<Variant> variants() {
  constexpr PoolingKind kinds[] = {PoolingKind::mean, PoolingKind::max, PoolingKind::first};
  std::vector<Variant> all;
  const auto add = [&](const std::string& name, auto change) {
    BERTOptions o = small_bert();
    change(o, o.blocks, o.blocks.attention);
    const SentencePooling pooling{kinds[all.size() % 3], all.size() % 2 == 0};
    all.push_back({name, model_of(o), pooling});
  };
  using Blocks = TransformerOptions;
  using Heads = MultiHeadAttentionOptions;
  add("default", [](BERTOptions&, Blocks&, Heads&) {});
  add("bert", [](BERTOptions& o, Blocks& b, Heads&) {
    b.norm_first = false, o.token_types = 2, o.input_norm = true, o.output_bias = true, o.output_transform = true;
    b.attention.norm_eps = 1e-3;
  });
  add("llama", [](BERTOptions& o, Blocks& b, Heads& a) {
    b.norm = NormKind::rms, b.activation = FeedForwardKind::swiglu, a.bias = false, a.kv_heads = 1;
    o.positions = PositionKind::rope, o.tied = false;
  });
  add("gemma", [](BERTOptions& o, Blocks& b, Heads& a) {
    b.norm = NormKind::rms, b.activation = FeedForwardKind::geglu_tanh, b.post_norms = true, a.unit_offset = true;
    a.qk_norm = true, a.query_scale = 0.8, a.bias = false, o.positions = PositionKind::rope, a.rope_base = 300;
    a.rope_scaling = {RopeScalingKind::linear, 4}, o.scaled_embedding = true;
  });
  add("qwen", [](BERTOptions& o, Blocks& b, Heads& a) {
    b.norm = NormKind::rms, b.activation = FeedForwardKind::silu, a.qk_norm = true, a.heads = 4, a.kv_heads = 2;
    o.positions = PositionKind::rope, b.hidden = 5, a.bias = false, a.qkv_bias = true;
    a.rope_scaling = {RopeScalingKind::llama3, 8, 1, 4, 8};
  });
  add("sizes", [](BERTOptions& o, Blocks& b, Heads& a) {
    b.activation = FeedForwardKind::relu, a.key_size = 3, a.value_size = 5, a.heads = 6, a.kv_heads = 3;
    o.positions = PositionKind::sinusoidal, a.bias = false;
  });
  add("relative", [](BERTOptions& o, Blocks& b, Heads& a) {
    b.activation = FeedForwardKind::relu_squared, a.relative_clip = 3, o.positions = PositionKind::relative;
    o.logit_cap = 0.7;
  });
  add("none", [](BERTOptions& o, Blocks& b, Heads& a) {
    b.activation = FeedForwardKind::gelu_tanh, b.norm_first = false, a.qk_norm = true;
    o.positions = PositionKind::none;
  });
  add("untied", [](BERTOptions& o, Blocks& b, Heads&) {
    b.activation = FeedForwardKind::geglu, o.tied = false, o.output_transform = true, o.output_bias = true;
  });
  add("no_blocks", [](BERTOptions&, Blocks& b, Heads&) { b.layers = 0; });
  all.push_back({"scale", model_of(small_bert(), [](Index, Rng&) { return SoftmaxAttention{.scale = 0.9}; }), {}});
  add("float64", [](BERTOptions&, Blocks&, Heads&) {});
  to(all.back().model, DType::float64);
  return all;
}

// Three batches of different sizes and lengths: whole rows, padding at the end, padding anywhere with a row of padding.
struct MaskedBatch {
  Tensor ids;    // int32 [B, T]
  Tensor mask;   // bool8 [B, T]
  Tensor types;  // int32 [B, T], 0 or 1
};
std::vector<MaskedBatch> batches() {
  const Tensor ends = Tensor::from<bool>({1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1}, {3, 7});
  Tensor holes = Tensor::ones({4, 16}, DType::bool8);
  holes.slice(0, 0, 1).slice(1, 0, 9).fill_(0);
  holes.slice(0, 1, 2).slice(1, 3, 16, 2).fill_(0);
  holes.slice(0, 3, 4).fill_(0);
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::int32); };
  return {{test::random_ids({1, 1}, 11, 1), Tensor::ones({1, 1}, DType::bool8), zeros({1, 1})},
          {test::random_ids({3, 7}, 11, 2), ends, zeros({3, 7})},
          {test::random_ids({4, 16}, 11, 3), holes, test::random_ids({4, 16}, 2, 4)}};
}

// The vectors of rows by plain loops. Rows that are all padding get zeros.
Tensor pooled(const Tensor& hidden, const Tensor& mask, const SentencePooling& pooling) {
  const Index width = hidden.dim(2);
  Tensor all = Tensor::zeros({hidden.dim(0), width}, DType::float64);
  for (Index b = 0; b < hidden.dim(0); ++b) {
    double* y = all.ptr<double>() + b * width;
    double count = 0, square = 0;
    for (Index t = 0; t < hidden.dim(1); ++t) {
      if (mask.at({b, t}) == 0) continue;
      for (Index i = 0; i < width; ++i) {
        const double x = hidden.at({b, t, i});
        y[i] = count == 0 ? x : pooling.kind == PoolingKind::max ? std::max(y[i], x) : y[i] + x;
      }
      ++count;
    }
    for (Index i = 0; i < width; ++i) {
      if (pooling.kind == PoolingKind::mean && count > 0) y[i] /= count;
      if (pooling.kind == PoolingKind::first) y[i] = hidden.at({b, 0, i});
      square += y[i] * y[i];
    }
    for (Index i = 0; i < width && pooling.normalized && square > 0; ++i) y[i] /= std::sqrt(square);
  }
  return all;
}

// A message of protobuf as its fields: the bytes of each, or the number of a varint as text.
std::vector<std::pair<int, std::string>> fields_of(std::string_view bytes) {
  std::vector<std::pair<int, std::string>> fields;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(0));
      bytes.remove_prefix(1);
      value |= std::uint64_t{byte & 127U} << shift;
      if (byte < 128) return value;
    }
  };
  while (!bytes.empty()) {
    const std::uint64_t key = varint();
    const int field = static_cast<int>(key >> 3);
    if (key % 8 == 0) {
      fields.push_back({field, std::to_string(static_cast<std::int64_t>(varint()))});
      continue;
    }
    const std::size_t size = key % 8 == 5 ? 4 : varint();
    fields.push_back({field, std::string(bytes.substr(0, size))});
    bytes.remove_prefix(size);
  }
  return fields;
}

// The values of a field, joined: "a, b".
std::string texts_of(const std::string& message, int field) {
  std::string all;
  for (const auto& [number, text] : fields_of(message))
    if (number == field) all += (all.empty() ? "" : ", ") + text;
  return all;
}

// One line per node and initializer: "y = Op(a, b)", "w [2, 3]".
std::string structure_of(const std::string& model) {
  std::string lines;
  for (const auto& [field, x] : fields_of(texts_of(model, 7))) {
    if (field == 1) lines += texts_of(x, 2) + " = " + texts_of(x, 4) + "(" + texts_of(x, 1) + ")\n";
    if (field == 5) lines += texts_of(x, 8) + " [" + texts_of(x, 1) + "]\n";
  }
  return lines;
}

}  // namespace

TEST_CASE("ONNX: the nodes and weights of a small encoder") {
  BERTOptions o = small_bert();
  o.blocks.layers = 1;
  const BERT model = model_of(o);
  const TemporaryFolder folder;
  export_onnx(folder.path / "x.onnx", model, {.logits = true, .metadata = {{"licence", "MIT"}}});
  const std::string bytes = bytes_of(folder.path / "x.onnx");
  CHECK(structure_of(bytes) == bytes_of(test::in_source("tests/reference/onnx_encoder.txt")));
  CHECK(texts_of(bytes, 1) == "8");                // the version of the format
  CHECK(texts_of(texts_of(bytes, 8), 2) == "17");  // the opset
  CHECK(texts_of(texts_of(bytes, 14), 2) == "MIT");
}

TEST_CASE("ONNX: onnxruntime computes the same for three sizes of batches, with padding") {
  const std::string python = test::python_with("onnx, onnxruntime, numpy");
  if (python.empty()) return;
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name, std::size_t batch, const std::string& what) {
    return folder.path / (name + "." + std::to_string(batch) + "." + what + ".npy");
  };
  const std::vector<Variant> models = variants();
  const std::vector<MaskedBatch> all = batches();
  for (const Variant& v : models) {
    export_onnx(folder.path / (v.name + ".onnx"), v.model, {.logits = true, .pooling = v.pooling});
    for (std::size_t i = 0; i < all.size(); ++i) {
      save_npy(path(v.name, i, "input_ids"), all[i].ids);
      save_npy(path(v.name, i, "attention_mask"), all[i].mask);
      save_npy(path(v.name, i, "token_type_ids"), all[i].types);
    }
  }
  const test::Ran ran = test::run(python + " " + test::quoted(test::in_source("tests/reference/onnx_run.py")) + " " +
                                  test::quoted(folder.path.string()));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.output, "bert.1 logits ['batch', 'length', 11] (3, 7, 11)"));
  for (const Variant& v : models) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      INFO(v.name, " batch ", i);
      const AttentionCall call{.key_mask = all[i].mask};
      const bool typed = v.model.options().token_types > 0;
      const Tensor hidden = v.model.GPT::hidden(all[i].ids, call, typed ? all[i].types : Tensor());
      const auto differs = [&](const char* output, const Tensor& expected) {
        const Tensor y = load_npy(path(v.name, i, output)).to(expected.dtype());
        return test::worst(y, expected, 1e-5, 1e-5);
      };
      CHECK(differs("last_hidden_state", hidden) <= 1);
      const Index rows = i == 2 ? 3 : all[i].ids.dim(0);  // the last row of batch 2 is padding
      const Tensor vectors = pooled(hidden, all[i].mask, v.pooling).slice(0, 0, rows);
      const Tensor found = load_npy(path(v.name, i, "sentence_embedding")).slice(0, 0, rows).to(DType::float64);
      CHECK(test::worst(found, vectors, 1e-5, 1e-5) <= 1);
      if (!typed || i < 2) CHECK(differs("logits", v.model.GPT::operator()(all[i].ids, call)) <= 1);  // types are 0
    }
  }
}

TEST_CASE("ONNX: equal models give equal bytes with any number of threads, and bfloat16 weights become float32") {
  const TemporaryFolder folder;
  BERTOptions o = small_bert();
  o.vocabulary = 3000;
  BERT model = model_of(o);
  const auto bytes = [&] {
    export_onnx(folder.path / "x.onnx", model, {.logits = true});
    return bytes_of(folder.path / "x.onnx");
  };
  set_threads(1);
  const std::string one = bytes();
  set_threads(3);
  CHECK(bytes() == one);
  set_threads(0);
  to(model, DType::bfloat16);
  const std::string rounded = bytes();
  CHECK(rounded != one);
  CHECK(rounded.size() == one.size());
  to(model, DType::float32);
  CHECK(bytes() == rounded);
}

TEST_CASE("ONNX: outputs are those that are chosen") {
  const TemporaryFolder folder;
  const BERT model = model_of(small_bert());
  const auto outputs = [&](const OnnxOptions& options) {
    export_onnx(folder.path / "x.onnx", model, options);
    std::string names;
    for (const auto& [field, x] : fields_of(texts_of(bytes_of(folder.path / "x.onnx"), 7)))
      if (field == 12) names += texts_of(x, 1) + " ";
    return names;
  };
  CHECK(outputs({}) == "last_hidden_state ");
  CHECK(outputs({.hidden = false, .logits = true}) == "logits ");
  CHECK(outputs({.hidden = false, .pooling = SentencePooling()}) == "sentence_embedding ");
  CHECK(outputs({.logits = true, .pooling = SentencePooling{.kind = PoolingKind::first}}) ==
        "last_hidden_state logits sentence_embedding ");
  CHECK_FALSE(contains(bytes_of(folder.path / "x.onnx"), "ReduceL2"));
}

TEST_CASE("ONNX: each option of an encoder is exported, or changes no result") {
  // If this fails for a new option, export it in io/onnx.cpp or io/onnx_layers.cpp, or refuse it there.
  const std::set<std::string> known = {"activation",
                                       "attention_dropout",
                                       "bias",
                                       "context",
                                       "dropout",
                                       "heads",
                                       "hidden",
                                       "key_size",
                                       "kv_heads",
                                       "layers",
                                       "logit_cap",
                                       "memory_width",
                                       "model",
                                       "norm",
                                       "norm_first",
                                       "positions",
                                       "qk_norm",
                                       "relative_clip",
                                       "rope",
                                       "tied",
                                       "value_size",
                                       "value_width",
                                       "vocabulary",
                                       "width",
                                       "zero_init_residual",
                                       "qkv_bias",
                                       "rope_base",
                                       "rope_scaling",
                                       "rope_factor",
                                       "rope_low_turns",
                                       "rope_high_turns",
                                       "rope_original_context",
                                       "window_rope_base",
                                       "query_scale",
                                       "norm_eps",
                                       "unit_offset",
                                       "post_norms",
                                       "reversible",
                                       "scaled_embedding",
                                       "token_types",
                                       "input_norm",
                                       "output_bias",
                                       "output_transform"};
  BERTOptions o = small_bert();
  for (const OptionField& field : list_fields(o)) {
    INFO(field.name);
    CHECK(known.count(field.name) == 1);
  }
}

TEST_CASE("ONNX: models and options that are refused") {
  const TemporaryFolder folder;
  const fs::path path = folder.path / "x.onnx";
  const BERT model = model_of(small_bert());
  Rng rng(1);
  const GPT causal(small_bert(), rng);
  const auto window = [](Index layer, Rng&) -> AttentionMechanism {
    if (layer == 0) return SoftmaxAttention();
    return WindowAttention({.window = 4});
  };
  const BERT windows(small_bert(), rng, window);
  BERTOptions decoder = small_bert();
  decoder.blocks.attention.memory_width = 8;
  const BERT of_memory(decoder, rng);
  BERTOptions reversible_options = small_bert();
  reversible_options.blocks.reversible = true, reversible_options.blocks.norm_first = true;
  const BERT streams(reversible_options, rng);
  BERT adapted(small_bert(), rng);
  add_lora(adapted, {.targets = "mlp.up"}, rng);
  test::check_errors({
      {"export_onnx: blocks.0.mlp.up has adapters; they must be merged first (merge_lora)",
       [&] { export_onnx(path, adapted); }},
      {"export_onnx: the blocks are reversible; they must be ordinary blocks", [&] { export_onnx(path, streams); }},
      {"export_onnx: blocks.0 attends to a memory; only encoders can be written to ONNX",
       [&] { export_onnx(path, of_memory); }},
      {"export_onnx: the model is causal; only encoders can be written to ONNX: a BERT, or a GPT with causal = false",
       [&] { export_onnx(path, causal); }},
      {"export_onnx: blocks.1.attention is window attention; only softmax attention can be written to ONNX",
       [&] { export_onnx(path, windows); }},
      {"export_onnx: no output is chosen; hidden or logits must be true, or pooling set",
       [&] { export_onnx(path, model, {.hidden = false}); }},
      {"export_onnx: the metadata name = \\xFF is not UTF-8",
       [&] {
         export_onnx(path, model, {.metadata = {{"name", "\xFF"}}});
       }},
      {"export_onnx: ", [&] { export_onnx(folder.path / "none" / "x.onnx", model); }},
  });
  CHECK(test::files_in(folder.path) == 0);
}
