// The settings of train_lm: presets, flags, options of mechanisms, and the command that continues a run.
// Above 400 lines: each flag has its own refusals.
#include <heed/core/check.hpp>
#include <heed/core/parallel.hpp>
#include <set>
#include <tuple>

#include "examples/support/lm_settings.hpp"
#include "tests/examples/programs.hpp"

using namespace heed;
using examples::LmFlags;
using examples::LmSettings;
using nlohmann::json;

namespace {

// Parses flags as a program does.
void parse_flags(LmFlags& flags, std::vector<std::string> words, const std::string& called = "train_lm") {
  words.insert(words.begin(), called);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  REQUIRE(!flags.line().parse(static_cast<int>(argv.size()), argv.data()));
}

LmSettings settings_of(const std::vector<std::string>& words) {
  LmFlags flags;
  parse_flags(flags, words);
  return flags.resolve(nullptr);
}

json json_of(const LmSettings& settings) { return test::parse_json(examples::to_json(settings)); }

// The settings of preset nano. Other presets change some.
json nano_settings() {
  return {{"line-ends", "lf"},
          {"invalid-utf8", "refuse"},
          {"unicode", "auto"},
          {"data", json::array()},
          {"tokenizer", "char"},
          {"preset", "nano"},
          {"model", "lm"},
          {"recipe", "plain"},
          {"qk-norm", false},
          {"zero-init-residual", false},
          {"layers", 4},
          {"heads", 4},
          {"width", 128},
          {"context", 64},
          {"batch", 12},
          {"accumulate", 1},
          {"shards", 1},
          {"dropout", 0.0},
          {"attention", "softmax"},
          {"feature-map", "elu"},
          {"norm", "layer"},
          {"activation", "gelu"},
          {"positions", "learned"},
          {"bias", false},
          {"steps", 2000},
          {"lr", 3e-3},
          {"min-lr", 3e-4},
          {"warmup", 100},
          {"weight-decay", 0.1},
          {"beta1", 0.9},
          {"beta2", 0.99},
          {"grad-clip", 1.0},
          {"optimizer", "adamw"},
          {"schedule", "cosine"},
          {"seed", 1},
          {"dtype", "f32"},
          {"communication-dtype", "f32"},
          {"val-fraction", 0.1},
          {"eval-every", 250},
          {"eval-batches", 20}};
}

json nano_settings_but(const json& others) {
  json all = nano_settings();
  all.update(others);
  return all;
}

// The published count: embeddings of tokens and positions, blocks with two norms, four matrices with biases, a last
// norm.
Index gpt2_parameters(Index vocabulary, Index context, Index layers, Index width) {
  return (vocabulary + context) * width + layers * (12 * width * width + 13 * width) + 2 * width;
}

}  // namespace

TEST_CASE("train_lm: the presets have the documented sizes and rates") {
  CHECK(json_of(settings_of({"--preset", "nano"})) == nano_settings());
  CHECK(json_of(settings_of({"--preset", "baby"})) == nano_settings_but({{"preset", "baby"},
                                                                         {"layers", 6},
                                                                         {"heads", 6},
                                                                         {"width", 384},
                                                                         {"context", 256},
                                                                         {"batch", 16},
                                                                         {"dropout", 0.2},
                                                                         {"steps", 5000},
                                                                         {"lr", 1e-3},
                                                                         {"min-lr", 1e-4}}));
  CHECK(json_of(settings_of({"--preset", "gpt2"})) == nano_settings_but({{"preset", "gpt2"},
                                                                         {"layers", 12},
                                                                         {"heads", 12},
                                                                         {"width", 768},
                                                                         {"context", 1024},
                                                                         {"batch", 4},
                                                                         {"activation", "gelu-tanh"},
                                                                         {"bias", true},
                                                                         {"steps", 10000},
                                                                         {"lr", 6e-4},
                                                                         {"min-lr", 6e-5},
                                                                         {"warmup", 500},
                                                                         {"beta2", 0.95}}));
  const json stories{{"context", 144}, {"batch", 24}, {"steps", 3000}, {"lr", 5e-3}, {"min-lr", 5e-4}};
  CHECK(json_of(settings_of({})) == nano_settings_but(stories));
  CHECK(json_of(settings_of({"--data", "a.txt"})) == nano_settings_but({{"data", {"a.txt"}}}));
}

