// Adapters of PEFT: values and gradients of its own models, files in both directions, and refusals. More than
// 400 lines, because all cases use the same small models.
#include <heed/heed.hpp>
#include <heed/io/peft.hpp>
#include <heed/io/safetensors.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
#include "tests/tools/python.hpp"

using namespace heed;
using test::bytes_of;
using test::close;
using test::contains;
using test::error_of;
using test::same_bits;
using test::TemporaryFolder;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// The folders that tests/reference/lora_peft.py writes.
fs::path stored(const std::string& name) { return fs::path(test::in_source("tests/reference/peft")) / name; }

// Modules by layer and part, for blocks named "blocks.N." and `prefix`N.
PeftNames names_by(std::map<std::pair<std::string, int>, std::string> table, const std::string& prefix) {
  return {
      .module = [table = std::move(table), prefix](const std::string& layer, int part) -> std::optional<std::string> {
        const std::size_t number = layer.find('.') + 1, end = layer.find('.', number);
        const auto found = table.find({layer.substr(end + 1), part});
        if (found == table.end()) return std::nullopt;
        return prefix + layer.substr(number, end - number) + "." + found->second;
      }};
}

PeftNames llama_names() {
  return names_by({{{"attention.qkv", 0}, "self_attn.q_proj"},
                   {{"attention.qkv", 1}, "self_attn.k_proj"},
                   {{"attention.qkv", 2}, "self_attn.v_proj"},
                   {{"attention.proj", -1}, "self_attn.o_proj"},
                   {{"mlp.up", 0}, "mlp.gate_proj"},
                   {{"mlp.up", 1}, "mlp.up_proj"},
                   {{"mlp.down", -1}, "mlp.down_proj"}},
                  "model.layers.");
}

PeftNames gpt2_names() {
  PeftNames names = names_by({{{"attention.qkv", -1}, "attn.c_attn"},
                              {{"attention.proj", -1}, "attn.c_proj"},
                              {{"mlp.up", -1}, "mlp.c_fc"},
                              {{"mlp.down", -1}, "mlp.c_proj"}},
                             "transformer.h.");
  names.fan_in_fan_out = true;
  return names;
}

// A model of transformers as a GPT, with weights of base.safetensors. `others`: names of further parameters there.
void load_base(GPT& model, const std::string& folder, const PeftNames& names,
               const std::map<std::string, std::string>& others) {
  const SafetensorsFile file(stored(folder) / "base.safetensors");
  to(model, DType::float64);
  for (const LinearMap& map : linear_maps(model)) {
    const auto module = names.module(map.layer, map.part);
    if (!module) continue;
    const auto rows = [&](Parameter& p) {
      return p.slice(0, map.columns.begin, map.columns.begin + map.columns.count);
    };
    const Tensor w = load(file.tensor(*module + ".weight"), DType::float64);
    rows(map.linear->weight).copy_(names.fan_in_fan_out ? w.t() : w);
    if (map.linear->bias.defined()) rows(map.linear->bias).copy_(load(file.tensor(*module + ".bias"), DType::float64));
  }
  for (const NamedParameter& p : named_parameters(model)) {
    const std::size_t end = p.name.starts_with("blocks.") ? p.name.find('.', 7) : 0;
    const auto found = others.find(p.name.substr(end == 0 ? 0 : end + 1));
    if (found == others.end()) continue;
    const std::string number = end == 0 ? "" : p.name.substr(7, end - 7);
    std::string name = found->second;
    if (const std::size_t at = name.find('#'); at != name.npos) name.replace(at, 1, number);
    p.parameter->copy_(load(file.tensor(name), DType::float64));
  }
}

GPT llama(const std::string& folder = "llama") {
  Rng rng(1);
  GPT model({.vocabulary = 11,
             .context = 16,
             .blocks = {.layers = 2,
                        .attention = {.width = 8, .heads = 2, .kv_heads = 1, .bias = false},
                        .hidden = 12,
                        .activation = FeedForwardKind::swiglu,
                        .norm = NormKind::rms},
             .positions = PositionKind::rope,
             .tied = false},
            rng);
  load_base(model, folder, llama_names(),
            {{"tokens.weight", "model.embed_tokens.weight"},
             {"norm1.weight", "model.layers.#.input_layernorm.weight"},
             {"norm2.weight", "model.layers.#.post_attention_layernorm.weight"},
             {"norm.weight", "model.norm.weight"},
             {"output", "lm_head.weight"}});
  return model;
}

