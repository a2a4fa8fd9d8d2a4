// Loads published models.
#include <algorithm>
#include <array>
#include <heed/data/detail/disk.hpp>
#include <heed/io/chat_template.hpp>
#include <heed/io/pretrained.hpp>
#include <heed/io/pretrained/folder.hpp>
#include <heed/io/pretrained/weights.hpp>
#include <heed/io/safetensors.hpp>
#include <heed/io/tokenizer_gguf.hpp>
#include <heed/layers/model.hpp>
#include <sstream>

namespace heed {

using namespace detail::pretrained;
using detail::JsonValue;
using detail::JsonView;

namespace {

namespace fs = std::filesystem;

// The model with memory but without values. load_weights() changes the types of weights.
GPT model_of(const GPTConfig& config, DType dtype) {
  Rng rng;
  GPT model = skip_init<GPT>(config.options, rng, config.factory());
  if (dtype == DType::float64) to(model, dtype);
  return model;
}

template <class File>
Pretrained with_weights(const Family& family, GPTConfig config, const File& tensors, const std::string& file, bool gguf,
                        Tokenizer tokenizer, const LoadPretrainedOptions& options) {
  require(tokenizer.vocabulary_size() <= config.options.vocabulary, file, ": the tokenizer has ",
          tokenizer.vocabulary_size(), " tokens and the model ", config.options.vocabulary,
          "; the model must have at least as many");
  Pretrained p{.family = family.name, .config = config, .lm = {model_of(config, options.dtype), std::move(tokenizer)}};
  p.quantized = load_weights(tensors.tensors(), file, family, gguf, p.lm.model, options,
                             [&](const StoredTensor& tensor) { tensors.forget(tensor); });
  return p;
}

// ---- Folders ----

void add_end_tokens(Tokens& ids, const JsonView& json, Index vocabulary) {
  if (!json.has("eos_token_id")) return;
  const JsonView eos = json.at("eos_token_id");
  const auto add = [&](const JsonView& id) {
    const auto n = static_cast<std::int32_t>(id.integer(0, vocabulary - 1));
    if (std::ranges::find(ids, n) == ids.end()) ids.push_back(n);
  };
  if (!eos.is(JsonValue::Kind::array)) return add(eos);
  for (const JsonView& id : eos.items()) add(id);
}

// The entries before a README.md's text, between lines "---": "license: apache-2.0".
std::map<std::string, std::string> front_matter(const fs::path& readme) {
  std::map<std::string, std::string> entries;
  if (!fs::exists(readme)) return entries;
  std::istringstream in(text_in(readme));
  std::string line;
  if (!std::getline(in, line) || line != "---") return entries;
  while (std::getline(in, line) && line != "---" && entries.size() < 100) {
    const std::size_t colon = line.find(": ");
    if (colon == line.npos || line[0] == ' ' || line[0] == '-') continue;
    std::string value = line.substr(colon + 2);
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
    entries[line.substr(0, colon)] = value;
  }
  return entries;
}

// The options of BERT that depend on the tensors: with or without the head of a masked language model.
void head_of_bert(GPTOptions& o, const StoredTensors& tensors) {
  if (o.causal) return;
  o.output_transform = tensors.contains("cls.predictions.transform.dense.weight");
  o.output_bias = o.output_transform && tensors.contains("cls.predictions.bias");
}

void refuse_pickled(const fs::path& folder) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (fs::exists(folder / name)) return;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth"})
    require(!fs::exists(folder / name), "load_pretrained: ", folder.string(), " has ", name,
            ", a pickled file, which may contain code, and no safetensors; save the model as safetensors");
}

Pretrained load_folder(const fs::path& folder, const LoadPretrainedOptions& options) {
  const std::string file = (folder / "config.json").string();
  const JsonValue json = detail::parse_json_object(text_in(file), file);
  const JsonView view(json, file);
  const Family& family = family_of_config(view);
  GPTConfig config;
  JsonReader reader(view);
  family.fields(reader, config);
  reader.finish();
  refuse_pickled(folder);
  const SafetensorsFile weights(folder);
  head_of_bert(config.options, weights.tensors());
  const Tokenizer tokenizer =
      options.tokenizer ? *options.tokenizer : Tokenizer(JsonTokenizer::load(folder / "tokenizer.json"));
  Pretrained p = with_weights(family, config, weights, weights.path().string(), false, tokenizer, options);
  add_end_tokens(p.end_tokens, view, config.options.vocabulary);
  if (const auto generation = json_in(folder / "generation_config.json"))
    add_end_tokens(p.end_tokens, JsonView(*generation, (folder / "generation_config.json").string()),
                   config.options.vocabulary);
  if (view.has("bos_token_id"))
    p.begin_token = static_cast<std::int32_t>(view.at("bos_token_id").integer(0, config.options.vocabulary - 1));
  p.card = {front_matter(folder / "README.md"), chat_template_text(folder).value_or("")};
  p.pooling = pooling_in(folder);
  if (!config.options.causal)
    p.next_sentence = load_next_sentence(weights.tensors(), weights.path().string(),
                                         config.options.blocks.attention.width, options.dtype);
  return p;
}

// ---- GGUF ----

// The pooling of an encoder. Engines divide the vectors by their length.
std::optional<SentencePooling> pooling_of(const GgufFile& file) {
  using Kind = SentencePooling::Kind;
  const std::string key = file.text("general.architecture") + kGgufPooling;
  const std::uint64_t number = file.has(key) ? file.number(key) : 0;
  require(number <= 2, file.name(), ": ", key, " is ", number,
          "; heed supports 0 (none), 1 (mean) and 2 (first token)");
  if (number == 0) return {};
  return SentencePooling{.kind = number == 1 ? Kind::mean : Kind::first, .normalized = true};
}

Pretrained load_gguf(const fs::path& path, const LoadPretrainedOptions& options) {
  const GgufFile file(path);
  const std::uint64_t files = file.has("split.count") ? file.number("split.count") : 1;
  require(files <= 1, file.name(), ": the model is split into ", files,
          " files; join them with llama-gguf-split --merge");
  const Family& family = family_of_gguf(file);
  GPTConfig config;
  GgufReader reader(file);
  config.options.tied = !file.tensors().contains("output.weight");
  family.fields(reader, config);
  reader.finish();
  const StoredTensor& tokens = file.tensor("token_embd.weight");
  require(tokens.shape.rank() == 2, file.name(), ": token_embd.weight is ", tokens.shape, "; it must have two axes");
  config.options.vocabulary = tokens.shape[0];
  if (const auto freqs = file.tensors().find("rope_freqs.weight"); freqs != file.tensors().end())
    config.options.blocks.attention.rope_scaling =
        scaling_of(load(freqs->second, DType::float32).to_vector<float>(), config.options.blocks.attention.rope_base);
  Tokenizer tokenizer = options.tokenizer ? *options.tokenizer : Tokenizer(tokenizer_of(file));
  Pretrained p = with_weights(family, config, file, file.name(), true, std::move(tokenizer), options);
  if (!options.tokenizer) p.begin_token = begin_token_of(file), p.end_tokens = end_tokens_of(file);
  for (const auto& [key, value] : file.metadata()) {
    const auto* text = std::get_if<std::string>(&value);
    if (text != nullptr && key.starts_with("general.") && key != "general.architecture" && key != "general.type")
      p.card.texts[key.substr(8)] = *text;
  }
  p.card.chat_template = chat_template_text(file).value_or("");
  if (!config.options.causal) p.pooling = pooling_of(file);
  return p;
}

// ---- Checkpoints ----

Pretrained load_own(const fs::path& path, const LoadPretrainedOptions& options) {
  Checkpoint c = load_checkpoint(path);
  if (options.tokenizer) c.texts["tokenizer"] = options.tokenizer->to_json();
  check_whole_model(c);
  const bool rounds = options.dtype == DType::q8_0;
  Pretrained p{.config = from_json<GPTConfig>(c.text("config"), c.source),
               .lm = language_model_of(c, rounds ? DType::float32 : options.dtype)};
  if (rounds) p.quantized = round_weights(p.lm.model);
  if (const Family* family = family_for(p.config, false)) p.family = family->name;
  if (c.texts.contains("card")) {
    const JsonValue json = detail::parse_json_object(c.text("card"), c.source);
    for (const auto& [key, value] : JsonView(json, c.source).members())
      (key == "chat_template" ? p.card.chat_template : p.card.texts[key]) = value.text();
  }
  if (c.texts.contains("tokens")) {
    const JsonValue json = detail::parse_json_object(c.text("tokens"), c.source);
    const auto id_of = [&](const JsonView& id) {
      return static_cast<std::int32_t>(id.integer(0, p.config.options.vocabulary - 1));
    };
    const JsonView tokens(json, c.source);
    tokens.only({"begin", "end"});
    if (tokens.has("begin")) p.begin_token = id_of(tokens.at("begin"));
    if (tokens.has("end"))
      for (const JsonView& id : tokens.at("end").items()) p.end_tokens.push_back(id_of(id));
  }
  return p;
}

}  // namespace