TEST_CASE("train_lm: recipe fast changes the documented settings, and flags override each of them") {
  const bool dots = std::string(arch()) == "avx512_bf16";
  const json changed{{"recipe", "fast"},
                     {"norm", "rms"},
                     {"activation", "relu-squared"},
                     {"positions", "rope"},
                     {"qk-norm", true},
                     {"zero-init-residual", true},
                     {"steps", 270},
                     {"lr", 6e-3},
                     {"min-lr", 0.0},
                     {"warmup", 0},
                     {"weight-decay", 0.0},
                     {"beta1", 0.95},
                     {"beta2", 0.95},
                     {"optimizer", "muon"},
                     {"schedule", "linear"},
                     {"dtype", dots ? "bf16" : "f32"}};
  const LmSettings fast = settings_of({"--recipe", "fast", "--data", "a.txt"});
  json all = nano_settings_but(changed);
  all["data"] = {"a.txt"};
  CHECK(json_of(fast) == all);
  const std::string flags = examples::fast_flags(fast);
  for (const auto& item : changed.items()) {
    INFO(item.key());
    const bool listed = flags.find("--" + item.key() + " ") != std::string::npos;
    CHECK(listed == (item.key() != "recipe" && (dots || item.key() != "dtype")));
  }
  CHECK(flags.starts_with("--norm rms --activation relu-squared --positions rope --qk-norm true"));

  const LmSettings other = settings_of({"--recipe", "fast", "--preset", "baby", "--optimizer", "lion", "--lr", "0.5",
                                        "--dtype", "f32", "--qk-norm", "false", "--batch", "3"});
  CHECK(other.optimizer == "lion");
  CHECK(other.lr == 0.5);
  CHECK(other.min_lr == 0);
  CHECK(other.dtype == "f32");
  CHECK(!other.gpt.blocks.attention.qk_norm);
  CHECK(other.batch == 3);
  CHECK(other.gpt.blocks.layers == 6);
  CHECK(other.schedule == "linear");
  CHECK(examples::fast_flags(other).find("--optimizer lion") != std::string::npos);  // the final value

  const GPTOptions model = examples::model_config(fast, 65).options;
  CHECK(model.blocks.attention.qk_norm);
  CHECK(model.zero_init_residual);
  CHECK(model.blocks.activation == FeedForwardKind::relu_squared);
}

TEST_CASE("train_lm: preset gpt2 is GPT-2's architecture, with its 124439808 parameters") {
  const LmSettings s = settings_of({"--preset", "gpt2"});
  const GPTConfig model = examples::model_config(s, 50257);
  CHECK(test::parse_json(heed::to_json(model)) == json{{"model", "gpt"},
                                                       {"vocabulary", 50257},
                                                       {"context", 1024},
                                                       {"layers", 12},
                                                       {"heads", 12},
                                                       {"kv_heads", 0},
                                                       {"width", 768},
                                                       {"hidden", 0},
                                                       {"dropout", 0.0},
                                                       {"activation", "gelu-tanh"},
                                                       {"norm", "layer"},
                                                       {"positions", "learned"},
                                                       {"bias", true},
                                                       {"tied", true},
                                                       {"attention", "softmax"}});
  CHECK(model.options.blocks.activation == FeedForwardKind::gelu_tanh);
  CHECK(model.options.blocks.norm == NormKind::layer);
  CHECK(model.options.positions == PositionKind::learned);
  CHECK(gpt2_parameters(50257, s.gpt.context, s.gpt.blocks.layers, s.gpt.blocks.attention.width) == 124439808);
  // The formula holds for models of this preset with other sizes.
  for (const auto& sizes : std::vector<std::vector<Index>>{
           {11, 6, 2, 8}, {13, 6, 2, 8}, {11, 9, 2, 8}, {11, 6, 3, 8}, {11, 6, 2, 16}, {11, 6, 1, 4}}) {
    Rng rng(1);
    const GPTConfig of_size = examples::model_config(
        settings_of({"--preset", "gpt2", "--context", std::to_string(sizes[1]), "--layers", std::to_string(sizes[2]),
                     "--width", std::to_string(sizes[3]), "--heads", "2"}),
        sizes[0]);
    GPT small(of_size.options, rng, of_size.factory());
    CHECK(parameter_count(small) == gpt2_parameters(sizes[0], sizes[1], sizes[2], sizes[3]));
    for (const TransformerBlock& block : small.transformer.blocks)
      CHECK(std::get<LayerNorm>(block.norm1.layer).eps == 1e-5);
    CHECK(std::get<LayerNorm>(small.transformer.norm->layer).eps == 1e-5);
  }
}

