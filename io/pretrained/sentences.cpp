// Reads how sentence-transformers makes vectors of texts.
#include <algorithm>
#include <heed/data/detail/disk.hpp>
#include <heed/io/pretrained/folder.hpp>

namespace heed::detail::pretrained {
namespace {

namespace fs = std::filesystem;
using Kind = SentencePooling::Kind;

Kind kind_named(const JsonView& mode) { return static_cast<Kind>(mode.one_of({"mean", "cls", "max"})); }

// Newer files name the mode, or list several; older ones have a flag for each.
Kind pooling_kind(const JsonView& json) {
  const auto refuse = [](const JsonView& value) {
    value.refuse("asks for several modes; heed supports one of the mean, the first token and the maximum");
  };
  std::optional<Kind> kind;
  for (const auto& [name, value] : json.members()) {
    if (name == "pooling_mode") {
      const std::vector<JsonView> modes = value.is_text() ? std::vector{value} : value.items();
      if (modes.size() != 1 || kind) refuse(value);
      kind = kind_named(modes[0]);
    } else if (name.starts_with("pooling_mode_")) {
      if (!value.boolean()) continue;
      constexpr std::string_view kFlags[] = {"pooling_mode_mean_tokens", "pooling_mode_cls_token",
                                             "pooling_mode_max_tokens"};  // in the order of Kind
      const auto flag = std::ranges::find(kFlags, name);
      if (flag == std::end(kFlags) || kind) refuse(value);
      kind = static_cast<Kind>(flag - std::begin(kFlags));
    } else if (name != "word_embedding_dimension" && name != "embedding_dimension" && name != "include_prompt") {
      value.refuse("is not a field that heed knows");
    }
  }
  if (!kind) json.refuse("has no pooling mode");
  return *kind;
}

// The options of the module Transformer.
void read_transformer(const fs::path& folder, SentencePooling& pooling) {
  const fs::path file = folder / "sentence_bert_config.json", tokenizer = folder / "tokenizer_config.json";
  if (const auto json = json_in(tokenizer)) {
    const JsonView view(*json, tokenizer.string());
    constexpr double kNoLimit = 1e6;  // transformers writes 1e30
    if (view.has("model_max_length") && view.at("model_max_length").number() < kNoLimit)
      pooling.max_tokens = view.at("model_max_length").integer(1, static_cast<std::int64_t>(kNoLimit));
  }
  const auto json = json_in(file);
  if (!json) return;
  const JsonView view(*json, file.string());
  for (const auto& [name, value] : view.members()) {
    if (value.is(JsonValue::Kind::null) || name == "modality_config" || name == "unpad_inputs") continue;
    if (name == "max_seq_length") {
      pooling.max_tokens = value.integer(1, Index{1} << 24);
    } else if (name == "do_lower_case") {
      if (value.boolean()) value.refuse("is true; heed supports only false");
    } else if (name == "transformer_task") {
      value.one_of({"feature-extraction"});
    } else if (name == "module_output_name") {
      value.one_of({"token_embeddings"});
    } else if (!value.is(JsonValue::Kind::object) || !value.members().empty()) {
      value.refuse("is set, which heed does not support");
    }
  }
}

void refuse_prompt(const fs::path& file) {
  if (const auto json = json_in(file))
    if (const JsonView view(*json, file.string()); view.has("default_prompt_name"))
      view.at("default_prompt_name").refuse("is set; heed adds no prompts to texts");
}

// The path of a module's folder. Throws Error if it is not inside the folder of the model.
fs::path folder_of(const JsonView& module) {
  const fs::path path = module.at("path").text();
  if (path.is_absolute() || std::ranges::find(path, fs::path("..")) != path.end())
    module.at("path").refuse("must be a folder inside the folder of the model");
  return path;
}

}  // namespace

std::string text_in(const fs::path& file) { return read_small_file("load_pretrained", file); }

std::optional<JsonValue> json_in(const fs::path& file) {
  if (!fs::exists(file)) return {};
  return parse_json_object(text_in(file), file.string());
}

std::optional<SentencePooling> pooling_in(const fs::path& folder) {
  if (!fs::exists(folder / "modules.json")) return {};
  // The file is a list; the reader takes objects.
  const std::string name = (folder / "modules.json").string();
  const JsonValue json = parse_json_object("{\"modules\":" + text_in(folder / "modules.json") + "}", name);
  SentencePooling pooling;
  bool pools = false;
  for (const JsonView& module : JsonView(json, name).at("modules").items()) {
    const std::string& type = module.at("type").text();
    const fs::path config = folder / folder_of(module) / "config.json";
    if (type.ends_with(".Pooling")) {
      const JsonValue options = parse_json_object(text_in(config), config.string());
      pooling.kind = pooling_kind(JsonView(options, config.string()));
      pools = true;
    } else if (type.ends_with(".Normalize")) {
      const auto options = json_in(config);
      for (const char* key : {"module_input_name", "module_output_name"})
        if (options && JsonView(*options, config.string()).has(key))
          JsonView(*options, config.string()).at(key).one_of({"sentence_embedding"});
      pooling.normalized = true;
    } else if (!type.ends_with(".Transformer")) {
      module.at("type").refuse("is " + excerpt(type) + "; heed supports Transformer, Pooling and Normalize");
    }
  }
  if (!pools) return {};
  read_transformer(folder, pooling);
  refuse_prompt(folder / "config_sentence_transformers.json");
  return pooling;
}

}  // namespace heed::detail::pretrained
