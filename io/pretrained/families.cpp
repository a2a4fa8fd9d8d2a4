// The table of families.
#include <heed/core/names.hpp>
#include <heed/io/pretrained/family.hpp>

namespace heed::detail::pretrained {

namespace {

constexpr const char kHead[] = "lm_head.weight";
constexpr const char* kOfDecoders = ".rotary_emb.inv_freq lm_head.weight rope_freqs.weight";

// The tensors without effect are buffers of older files, an output that is tied, and heads that a language model or an
// encoder for sentences lacks.
constexpr Family kFamilies[] = {
    {"gpt2", "gpt2", "GPT2LMHeadModel", "transformer.", gpt2_fields, gpt2_weights, kHead,
     ".attn.bias .attn.masked_bias lm_head.weight"},
    {"llama", "llama", "LlamaForCausalLM", "model.", llama_fields, llama_weights, kHead, kOfDecoders},
    {"mistral", "", "MistralForCausalLM", "model.", mistral_fields, llama_weights, kHead, kOfDecoders},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", "model.", qwen2_fields, qwen_weights, kHead, kOfDecoders},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", "model.", qwen3_fields, qwen_weights, kHead, kOfDecoders},
    {"gemma3_text", "gemma3", "Gemma3ForCausalLM", "model.", gemma3_fields, gemma3_weights, kHead, kOfDecoders},
    {"bert", "bert", "BertModel", "bert.", bert_fields, bert_weights, "cls.predictions.decoder.weight",
     "embeddings.position_ids pooler.dense. cls.seq_relationship. cls.predictions.decoder. cls.predictions.bias"},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family& family_of_config(const JsonView& config) {
  const std::string& type = config.at("model_type").text();
  for (const Family& family : families())
    if (type == family.name) return family;
  config.at("model_type").refuse("is " + excerpt(type) + "; heed supports " + joined(families(), &Family::name));
}

const Family& family_of_gguf(const GgufFile& file) {
  const std::string& architecture = file.text("general.architecture");
  for (const Family& family : families())
    if (*family.architecture != 0 && architecture == family.architecture) return family;
  fail(file.name(), ": general.architecture is ", architecture,
       "; heed supports gpt2, llama, qwen2, qwen3, gemma3 and bert");
}

GPTConfig plain_config(const GPTConfig& config) {
  GPTConfig c = config;
  c.options = c.options.settled();
  GPTOptions& o = c.options;
  MultiHeadAttentionOptions& a = o.blocks.attention;
  o.zero_init_residual = false, o.blocks.dropout = 0, a.dropout.reset();
  if (a.norm_eps == 0) a.norm_eps = o.blocks.norm == NormKind::layer ? 1e-5 : 1e-6;
  if (a.kv_heads == 0) a.kv_heads = a.heads;
  if (a.key_size * a.heads == a.width) a.key_size = 0;
  if (o.positions == PositionKind::rope) a.rope = true;
  if (a.rope && a.rope_base == 0) a.rope_base = 10000;
  if (o.blocks.hidden == 0) {
    const Index width = a.width;
    o.blocks.hidden = is_gated(*o.blocks.activation) ? (width * 8 / 3 + 7) / 8 * 8 : 4 * width;
  }
  return c;
}

static std::string comparable(GPTConfig config) {
  config = plain_config(config);
  config.options.output_bias = config.options.output_transform = false;
  return to_json(config);
}

const Family* family_for(const GPTConfig& config, bool gguf) {
  const GPTConfig plain = plain_config(config);
  for (const Family& family : families()) {
    if (gguf && *family.architecture == 0) continue;
    GPTConfig written = plain, read;
    JsonValue json = JsonValue::object();
    try {
      JsonWriter writer(json);
      family.fields(writer, written);
      JsonReader reader(JsonView(json, "config.json"));
      family.fields(reader, read);
    } catch (const Error&) {  // the family has no such models
      continue;
    }
    if (comparable(read) == comparable(plain)) return &family;
  }
  return nullptr;
}

}  // namespace heed::detail::pretrained
