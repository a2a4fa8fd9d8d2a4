// GPT-2 and BERT.
#include <heed/io/pretrained/family.hpp>

namespace heed::detail::pretrained {
namespace {

// Activations by their names in config.json.
FeedForwardKind activation_named(ModelFields& f, const FieldKey& key, const std::string& name) {
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return FeedForwardKind::gelu_tanh;
  if (name == "gelu") return FeedForwardKind::gelu;
  if (name == "relu") return FeedForwardKind::relu;
  if (name == "silu" || name == "swish") return FeedForwardKind::silu;
  f.fail_at(key, "is ", name, "; heed supports gelu, gelu_new, gelu_pytorch_tanh, relu and silu");
}

const char* name_of_activation(ModelFields& f, const FieldKey& key, FeedForwardKind kind) {
  switch (kind) {
    case FeedForwardKind::gelu_tanh: return "gelu_new";
    case FeedForwardKind::gelu: return "gelu";
    case FeedForwardKind::relu: return "relu";
    case FeedForwardKind::silu: return "silu";
    default: f.fail_at(key, "cannot name the activation of this model; it must be gelu, gelu_tanh, relu or silu");
  }
}

void activation_field(ModelFields& f, const FieldKey& key, std::optional<FeedForwardKind>& kind,
                      FeedForwardKind otherwise) {
  std::string word = f.reads() ? "" : name_of_activation(f, key, *kind);
  f.or_else(key, word, std::string(name_of_activation(f, key, otherwise)));
  if (f.gguf() && !f.reads() && *kind != otherwise)
    f.fail_at(key, "is ", word, "; GGUF has no field for the activation, and engines use ",
              name_of_activation(f, key, otherwise));
  kind = activation_named(f, key, word);
}

// A share of dropped values.
void dropout_field(ModelFields& f, const char* name, std::optional<double>& share, double otherwise) {
  double p = share.value_or(0);
  f.or_else<double>({name}, p, f.gguf() ? 0 : otherwise);
  if (p >= 1) f.fail_at({name}, "is ", p, "; it must be below 1");
  share = p;
}

}  // namespace

void common_without_effect(ModelFields& f) {
  f.without_effect({"model_type",
                    "architectures",
                    "_name_or_path",
                    "name_or_path",
                    "transformers_version",
                    "torch_dtype",
                    "dtype",
                    "initializer_range",
                    "use_cache",
                    "bos_token_id",
                    "eos_token_id",
                    "pad_token_id",
                    "return_dict",
                    "output_attentions",
                    "output_hidden_states",
                    "attn_implementation",
                    "_attn_implementation",
                    "_attn_implementation_autoset",
                    "id2label",
                    "label2id",
                    "torchscript",
                    "transformers.js_config",
                    "task_specific_params",
                    "problem_type",
                    "chunk_size_feed_forward",
                    "gradient_checkpointing",
                    "tokenizer_class",
                    "_commit_hash"});
}

void gpt2_fields(ModelFields& f, GPTConfig& config) {
  common_without_effect(f);
  // Heads for summaries of texts, which a language model lacks; the type of sums of attention, which is float32 here.
  f.without_effect({"summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
                    "summary_first_dropout", "reorder_and_upcast_attn", "n_ctx"});
  GPTOptions& o = config.options;
  MultiHeadAttentionOptions& a = o.blocks.attention;
  o.positions = PositionKind::learned, o.blocks.norm_first = true;
  f.or_else<Index>({"vocab_size"}, o.vocabulary, 0);
  f({"n_embd", "embedding_length"}, a.width);
  f({"n_layer", "block_count"}, o.blocks.layers);
  f({"n_head", "attention.head_count"}, a.heads);
  f.or_else({"n_inner", "feed_forward_length"}, o.blocks.hidden, 4 * a.width);
  f({"n_positions", "context_length"}, o.context);
  f.or_else({"layer_norm_epsilon", "attention.layer_norm_epsilon"}, a.norm_eps, 1e-5);
  activation_field(f, {"activation_function"}, o.blocks.activation, FeedForwardKind::gelu_tanh);
  std::optional<double> embedding = o.blocks.dropout;
  dropout_field(f, "resid_pdrop", o.blocks.dropout, 0.1);
  dropout_field(f, "embd_pdrop", embedding, 0.1);
  dropout_field(f, "attn_pdrop", a.dropout, 0.1);
  if (*embedding != *o.blocks.dropout)
    f.fail_at({"embd_pdrop"}, "is ", *embedding, " and resid_pdrop is ", *o.blocks.dropout, "; they must be equal");
  f.only({"scale_attn_weights"}, true);
  f.only({"scale_attn_by_inverse_layer_idx"}, false);
  f.only({"add_cross_attention"}, false);
  f.or_else({"tie_word_embeddings"}, o.tied, !f.gguf() || o.tied);
}

std::vector<Weight> gpt2_weights(const GPTOptions& o) {
  std::vector<Weight> all = {{"tokens.weight", -1, "wte.weight", "token_embd.weight"},
                             {"positions.weight", -1, "wpe.weight", "position_embd.weight"},
                             {"norm.weight", -1, "ln_f.weight", "output_norm.weight"},
                             {"norm.bias", -1, "ln_f.bias", "output_norm.bias"}};
  if (!o.tied) all.push_back({"output", -1, "/lm_head.weight", "output.weight"});
  const auto both = [&](const std::string& heed, const std::string& hf, const std::string& gguf, Form form) {
    all.push_back({"blocks.#." + heed + ".weight", -1, "h.#." + hf + ".weight", "blk.#." + gguf + ".weight", form});
    all.push_back({"blocks.#." + heed + ".bias", -1, "h.#." + hf + ".bias", "blk.#." + gguf + ".bias"});
  };
  both("norm1", "ln_1", "attn_norm", Form::plain);
  both("attention.qkv", "attn.c_attn", "attn_qkv", Form::transposed);
  both("attention.proj", "attn.c_proj", "attn_output", Form::transposed);
  both("norm2", "ln_2", "ffn_norm", Form::plain);
  both("mlp.up", "mlp.c_fc", "ffn_up", Form::transposed);
  both("mlp.down", "mlp.c_proj", "ffn_down", Form::transposed);
  return all;
}

void bert_fields(ModelFields& f, GPTConfig& config) {
  common_without_effect(f);
  f.without_effect({"classifier_dropout"});  // of a classifier, which this model lacks
  GPTOptions& o = config.options;
  MultiHeadAttentionOptions& a = o.blocks.attention;
  o.causal = false, o.positions = PositionKind::learned, o.blocks.norm_first = false, o.input_norm = true;
  f.or_else<Index>({"vocab_size"}, o.vocabulary, 0);
  f({"hidden_size", "embedding_length"}, a.width);
  f({"num_hidden_layers", "block_count"}, o.blocks.layers);
  f({"num_attention_heads", "attention.head_count"}, a.heads);
  f({"intermediate_size", "feed_forward_length"}, o.blocks.hidden);
  f({"max_position_embeddings", "context_length"}, o.context);
  f.or_else<Index>({"type_vocab_size", "tokenizer.ggml.token_type_count"}, o.token_types, 2);
  f.or_else({"layer_norm_eps", "attention.layer_norm_epsilon"}, a.norm_eps, 1e-12);
  activation_field(f, {"hidden_act"}, o.blocks.activation, FeedForwardKind::gelu);
  dropout_field(f, "hidden_dropout_prob", o.blocks.dropout, 0.1);
  dropout_field(f, "attention_probs_dropout_prob", a.dropout, 0.1);
  f.only<std::string>({"position_embedding_type"}, "absolute");
  f.only({"is_decoder"}, false);
  f.only({"add_cross_attention"}, false);
  f.only({"tie_word_embeddings"}, true);
  f.only({"", "attention.causal"}, false);
}

std::vector<Weight> bert_weights(const GPTOptions& o) {
  std::vector<Weight> all = {{"tokens.weight", -1, "embeddings.word_embeddings.weight", "token_embd.weight"},
                             {"positions.weight", -1, "embeddings.position_embeddings.weight", "position_embd.weight"},
                             {"types.weight", -1, "embeddings.token_type_embeddings.weight", "token_types.weight"}};
  const auto both = [&](const std::string& heed, const std::string& hf, const std::string& gguf, int part = -1) {
    for (const std::string kind : {".weight", ".bias"})
      all.push_back({heed + kind, part, hf + kind, gguf.empty() ? "" : gguf + kind});
  };
  const std::string block = "blocks.#.", layer = "encoder.layer.#.", blk = "blk.#.";
  both("input_norm", "embeddings.LayerNorm", "token_embd_norm");
  both(block + "attention.qkv", layer + "attention.self.query", blk + "attn_q", 0);
  both(block + "attention.qkv", layer + "attention.self.key", blk + "attn_k", 1);
  both(block + "attention.qkv", layer + "attention.self.value", blk + "attn_v", 2);
  both(block + "attention.proj", layer + "attention.output.dense", blk + "attn_output");
  both(block + "norm1", layer + "attention.output.LayerNorm", blk + "attn_output_norm");
  both(block + "mlp.up", layer + "intermediate.dense", blk + "ffn_up");
  both(block + "mlp.down", layer + "output.dense", blk + "ffn_down");
  both(block + "norm2", layer + "output.LayerNorm", blk + "layer_output_norm");
  if (o.output_transform) {
    both("transform.dense", "/cls.predictions.transform.dense", "");
    both("transform.norm", "/cls.predictions.transform.LayerNorm", "");
  }
  if (o.output_bias) all.push_back({"output_bias", -1, "/cls.predictions.bias", ""});
  return all;
}

}  // namespace heed::detail::pretrained