TEST_CASE("train_lm: each flag fills the setting of its name") {
  const json others{{"data", {"a.txt", "b.txt"}},
                    {"line-ends", "any"},
                    {"invalid-utf8", "skip"},
                    {"unicode", "nfkc"},
                    {"tokenizer", "byte"},
                    {"preset", "baby"},
                    {"recipe", "fast"},
                    {"model", "mlm"},
                    {"layers", 3},
                    {"heads", 5},
                    {"width", 40},
                    {"context", 21},
                    {"batch", 7},
                    {"accumulate", 2},
                    {"shards", 3},
                    {"dropout", 0.25},
                    {"attention", "linear"},
                    {"feature-map", "softplus"},
                    {"norm", "rms"},
                    {"activation", "swiglu"},
                    {"positions", "relative"},
                    {"bias", true},
                    {"qk-norm", false},
                    {"zero-init-residual", false},
                    {"steps", 77},
                    {"lr", 0.5},
                    {"min-lr", 0.125},
                    {"warmup", 6},
                    {"weight-decay", 0.0625},
                    {"beta1", 0.75},
                    {"beta2", 0.875},
                    {"grad-clip", 0.375},
                    {"optimizer", "lion"},
                    {"schedule", "linear"},
                    {"seed", 9},
                    {"dtype", "bf16"},
                    {"communication-dtype", "bf16"},
                    {"val-fraction", 0.2},
                    {"eval-every", 8},
                    {"eval-batches", 0}};
  CHECK(others.size() == nano_settings().size());
  std::vector<std::string> words;
  for (const auto& item : others.items()) {
    words.push_back("--" + item.key());
    if (item.key() == "data")
      words.insert(words.end(), {"a.txt", "b.txt"});
    else
      words.push_back(item.value().is_string() ? item.value().get<std::string>() : item.value().dump());
  }
  const LmSettings s = settings_of(words);
  CHECK(json_of(s) == others);
  // A checkpoint returns the same settings.
  const std::string stored = examples::to_json(s);
  LmFlags resumed;
  parse_flags(resumed, {"--resume", "--beta2", "0.875"});
  CHECK(json_of(resumed.resolve(&stored)) == others);
}

