// adapter_config.json of PEFT. Private to io.
#pragma once
#include <heed/layers/lora.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail {

// The content of an adapter_config.json that has an effect.
struct PeftConfig {
  LoraOptions options = {};               // without targets
  bool fan_in_fan_out = false;            // as PEFT writes it for Conv1D; without effect on the adapter
  std::string task_type = {};             // empty: null
  std::string base_model = {};            // empty: null
  std::vector<std::string> targets = {};  // names of modules, or ends of names
  // Reading: whether target_modules is a list, and the names in exclude_modules if that is a list.
  bool lists_targets = false;
  std::vector<std::string> excluded = {};
};

// Whether a name of a list of modules matches a module: the whole name, or its end after a dot.
bool names_module(std::string_view name, std::string_view module);

// Parses the text of a file. Throws Error, which begins with `source` and names the field, as load_peft().
PeftConfig parse_peft_config(std::string_view text, const std::string& source);
// The text of a file as PEFT 0.21 writes it, with every field.
std::string peft_config_text(const PeftConfig& config);

}  // namespace heed::detail
