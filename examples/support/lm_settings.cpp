// Resolves the settings of train_lm from flags, presets and checkpoints, and checks them.
#include "examples/support/lm_settings.hpp"

#include <algorithm>
#include <cstdlib>
#include <heed/core/check.hpp>
#include <heed/core/parallel.hpp>
#include <heed/data/text.hpp>
#include <heed/data/token_file.hpp>
#include <heed/optim/optimizers/optimizers.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "examples/support/mechanism_flags.hpp"
#include "examples/support/program.hpp"

namespace heed::examples {
namespace {

using Json = nlohmann::ordered_json;

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

// The options that measurably shorten the time to a given loss (docs/training.md). Sizes of the model stay as in the
// preset.
void make_fast(LmSettings& s) {
  s.recipe = "fast";
  s.optimizer = "muon", s.beta1 = 0.95, s.beta2 = 0.95;
  s.schedule = "linear", s.min_lr = 0;
  s.norm = "rms", s.activation = "relu-squared", s.positions = "rope", s.bias = false;
  s.qk_norm = s.zero_init_residual = true;
  if (std::string_view(arch()) == "avx512_bf16") s.dtype = "bf16";
  if (s.preset == "nano") {
    s.lr = 6e-3, s.steps = 270, s.warmup = 0, s.weight_decay = 0;
  } else if (s.preset == "baby") {
    s.lr = 4e-3, s.steps = 1500, s.batch = 32, s.warmup = 25;
  } else {
    s.lr = 2e-3, s.steps = 5000;
  }
}

// Calls f(name, member) for every setting, with the name of its flag.
template <class S, class F>
void for_each_setting(S& s, F&& f) {
  f("data", s.data), f("tokenizer", s.tokenizer), f("preset", s.preset), f("recipe", s.recipe);
  for_each_text_setting(s.text, f);
  f("model", s.model), f("layers", s.layers), f("heads", s.heads), f("width", s.width), f("context", s.context),
      f("batch", s.batch), f("accumulate", s.accumulate), f("shards", s.shards);
  f("communication-dtype", s.communication_dtype);
  f("dropout", s.dropout), f("attention", s.attention);
  for_each_option(s.mechanism, [&](const MechanismOption& o, auto& value) { f(o.name.c_str(), value); });
  f("norm", s.norm), f("activation", s.activation), f("positions", s.positions), f("bias", s.bias);
  f("qk-norm", s.qk_norm), f("zero-init-residual", s.zero_init_residual);
  f("logit-cap", s.logit_cap);
  f("steps", s.steps), f("lr", s.lr), f("min-lr", s.min_lr), f("warmup", s.warmup);
  f("weight-decay", s.weight_decay), f("beta1", s.beta1), f("beta2", s.beta2), f("grad-clip", s.grad_clip);
  f("optimizer", s.optimizer), f("schedule", s.schedule), f("seed", s.seed), f("dtype", s.dtype);
  f("val-fraction", s.val_fraction), f("eval-every", s.eval_every), f("eval-batches", s.eval_batches);
}

// A setting as JSON. A file name that is not UTF-8, as JSON requires, is stored as {"hex": its bytes}.
template <class T>
Json to_setting(const T& value) {
  return value;
}
Json to_setting(const std::string& text) {
  if (!find_invalid_utf8(text)) return text;
  std::string digits;
  for (const char c : text)
    for (const int half : {static_cast<unsigned char>(c) >> 4, c & 15}) digits += "0123456789abcdef"[half];
  return Json{{"hex", digits}};
}
Json to_setting(const std::vector<std::string>& texts) {
  Json list = Json::array();
  for (const std::string& text : texts) list.push_back(to_setting(text));
  return list;
}

bool is_hex(const Json& json) { return json.is_object() && json.contains("hex") && json["hex"].is_string(); }
template <class T>
void from_setting(const Json& json, T& value) {
  json.get_to(value);
}
void from_setting(const Json& json, std::string& text) {
  if (!is_hex(json)) return json.get_to(text), void();
  const std::string digits = json.at("hex");
  text.clear();
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    text += static_cast<char>(std::strtol(digits.substr(i, 2).c_str(), nullptr, 16));
}
void from_setting(const Json& json, std::vector<std::string>& texts) {
  texts.assign(json.size(), "");
  for (std::size_t i = 0; i < texts.size(); ++i) from_setting(json.at(i), texts[i]);
}

// Settings that the weights depend on, and settings that a resumed run may change. All others are fixed from the start
// of a run.
bool is_of_model(const std::string& name) {
  static const std::set<std::string> names = {"model",     "layers",    "heads",      "width",     "context",
                                              "attention", "norm",      "activation", "positions", "bias",
                                              "qk-norm",   "logit-cap", "tokenizer",  "unicode"};
  const auto& options = mechanism_options();
  return names.count(name) > 0 ||
         std::any_of(options.begin(), options.end(), [&](const auto& o) { return o.name == name; });
}
bool may_change(const std::string& name) {
  static const std::set<std::string> names = {
      "steps", "batch",     "accumulate", "shards",     "communication-dtype", "dropout",
      "lr",    "min-lr",    "warmup",     "schedule",   "weight-decay",        "beta1",
      "beta2", "grad-clip", "dtype",      "eval-every", "eval-batches",
      "line-ends", "invalid-utf8"};
  return names.count(name) > 0;
}

// Sets the settings that the config of a model determines.
void take_config(const GPTConfig& config, LmSettings& s) {
  const GPTOptions o = config.options.settled();
  const MultiHeadAttentionOptions& attention = o.blocks.attention;
  const auto word_of = [](const auto& words, auto value) {
    for (const auto& [word, v] : words)
      if (v == value) return word;
    return std::string();
  };
  s.model = o.causal ? "lm" : "mlm";
  s.layers = o.blocks.layers, s.heads = attention.heads, s.width = attention.width, s.context = o.context;
  s.attention = config.attention;
  s.norm = word_of(norm_kinds(), o.blocks.norm), s.activation = word_of(feed_forward_kinds(), *o.blocks.activation);
  s.positions = word_of(position_kinds(), o.positions);
  s.bias = attention.bias, s.qk_norm = attention.qk_norm, s.logit_cap = o.logit_cap;
  const MechanismOptions settled = settled_options(config.attention, config.mechanism);
  for_each_option(s.mechanism, [&](const MechanismOption& m, auto& value) {
    for_each_option(settled, [&](const MechanismOption& same, const auto& theirs) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::decay_t<decltype(theirs)>>)
        if (m.name == same.name && m.of(config.attention)) value = theirs;
    });
  });
}

