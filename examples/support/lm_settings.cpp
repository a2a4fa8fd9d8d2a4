#include "examples/support/lm_settings.hpp"

#include <heed/data/token_file.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "examples/support/flag_checks.hpp"
#include "examples/support/program.hpp"

namespace heed::examples {
namespace {

using Json = nlohmann::ordered_json;

const std::map<std::string, FeedForwardKind> kActivations = {{"relu", FeedForwardKind::relu},
                                                             {"gelu", FeedForwardKind::gelu},
                                                             {"gelu-tanh", FeedForwardKind::gelu_tanh},
                                                             {"silu", FeedForwardKind::silu},
                                                             {"swiglu", FeedForwardKind::swiglu}};
const std::map<std::string, NormKind> kNorms = {{"layer", NormKind::layer}, {"rms", NormKind::rms}};
const std::map<std::string, PositionKind> kPositions = {{"none", PositionKind::none},
                                                        {"learned", PositionKind::learned},
                                                        {"sinusoidal", PositionKind::sinusoidal},
                                                        {"rope", PositionKind::rope},
                                                        {"relative", PositionKind::relative}};
const std::vector<std::string> kPresets = {"nano", "baby", "gpt2"};

template <class T>
std::vector<std::string> names(const std::map<std::string, T>& map) {
  std::vector<std::string> list;
  for (const auto& [name, value] : map) list.push_back(name);
  return list;
}

template <class T>
std::string name_of(const std::map<std::string, T>& map, T value) {
  for (const auto& [name, v] : map)
    if (v == value) return name;
  return {};
}

LmSettings preset(const std::string& name) {
  LmSettings s;
  s.preset = name;
  if (name == "nano") {
    s.layers = 4, s.heads = 4, s.width = 128, s.context = 64, s.batch = 12;
    s.steps = 2000, s.lr = 3e-3, s.min_lr = 3e-4, s.warmup = 100;
  } else if (name == "baby") {
    s.layers = 6, s.heads = 6, s.width = 384, s.context = 256, s.batch = 16;
    s.steps = 5000, s.lr = 1e-3, s.min_lr = 1e-4, s.warmup = 100, s.dropout = 0.2;
  } else {
    s.layers = 12, s.heads = 12, s.width = 768, s.context = 1024, s.batch = 4;
    s.steps = 10000, s.lr = 6e-4, s.min_lr = 6e-5, s.warmup = 500, s.beta2 = 0.95;
    s.activation = "gelu-tanh", s.bias = true;
  }
  return s;
}

// Every setting by its flag's name: f(name, member).
template <class S, class F>
void for_each_setting(S& s, F&& f) {
  f("data", s.data), f("tokenizer", s.tokenizer), f("preset", s.preset);
  f("layers", s.layers), f("heads", s.heads), f("width", s.width), f("context", s.context), f("batch", s.batch),
      f("accumulate", s.accumulate);
  f("dropout", s.dropout), f("attention", s.attention), f("feature-map", s.feature_map), f("norm", s.norm),
      f("activation", s.activation), f("positions", s.positions), f("bias", s.bias);
  f("steps", s.steps), f("lr", s.lr), f("min-lr", s.min_lr), f("warmup", s.warmup);
  f("weight-decay", s.weight_decay), f("beta1", s.beta1), f("beta2", s.beta2), f("grad-clip", s.grad_clip);
  f("optimizer", s.optimizer), f("schedule", s.schedule), f("seed", s.seed), f("dtype", s.dtype);
  f("val-fraction", s.val_fraction), f("eval-every", s.eval_every), f("eval-batches", s.eval_batches);
}

}  // namespace

LmFlags::LmFlags()
    : app_(new CLI::App("Trains a small language model on text files, or on the built-in stories", "train_lm")) {
  CLI::App& app = *app_;
  LmSettings& s = given_;
  const auto add = [&](const std::string& name, auto& value, const std::string& text) {
    CLI::Option* o = app.add_option("--" + name, value, text);
    options_.emplace_back(name, o);
    return o;
  };
  const auto add_choice = [&](const std::string& name, std::string& value, const std::string& text,
                              const std::vector<std::string>& words) {
    add(name, value, text)->type_name(choice(words))->check(one_of(words));
  };
  const auto counted = [](CLI::Option* option, Index least) { option->type_name("N")->check(whole(least)); };
  const auto ranged = [](CLI::Option* option, double most = std::numeric_limits<double>::max(), double least = 0) {
    option->type_name("X")->check(number(least, most));
  };
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->group("Data");
  add("data", s.data, "Text files, folders, or one token file. Without it: the built-in stories")
      ->type_name("PATH...")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add("tokenizer", s.tokenizer,
      "byte, char (characters of the text), or a SentencePiece FILE.model [char; a token file holds its own]")
      ->type_name("byte|char|FILE.model")
      ->check([](const std::string& name) { return tokenizer_name_error(name); });
  ranged(add("val-fraction", s.val_fraction, "Last part of the data, kept for validation [0.1]"), 0.9);
  app.option_defaults()->group("Model");
  add_choice("preset", s.preset,
             "Sizes and rates: nano (4 layers, 4 heads, width 128, context 64, batch 12), baby (6, 6, 384, 256, 16), "
             "gpt2 (12, 12, 768, 1024, 4; GPT-2's architecture) [nano]",
             kPresets);
  counted(add("layers", s.layers, "Blocks [by preset]"), 0);
  counted(add("heads", s.heads, "Attention heads; must divide the width [by preset]"), 1);
  counted(add("width", s.width, "Size of a token's vector [by preset]"), 1);
  counted(add("context", s.context, "Tokens that the model sees at once [by preset; stories 144]"), 1);
  std::string mechanisms;
  for (const std::string& name : mechanism_names()) mechanisms += (mechanisms.empty() ? "" : ", ") + name;
  add("attention", s.attention, "Attention mechanism: " + mechanisms + " (docs/attention.md) [softmax]")
      ->type_name("NAME")
      ->check(one_of(mechanism_names()));
  add_choice("feature-map", s.feature_map, "Of linear attention [elu]", {"elu", "relu", "exp", "softplus", "poly2"});
  add_choice("norm", s.norm, "Normalisation [layer]", names(kNorms));
  add_choice("activation", s.activation, "Of the feed-forward part [gelu; gelu-tanh in gpt2]", names(kActivations));
  add_choice("positions", s.positions, "How a token's place is told [learned]", names(kPositions));
  add("bias", s.bias, "Biases in the linear layers [false; true in gpt2]")
      ->type_name("true|false")
      ->check(one_of({"true", "false"}));
  ranged(add("dropout", s.dropout, "Share of activations dropped in training [0; 0.2 in baby]"), 0.99);
  app.option_defaults()->group("Training");
  counted(add("steps", s.steps, "Optimizer steps [nano 2000, baby 5000, gpt2 10000; stories 3000]"), 0);
  counted(add("batch", s.batch, "Rows a batch [by preset; stories 24]"), 1);
  counted(add("accumulate", s.accumulate, "Batches a step [1]"), 1);
  ranged(add("lr", s.lr, "Highest learning rate [nano 3e-3, baby 1e-3, gpt2 6e-4; stories 5e-3]"));
  ranged(add("min-lr", s.min_lr, "Learning rate at the end [a tenth of lr]"));
  counted(add("warmup", s.warmup,
              "Steps in which the rate rises from 0 [nano 100, baby 100, gpt2 500; at most a tenth of the steps]"),
          0);
  add_choice("schedule", s.schedule, "Of the learning rate [cosine]",
             {"constant", "linear", "cosine", "inverse-sqrt", "step", "one-cycle", "plateau"});
  add_choice("optimizer", s.optimizer, "Of the weights [adamw]",
             {"adamw", "adam", "sgd", "rmsprop", "adagrad", "lion"});
  ranged(add("weight-decay", s.weight_decay, "Of matrices [0.1]"));
  ranged(add("beta1", s.beta1, "Of Adam and Lion; momentum of SGD and RMSprop [0.9]"), 1);
  ranged(add("beta2", s.beta2, "Of Adam and Lion [0.99; 0.95 in gpt2]"), 1);
  ranged(add("grad-clip", s.grad_clip, "Largest norm of the gradient; 0: any [1]"));
  add_choice("dtype", s.dtype, "Operands of matrix products [f32]", {"f32", "bf16"});
  add("seed", s.seed, "Of initial weights, batches, dropout and the sample [1]")
      ->type_name("N")
      ->check(whole(0, std::numeric_limits<Index>::max()));
  app.add_option("--threads", run_.threads, "0: all that the process may use [0]")
      ->type_name("N")
      ->check(whole(0, 1024));
  app.option_defaults()->group("Evaluation, checkpoints, output");
  counted(add("eval-every", s.eval_every, "Steps between evaluations; 0: only at the end [250]"), 0);
  counted(add("eval-batches", s.eval_batches,
              "Batches an evaluation; 0: the whole validation split, as the last one always is [20]"),
          0);
  app.add_option("--checkpoint", run_.checkpoint, "File, written at the end in any case [lm.h5]")->type_name("FILE");
  counted(
      app.add_option("--checkpoint-every", run_.checkpoint_every, "Steps between checkpoints; 0: only at the end [0]"),
      0);
  app.add_flag("--resume", run_.resume, "Go on from the checkpoint, with its settings, if it is there");
  app.add_option("--log", run_.log, "One JSON object a step")->type_name("FILE.jsonl");
  app.add_option("--plot", run_.plot, "Picture of the losses, .svg or .png")->type_name("FILE.svg|png");
  counted(app.add_option("--sample", run_.sample, "Tokens of text to write at the end [300]"), 0);
  app.add_option("--prompt", run_.prompt, "What the sample goes on from [a line feed]")->type_name("TEXT");
  add_sampling_flags(app, run_.sampling);
}

LmFlags::~LmFlags() = default;

LmSettings LmFlags::resolve(const std::string* stored_text) const {
  const std::optional<Json> stored = stored_text ? std::optional(Json::parse(*stored_text)) : std::nullopt;
  const auto is_given = [&](const std::string& name) {
    for (const auto& [key, option] : options_)
      if (key == name) return option->count() > 0;
    return false;
  };
  LmSettings s = preset(given_.preset);
  if (!stored && !is_given("data") && !is_given("preset")) {
    // The stories: nearly all fit into the context, so that their questions can be answered.
    s.context = 144, s.batch = 24, s.steps = 3000, s.lr = 5e-3, s.min_lr = 5e-4;
  }
  if (stored)
    for_each_setting(s, [&](const char* name, auto& value) {
      if (stored->contains(name)) stored->at(name).get_to(value);
    });
  const LmSettings& given = given_;
  Json flags;
  for_each_setting(given, [&](const char* name, const auto& value) { flags[name] = value; });
  for_each_setting(s, [&](const char* name, auto& value) {
    if (!is_given(name)) return;
    const Json was = value;
    if (stored && was != flags[name]) {
      throw UsageError("--" + std::string(name) + " is " + flags[name].dump() + " but the checkpoint was made with " +
                       was.dump() + "; it must be the same, or leave --resume out to start afresh");
    }
    flags[name].get_to(value);
  });
  if (!stored && is_given("lr") && !is_given("min-lr")) s.min_lr = s.lr / 10;
  if (!stored && !is_given("warmup")) s.warmup = std::min(s.warmup, s.steps / 10);
  for (const std::string& path : s.data)
    if (is_given("tokenizer") && is_token_file(path))
      throw UsageError("--tokenizer is " + s.tokenizer + " but " + path +
                       " is a token file, which holds its tokenizer; leave --tokenizer out");
  if (s.warmup > s.steps)
    throw UsageError("--warmup is " + std::to_string(s.warmup) + " and --steps " + std::to_string(s.steps) +
                     "; the warm-up must not be longer");
  if (s.width % s.heads != 0)
    throw UsageError("--width is " + std::to_string(s.width) + " and --heads " + std::to_string(s.heads) +
                     "; heads must divide the width");
  if (s.min_lr > s.lr)
    throw UsageError("--min-lr is " + Json(s.min_lr).dump() + " and --lr " + Json(s.lr).dump() +
                     "; the least rate must not be above the highest");
  return s;
}

std::string to_json(const LmSettings& settings) {
  Json json;
  for_each_setting(settings, [&](const char* name, const auto& value) { json[name] = value; });
  return json.dump();
}

LmModel lm_model(const LmSettings& s, Index vocabulary) {
  return {{.vocabulary = vocabulary,
           .context = s.context,
           .layers = s.layers,
           .heads = s.heads,
           .width = s.width,
           .dropout = s.dropout,
           .activation = kActivations.at(s.activation),
           .norm = kNorms.at(s.norm),
           .positions = kPositions.at(s.positions),
           .bias = s.bias},
          s.attention,
          {.feature_map = s.feature_map, .seed = s.seed}};
}

GPT make_gpt(const LmModel& model, Rng& rng) {
  MechanismOptions options = model.mechanism;
  options.heads = model.gpt.heads;
  if (model.gpt.heads > 0) options.head_size = model.gpt.width / model.gpt.heads;
  options.context = model.gpt.context;
  return GPT(model.gpt, rng, mechanism_by_name(model.attention, options));
}

std::string to_json(const LmModel& model) {
  const GPTOptions& o = model.gpt;
  Json json{{"model", "gpt"},
            {"vocabulary", o.vocabulary},
            {"context", o.context},
            {"layers", o.layers},
            {"heads", o.heads},
            {"kv_heads", o.kv_heads},
            {"width", o.width},
            {"hidden", o.hidden},
            {"dropout", o.dropout},
            {"activation", name_of(kActivations, o.activation)},
            {"norm", name_of(kNorms, o.norm)},
            {"positions", name_of(kPositions, o.positions)},
            {"bias", o.bias},
            {"tied", o.tied},
            {"attention", model.attention}};
  if (model.attention == "linear") json["feature_map"] = model.mechanism.feature_map;
  return json.dump();
}

LmModel lm_model_from_json(const std::string& text, const std::string& source) {
  try {
    const Json j = Json::parse(text);
    require(j.at("model") == "gpt", source, ": the model is ", j.at("model").dump(), "; this program reads \"gpt\"");
    LmModel model;
    GPTOptions& o = model.gpt;
    j.at("vocabulary").get_to(o.vocabulary), j.at("context").get_to(o.context), j.at("layers").get_to(o.layers),
        j.at("heads").get_to(o.heads);
    j.at("kv_heads").get_to(o.kv_heads), j.at("width").get_to(o.width), j.at("hidden").get_to(o.hidden),
        j.at("dropout").get_to(o.dropout);
    j.at("bias").get_to(o.bias), j.at("tied").get_to(o.tied);
    o.activation = kActivations.at(j.at("activation").get<std::string>());
    o.norm = kNorms.at(j.at("norm").get<std::string>());
    o.positions = kPositions.at(j.at("positions").get<std::string>());
    j.at("attention").get_to(model.attention);
    if (j.contains("feature_map")) j.at("feature_map").get_to(model.mechanism.feature_map);
    return model;
  } catch (const Json::parse_error&) {
    fail(source, ": the configuration is not JSON");
  } catch (const Json::exception& e) {
    fail(source, ": the configuration lacks something: ", e.what());
  } catch (const std::out_of_range&) {
    fail(source, ": the configuration ", text, " holds a kind that this version does not know");
  }
}

}  // namespace heed::examples