GPT gpt2() {
  Rng rng(1);
  GPT model({.vocabulary = 11,
             .context = 16,
             .blocks = {.layers = 2, .attention = {.width = 8, .heads = 2}, .activation = FeedForwardKind::gelu_tanh}},
            rng);
  std::map<std::string, std::string> others = {{"tokens.weight", "transformer.wte.weight"},
                                               {"positions.weight", "transformer.wpe.weight"}};
  for (const std::string kind : {"weight", "bias"}) {
    others["norm1." + kind] = "transformer.h.#.ln_1." + kind;
    others["norm2." + kind] = "transformer.h.#.ln_2." + kind;
    others["norm." + kind] = "transformer.ln_f." + kind;
  }
  load_base(model, "gpt2", gpt2_names(), others);
  return model;
}

// The models, with the error of transformers' float32 parts (rotary positions and RMSNorm of Llama).
struct Case {
  std::string folder;
  PeftNames names;
  GPT model;
  double error;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* folder : {"llama", "llama_some"}) all.push_back({folder, llama_names(), llama(folder), 1e-5});
  all.push_back({"gpt2", gpt2_names(), gpt2(), 1e-9});
  return all;
}

// The gradient of an adapter's matrix, by the name of its tensor.
std::map<std::string, Tensor> gradients_of(GPT& model, const PeftNames& names) {
  std::map<std::string, Tensor> all;
  for (const LinearMap& map : linear_maps(model)) {
    if (map.adapter < 0) continue;
    const LowRank& lora = *map.linear->lora;
    const std::string prefix = "gradient.base_model.model." + *names.module(map.layer, map.part);
    Index b = 0;
    for (int i = 0; i < map.adapter; ++i) b += lora.columns[static_cast<std::size_t>(i)].count;
    all[prefix + ".lora_A.weight"] = lora.a.grad().slice(0, map.adapter * lora.rank(), (map.adapter + 1) * lora.rank());
    all[prefix + ".lora_B.weight"] = lora.b.grad().slice(0, b, b + map.columns.count);
  }
  return all;
}

json config_of(const fs::path& folder) { return json::parse(bytes_of(folder / "adapter_config.json")); }

// A copy of a stored adapter, with another configuration.
fs::path with_config(const TemporaryFolder& folder, const std::string& name, const json& config) {
  fs::copy(stored(name) / "adapter_model.safetensors", folder.path / "adapter_model.safetensors",
           fs::copy_options::overwrite_existing);
  folder.write("adapter_config.json", config.dump());
  return folder.path;
}

}  // namespace

TEST_CASE("peft: logits, losses and gradients of its adapters, and logits after merging") {
  for (Case& c : cases()) {
    CAPTURE(c.folder);
    const LoraOptions options = load_peft(stored(c.folder), c.model, c.names);
    CHECK(options.rank == (c.folder == "llama" ? 3 : 2));
    const SafetensorsFile file(stored(c.folder) / "values.safetensors");
    const Tensor tokens = load(file.tensor("tokens")), x = tokens.slice(1, 0, 6), y = tokens.slice(1, 1, 7);
    CHECK(close(c.model(x).detach(), load(file.tensor("logits")), c.error, c.error));
    Tape tape;
    const Evaluation no_dropout;
    const Tensor loss = c.model.loss(x, y);
    CHECK(close(loss.detach(), load(file.tensor("loss")), c.error, c.error));
    tape.backward(loss);
    const std::map<std::string, Tensor> gradients = gradients_of(c.model, c.names);
    std::size_t compared = 0;
    for (const auto& entry : file.tensors()) {
      const std::string& name = entry.first;
      const StoredTensor& expected = entry.second;
      if (!name.starts_with("gradient.")) continue;
      CAPTURE(name);
      CHECK(close(gradients.at(name), load(expected), 10 * c.error, c.error));
      ++compared;
    }
    CHECK(compared == gradients.size());
    CHECK(compared == (c.folder == "llama" ? 28 : c.folder == "gpt2" ? 16 : 12));
    merge_lora(c.model);
    const NoTape no_tape;
    CHECK(close(c.model(x), load(file.tensor("merged")), c.error, c.error));
  }
}