// Whether a setting names files.
bool names_files(const std::string& name, const Json& value) {
  return (name == "data" && !value.empty()) || (name == "tokenizer" && value != "char" && value != "byte");
}

// The reason why --model (lm or mlm) and a mechanism do not fit together; empty if they do.
std::string model_error(const std::string& model, const std::string& attention) {
  try {
    mechanism_by_name(attention, {.causal = model == "lm", .heads = 1, .head_size = 1, .context = 1});
  } catch (const Error& e) {
    return std::string(e.what()) + (model == "lm" ? "; use --model mlm" : "");
  }
  return {};
}

// Throws UsageError for settings that do not fit together, and for flags that would have no effect.
void check_together(const LmSettings& s, const SettingOrigins& origins) {
  const CommandLine& line = origins.line();
  for (const std::string& path : s.data)
    for (const char* flag : {"--tokenizer", "--unicode", "--line-ends", "--invalid-utf8"})
      if (line.given(flag) && is_token_file(path))
        throw UsageError(flag + (" is " + line.word(flag)) + " but " + path +
                         " is a token file, which contains a tokenizer and no text; leave " + flag + " out");
  for (const char* flag : {"--unicode", "--line-ends", "--invalid-utf8"})
    if (s.data.empty() && line.given(flag)) throw UsageError(flag + std::string(" requires text files; give --data"));
  if (s.data.empty() && line.given("--val-fraction"))
    throw UsageError("--val-fraction is " + Json(s.val_fraction).dump() +
                     " but --data is not given; the built-in stories are validated on other stories; leave "
                     "--val-fraction out");
  if (s.warmup > s.steps)
    throw UsageError(origins.describe("--warmup", std::to_string(s.warmup)) + " and " +
                     origins.describe("--steps", std::to_string(s.steps)) +
                     "; the warm-up must not be longer than the training");
  if (s.width % s.heads != 0)
    throw UsageError(origins.describe("--width", std::to_string(s.width)) + " and " +
                     origins.describe("--heads", std::to_string(s.heads)) + "; heads must divide the width");
  if (const std::string error = model_error(s.model, s.attention); !error.empty())
    throw UsageError(origins.describe("--attention", s.attention) + " and " + origins.describe("--model", s.model) +
                     ": " + error);
  MechanismOptions mechanism = s.mechanism;
  mechanism.causal = s.model == "lm", mechanism.heads = mechanism.head_size = 1;
  check_mechanism(origins, "--attention", s.attention, mechanism);
  if (s.min_lr > s.lr)
    throw UsageError(origins.describe("--min-lr", Json(s.min_lr).dump()) + " and " +
                     origins.describe("--lr", Json(s.lr).dump()) + "; min-lr must be at most lr");
}

}  // namespace

