// Writes published models.
#include <algorithm>
#include <heed/data/detail/disk.hpp>
#include <heed/io/onnx.hpp>
#include <heed/io/pretrained.hpp>
#include <heed/io/pretrained/weights.hpp>
#include <heed/io/safetensors.hpp>
#include <heed/io/tokenizer_gguf.hpp>

namespace heed {

using namespace detail::pretrained;
using detail::JsonValue;

namespace {

namespace fs = std::filesystem;

const Family& family_to_write(const Pretrained& p, bool gguf) {
  const Family* family = family_for(p.config, gguf);
  require(family != nullptr, "save_pretrained: no family of published models has the options of this model; ",
          gguf ? "GGUF files" : "folders", " can hold GPT-2, Llama, ", gguf ? "" : "Mistral, ",
          "Qwen2, Qwen3, Gemma 3 and BERT; a checkpoint (.h5) can hold any model");
  return *family;
}

void write_text(const fs::path& file, std::string_view text) {
  detail::NewFile out("save_pretrained", file, text.size());
  out.write(text.data(), text.size());
  out.finish();
}

// ---- Folders ----

JsonValue config_json(const Pretrained& p, const Family& family, StoredType type) {
  JsonValue json = JsonValue::object();
  GPTConfig config = plain_config(p.config);
  const GPTOptions given = p.config.options.settled();
  config.options.blocks.dropout = given.blocks.dropout;
  config.options.blocks.attention.dropout = given.blocks.attention.dropout;
  std::string class_name = family.class_name;
  if (config.options.output_transform) class_name = "BertForMaskedLM";
  json.set("architectures", JsonValue::array({JsonValue::of(class_name)}));
  json.set("model_type", JsonValue::of(std::string(family.name)));
  JsonWriter writer(json);
  family.fields(writer, config);
  const auto id = [&](const char* key, std::optional<std::int32_t> token) {
    if (token) json.set(key, JsonValue::of_integer(*token));
  };
  id("bos_token_id", p.lm.tokenizer.special("<s>"));
  if (!p.end_tokens.empty()) id("eos_token_id", p.end_tokens.front());
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

void save_folder(const fs::path& folder, Pretrained& p, StoredType type) {
  require(type != StoredType::q8_0,
          "save_pretrained: the type is Q8_0, which only GGUF files have; for a folder it must ",
          "be F32, F16 or BF16");
  const Family& family = family_to_write(p, false);
  require(p.lm.tokenizer.kind() == "tokenizer.json", "save_pretrained: the tokenizer is of the kind ",
          p.lm.tokenizer.kind(), "; a folder requires a tokenizer that was read from a tokenizer.json or a GGUF file");
  const std::string config = detail::json_text(config_json(p, family, type));
  fs::create_directories(folder);
  std::vector<NamedTensor> tensors;
  for_each_weight(family, false, p.lm.model, [&](const std::string& name, const Tensor& value) {
    tensors.push_back({name, value});
  });
  detail::write_safetensors(folder / "model.safetensors", tensors, {.type = type});
  write_text(folder / "config.json", config);
  write_text(folder / "tokenizer.json", p.lm.tokenizer.state());
  if (!p.card.chat_template.empty()) write_text(folder / "chat_template.jinja", p.card.chat_template);
  if (!p.card.texts.empty()) write_text(folder / "README.md", readme_of(p.card));
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

// The entries about the tokenizer: those of the GGUF file from which it was read, or new ones.
GgufMetadata metadata_of_tokenizer(const Pretrained& p) {
  if (!p.tokenizer_metadata.empty()) return p.tokenizer_metadata;
  const auto* tokenizer = p.lm.tokenizer.as<JsonTokenizer>();
  require(tokenizer != nullptr, "save_pretrained: the tokenizer is of the kind ", p.lm.tokenizer.kind(),
          "; a GGUF file requires a tokenizer that was read from a tokenizer.json or a GGUF file");
  return tokenizer_metadata(*tokenizer, p.end_tokens, p.config.options.vocabulary);
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
  GgufMetadata metadata = metadata_of_tokenizer(p);
  for (const auto& [key, text] : p.card.texts) metadata["general." + key] = text;
  metadata["general.architecture"] = std::string(family.architecture);
  metadata["general.type"] = std::string("model");
  if (!p.card.chat_template.empty()) metadata["tokenizer.chat_template"] = p.card.chat_template;
  GgufWriter writer(metadata, family.architecture);
  family.fields(writer, config);
  add_pooling(metadata, p, family.architecture);
  std::vector<GgufTensor> tensors;
  for_each_weight(family, true, p.lm.model, [&](const std::string& name, const Tensor& value) {
    require(!name.empty(), "save_pretrained: GGUF files of the family ", family.name,
            " cannot hold the head of a masked language model");
    tensors.push_back({name, value, type_of(name, value, type)});
  });
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
  c.texts = language_model_texts(p.config, p.lm.tokenizer);
  JsonValue card = JsonValue::object();
  for (const auto& [key, text] : p.card.texts) card.set(key, JsonValue::of(text));
  if (!p.card.chat_template.empty()) card.set("chat_template", JsonValue::of(p.card.chat_template));
  if (!card.keys.empty()) c.texts["card"] = detail::json_text(card);
  save_checkpoint(file, c);
}

}  // namespace

void save_pretrained(const fs::path& path, Pretrained& model, const SavePretrainedOptions& options) {
  const StoredType type = options.type;
  require(type == StoredType::f32 || type == StoredType::f16 || type == StoredType::bf16 || type == StoredType::q8_0,
          "save_pretrained: the type is ", name_of(type), "; it must be F32, F16, BF16 or, for GGUF, Q8_0");
  if (path.extension() == ".gguf") return save_gguf_model(path, model, type);
  if (path.extension() != ".h5" && path.extension() != ".onnx") return save_folder(path, model, type);
  require(type == StoredType::f32, "save_pretrained: the type is ", name_of(type),
          "; checkpoints and ONNX files have F32");
  path.extension() == ".h5" ? save_own(path, model) : save_onnx(path, model);
}

}  // namespace heed