TEST_CASE("train_lm: messages about settings in a checkpoint name only flags that were given") {
  const auto refusal = [](json stored, const std::vector<std::string>& words) {
    json all = nano_settings();
    all.update(stored);
    const std::string text = all.dump();
    LmFlags flags;
    parse_flags(flags, words);
    try {
      flags.resolve(&text);
    } catch (const examples::UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::vector<std::string> resume = {"--resume", "--checkpoint", "a.h5"};
  const auto and_flags = [&](std::vector<std::string> words) {
    words.insert(words.begin(), resume.begin(), resume.end());
    return words;
  };
  CHECK(refusal({{"warmup", 100}}, and_flags({"--steps", "1"})) ==
        "warmup is 100 (stored in a.h5) and --steps is 1; the warm-up must not be longer than the training");
  CHECK(refusal({{"warmup", 100}}, and_flags({"--steps", "1", "--warmup", "9"})) ==
        "--warmup is 9 and --steps is 1; the warm-up must not be longer than the training");
  CHECK(refusal({{"heads", 5}}, resume) ==
        "width is 128 (stored in a.h5) and heads is 5 (stored in a.h5); heads must divide the width, unless "
        "--key-size is given");
  CHECK(refusal({{"lr", 1e-3}, {"min-lr", 1.0}}, resume) ==
        "min-lr is 1.0 (stored in a.h5) and lr is 0.001 (stored in a.h5); min-lr must be at most lr");
  CHECK(refusal({{"attention", "linformer"}}, resume)
            .starts_with("attention is linformer (stored in a.h5) and model is lm (stored in a.h5): "));
  CHECK(refusal(json::object(), and_flags({"--window", "3"}))
            .starts_with("--window is 3 and attention is softmax (stored in a.h5); --attention must be window or "
                         "longformer or lsh"));
  // The model of --init.
  LmFlags flags;
  parse_flags(flags, {"--init", "b.h5", "--window", "3"});
  CHECK_THROWS_WITH_AS(
      flags.resolve(GPTConfig{}, "b.h5"),
      "--window is 3 and attention is softmax (stored in b.h5); --attention must be window or longformer or lsh, or "
      "leave --window out",
      examples::UsageError);
}

TEST_CASE("train_lm: a resumed run may have other names of files, but no other settings of the checkpoint") {
  const auto resumed = [](const std::vector<std::string>& began, const std::vector<std::string>& words) {
    const std::string stored = examples::to_json(settings_of(began));
    LmFlags flags;
    parse_flags(flags, words);
    try {
      return examples::to_json(flags.resolve(&stored));
    } catch (const examples::UsageError& e) {
      return std::string(e.what());
    }
  };
  const std::vector<std::string> files = {"--data", "a/b.txt", "--tokenizer", "a/b.model"};
  CHECK(test::parse_json(resumed(files, {"--data", "c/b.txt"})) ==
        nano_settings_but({{"data", {"c/b.txt"}}, {"tokenizer", "a/b.model"}}));
  CHECK(test::parse_json(resumed(files, {"--tokenizer", "c/b.model"})) ==
        nano_settings_but({{"data", {"a/b.txt"}}, {"tokenizer", "c/b.model"}}));
  CHECK(resumed(files, {"--tokenizer", "byte"}) ==
        "--tokenizer is \"byte\" but the checkpoint was made with \"a/b.model\"; leave it out, or start a "
        "new training with --overwrite or another --checkpoint");
  CHECK(test::contains(resumed({"--tokenizer", "char"}, {"--tokenizer", "c.model"}), "was made with \"char\""));
  // Older checkpoints were trained on texts with unchanged line ends.
  json older = nano_settings_but({{"data", {"a/b.txt"}}});
  older.erase("line-ends"), older.erase("unicode");
  const std::string stored = older.dump();
  LmFlags flags;
  parse_flags(flags, {"--resume"});
  CHECK(flags.resolve(&stored).text.line_ends == "keep");
  // The stories are not a file.
  CHECK(test::contains(resumed({}, {"--data", "a.txt"}), "--data is [\"a.txt\"] but the checkpoint was made with []"));
}

TEST_CASE("train_lm: a soft cap of the logits is an option of the model, and absent by default") {
  const LmSettings s = settings_of({"--logit-cap", "30"});
  CHECK(json_of(s).at("logit-cap") == 30.0);
  CHECK(!json_of(settings_of({})).contains("logit-cap"));
  const GPTConfig model = examples::model_config(s, 9);
  CHECK(model.options.logit_cap == 30);
  examples::check_config(s, model, "a.h5");
  const std::string stored = examples::to_json(s);
  LmFlags same, other;
  parse_flags(same, {"--resume"});
  CHECK(same.resolve(&stored).gpt.logit_cap == 30);
  parse_flags(other, {"--resume", "--logit-cap", "20"});
  CHECK_THROWS_AS(other.resolve(&stored), examples::UsageError);
}

TEST_CASE("train_lm: reversible blocks are an option of the model, and absent by default") {
  const LmSettings s = settings_of({"--reversible", "true"});
  CHECK(json_of(s).at("reversible") == true);
  CHECK(!json_of(settings_of({})).contains("reversible"));
  const GPTConfig model = examples::model_config(s, 9);
  CHECK(model.options.blocks.reversible);
  examples::check_config(s, model, "a.h5");
}

TEST_CASE("train_lm: sizes of keys and values are options of the model, and absent by default") {
  const LmSettings s = settings_of({"--heads", "3", "--key-size", "48", "--value-size", "20"});
  CHECK((json_of(s).at("key-size") == 48 && json_of(s).at("value-size") == 20));
  CHECK((!json_of(settings_of({})).contains("key-size") && !json_of(settings_of({})).contains("value-size")));
  const GPTConfig model = examples::model_config(s, 9);
  CHECK((model.options.blocks.attention.key_size == 48 && model.options.blocks.attention.value_size == 20));
  examples::check_config(s, model, "a.h5");
  const std::string stored = examples::to_json(s);
  LmFlags same;
  parse_flags(same, {"--resume"});
  CHECK(same.resolve(&stored).gpt.blocks.attention.key_size == 48);
  CHECK_THROWS_AS(settings_of({"--heads", "3"}), examples::UsageError);
}

TEST_CASE("train_lm: every described option of a GPT, and every option of a mechanism, is a setting") {
  LmSettings s;
  const examples::SettingFields settings(s);
  std::set<std::string> names;
  for (const examples::Setting& setting : settings.list()) names.insert(setting.name);
  int described = 0;
  for (const OptionField& field : list_fields(s.gpt)) {
    std::string name = field.name;
    std::replace(name.begin(), name.end(), '_', '-');
    if (!field.text.empty()) CHECK_MESSAGE(names.contains(name), name);
    described += field.text.empty() ? 0 : 1;
  }
  CHECK(described >= 12);
  for (const MechanismOption& o : mechanism_options())
    for (const std::string& mechanism : all_mechanism_names())
      if (o.of(mechanism)) CHECK_MESSAGE(names.contains(o.name), o.name);
}

TEST_CASE("train_lm: options of a mechanism are flags, and a checkpoint stores them independently of the defaults") {
  const auto with = [](const std::string& attention, const json& options) {
    json all = nano_settings_but({{"attention", attention}, {"model", "mlm"}, {"positions", "rope"}});
    all.update(options);
    return all;
  };
  const auto mlm = [](const std::string& attention, std::vector<std::string> words = {}) {
    words.insert(words.end(), {"--data", "a", "--model", "mlm", "--attention", attention});
    return settings_of(words);
  };
  const json a{{"data", {"a"}}};
  const auto check_settings = [&](const LmSettings& s, const std::string& attention, json options) {
    options.update(a);
    CHECK(json_of(s) == with(attention, options));
    // The resolved options are also in the config of the model, and can be read back.
    const GPTConfig model = examples::model_config(s, 9);
    CHECK(heed::to_json(from_json<GPTConfig>(heed::to_json(model), "it")) == heed::to_json(model));
    const std::string stored = examples::to_json(s);
    LmFlags resumed;
    parse_flags(resumed, {"--resume"});
    CHECK(json_of(resumed.resolve(&stored)) == with(attention, options));
  };
  check_settings(mlm("window"), "window", {{"window", 256}});
  check_settings(mlm("window", {"--window", "20"}), "window", {{"window", 20}});
  check_settings(mlm("window", {"--global-every", "6"}), "window", {{"window", 256}, {"global-every", 6}});
  check_settings(mlm("lsh"), "lsh", {{"window", 64}, {"lsh-rounds", 4}, {"lsh-buckets", 8}});
  check_settings(mlm("linformer"), "linformer", {{"linformer-rows", 64}});  // the context of preset nano
  check_settings(mlm("linformer", {"--context", "4096"}), "linformer", {{"linformer-rows", 256}, {"context", 4096}});
  check_settings(mlm("linear", {"--elu-alpha", "0.2"}), "linear", {{"elu-alpha", 0.2}});
  check_settings(mlm("strided"), "strided", {{"stride", 8}});
  check_settings(mlm("fixed", {"--stride", "5"}), "fixed", {{"stride", 5}});
  check_settings(mlm("top-k"), "top-k", {{"top-k-keys", 16}});
  check_settings(mlm("favor", {"--favor-features", "7"}), "favor", {{"favor-features", 7}});
  check_settings(mlm("favor"), "favor", json::object());  // depends on the size of a head
  check_settings(mlm("luong-concat"), "luong-concat", json::object());
  check_settings(mlm("bahdanau", {"--additive-units", "3"}), "bahdanau", {{"additive-units", 3}});
  const json kda = json_of(settings_of({"--data", "a", "--attention", "kda", "--max-rate", "2", "--value-heads", "2"}));
  CHECK((kda.at("value-heads") == 2 && kda.at("short-convolution") == 4 && kda.at("max-rate") == 2));
  CHECK((kda.at("householders") == 1 && kda.at("output-norm-eps") == 1e-5));
  CHECK((kda.at("output-norm") == "rms" && kda.at("output-gate") == "sigmoid"));
  // Checkpoints older than these options: the values with which they were trained.
  const auto resumed_before = [&](const std::string& attention, const std::vector<std::string>& words) {
    json old = with(attention, a);
    old["context"] = 96;
    const std::string stored = old.dump();
    LmFlags flags;
    parse_flags(flags, words);
    return json_of(flags.resolve(&stored));
  };
  CHECK(resumed_before("window", {}).at("window") == 12);
  CHECK(resumed_before("lsh", {}).at("window") == 12);
  CHECK(resumed_before("linformer", {}).at("linformer-rows") == 24);
  CHECK(resumed_before("linformer", {"--linformer-rows", "24"}).at("linformer-rows") == 24);
  const auto refused = [](const std::function<void()>& f) {
    try {
      f();
    } catch (const examples::UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(refused([&] {
          resumed_before("linformer", {"--linformer-rows", "64"});
        }) ==
        "--linformer-rows is 64 but the checkpoint was made with 24; leave it out, or start a new training "
        "with --overwrite or another --checkpoint");
  CHECK(refused([&] {
          resumed_before("linformer", {"--window", "64"});
        }) ==
        "--window is 64 and attention is linformer (stored in lm.h5); --attention must be window or longformer or lsh, "
        "or leave "
        "--window out");
  CHECK(refused([&] {
          mlm("lsh", {"--lsh-buckets", "3"});
        }) == "--attention is lsh: lsh attention: buckets is 3; it must be even, 2 or more");
  const auto model = from_json<GPTConfig>(
      R"({"model": "mlm", "vocabulary": 9, "context": 96, "layers": 1, "heads": 2, "kv_heads": 0, "width": 8,
          "hidden": 0, "dropout": 0, "activation": "gelu", "norm": "layer", "positions": "rope", "bias": false,
          "tied": true, "attention": "linformer"})",
      "it");
  Rng rng(1);
  BERT bert(model.options, rng, model.factory());
  for (const NamedParameter& p : named_parameters(bert))
    if (p.name == "blocks.0.attention.mechanism.e") CHECK(p.parameter->shape() == Shape{24, 96});
}

TEST_CASE("train_lm: defaults of rates depend on the rates that are given") {
  CHECK(json_of(settings_of({"--lr", "0.5"})).at("min-lr") == 0.05);
  CHECK(json_of(settings_of({"--lr", "0.5", "--min-lr", "0"})).at("min-lr") == 0);
  CHECK(json_of(settings_of({"--steps", "50"})).at("warmup") == 5);
  CHECK(json_of(settings_of({"--model", "mlm"})).at("positions") == "rope");
}

TEST_CASE("train_lm: the command that resumes has all flags that the checkpoint does not store, quoted for a shell") {
  LmFlags none, all;
  parse_flags(none, {"--steps", "7"});
  CHECK(none.resume_command() == "train_lm --checkpoint lm.h5 --resume");
  parse_flags(all, {"--steps",
                    "7",
                    "--checkpoint",
                    "my runs/lm.h5",
                    "--checkpoint-every",
                    "5",
                    "--log",
                    "x",
                    "--log",
                    "it's.jsonl",
                    "--plot",
                    "$HOME/a.svg",
                    "--threads",
                    "1",
                    "--sample",
                    "0",
                    "--prompt",
                    "-Who?",
                    "--temperature",
                    "0.10",
                    "--top-k",
                    "4",
                    "--top-p",
                    "0.5",
                    "--seed",
                    "3"});
  CHECK(all.resume_command() ==
        "train_lm --checkpoint 'my runs/lm.h5' --resume --threads 1 --checkpoint-every 5 --log 'it'\\''s.jsonl' --plot "
        "'$HOME/a.svg' --sample 0 --prompt '-Who?' --temperature 0.10 --top-k 4 --top-p 0.5");
  // The program is called as before: by its path, or by ./run, which sets HEED_COMMAND.
  LmFlags elsewhere;
  parse_flags(elsewhere, {}, "my build/train_lm");
  CHECK(elsewhere.resume_command() == "'my build/train_lm' --checkpoint lm.h5 --resume");
  ::setenv("HEED_COMMAND", "./run train", 1);
  CHECK(elsewhere.resume_command() == "./run train --checkpoint lm.h5 --resume");
  ::unsetenv("HEED_COMMAND");
  for (const std::string word : {"", "a", "-n", "a b", "it's", "''",
                                 "$HOME `id` \"x\" \\ * ? ~ # ! ; & | < > ( ) [ ] { }", "é\n\tx", "~", "=ls"}) {
    INFO(word);
    CHECK(test::run("exec bash -c " + test::quoted("printf %s " + examples::shell_word(word))).output == word);
  }
  CHECK(examples::shell_word("runs/lm-2.h5") == "runs/lm-2.h5");
}

TEST_CASE("train_lm: settings in a checkpoint that flags would refuse are errors of one sentence") {
  const json good = json_of(settings_of({"--data", "a.txt"}));
  const auto resumed = [](const std::string& stored) {
    LmFlags flags;
    parse_flags(flags, {"--resume"});
    return test::error_of([&] { flags.resolve(&stored); });
  };
  CHECK(resumed(good.dump()) == "");
  for (const char* text : {"", "{", "[1]", "3"})
    CHECK(resumed(text) == "lm.h5: the settings are damaged; they must be a JSON object");
  const std::string whole = "'; it must be a whole number, 1 or more";
  const std::vector<std::tuple<std::string, json, std::string>> cases = {
      {"heads", 0, "it is '0" + whole},
      {"layers", -3, "it is '-3" + whole},
      {"width", 1e300, "it is 1e+300, which has the wrong type"},
      {"steps", "many", "it is many, which has the wrong type"},
      {"batch", nullptr, "it is null, which has the wrong type"},
      {"dtype", "f33", "it is 'f33'; it must be f32 or bf16"},
      {"model", "lmm", "it is 'lmm'; it must be lm or mlm"},
      {"optimizer", "\x1b[2J",
       "it is '\\x1B[2J'; it must be sgd, adam, adamw, rmsprop, adagrad, lion, adafactor or muon"},
      {"dropout", 2, "it is '2'; it must be a number, from 0 to 0.99"},
      {"bias", 1, "it is 1, which has the wrong type"},
      {"tokenizer", "words", "\"words\" is not a tokenizer; it must be byte, char or a SentencePiece FILE.model"},
      {"data", {1, 2}, "it is a list, which has the wrong type"}};
  for (const auto& [name, value, message] : cases) {
    json changed = good;
    changed[name] = value;
    CHECK(resumed(changed.dump()) == "lm.h5: the setting " + name + " is wrong: " + message);
  }
}

TEST_CASE("train_lm: deeply nested settings and configurations are refused without printing them") {
  const std::size_t depth = test::thinned(1000000, 100000);
  const std::string deep = std::string(depth, '[') + std::string(depth, ']');
  const std::string stored = R"({"heads": )" + deep + "}", configuration = R"({"model": )" + deep + "}";
  LmFlags flags;
  parse_flags(flags, {"--resume"});
  CHECK(test::error_of([&] { flags.resolve(&stored); }) ==
        "lm.h5: the setting heads is wrong: it is a list, which has the wrong type");
  CHECK(test::error_of([&] { from_json<GPTConfig>(configuration, "x.h5"); }) ==
        "x.h5: the configuration has a list for model; it must be a string");
  CHECK(test::contains(test::error_of([&] { Tokenizer::from_json(R"({"kind": )" + deep + "}"); }), "is damaged"));
}

TEST_CASE("train_lm: a file name that is not UTF-8 is stored byte by byte") {
  const LmSettings s = settings_of({"--data", "a\xff.txt"});
  const std::string stored = examples::to_json(s);
  CHECK(test::parse_json(stored).at("data") == json::array({{{"hex", "61ff2e747874"}}}));
  LmFlags flags;
  parse_flags(flags, {"--resume", "--data", "a\xff.txt"});
  CHECK(flags.resolve(&stored).data == std::vector<std::string>{"a\xff.txt"});
  LmFlags other;
  parse_flags(other, {"--resume", "--tokenizer", "\xff.model"});
  CHECK_THROWS_AS(other.resolve(&stored), examples::UsageError);
}