// Parses the settings in a checkpoint. Throws Error if one has a wrong type, or a value that its flag would refuse.
static Json stored_settings(const std::string& text, const CommandLine& line) {
  const Json stored = Json::parse(text, nullptr, false);
  require(stored.is_object(), "resume: the settings in the checkpoint are damaged; they must be a JSON object");
  LmSettings types;
  for_each_setting(types, [&](const std::string& name, auto& value) {
    if (!stored.contains(name)) return;
    const Json &given = stored[name], right = value;
    const auto is_text = [](const Json& j) { return j.is_string() || is_hex(j); };
    if (given.is_array() && right.is_array() && std::all_of(given.begin(), given.end(), is_text)) return;
    const bool same = is_text(given)
                          ? right.is_string()
                          : !given.is_structured() &&
                                (given.type() == right.type() || (right.is_number_float() && given.is_number()) ||
                                 (right.is_number_integer() && given.is_number_integer()));
    // A list may be nested so deeply that printing it overflows the stack.
    std::string word = given.is_structured() ? "a list" : "";
    if (is_text(given))
      from_setting(given, word);
    else if (word.empty())
      word = given.dump();
    const std::string error = same ? line.error("--" + name, word) : "it is " + word + ", which has the wrong type";
    require(error.empty(), "resume: the setting ", name, " in the checkpoint is wrong: ", printable(error));
  });
  return stored;
}

LmSettings LmFlags::resolve(const std::string* stored_text, std::vector<ChangedSetting>* changed) const {
  if (stored_text == nullptr) return resolved(nullptr, {});
  const Json stored = stored_settings(*stored_text, line_);
  const SettingOrigins origins(line_, run_.checkpoint, is_among(*stored_text));
  LmSettings s = preset(given_.preset);
  const auto take_stored = [&](const char* name, auto& value) {
    if (stored.contains(name)) from_setting(stored.at(name), value);
  };
  for_each_setting(s, take_stored);
  if (!stored.contains("line-ends")) s.text.line_ends = "keep";  // in older checkpoints
  s.mechanism = older_options(s.attention, s.context);
  for_each_option(s.mechanism, [&](const MechanismOption& o, auto& value) { take_stored(o.name.c_str(), value); });
  check_mechanism_flags(origins, "--attention", {s.attention});
  const LmSettings before = s;
  for_each_given([&](const std::string& name, const Json& now) {
    for_each_setting(s, [&](const std::string& other, auto& value) {
      if (name != other) return;
      const Json was = to_setting(value);
      const ChangedSetting change{name, was.dump(), now.dump()};
      const bool files = names_files(name, was) && names_files(name, now);
      const bool data = run_.start.other_data && (name == "data" || name == "val-fraction");
      if (was != now && !may_change(name) && !files && !data)
        throw UsageError(refusal_of(change, is_of_model(name)) +
                         (name == "data" || name == "val-fraction" ? ", or allow other data with --other-data" : ""));
      if (was != now && !files && changed != nullptr) changed->push_back(change);
      from_setting(now, value);
    });
  });
  if (s.lr != before.lr && !line_.given("--min-lr") && before.min_lr > 0) s.min_lr = s.lr / 10;
  return settled(s, origins);
}

LmSettings LmFlags::resolve(const GPTConfig& init, const std::string& file) const { return resolved(&init, file); }

// The settings of a new training. `init` is the config of the model to start from, or null.
LmSettings LmFlags::resolved(const GPTConfig* init, const std::string& file) const {
  LmSettings s = preset(given_.preset);
  if (!line_.given("--data") && !line_.given("--preset")) {
    // Stories: nearly all fit into this context, so their questions can be answered.
    s.context = 144, s.batch = 24, s.steps = 3000, s.lr = 5e-3, s.min_lr = 5e-4;
  }
  if (given_.recipe == "fast") make_fast(s);
  if (init != nullptr) take_config(*init, s);
  const SettingOrigins origins = init != nullptr ? SettingOrigins(line_, file, is_of_model) : line_;
  check_mechanism_flags(origins, "--attention", {init != nullptr ? s.attention : given_.attention});
  for_each_given([&](const std::string& name, const Json& now) {
    for_each_setting(s, [&](const std::string& other, auto& value) {
      if (name != other) return;
      const Json was = to_setting(value);
      if (init != nullptr && name == "zero-init-residual")
        throw UsageError("--zero-init-residual sets initial weights, but --init takes the weights of " + file +
                         "; leave one out");
      if (init != nullptr && name != "tokenizer" && is_of_model(name) && was != now)
        throw UsageError("--" + name + " is " + now.dump() + " but the model of " + file + " has " + was.dump() +
                         "; leave it out");
      from_setting(now, value);
    });
  });
  // A masked model reads neighbours on both sides, for which distances matter more than positions.
  if (s.model == "mlm" && init == nullptr && !line_.given("--positions")) s.positions = "rope";
  if (line_.given("--lr") && !line_.given("--min-lr") && s.recipe == "plain") s.min_lr = s.lr / 10;
  if (!line_.given("--warmup")) s.warmup = std::min(s.warmup, s.steps / 10);
  return settled(s, origins);
}

