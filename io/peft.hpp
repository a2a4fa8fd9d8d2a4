// Reads and writes LoRA adapters in the form of PEFT 0.21: a folder with adapter_model.safetensors and
// adapter_config.json.
//
// A file of PEFT has the names of the modules of a model of transformers. PeftNames maps the linear maps of heed to
// them.
//
// Example:
//
//   Rng rng(1);
//   GPT model({.vocabulary = 65, .context = 64, .blocks = {.layers = 1, .attention = {.width = 16, .heads = 2}}}, rng);
//   const PeftNames names{.module = [](const std::string& layer, int part) -> std::optional<std::string> {
//     if (part >= 0 || layer != "blocks.0.attention.qkv") return std::nullopt;
//     return "transformer.h.0.attn.c_attn";
//   }};
//   add_lora(model, {.targets = "qkv"}, rng);
//   save_peft("adapter", model, names);
//   remove_lora(model);
//   const LoraOptions options = load_peft("adapter", model, names);
#pragma once
#include <filesystem>
#include <functional>
#include <heed/layers/lora.hpp>
#include <optional>
#include <string>
#include <vector>

namespace heed {

// How the class of a model in transformers names the linear maps of a model of heed.
struct PeftNames {
  // The module of a linear map, such as "model.layers.0.self_attn.k_proj" for the layer "blocks.0.attention.qkv" and
  // its part 1. Part -1 is the whole matrix. nullopt if the class has no such module.
  std::function<std::optional<std::string>(const std::string& layer, int part)> module = {};
  // Linear modules of the class that are not in the model of heed, such as "pooler.dense". No target of a saved adapter
  // matches them.
  std::vector<std::string> others = {};
  bool fan_in_fan_out = false;          // the modules are Conv1D, as in GPT-2
  std::string task_type = "CAUSAL_LM";  // PEFT's task; empty: none
  std::string base_model = {};          // name or path of the base, for the configuration; empty: none
};

namespace detail {
void check_peft(const std::vector<NamedLayer<Linear>>& layers, const PeftNames& names);
void save_peft(const std::filesystem::path& folder, const std::vector<NamedLayer<Linear>>& layers,
               const PeftNames& names);
LoraOptions load_peft(const std::filesystem::path& folder, const std::vector<NamedLayer<Linear>>& layers,
                      const std::function<void()>& freeze, const PeftNames& names);
}  // namespace detail

// Writes the adapters of a model, so that PEFT loads them for the model's class in transformers. Makes the folder if
// necessary; each file is replaced whole or not at all. The configuration names modules by the last part of their names
// if the adapters allow it ("q_proj"), else in full. Throws Error if the model has no adapters, if they differ in rank,
// alpha, rsLoRA or dropout, if the class has no module for one of them, and if a file cannot be written.
template <class M>
void save_peft(const std::filesystem::path& folder, M& model, const PeftNames& names) {
  detail::save_peft(folder, named_layers<Linear>(model), names);
}

// Throws the Error of save_peft() if the class has no module for an adapter, for programs that train before they save.
template <class M>
void check_peft(M& model, const PeftNames& names) {
  detail::check_peft(named_layers<Linear>(model), names);
}

// Freezes a model and adds the adapters of a folder. Returns their options, whose targets are names of linear maps. All
// checks precede the first change.
//
// Each field of the configuration is used, or has no effect at its value, or is refused by its name: DoRA, patterns of
// ranks and alphas, modules_to_save, biases, layers_to_transform, and initial values that change the base (PiSSA,
// LoftQ, ...). Modules are those of the tensors; a list of target_modules or exclude_modules must agree with them, and
// a regular expression is not evaluated. Throws Error for such a field and for a field that heed does not know, for a
// tensor that is not of an adapter or whose module is not in the model, for shapes that do not fit, if one of the two
// matrices of an adapter is missing, if the folder has a pickled adapter_model.bin only, and if the model has adapters.
template <class M>
LoraOptions load_peft(const std::filesystem::path& folder, M& model, const PeftNames& names) {
  const auto freeze_all = [&model] { freeze(model); };
  return detail::load_peft(folder, named_layers<Linear>(model), freeze_all, names);
}

}  // namespace heed