namespace {

enum class ModelFormat { folder, gguf, checkpoint };

ModelFormat model_format_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (fs::is_directory(path) || name == "config.json" || name.ends_with(".safetensors") ||
      name.ends_with(".safetensors.index.json"))
    return ModelFormat::folder;
  for (const char* ending : {".bin", ".pt", ".pth", ".ckpt"})
    require(!name.ends_with(ending), "load_pretrained: ", path.string(),
            " is a pickled file, which may contain code; give a folder with safetensors, a GGUF file or a checkpoint");
  std::array<unsigned char, 4> magic{};
  const detail::InputFile file("load_pretrained", path);
  if (file.size() >= magic.size()) file.read_at(0, magic.data(), magic.size());
  const bool gguf = std::string_view(reinterpret_cast<const char*>(magic.data()), 4) == "GGUF";
  return gguf ? ModelFormat::gguf : ModelFormat::checkpoint;
}

}  // namespace

bool names_checkpoint(const fs::path& path) { return model_format_of(path) == ModelFormat::checkpoint; }

Pretrained load_pretrained(const fs::path& path, const LoadPretrainedOptions& options) {
  switch (model_format_of(path)) {
    case ModelFormat::gguf: return load_gguf(path, options);
    case ModelFormat::checkpoint: return load_own(path, options);
    case ModelFormat::folder: break;
  }
  if (fs::is_directory(path)) return load_folder(path, options);
  return load_folder(path.parent_path().empty() ? "." : path.parent_path(), options);
}

}  // namespace heed