TEST_CASE("peft: adapters of some maps, with rsLoRA and dropout") {
  GPT model = llama("llama_some");
  const LoraOptions options = load_peft(stored("llama_some"), model, llama_names());
  CHECK(options.rank == 2);
  CHECK(options.alpha == 3);
  CHECK(options.rslora);
  CHECK(options.dropout == 0.25);
  CHECK(options.targets ==
        "blocks.0.attention.q,blocks.0.attention.v,blocks.0.mlp.up,blocks.1.attention.q,blocks.1.attention.v,"
        "blocks.1.mlp.up");
  for (const NamedParameter& p : named_parameters(model))
    CHECK(p.parameter->requires_grad() == contains(p.name, ".lora."));
}

TEST_CASE("peft: a saved adapter has the tensors and the fields of PEFT's own file, and is loaded again") {
  for (Case& c : cases()) {
    CAPTURE(c.folder);
    to(c.model, DType::float32);
    load_peft(stored(c.folder), c.model, c.names);
    const TemporaryFolder folder;
    const fs::path saved = folder.path / "new" / "adapter";
    save_peft(saved, c.model, c.names);
    CHECK(bytes_of(saved / "adapter_model.safetensors") == bytes_of(stored(c.folder) / "adapter_model.safetensors"));
    json ours = config_of(saved), theirs = config_of(stored(c.folder));
    for (json* config : {&ours, &theirs}) {
      json& targets = (*config)["target_modules"];  // PEFT writes a set in any order
      std::set<std::string> names;
      for (const json& name : targets) names.insert(name);
      targets = names;
    }
    CHECK(ours == theirs);
    const Tensor tokens = test::random_ids({2, 6}, 11, 5), before = c.model(tokens).detach();
    remove_lora(c.model);
    load_peft(saved, c.model, c.names);
    CHECK(same_bits(c.model(tokens).detach(), before));
  }
}

TEST_CASE("peft: a target has a module's full name if another module has the same last part") {
  Rng rng(1);
  const TemporaryFolder folder;
  GPT model = gpt2();
  add_lora(model, {.targets = "mlp.down"}, rng);
  save_peft(folder.path, model, gpt2_names());
  CHECK(config_of(folder.path)["target_modules"] == json({"transformer.h.0.mlp.c_proj", "transformer.h.1.mlp.c_proj"}));
  remove_lora(model);
  add_lora(model, {.targets = "proj,down,blocks.0.mlp.up"}, rng);
  PeftNames names = gpt2_names();
  save_peft(folder.path, model, names);
  CHECK(config_of(folder.path)["target_modules"] == json({"c_proj", "transformer.h.0.mlp.c_fc"}));
  names.others = {"pooler.c_proj"};
  names.task_type = {};
  names.base_model = "gpt2";
  save_peft(folder.path, model, names);
  const json config = config_of(folder.path);
  CHECK(config["target_modules"].size() == 5);
  CHECK(config["task_type"].is_null());
  CHECK(config["base_model_name_or_path"] == "gpt2");
  load_peft(folder.path, model = gpt2(), names);
}

TEST_CASE("peft: adapters that cannot be saved") {
  Rng rng(1);
  const TemporaryFolder folder;
  GPT model = llama();
  const auto save = [&] { save_peft(folder.path, model, llama_names()); };
  CHECK(contains(error_of(save), "save_peft: the model has no adapters; add_lora() makes them"));
  add_lora(model, {.targets = "qkv"}, rng);
  CHECK(contains(error_of(save),
                 "save_peft: the model's class in transformers has no module for the whole matrix "
                 "blocks.0.attention.qkv, which has an adapter; add_lora() must have other targets"));
  remove_lora(model);
  add_lora(model, {.targets = "proj"}, rng);
  model.transformer.blocks[1].attention.proj.lora->alpha = 3;
  CHECK(contains(error_of(save),
                 "save_peft: the adapter of blocks.1.attention.proj has another rank, alpha or dropout "
                 "than those before; they must be the same"));
  folder.write("file", "");
  model.transformer.blocks[1].attention.proj.lora->alpha = 8;
  CHECK(contains(error_of([&] { save_peft(folder.path / "file", model, llama_names()); }),
                 "save_peft: cannot make the folder"));
  GPT other = gpt2();
  add_lora(other, {.targets = "q"}, rng);
  for (const std::function<void()>& f : std::vector<std::function<void()>>{
           [&] { save_peft(folder.path, other, gpt2_names()); }, [&] { check_peft(other, gpt2_names()); }})
    CHECK(contains(error_of(f), "has no module for the map blocks.0.attention.q, which has an adapter"));
  remove_lora(other);
  add_lora(other, {.whole = true}, rng);
  check_peft(other, gpt2_names());
}

