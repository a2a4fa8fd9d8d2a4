// Reads and writes adapter_config.json, the configuration of LoRA adapters in PEFT.
#include <algorithm>
#include <cmath>
#include <heed/io/detail/peft_config.hpp>
#include <heed/io/json.hpp>

namespace heed::detail {
namespace {

using Kind = JsonValue::Kind;

// What a field of the configuration may be. PEFT 0.21 writes every field of peft/tuners/lora/config.py, and older
// versions fewer.
enum class Rule {
  used,    // read by parse_peft_config()
  any,     // no effect on the adapter at any value
  absent,  // refused unless it is null, false or empty
};

struct Field {
  std::string_view name;
  Rule rule;
  std::string_view written = "null";  // its value in new files, as JSON, if heed does not set it
};

// In the order of PEFT's files. The fields of Rule::any describe the file (task_type, versions) or the base
// (fan_in_fan_out, which is about the layout of its weights), or belong to features that are off here (megatron_core,
// qalora_group_size, ensure_weight_tying).
constexpr Field kFields[] = {{"alora_invocation_tokens", Rule::absent},
                             {"alpha_pattern", Rule::absent, "{}"},
                             {"arrow_config", Rule::absent},
                             {"auto_mapping", Rule::any},
                             {"base_model_name_or_path", Rule::any},
                             {"bias", Rule::used, "\"none\""},
                             {"corda_config", Rule::absent},
                             {"ensure_weight_tying", Rule::any, "false"},
                             {"eva_config", Rule::absent},
                             {"exclude_modules", Rule::used},
                             {"fan_in_fan_out", Rule::any, "false"},
                             {"inference_mode", Rule::any, "true"},
                             {"init_lora_weights", Rule::used, "true"},
                             {"kasa_config", Rule::absent},
                             {"layer_replication", Rule::absent},
                             {"layers_pattern", Rule::absent},
                             {"layers_to_transform", Rule::absent},
                             {"loftq_config", Rule::absent, "{}"},
                             {"lora_alpha", Rule::used},
                             {"lora_bias", Rule::absent, "false"},
                             {"lora_dropout", Rule::used},
                             {"lora_ga_config", Rule::absent},
                             {"megatron_config", Rule::absent},
                             {"megatron_core", Rule::any, "\"megatron.core\""},
                             {"modules_to_save", Rule::absent},
                             {"monteclora_config", Rule::absent},
                             {"peft_type", Rule::used, "\"LORA\""},
                             {"peft_version", Rule::any, "\"0.21.2\""},
                             {"qalora_group_size", Rule::any, "16"},
                             {"r", Rule::used},
                             {"rank_pattern", Rule::absent, "{}"},
                             {"revision", Rule::any},
                             {"target_modules", Rule::used},
                             {"target_parameters", Rule::absent},
                             {"task_type", Rule::any},
                             {"trainable_token_indices", Rule::absent},
                             {"use_bdlora", Rule::absent},
                             {"use_dora", Rule::absent, "false"},
                             {"use_qalora", Rule::absent, "false"},
                             {"use_rslora", Rule::used, "false"},
                             {"velora_config", Rule::absent}};

bool is_absent(const JsonValue& v) {
  switch (v.kind) {
    case Kind::null: return true;
    case Kind::boolean: return !v.flag;
    case Kind::array:
    case Kind::object: return v.items.empty();
    default: return false;
  }
}

void check_fields(const JsonView& config) {
  for (const auto& [name, value] : config.members()) {
    const auto field = std::ranges::find(kFields, std::string_view(name), &Field::name);
    if (field == std::end(kFields)) value.refuse("is not a field that heed knows");
    if (field->rule == Rule::absent && !is_absent(value.value()))
      value.refuse("is set, which heed does not support; it must be absent, null, false or empty");
  }
}

// The names in a list, or none for null and for a regular expression.
std::vector<std::string> names_in(const JsonView& config, std::string_view field, bool* is_list = nullptr) {
  std::vector<std::string> names;
  if (!config.has(field)) return names;
  const JsonView value = config.at(field);
  if (is_list != nullptr) *is_list = !value.is_text();
  if (value.is_text()) return names;
  for (const JsonView& item : value.items()) names.push_back(item.text());
  return names;
}

// Initial values do not matter for an adapter from a file, unless they come with changes of the base.
void check_initial_values(const JsonView& config) {
  if (!config.has("init_lora_weights")) return;
  const JsonView init = config.at("init_lora_weights");
  if (!init.is_text()) return void(init.boolean());
  if (init.text() != "gaussian" && init.text() != "orthogonal")
    init.refuse("is \"" + excerpt(init.text()) +
                "\", which may change the weights of the base; it must be true, false, \"gaussian\" or \"orthogonal\"");
}

double number_of(const JsonView& config, std::string_view name, double otherwise) {
  return config.has(name) ? config.at(name).number() : otherwise;
}

}  // namespace

bool names_module(std::string_view name, std::string_view module) {
  return module == name ||
         (module.size() > name.size() && module.ends_with(name) && module[module.size() - name.size() - 1] == '.');
}

PeftConfig parse_peft_config(std::string_view json, const std::string& source) {
  const JsonValue root = parse_json_object(json, source);
  const JsonView config(root, source);
  PeftConfig c;
  if (const JsonView type = config.at("peft_type"); type.text() != "LORA")
    type.refuse("is \"" + excerpt(type.text()) + "\"; it must be \"LORA\"");
  check_fields(config);
  if (const std::string bias = config.text_or("bias", "none"); bias != "none")
    config.at("bias").refuse("is \"" + excerpt(bias) +
                             "\"; it must be \"none\", because heed trains no biases of LoRA");
  check_initial_values(config);
  LoraOptions& o = c.options;
  if (config.has("r")) o.rank = config.at("r").integer(1, Index{1} << 24);
  o.alpha = number_of(config, "lora_alpha", o.alpha);
  if (!(o.alpha > 0) || !std::isfinite(o.alpha)) config.at("lora_alpha").refuse("must be above 0");
  o.dropout = number_of(config, "lora_dropout", o.dropout);
  if (!(o.dropout >= 0 && o.dropout < 1)) config.at("lora_dropout").refuse("must be at least 0 and below 1");
  o.rslora = config.boolean_or("use_rslora", o.rslora);
  c.targets = names_in(config, "target_modules", &c.lists_targets);
  c.excluded = names_in(config, "exclude_modules");
  return c;
}

std::string peft_config_text(const PeftConfig& c) {
  std::string defaults;
  for (const Field& field : kFields)
    defaults.append(defaults.empty() ? "{\"" : ",\"").append(field.name).append("\":").append(field.written);
  JsonValue config = parse_json_object(defaults + "}", "adapter_config.json");
  const LoraOptions& o = c.options;
  const auto number = [](double x) {  // PEFT's alpha is usually a whole number
    return x == std::floor(x) && x < 0x1p53 ? JsonValue::of_integer(static_cast<std::int64_t>(x)) : JsonValue::of(x);
  };
  config.set("r", JsonValue::of_integer(o.rank));
  config.set("lora_alpha", number(o.alpha));
  config.set("lora_dropout", JsonValue::of(o.dropout));
  config.set("use_rslora", JsonValue::of(o.rslora));
  config.set("fan_in_fan_out", JsonValue::of(c.fan_in_fan_out));
  if (!c.task_type.empty()) config.set("task_type", JsonValue::of(c.task_type));
  if (!c.base_model.empty()) config.set("base_model_name_or_path", JsonValue::of(c.base_model));
  std::vector<JsonValue> targets;
  for (const std::string& name : c.targets) targets.push_back(JsonValue::of(name));
  config.set("target_modules", JsonValue::array(std::move(targets)));
  return json_text(config);
}

}  // namespace heed::detail
