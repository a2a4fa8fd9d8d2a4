// Reads and writes adapters in PEFT's form.
#include <algorithm>
#include <heed/data/detail/disk.hpp>
#include <heed/io/detail/peft_config.hpp>
#include <heed/io/peft.hpp>
#include <heed/io/safetensors.hpp>
#include <map>

namespace heed {
namespace {

namespace fs = std::filesystem;
using detail::names_module;

constexpr const char *kSave = "save_peft", *kLoad = "load_peft";
constexpr const char *kTensors = "adapter_model.safetensors", *kConfig = "adapter_config.json";
constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";

// A linear map and its module.
struct Module {
  std::string name;
  LinearMap map;
};

std::vector<Module> modules_of(const std::vector<NamedLayer<Linear>>& layers, const PeftNames& names) {
  std::vector<Module> modules;
  for (LinearMap& map : detail::linear_maps(layers))
    if (std::optional<std::string> name = names.module(map.layer, map.part))
      modules.push_back({std::move(*name), std::move(map)});
  return modules;
}

std::string tensor_name(const std::string& module, std::string_view end) {
  return std::string(kPrefix).append(module).append(end);
}

// The matrices A and B of an adapter, as views.
std::pair<Tensor, Tensor> matrices_of(const LinearMap& map) {
  const LowRank& lora = *map.linear->lora;
  const Index rank = lora.rank(), a = map.adapter * rank;
  Index b = 0;
  for (int i = 0; i < map.adapter; ++i) b += lora.columns[static_cast<std::size_t>(i)].count;
  return {lora.a.detach().slice(0, a, a + rank), lora.b.detach().slice(0, b, b + map.columns.count)};
}

// ---- Saving ----

// A name that matches these modules and no others: the last part of the module's name if possible, else all of it.
std::string target_for(const std::string& module, const std::vector<std::string>& others) {
  const std::string last = module.substr(module.rfind('.') + 1);
  const auto is_last = [&](const std::string& other) { return names_module(last, other); };
  return std::ranges::any_of(others, is_last) ? module : last;
}

std::vector<std::string> targets_of(const std::vector<std::string>& adapted, const std::vector<std::string>& others) {
  std::vector<std::string> targets;
  for (const std::string& module : adapted) {
    std::string target = target_for(module, others);
    if (std::ranges::find(targets, target) == targets.end()) targets.push_back(std::move(target));
  }
  std::ranges::sort(targets);
  return targets;
}

void check_same_options(const LowRank& first, const LowRank& other, const std::string& name) {
  const bool same = first.rank() == other.rank() && first.alpha == other.alpha && first.rslora == other.rslora &&
                    first.dropout == other.dropout;
  require(same, kSave, ": the adapter of ", name, " has another rank, alpha or dropout than those before; they must ",
          "be the same");
}

// Throws Error if an adapter has no module.
void check_all_have_modules(const std::vector<NamedLayer<Linear>>& layers, const std::vector<Module>& modules) {
  for (const LinearMap& map : detail::linear_maps(layers)) {
    const auto same = [&](const Module& m) { return m.map.layer == map.layer && m.map.part == map.part; };
    require(map.adapter < 0 || std::ranges::any_of(modules, same), kSave, ": the model's class in transformers has no ",
            "module for the ", map.part < 0 ? "whole matrix " : "map ", map.name, ", which has an adapter; add_lora() ",
            "must have other targets");
  }
}

// ---- Loading ----

std::string text_of(const fs::path& path) {
  const detail::InputFile file(kLoad, path);
  constexpr std::size_t kMaxBytes = std::size_t{1} << 24;
  require(file.size() <= kMaxBytes, kLoad, ": ", path.string(), " has ", file.size(), " bytes; it must have at most ",
          kMaxBytes);
  std::string text(file.size(), '\0');
  file.read_at(0, reinterpret_cast<unsigned char*>(text.data()), text.size());
  return text;
}

SafetensorsFile tensors_of(const fs::path& folder) {
  std::error_code ignored;
  require(fs::exists(folder / kTensors, ignored) || !fs::exists(folder / "adapter_model.bin", ignored), kLoad, ": ",
          folder.string(), " has adapter_model.bin, a pickled file of PyTorch, but no ", kTensors,
          "; convert it to safetensors (in Python: safetensors.torch.save_file)");
  return SafetensorsFile(folder / kTensors);
}

// A stored adapter.
struct StoredAdapter {
  const StoredTensor *a = nullptr, *b = nullptr;
};

std::map<std::string, StoredAdapter> adapters_in(const SafetensorsFile& file) {
  std::map<std::string, StoredAdapter> adapters;
  for (const auto& [name, tensor] : file.tensors()) {
    const bool is_a = name.ends_with(kA);
    require(name.starts_with(kPrefix) && (is_a || name.ends_with(kB)) && name.size() > kPrefix.size() + kA.size(),
            kLoad, ": ", file.path().string(), " has a tensor ", excerpt(name), "; names must be ", kPrefix, "MODULE",
            kA, " or ", kPrefix, "MODULE", kB);
    StoredAdapter& adapter = adapters[name.substr(kPrefix.size(), name.size() - kPrefix.size() - kA.size())];
    (is_a ? adapter.a : adapter.b) = &tensor;
  }
  return adapters;
}

void check_shape(const fs::path& file, const std::string& name, const StoredTensor& tensor, const Shape& expected) {
  require(tensor.shape == expected && is_floating(dtype_for(tensor.type)), kLoad, ": ", excerpt(name), " in ",
          file.string(), " is ", tensor.shape, " ", name_of(tensor.type), "; it must be ", expected, " and floating");
}

// Throws Error unless the stored adapter fits a module of the model and the configuration.
void check_adapter(const fs::path& file, const std::string& module, const StoredAdapter& stored,
                   const std::vector<Module>& modules, const detail::PeftConfig& config) {
  const auto found = std::ranges::find(modules, module, &Module::name);
  require(found != modules.end(), kLoad, ": ", file.string(), " has an adapter of ", excerpt(module),
          ", which is not a linear module of the model");
  for (const auto& [tensor, end] : {std::pair(stored.a, kA), std::pair(stored.b, kB)})
    require(tensor != nullptr, kLoad, ": ", file.string(), " has no tensor ", excerpt(tensor_name(module, end)));
  const Index rank = config.options.rank;
  check_shape(file, tensor_name(module, kA), *stored.a, {rank, found->map.linear->weight.dim(1)});
  check_shape(file, tensor_name(module, kB), *stored.b, {found->map.columns.count, rank});
  const auto matches = [&](const std::string& name) { return names_module(name, module); };
  require(!config.lists_targets || std::ranges::any_of(config.targets, matches), kLoad, ": ", file.string(),
          " has an adapter of ", excerpt(module), ", but target_modules in ", kConfig, " does not name it");
  require(std::ranges::none_of(config.excluded, matches), kLoad, ": ", file.string(), " has an adapter of ",
          excerpt(module), ", but exclude_modules in ", kConfig, " names it");
}

}  // namespace

void detail::check_peft(const std::vector<NamedLayer<Linear>>& layers, const PeftNames& names) {
  check_all_have_modules(layers, modules_of(layers, names));
}

void detail::save_peft(const fs::path& folder, const std::vector<NamedLayer<Linear>>& layers, const PeftNames& names) {
  const std::vector<Module> modules = modules_of(layers, names);
  check_all_have_modules(layers, modules);
  std::vector<NamedTensor> tensors;
  std::vector<std::string> adapted, others = names.others;
  const LowRank* first = nullptr;
  for (const auto& [name, map] : modules) {
    if (map.adapter < 0) {
      others.push_back(name);
      continue;
    }
    if (first == nullptr) first = &*map.linear->lora;
    check_same_options(*first, *map.linear->lora, map.name);
    const auto [a, b] = matrices_of(map);
    tensors.push_back({tensor_name(name, kA), a});
    tensors.push_back({tensor_name(name, kB), b});
    adapted.push_back(name);
  }
  require(first != nullptr, kSave, ": the model has no adapters; add_lora() makes them");
  PeftConfig config{.fan_in_fan_out = names.fan_in_fan_out,
                    .task_type = names.task_type,
                    .base_model = names.base_model,
                    .targets = targets_of(adapted, others)};
  config.options = {first->rank(), first->alpha, first->rslora, first->dropout};
  std::error_code error;
  fs::create_directories(folder, error);
  require(fs::is_directory(folder), kSave, ": cannot make the folder ", folder.string(), ": ", error.message());
  write_safetensors(folder / kTensors, tensors, {});
  replace_file(kSave, folder / kConfig, peft_config_text(config));
}

LoraOptions detail::load_peft(const fs::path& folder, const std::vector<NamedLayer<Linear>>& layers,
                              const std::function<void()>& freeze, const PeftNames& names) {
  const PeftConfig config = parse_peft_config(text_of(folder / kConfig), (folder / kConfig).string());
  const SafetensorsFile file = tensors_of(folder);
  const std::map<std::string, StoredAdapter> stored = adapters_in(file);
  require(!stored.empty(), kLoad, ": ", file.path().string(), " has no adapters");
  const std::vector<Module> modules = modules_of(layers, names);
  for (const auto& [module, adapter] : stored) check_adapter(file.path(), module, adapter, modules, config);
  LoraOptions options = config.options;
  options.targets.clear();
  std::vector<LinearMap> maps;
  for (const Module& m : modules) {
    if (!stored.contains(m.name)) continue;
    require(!m.map.linear->lora, kLoad, ": the model has adapters already; merge_lora() or remove_lora() removes them");
    maps.push_back(m.map);
    options.targets += (options.targets.empty() ? "" : ",") + m.map.name;
  }
  freeze();
  make_adapters(maps, options);
  for (const auto& [name, map] : modules_of(layers, names)) {
    if (map.adapter < 0) continue;
    auto [a, b] = matrices_of(map);
    a.copy_(load(*stored.at(name).a, a.dtype()));
    b.copy_(load(*stored.at(name).b, b.dtype()));
  }
  return options;
}

}  // namespace heed