TEST_CASE("peft: fields that are refused by name, and fields without effect") {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& field, const json& value) {
    json config = config_of(stored("llama"));
    config[field] = value;
    with_config(folder, "llama", config);
    GPT model = llama();
    std::string error = error_of([&] { load_peft(folder.path, model, llama_names()); });
    if (!error.empty()) CHECK(named_parameters(model).front().parameter->requires_grad());  // unchanged
    return error;
  };
  const json one = {{"x", 1}};
  const std::vector<std::pair<std::string, json>> refused = {{"use_dora", true},
                                                             {"rank_pattern", one},
                                                             {"alpha_pattern", one},
                                                             {"modules_to_save", {"x"}},
                                                             {"layers_to_transform", {0}},
                                                             {"layers_pattern", "h"},
                                                             {"lora_bias", true},
                                                             {"target_parameters", {"x"}},
                                                             {"use_qalora", true},
                                                             {"layer_replication", {{1}}},
                                                             {"trainable_token_indices", {1}},
                                                             {"loftq_config", one},
                                                             {"eva_config", one},
                                                             {"corda_config", one},
                                                             {"lora_ga_config", one},
                                                             {"velora_config", one},
                                                             {"monteclora_config", one},
                                                             {"use_bdlora", one},
                                                             {"arrow_config", one},
                                                             {"kasa_config", one},
                                                             {"megatron_config", one},
                                                             {"alora_invocation_tokens", {1}}};
  for (const auto& [field, value] : refused)
    CHECK(contains(message(field, value), "adapter_config.json: " + field +
                                              " is set, which heed does not support; it must be absent, null, false "
                                              "or empty"));
  CHECK(contains(message("future_field", nullptr), "adapter_config.json: future_field is not a field that heed knows"));
  CHECK(contains(message("bias", "all"), "adapter_config.json: bias is \"all\"; it must be \"none\""));
  CHECK(contains(message("peft_type", "IA3"), "adapter_config.json: peft_type is \"IA3\"; it must be \"LORA\""));
  CHECK(contains(message("init_lora_weights", "pissa"),
                 "adapter_config.json: init_lora_weights is \"pissa\", which may change the weights of the base"));
  CHECK(contains(message("r", 0), "adapter_config.json: r must be an integer from 1 to"));
  CHECK(contains(message("lora_alpha", 0), "adapter_config.json: lora_alpha must be above 0"));
  CHECK(contains(message("lora_dropout", 1), "adapter_config.json: lora_dropout must be at least 0 and below 1"));
  CHECK(contains(message("use_rslora", 1), "adapter_config.json: use_rslora must be true or false"));
  CHECK(contains(message("target_modules", {"q_proj"}),
                 "has an adapter of model.layers.0.mlp.down_proj, but target_modules in adapter_config.json does not "
                 "name it"));
  CHECK(contains(message("exclude_modules", {"mlp.up_proj"}),
                 "has an adapter of model.layers.0.mlp.up_proj, but exclude_modules in adapter_config.json names it"));
  const std::vector<std::pair<std::string, json>> accepted = {
      {"init_lora_weights", false},  {"init_lora_weights", "gaussian"},
      {"fan_in_fan_out", true},      {"inference_mode", false},
      {"task_type", nullptr},        {"base_model_name_or_path", "x"},
      {"revision", "main"},          {"megatron_core", "x"},
      {"target_modules", ".*_proj"}, {"exclude_modules", {"x"}},
      {"ensure_weight_tying", true}, {"peft_version", "0.7.0"}};
  for (const auto& field : accepted) CHECK_MESSAGE(message(field.first, field.second).empty(), field.first);
}