// Calls f(name, value as JSON) for every setting that a flag gives.
void LmFlags::for_each_given(const std::function<void(const std::string&, const Json&)>& f) const {
  for_each_setting(given_, [&](const std::string& name, const auto& value) {
    if (line_.given("--" + name)) f(name, to_setting(value));
  });
}

LmSettings LmFlags::settled(LmSettings s, const SettingOrigins& origins) const {
  s.mechanism.context = s.context;
  s.mechanism = settled_options(s.attention, s.mechanism);
  check_together(s, origins);
  return s;
}

std::vector<FileUse> input_files(const LmSettings& s) {
  std::vector<FileUse> files;
  for (const std::string& path : s.data)
    if (path != "-") files.push_back({"--data", path, FileRole::input});
  if (s.tokenizer != "char" && s.tokenizer != "byte") files.push_back({"--tokenizer", s.tokenizer, FileRole::input});
  return files;
}

std::string LmFlags::resume_command() const {
  return line_.resume_command(run_.checkpoint, {"--threads", "--checkpoint-every", "--log", "--plot", "--sample",
                                                "--prompt", "--temperature", "--top-k", "--top-p"});
}

std::string to_json(const LmSettings& settings) {
  Json json;
  for_each_setting(settings, [&](const char* name, const auto& value) { json[name] = to_setting(value); });
  for (const MechanismOption& o : mechanism_options())  // older checkpoints always have feature-map
    if ((!o.of(settings.attention) && o.name != "feature-map") || json.at(o.name) == 0) json.erase(o.name);
  if (settings.logit_cap == 0) json.erase("logit-cap");  // as in older checkpoints
  return json.dump();
}

void check_config(const LmSettings& settings, const GPTConfig& config, const std::string& file) {
  LmSettings by_config = settings;
  take_config(config, by_config);
  std::map<std::string, Json> here;
  for_each_setting(settings, [&](const char* name, const auto& value) { here[name] = to_setting(value); });
  for_each_setting(by_config, [&](const std::string& name, const auto& value) {  // 0: an option that was not given
    const Json of_config = to_setting(value);
    require(here[name] == of_config || here[name] == 0, file, ": its settings have ", here[name].dump(), " for ", name,
            " and its config ", of_config.dump(), "; they must agree");
  });
}

std::string fast_flags(const LmSettings& settings) {
  LmSettings plain = preset(settings.preset), fast = plain;
  make_fast(fast);
  std::map<std::string, Json> was;
  for_each_setting(plain, [&](const char* name, const auto& value) { was[name] = to_setting(value); });
  std::set<std::string> sets;
  for_each_setting(fast, [&](const std::string& name, const auto& value) {
    if (name != "recipe" && was[name] != to_setting(value)) sets.insert(name);
  });
  std::string flags;
  for_each_setting(settings, [&](const std::string& name, const auto& value) {
    if (sets.count(name) == 0) return;
    const Json json = to_setting(value);
    flags += (flags.empty() ? "--" : " --") + name + " " + (json.is_string() ? json.get<std::string>() : json.dump());
  });
  return flags;
}

GPTConfig model_config(const LmSettings& s, Index vocabulary) {
  GPTConfig config{{.vocabulary = s.model == "mlm" ? vocabulary + 1 : vocabulary,
                    .context = s.context,
                    .blocks = {.layers = s.layers,
                               .attention = {.width = s.width, .heads = s.heads, .bias = s.bias, .qk_norm = s.qk_norm},
                               .dropout = s.dropout,
                               .activation = feed_forward_kinds().at(s.activation),
                               .norm = norm_kinds().at(s.norm)},
                    .positions = position_kinds().at(s.positions),
                    .logit_cap = s.logit_cap,
                    .zero_init_residual = s.zero_init_residual,
                    .causal = s.model == "lm"},
                   s.attention,
                   s.mechanism};
  config.mechanism.seed = s.seed;
  return config;
}

}  // namespace heed::examples
