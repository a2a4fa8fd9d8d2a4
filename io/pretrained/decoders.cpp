// Llama and its relatives: Mistral, Qwen2, Qwen3, Gemma 3.
#include <algorithm>
#include <cmath>
#include <heed/io/pretrained/family.hpp>

namespace heed::detail::pretrained {
namespace {

// The values of a class in transformers for fields that config.json lacks. 0: the value that follows from others.
struct Defaults {
  Index kv_heads = 0, head_size = 0;
  double rope_base = 10000;
};

void decoder_fields(ModelFields& f, GPTConfig& config, const Defaults& given = {}) {
  const Defaults defaults = f.gguf() ? Defaults() : given;
  common_without_effect(f);
  GPTOptions& o = config.options;
  MultiHeadAttentionOptions& a = o.blocks.attention;
  o.positions = PositionKind::rope;
  o.blocks.norm = NormKind::rms, o.blocks.norm_first = true, o.blocks.activation = FeedForwardKind::swiglu;
  if (f.reads()) a.bias = false;
  f.or_else<Index>({"vocab_size", "vocab_size"}, o.vocabulary, 0);
  f({"hidden_size", "embedding_length"}, a.width);
  f({"num_hidden_layers", "block_count"}, o.blocks.layers);
  f({"num_attention_heads", "attention.head_count"}, a.heads);
  f.or_else({"num_key_value_heads", "attention.head_count_kv"}, a.kv_heads,
            defaults.kv_heads > 0 ? defaults.kv_heads : a.heads);
  f({"intermediate_size", "feed_forward_length"}, o.blocks.hidden);
  f({"max_position_embeddings", "context_length"}, o.context);
  f({"rms_norm_eps", "attention.layer_norm_rms_epsilon"}, a.norm_eps);
  Index head = a.head_size(), values = head;
  f.or_else({"head_dim", "attention.key_length"}, head,
            defaults.head_size > 0 ? defaults.head_size : a.width / a.heads);
  f.or_else({"", "attention.value_length"}, values, head);
  if (values != head) f.fail_at({"", "attention.value_length"}, "is ", values, "; heed supports only ", head);
  if (f.gguf()) f.only({"", "rope.dimension_count"}, head);
  a.key_size = head * a.heads == a.width ? 0 : head;
  double dropout = a.dropout.value_or(0);
  f.or_else<double>({"attention_dropout"}, dropout, 0);
  o.blocks.dropout = 0;
  if (dropout > 0) a.dropout = dropout;
  rope_fields(f, a, defaults.rope_base);
}

}  // namespace

void llama_fields(ModelFields& f, GPTConfig& config) {
  decoder_fields(f, config);
  f.without_effect({"pretraining_tp", "is_llama_config"});  // slices of one product, in older versions
  f.only({"rope_interleaved"}, false);
  f.only<std::string>({"hidden_act"}, "silu");
  f.only({"attention_bias"}, false);
  f.only({"mlp_bias"}, false);
  f.or_else({"tie_word_embeddings"}, config.options.tied, f.gguf() && config.options.tied);
}

void mistral_fields(ModelFields& f, GPTConfig& config) {
  decoder_fields(f, config, {.kv_heads = 8});
  f.only<std::string>({"hidden_act"}, "silu");
  f.or_else({"tie_word_embeddings"}, config.options.tied, false);
  Index window = config.mechanism.window;
  if (f.json() != nullptr) {  // without the field there is a window, and with null there is none
    const bool named = std::ranges::find(f.json()->value().keys, "sliding_window") != f.json()->value().keys.end();
    f.or_else<Index>({"sliding_window"}, window, named ? 0 : 4096);
  }
  if (window > 0 && window < config.options.context) config.attention = "window", config.mechanism.window = window;
  JsonValue* json = f.json_to_write();
  if (json != nullptr) json->set("sliding_window", window > 0 ? JsonValue::of_integer(window) : JsonValue());
}

static void qwen_fields(ModelFields& f, GPTConfig& config, const Defaults& defaults) {
  decoder_fields(f, config, defaults);
  f.only<std::string>({"hidden_act"}, "silu");
  f.only({"use_sliding_window"}, false);
  f.without_effect({"sliding_window", "max_window_layers"});  // since use_sliding_window is false
  f.or_else({"tie_word_embeddings"}, config.options.tied, f.gguf() && config.options.tied);
  if (f.json() == nullptr) return;
  f.mark_used("layer_types");
  if (!f.json()->has("layer_types")) return;
  for (const JsonView& layer : f.json()->at("layer_types").items()) layer.one_of({"full_attention"});
}

void qwen2_fields(ModelFields& f, GPTConfig& config) {
  qwen_fields(f, config, {.kv_heads = 32});
  config.options.blocks.attention.qkv_bias = true;
}

void qwen3_fields(ModelFields& f, GPTConfig& config) {
  qwen_fields(f, config, {.kv_heads = 32, .head_size = 128});
  f.only({"attention_bias"}, false);
  config.options.blocks.attention.qk_norm = true;
}

// Scores are divided by the root of query_pre_attn_scalar. GGUF has no such field: engines use the size of a head, and
// in models of 62 layers (27B) the width by the number of heads.
static void gemma3_query_scale(ModelFields& f, GPTOptions& o) {
  MultiHeadAttentionOptions& a = o.blocks.attention;
  const auto size = static_cast<double>(a.head_size());
  const double in_engines = o.blocks.layers == 62 ? static_cast<double>(a.width / a.heads) : size;
  double scalar = a.query_scale > 0 ? size / (a.query_scale * a.query_scale) : size;
  if (f.gguf() && f.reads()) scalar = in_engines;
  if (f.gguf() && std::abs(scalar - in_engines) > 1e-6 * in_engines)
    f.fail_at({"", "query_pre_attn_scalar"}, "is ", scalar, "; a GGUF file requires ", in_engines, " for this model");
  const double nearest = std::round(scalar);
  if (!f.reads() && std::abs(scalar - nearest) < 1e-9 * scalar) {
    auto number = static_cast<Index>(nearest);  // transformers requires an integer
    return f.or_else<Index>({"query_pre_attn_scalar"}, number, number);
  }
  f.or_else<double>({"query_pre_attn_scalar"}, scalar, f.gguf() ? scalar : 256);
  a.query_scale = scalar == size ? 0 : std::sqrt(size / scalar);
}

// Which layers attend to all positions: every n-th. Newer files list the type of each layer.
static void gemma3_layers(ModelFields& f, GPTConfig& config) {
  Index every = config.mechanism.global_every;
  if (f.json() == nullptr) {
    if (f.gguf() && f.reads()) f.or_else<Index>({"", "attention.sliding_window_pattern"}, every, 6);
    if (f.gguf() && !f.reads() && every != 6)
      f.fail_at({"", "attention.sliding_window_pattern"}, "is ", every, "; a GGUF file of Gemma 3 requires 6");
    if (!f.gguf()) f({"sliding_window_pattern"}, every);
    config.mechanism.global_every = every;
    return;
  }
  f.mark_used("layer_types");
  f.or_else<Index>({"sliding_window_pattern"}, every, 6);
  f.mark_used("_sliding_window_pattern");
  if (f.json()->has("layer_types")) {
    const auto layers = f.json()->at("layer_types").items();
    const auto global = [&](std::size_t i) { return layers[i].one_of({"sliding_attention", "full_attention"}) == 1; };
    std::size_t first = 0;
    while (first < layers.size() && !global(first)) ++first;
    every = static_cast<Index>(first + 1);
    if (first == layers.size()) every = std::max<Index>(every, 6);  // all have windows
    for (std::size_t i = 0; i < layers.size(); ++i)
      if (global(i) != ((i + 1) % static_cast<std::size_t>(every) == 0))
        layers[i].refuse("is " + layers[i].text() +
                         "; heed supports models in which every n-th layer is full_attention");
  }
  config.mechanism.global_every = every;
}

void gemma3_fields(ModelFields& f, GPTConfig& config) {
  GPTOptions& o = config.options;
  MultiHeadAttentionOptions& a = o.blocks.attention;
  decoder_fields(f, config, {.kv_heads = 4, .head_size = 256, .rope_base = 1e6});
  config.attention = "window";
  o.scaled_embedding = true, o.blocks.post_norms = true, o.blocks.activation = FeedForwardKind::geglu_tanh;
  a.qk_norm = a.unit_offset = true;
  f.only<std::string>({"hidden_activation"}, "gelu_pytorch_tanh");
  f.only({"attention_bias"}, false);
  f.only({"use_bidirectional_attention"}, false);
  f.or_else({"tie_word_embeddings"}, o.tied, true);
  f({"sliding_window", "attention.sliding_window"}, config.mechanism.window);
  f.or_else<double>({"rope_local_base_freq", "rope.freq_base_swa"}, a.window_rope_base,
                    a.window_rope_base > 0 ? a.window_rope_base : 10000);
  if (f.gguf() && !f.reads() && a.window_rope_base != 10000)
    f.fail_at({"", "rope.freq_base_swa"}, "is ", a.window_rope_base, "; a GGUF file of Gemma 3 requires 10000");
  gemma3_query_scale(f, o);
  for (const char* cap : {"final_logit_softcapping", "attn_logit_softcapping"}) {
    f.mark_used(cap);
    if (f.json() != nullptr && f.json()->has(cap))
      f.json()->at(cap).refuse("is set; heed supports Gemma 3 without caps");
  }
  gemma3_layers(f, config);
}

namespace {

using Weights = std::vector<Weight>;

constexpr const char* kBlock = "blocks.#.";

// A weight of a block: heed's name, that of Hugging Face and that of GGUF, without the names of the block.
Weight of_block(const std::string& heed, const std::string& hf, const std::string& gguf, int part = -1,
                Form form = Form::plain) {
  return {kBlock + heed, part, "layers.#." + hf, "blk.#." + gguf, Form::plain, form};
}

Weights decoder_weights(const GPTOptions& o, Form queries_and_keys, Form norms = Form::plain) {
  const MultiHeadAttentionOptions& a = o.blocks.attention;
  Weights all = {{"tokens.weight", -1, "embed_tokens.weight", "token_embd.weight"},
                 {"norm.weight", -1, "norm.weight", "output_norm.weight", Form::plain, norms}};
  if (!o.tied) all.push_back({"output", -1, "/lm_head.weight", "output.weight"});
  all.push_back(of_block("norm1.weight", "input_layernorm.weight", "attn_norm.weight", -1, norms));
  const auto projections = [&](const std::string& kind) {
    const std::string qkv = "attention.qkv." + kind;
    all.push_back(of_block(qkv, "self_attn.q_proj." + kind, "attn_q." + kind, 0, queries_and_keys));
    all.push_back(of_block(qkv, "self_attn.k_proj." + kind, "attn_k." + kind, 1, queries_and_keys));
    all.push_back(of_block(qkv, "self_attn.v_proj." + kind, "attn_v." + kind, 2));
  };
  projections("weight");
  if (a.qkv_bias.value_or(a.bias)) projections("bias");
  all.push_back(of_block("attention.proj.weight", "self_attn.o_proj.weight", "attn_output.weight"));
  if (a.qk_norm) {
    all.push_back(of_block("attention.q_norm.weight", "self_attn.q_norm.weight", "attn_q_norm.weight", -1, norms));
    all.push_back(of_block("attention.k_norm.weight", "self_attn.k_norm.weight", "attn_k_norm.weight", -1, norms));
  }
  all.push_back(of_block("mlp.up.weight", "mlp.gate_proj.weight", "ffn_gate.weight", 0));
  all.push_back(of_block("mlp.up.weight", "mlp.up_proj.weight", "ffn_up.weight", 1));
  all.push_back(of_block("mlp.down.weight", "mlp.down_proj.weight", "ffn_down.weight"));
  return all;
}

}  // namespace

std::vector<Weight> llama_weights(const GPTOptions& o) {
  Weights all = decoder_weights(o, Form::rope_pairs);
  all.push_back(of_block("norm2.weight", "post_attention_layernorm.weight", "ffn_norm.weight"));
  return all;
}

std::vector<Weight> qwen_weights(const GPTOptions& o) {
  Weights all = decoder_weights(o, Form::plain);
  all.push_back(of_block("norm2.weight", "post_attention_layernorm.weight", "ffn_norm.weight"));
  return all;
}

std::vector<Weight> gemma3_weights(const GPTOptions& o) {
  const Form one = Form::plus_one;
  Weights all = decoder_weights(o, Form::plain, one);
  all.push_back(of_block("norm2.weight", "pre_feedforward_layernorm.weight", "ffn_norm.weight", -1, one));
  all.push_back(
      of_block("post_norm1.weight", "post_attention_layernorm.weight", "post_attention_norm.weight", -1, one));
  all.push_back(of_block("post_norm2.weight", "post_feedforward_layernorm.weight", "post_ffw_norm.weight", -1, one));
  return all;
}

}  // namespace heed::detail::pretrained