TEST_CASE("peft: damaged and incomplete folders") {
  const TemporaryFolder folder;
  GPT model = llama();
  const auto load_error = [&] { return error_of([&] { load_peft(folder.path, model, llama_names()); }); };
  CHECK(contains(load_error(), "adapter_config.json"));
  folder.write("adapter_config.json", "{");
  CHECK(contains(load_error(), "adapter_config.json: the text is not JSON at byte"));
  const json config = config_of(stored("llama"));
  folder.write("adapter_config.json", config.dump());
  folder.write("adapter_model.bin", "x");
  CHECK(contains(load_error(), "has adapter_model.bin, a pickled file of PyTorch, but no adapter_model.safetensors"));
  fs::remove(folder.path / "adapter_model.bin");
  CHECK(contains(load_error(), "adapter_model.safetensors"));
  TensorsByName tensors = load_safetensors(stored("llama") / "adapter_model.safetensors");
  const std::string prefix = "base_model.model.model.layers.0.self_attn.";
  const auto with = [&](const std::function<void(TensorsByName&)>& change) {
    TensorsByName changed = tensors;
    change(changed);
    save_safetensors(folder.path / "adapter_model.safetensors", changed);
    return load_error();
  };
  CHECK(contains(with([](TensorsByName& t) { t.clear(); }), "has no adapters"));
  CHECK(contains(with([&](TensorsByName& t) { t.erase(prefix + "q_proj.lora_B.weight"); }),
                 "has no tensor " + prefix + "q_proj.lora_B.weight"));
  CHECK(contains(with([&](TensorsByName& t) {
                   t[prefix + "q_proj.lora_A.weight"] = Tensor::zeros({3, 9});
                 }),
                 prefix + "q_proj.lora_A.weight in " + (folder.path / "adapter_model.safetensors").string() +
                     " is [3, 9] F32; it must be [3, 8] and floating"));
  CHECK(contains(with([&](TensorsByName& t) {
                   t[prefix + "q_proj.lora_B.weight"] = Tensor::zeros({8, 2});
                 }),
                 "is [8, 2] F32; it must be [8, 3] and floating"));
  for (const char* name : {"base_model.model.model.norm.lora_magnitude_vector.weight", "lora_A.weight",
                           "base_model.model.lora_A.weight", "base_model.model.lora_B.weight"})
    CHECK(contains(with([&](TensorsByName& t) {
                     t[name] = Tensor::zeros({3, 8});
                   }),
                   "has a tensor " + std::string(name) + "; names must be base_model.model.MODULE.lora_A.weight"));
  CHECK(contains(with([&](TensorsByName& t) {
                   t["base_model.model.lm_head.lora_A.weight"] = Tensor::zeros({3, 8});
                 }),
                 "has an adapter of lm_head, which is not a linear module of the model"));
  CHECK(with([](TensorsByName&) {}).empty());
  CHECK(
      contains(load_error(), "load_peft: the model has adapters already; merge_lora() or remove_lora() removes them"));
}

TEST_CASE("peft: PEFT loads what heed saves, with the same logits") {
  const std::string python = test::python_with("torch, transformers, peft");
  if (python.empty()) return;
  Rng rng(2);
  for (Case& c : cases()) {
    CAPTURE(c.folder);
    add_lora(c.model, {.rank = 4, .alpha = 6.5, .rslora = true, .whole = c.folder == "gpt2"}, rng);
    for (const NamedParameter& p : trainable_parameters(c.model)) init::normal_(*p.parameter, rng, 0, 0.5);
    to(c.model, DType::float32), to(c.model, DType::float64);  // PEFT rounds adapters to float32
    const TemporaryFolder folder;
    save_peft(folder.path, c.model, c.names);
    const Tensor tokens = test::random_ids({2, 6}, 11, 5);
    save_safetensors(folder.path / "tokens.safetensors", {{"tokens", tokens}});
    const test::Ran run =
        test::run("exec " + python + " -B " + test::quoted(test::in_source("tests/reference/peft_logits.py")) + " " +
                  c.folder + " " + test::quoted(folder.path.string()));
    INFO(run.output);
    REQUIRE(run.exit_code == 0);
    const SafetensorsFile result(folder.path / "logits.safetensors");
    const Tensor logits = c.model(tokens).detach(), theirs = load(result.tensor("logits"));
    const double largest = max(abs(theirs.to(DType::float64))).item();  // transformers rotates in float32
    CAPTURE(test::worst(logits, theirs, 0, 1e-5 * largest));
    CHECK(close(logits, theirs, 0, 1e-5 * largest));
  }
}
