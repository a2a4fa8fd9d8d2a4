// Writes published models.
#include <algorithm>
#include <heed/data/detail/disk.hpp>
#include <heed/data/detail/new_folder.hpp>
#include <heed/io/onnx.hpp>
#include <heed/io/pretrained.hpp>
#include <heed/io/pretrained/weights.hpp>
#include <heed/io/safetensors.hpp>
#include <heed/io/tokenizer_gguf.hpp>
#include <heed/layers/model.hpp>
#include <iterator>

namespace heed {

using namespace detail::pretrained;
using detail::JsonValue;

namespace {

namespace fs = std::filesystem;
constexpr const char* kSavePretrained = "save_pretrained";

const Family& family_to_write(const Pretrained& p, bool gguf) {
  const Family* family = family_for(p.config, gguf);
  require(family != nullptr, "save_pretrained: no family of published models has the options of this model; ",
          gguf ? "GGUF files" : "folders", " can hold GPT-2, Llama, ", gguf ? "" : "Mistral, ",
          "Qwen2, Qwen3, Gemma 3 and BERT; a checkpoint (.h5) can hold any model");
  return *family;
}

// GPT-2's files have biases. A model without them, such as train_lm makes by default, is one whose biases are zero.
Pretrained with_biases(Pretrained& p) {
  const NoTape no_tape;
  GPTConfig config = p.config;
  config.options.blocks.attention.bias = true;
  Rng rng;
  Pretrained made{.config = config,
                  .lm = {skip_init<GPT>(config.options, rng, config.factory()), p.lm.tokenizer},
                  .card = p.card,
                  .begin_token = p.begin_token,
                  .end_tokens = p.end_tokens};
  std::map<std::string, Parameter*> old;
  for (const NamedParameter& q : named_parameters(p.lm.model)) old[q.name] = q.parameter;
  for (const NamedParameter& q : named_parameters(made.lm.model)) {
    if (old.contains(q.name))
      q.parameter->copy_(*old.at(q.name));
    else
      q.parameter->fill_(0);
  }
  return made;
}

bool needs_biases(const Pretrained& p, bool gguf) {
  GPTConfig config = p.config;
  config.options.blocks.attention.bias = true;
  return family_for(p.config, gguf) == nullptr && family_for(config, gguf) != nullptr;
}

// ---- Folders ----

JsonValue config_json(const Pretrained& p, const Family& family, StoredType type) {
  JsonValue json = JsonValue::object();
  GPTConfig config = plain_config(p.config);
  const GPTOptions given = p.config.options.settled();
  config.options.blocks.dropout = given.blocks.dropout;
  config.options.blocks.attention.dropout = given.blocks.attention.dropout;
  std::string class_name = family.class_name;
  if (p.next_sentence)
    class_name = config.options.output_transform ? "BertForPreTraining" : "BertForNextSentencePrediction";
  else if (config.options.output_transform)
    class_name = "BertForMaskedLM";
  json.set("architectures", JsonValue::array({JsonValue::of(class_name)}));
  json.set("model_type", JsonValue::of(std::string(family.name)));
  JsonWriter writer(json);
  family.fields(writer, config);
  std::vector<JsonValue> ends;
  for (const std::int32_t id : p.end_tokens) ends.push_back(JsonValue::of_integer(id));
  // Null where there is none: the classes have defaults.
  json.set("bos_token_id", p.begin_token ? JsonValue::of_integer(*p.begin_token) : JsonValue());
  json.set("eos_token_id", ends.empty() ? JsonValue() : ends.size() == 1 ? ends[0] : JsonValue::array(ends));
  const char* dtype = type == StoredType::f16 ? "float16" : type == StoredType::bf16 ? "bfloat16" : "float32";
  json.set("torch_dtype", JsonValue::of(std::string(dtype)));
  return json;
}

std::string readme_of(const ModelCard& card) {
  std::string text = "---\n";
  for (const auto& [key, value] : card.texts)
    if (value.find('\n') == value.npos) text += key + ": " + detail::quoted_json(value) + "\n";
  text += "---\n";
  if (const auto name = card.texts.find("name"); name != card.texts.end()) text += "# " + name->second + "\n";
  return text;
}

// The class of transformers that reads tokenizer.json as it is. Without its name, transformers takes the class of the
// model, some of which make another tokenizer from the vocabulary.
std::string tokenizer_config_json(const Pretrained& p, const JsonTokenizer& tokenizer) {
  JsonValue json = JsonValue::object();
  const auto token = [&](const char* key, std::optional<std::int32_t> id) {
    if (id && *id < tokenizer.vocabulary_size()) json.set(key, JsonValue::of(tokenizer.token(*id)));
  };
  json.set("tokenizer_class", JsonValue::of(std::string("PreTrainedTokenizerFast")));
  json.set("model_max_length", JsonValue::of_integer(p.config.options.context));
  json.set("clean_up_tokenization_spaces", JsonValue::of(false));
  const bool masked = !p.config.options.causal;
  if (!masked) token("bos_token", p.begin_token);
  if (!p.end_tokens.empty()) token("eos_token", p.end_tokens.front());
  if (masked) {
    token("cls_token", tokenizer.special("<s>"));
    token("sep_token", tokenizer.special("</s>"));
    token("mask_token", tokenizer.id_of("[MASK]"));
  }
  if (p.config.options.token_types > 0) {
    std::vector<JsonValue> inputs;
    for (const char* name : {"input_ids", "token_type_ids", "attention_mask"})
      inputs.push_back(JsonValue::of(std::string(name)));
    json.set("model_input_names", JsonValue::array(std::move(inputs)));
  }
  token("unk_token", tokenizer.special("<unk>"));
  token("pad_token", tokenizer.special("<pad>"));
  return detail::json_text(json);
}

constexpr std::string_view kConfigFile = "config.json", kTokenizerFile = "tokenizer.json",
                           kTokenizerConfigFile = "tokenizer_config.json", kTemplateFile = "chat_template.jinja",
                           kCardFile = "README.md";

// Whether a file in a folder is one of those that save_folder() writes, and may be replaced.
bool is_model_file(const std::string& name, bool with_card) {
  if (name.starts_with("model-") && name.ends_with(".safetensors")) return true;
  if (name == kCardFile) return with_card;
  constexpr std::string_view kNames[] = {kConfigFile,   kTokenizerFile,      kTokenizerConfigFile,
                                         kTemplateFile, "model.safetensors", "model.safetensors.index.json"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

void save_folder(const fs::path& path, Pretrained& p, const SavePretrainedOptions& options) {
  const StoredType type = options.type;
  require(type != StoredType::q8_0,
          "save_pretrained: the type is Q8_0, which only GGUF files have; for a folder it must ",
          "be F32, F16 or BF16");
  require(options.max_file_bytes > 0, "save_pretrained: max_file_bytes is ", options.max_file_bytes,
          "; it must be positive");
  const Family& family = family_to_write(p, false);
  const JsonTokenizer tokenizer = to_json_tokenizer(p.lm.tokenizer);
  std::vector<FileWeight> weights = file_weights(family, false, p.lm.model);
  if (p.next_sentence)
    std::ranges::move(next_sentence_weights(*p.next_sentence, p.config.options), std::back_inserter(weights));
  std::vector<NamedTensor> tensors;
  for (const FileWeight& w : weights)
    tensors.push_back({w.name, w.change ? w.change(w.value) : w.value});  // no safetensors file of a family has changes
  const bool card = !p.card.texts.empty();
  detail::NewFolder folder(kSavePretrained, path, [&](const std::string& name) { return is_model_file(name, card); });
  const auto path_of = [&](std::string_view name) { return folder.file(std::string(name)); };
  detail::write_safetensors_shards(path_of, tensors, static_cast<std::size_t>(options.max_file_bytes), {.type = type});
  detail::replace_file(kSavePretrained, path_of(kTokenizerFile), tokenizer.state());
  detail::replace_file(kSavePretrained, path_of(kTokenizerConfigFile), tokenizer_config_json(p, tokenizer));
  if (!p.card.chat_template.empty())
    detail::replace_file(kSavePretrained, path_of(kTemplateFile), p.card.chat_template);
  if (card) detail::replace_file(kSavePretrained, path_of(kCardFile), readme_of(p.card));
  detail::replace_file(kSavePretrained, path_of(kConfigFile), detail::json_text(config_json(p, family, type)));
  folder.finish();
}

// ---- GGUF ----

// The type of a weight: engines expect float32 for norms, biases and vectors of positions.
StoredType type_of(const std::string& name, const Tensor& value, StoredType type) {
  if (is_quantized(value.dtype())) return stored_type_for(value.dtype());
  if (value.rank() < 2 || name == "position_embd.weight" || name == "token_types.weight") return StoredType::f32;
  return type == StoredType::q8_0 && value.dim(-1) % items_per_block(type) != 0 ? StoredType::f16 : type;
}

std::uint32_t file_type(StoredType type) {  // ggml's enum of the type of most tensors
  switch (type) {
    case StoredType::q4_0: return 2;
    case StoredType::q4_1: return 3;
    case StoredType::f16: return 1;
    case StoredType::q8_0: return 7;
    case StoredType::bf16: return 32;
    default: return 0;
  }
}

// The type of most numbers, if weights are quantized; else `type`.
StoredType most_frequent_type(const std::vector<GgufTensor>& tensors, StoredType type) {
  std::map<StoredType, Index> numbers;
  bool quantized = false;
  for (const GgufTensor& t : tensors) {
    numbers[t.type] += t.value.numel();
    quantized |= is_quantized(t.value.dtype());
  }
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  return quantized ? std::ranges::max_element(numbers, fewer)->first : type;
}

// The entry about the pooling of an encoder.
void add_pooling(GgufMetadata& metadata, const Pretrained& p, const std::string& architecture) {
  using Kind = SentencePooling::Kind;
  if (!p.pooling) return;
  require(p.pooling->kind != Kind::max,
          "save_pretrained: the model pools by the maximum, which GGUF files cannot say; ",
          "they have the mean and the first token");
  metadata[architecture + kGgufPooling] = std::uint32_t{p.pooling->kind == Kind::mean ? 1U : 2U};
}

void save_gguf_model(const fs::path& file, Pretrained& p, StoredType type) {
  const Family& family = family_to_write(p, true);
  GPTConfig config = plain_config(p.config);
  GgufMetadata metadata =
      tokenizer_metadata(to_json_tokenizer(p.lm.tokenizer), p.begin_token, p.end_tokens, p.config.options.vocabulary);
  for (const auto& [key, text] : p.card.texts) metadata["general." + key] = text;
  metadata["general.architecture"] = std::string(family.architecture);
  metadata["general.type"] = std::string("model");
  if (!p.card.chat_template.empty()) metadata["tokenizer.chat_template"] = p.card.chat_template;
  GgufWriter writer(metadata, family.architecture);
  family.fields(writer, config);
  add_pooling(metadata, p, family.architecture);
  std::vector<GgufTensor> tensors;
  for (FileWeight& w : file_weights(family, true, p.lm.model)) {
    require(!w.name.empty(), "save_pretrained: GGUF files of the family ", family.name,
            " cannot hold the head of a masked language model");
    const StoredType stored = type_of(w.name, w.value, type);
    tensors.push_back({std::move(w.name), w.value, stored, std::move(w.change)});
  }
  metadata["general.file_type"] = file_type(most_frequent_type(tensors, type));
  const MultiHeadAttentionOptions& a = config.options.blocks.attention;
  if (a.rope_scaling.kind == RopeScalingKind::llama3) {
    const std::vector<float> divisors = divisors_of(a.rope_scaling, a.rope_base, a.head_size());
    tensors.push_back({"rope_freqs.weight", Tensor::from(divisors, {static_cast<Index>(divisors.size())})});
  }
  save_gguf(file, metadata, tensors);
}

// ---- ONNX ----

void save_onnx(const fs::path& file, const Pretrained& p) {
  export_onnx(file, p.lm.model,
              {.logits = p.config.options.output_transform, .pooling = p.pooling, .metadata = p.card.texts});
}

// ---- Checkpoints ----

void save_own(const fs::path& file, Pretrained& p) {
  Checkpoint c;
  store_model(c, p.lm.model);
  c.texts = pretrained_texts(p);
  save_checkpoint(file, c);
}

}  // namespace

std::map<std::string, std::string> pretrained_texts(const Pretrained& p) {
  std::map<std::string, std::string> texts = language_model_texts(p.config, p.lm.tokenizer);
  JsonValue card = JsonValue::object(), tokens = JsonValue::object();
  for (const auto& [key, text] : p.card.texts) card.set(key, JsonValue::of(text));
  if (!p.card.chat_template.empty()) card.set("chat_template", JsonValue::of(p.card.chat_template));
  if (!card.keys.empty()) texts["card"] = detail::json_text(card);
  if (p.begin_token) tokens.set("begin", JsonValue::of_integer(*p.begin_token));
  std::vector<JsonValue> ends;
  for (const std::int32_t id : p.end_tokens) ends.push_back(JsonValue::of_integer(id));
  if (!ends.empty()) tokens.set("end", JsonValue::array(ends));
  if (!tokens.keys.empty()) texts["tokens"] = detail::json_text(tokens);
  return texts;
}

void save_pretrained(const fs::path& path, Pretrained& model, const SavePretrainedOptions& options) {
  const StoredType type = options.type;
  require(type == StoredType::f32 || type == StoredType::f16 || type == StoredType::bf16 || type == StoredType::q8_0,
          "save_pretrained: the type is ", name_of(type), "; it must be F32, F16, BF16 or, for GGUF, Q8_0");
  const bool gguf = path.extension() == ".gguf";
  if (gguf || (path.extension() != ".h5" && path.extension() != ".onnx")) {
    std::optional<Pretrained> wider;
    if (needs_biases(model, gguf)) wider = with_biases(model);
    Pretrained& written = wider ? *wider : model;
    return gguf ? save_gguf_model(path, written, type) : save_folder(path, written, options);
  }
  require(type == StoredType::f32, "save_pretrained: the type is ", name_of(type),
          "; checkpoints and ONNX files have F32");
  path.extension() == ".h5" ? save_own(path, model) : save_onnx(path, model);
}

}  // namespace heed
