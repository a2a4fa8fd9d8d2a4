// Resolves the settings of train_lm from flags, presets and checkpoints, and checks them.
#include "examples/support/lm_settings.hpp"

#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/core/parallel.hpp>
#include <heed/data/token_file.hpp>
#include <heed/optim/optimizers/optimizers.hpp>

#include "examples/support/mechanism_flags.hpp"
#include "examples/support/program.hpp"

namespace heed::examples {
namespace {

using Json = Setting::Json;

LmSettings preset(const std::string& name) {
  LmSettings s;
  s.preset = name;
  TransformerOptions& blocks = s.gpt.blocks;
  if (name == "baby") {
    blocks.layers = 6, blocks.attention.heads = 6, blocks.attention.width = 384, s.gpt.context = 256, s.batch = 16;
    s.steps = 5000, s.lr = 1e-3, s.min_lr = 1e-4, blocks.dropout = 0.2;
  } else if (name == "gpt2") {
    blocks.layers = 12, blocks.attention.heads = 12, blocks.attention.width = 768, s.gpt.context = 1024, s.batch = 4;
    s.steps = 10000, s.lr = 6e-4, s.min_lr = 6e-5, s.warmup = 500, s.beta2 = 0.95;
    blocks.activation = FeedForwardKind::gelu_tanh, blocks.attention.bias = true;
  }
  return s;
}

// The options that measurably shorten the time to a given loss (docs/training.md). Sizes of the model stay as in the
// preset.
void make_fast(LmSettings& s) {
  s.recipe = "fast";
  s.optimizer = "muon", s.beta1 = 0.95, s.beta2 = 0.95;
  s.schedule = "linear", s.min_lr = 0;
  TransformerOptions& blocks = s.gpt.blocks;
  blocks.norm = NormKind::rms, blocks.activation = FeedForwardKind::relu_squared, blocks.attention.bias = false;
  s.gpt.positions = PositionKind::rope;
  blocks.attention.qk_norm = s.gpt.zero_init_residual = true;
  if (std::string_view(arch()) == "avx512_bf16") s.dtype = "bf16";
  if (s.preset == "nano") {
    s.lr = 6e-3, s.steps = 270, s.warmup = 0, s.weight_decay = 0;
  } else if (s.preset == "baby") {
    s.lr = 4e-3, s.steps = 1500, s.batch = 32, s.warmup = 25;
  } else {
    s.lr = 2e-3, s.steps = 5000;
  }
}

// Sets the settings that the config of a model determines.
void take_config(const GPTConfig& config, LmSettings& s) {
  const GPTOptions before = s.gpt;
  s.gpt = config.options.settled();
  s.gpt.blocks.dropout = before.blocks.dropout, s.gpt.zero_init_residual = before.zero_init_residual;
  s.model = config.options.causal ? "lm" : "mlm";
  s.attention = config.attention, s.mechanism = settled_options(config.attention, config.mechanism);
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
  if (const auto& [width, heads] = std::pair(s.gpt.blocks.attention.width, s.gpt.blocks.attention.heads);
      width % heads != 0 && s.gpt.blocks.attention.key_size == 0)
    throw UsageError(origins.describe("--width", std::to_string(width)) + " and " +
                     origins.describe("--heads", std::to_string(heads)) +
                     "; heads must divide the width, unless --key-size is given");
  if (const std::string error = model_error(s.model, s.attention); !error.empty())
    throw UsageError(origins.describe("--attention", s.attention) + " and " + origins.describe("--model", s.model) +
                     ": " + error);
  MechanismOptions mechanism = s.mechanism;
  mechanism.causal = s.model == "lm", mechanism.heads = s.gpt.blocks.attention.heads,
  mechanism.head_size = s.gpt.blocks.attention.head_size();
  check_mechanism(origins, "--attention", s.attention, mechanism);
  if (s.min_lr > s.lr)
    throw UsageError(origins.describe("--min-lr", Json(s.min_lr).dump()) + " and " +
                     origins.describe("--lr", Json(s.lr).dump()) + "; min-lr must be at most lr");
}

LmSettings settled(LmSettings s, const SettingOrigins& origins) {
  s.mechanism.context = s.gpt.context;
  s.mechanism = settled_options(s.attention, s.mechanism);
  check_together(s, origins);
  return s;
}

}  // namespace

LmSettings LmFlags::resolve(const std::string* stored_text, std::vector<ChangedSetting>* changed) const {
  if (stored_text == nullptr) return resolved(nullptr, {}, nullptr);
  const StoredSettings stored(*stored_text, run_.checkpoint);
  const SettingOrigins origins(line_, run_.checkpoint, stored.names());
  LmSettings s = preset(given_.preset), given = given_;
  SettingFields fields(s);
  fields.read(stored);
  if (!stored.has("line-ends")) s.text.line_ends = "keep";  // in older checkpoints
  s.mechanism = older_options(s.attention, s.gpt.context);
  fields.read(stored);  // again, for the options of the mechanism that are stored
  check_mechanism_flags(origins, "--attention", {s.attention});
  const LmSettings before = s;
  const std::vector<ChangedSetting> changes = fields.resume(line_, SettingFields(given), run_.other_data);
  if (changed != nullptr) *changed = changes;
  if (s.lr != before.lr && !line_.given("--min-lr") && before.min_lr > 0) s.min_lr = s.lr / 10;
  return settled(s, origins);
}

LmSettings LmFlags::resolve(const GPTConfig& init, const std::string& file, const std::string* settings) const {
  return resolved(&init, file, settings);
}

// The settings that follow from the model of --init. A published model may have a context too long for training, and
// needs a low rate.
static void take_init(const GPTConfig& config, const std::string& file, const std::string* settings, LmSettings& s) {
  take_config(config, s);
  if (settings != nullptr) {
    LmSettings old = s;
    SettingFields(old).read(StoredSettings(*settings, file), Kind::start);
    s.gpt.context = std::min(s.gpt.context, old.gpt.context);
  } else {
    s.gpt.context = std::min<Index>(s.gpt.context, 512);
    if (s.recipe == "plain") s.lr = 2e-4, s.min_lr = 2e-5;
  }
}

// The settings of a new training. `init` is the config of the model to start from, or null.
LmSettings LmFlags::resolved(const GPTConfig* init, const std::string& file, const std::string* settings) const {
  LmSettings s = preset(given_.preset), given = given_;
  if (!line_.given("--data") && !line_.given("--preset")) {
    // Stories: nearly all fit into this context, so their questions can be answered.
    s.gpt.context = 144, s.batch = 24, s.steps = 3000, s.lr = 5e-3, s.min_lr = 5e-4;
  }
  if (given_.recipe == "fast") make_fast(s);
  if (init != nullptr) take_init(*init, file, settings, s);
  const SettingFields fields(s);
  const SettingOrigins origins = init ? SettingOrigins(line_, file, fields.names(Kind::model)) : line_;
  check_mechanism_flags(origins, "--attention", {init ? s.attention : given_.attention});
  if (init && line_.given("--zero-init-residual"))
    throw UsageError("--zero-init-residual sets initial weights, but --init takes the weights of " + file +
                     "; leave one out");
  if (init && line_.given("--context") && given.gpt.context > init->options.context)
    throw UsageError("--context is " + std::to_string(given.gpt.context) + " but the model of " + file + " has " +
                     std::to_string(init->options.context) + "; rows may be shorter, and not longer");
  init ? fields.init(line_, SettingFields(given), file) : fields.take(line_, SettingFields(given));
  // A masked model reads neighbours on both sides, for which distances matter more than positions.
  if (s.model == "mlm" && init == nullptr && !line_.given("--positions")) s.gpt.positions = PositionKind::rope;
  if (line_.given("--lr") && !line_.given("--min-lr") && s.recipe == "plain") s.min_lr = s.lr / 10;
  if (!line_.given("--warmup")) s.warmup = std::min(s.warmup, s.steps / 10);
  return settled(s, origins);
}

std::vector<FileUse> input_files(const LmSettings& s) {
  std::vector<FileUse> files;
  for (const std::string& path : s.data)
    if (path != "-") files.push_back({"--data", path, FileRole::input});
  if (s.tokenizer != "char" && s.tokenizer != "byte") files.push_back({"--tokenizer", s.tokenizer, FileRole::input});
  return files;
}

std::string LmFlags::resume_command() const {
  return run_.resume_command(line_, {"--sample", "--prompt", "--temperature", "--top-k", "--top-p"});
}

std::string to_json(LmSettings settings) { return SettingFields(settings).json(); }

void check_config(LmSettings settings, const GPTConfig& config, const std::string& file) {
  LmSettings by_config = settings;
  take_config(config, by_config);
  const SettingFields all(settings), right(by_config);
  for (std::size_t i = 0; i < all.list().size(); ++i) {
    const Json here = all.list()[i].json(), there = right.list()[i].json();
    // 0: unset. Rows may be shorter than the context of the model.
    const bool agree = here == there || here == 0 || (all.list()[i].name == "context" && here < there);
    require(agree, file, ": its settings have ", here.dump(), " for ", all.list()[i].name, " and its config ",
            there.dump(), "; they must agree");
  }
}

std::string fast_flags(LmSettings settings) {
  LmSettings plain = preset(settings.preset), fast = plain;
  make_fast(fast);
  const Json before = Json::parse(to_json(plain)), after = Json::parse(to_json(fast)),
             all = Json::parse(to_json(settings));
  std::string flags;
  for (const auto& [name, value] : all.items())
    if (name != "recipe" && before.value(name, Json()) != after.value(name, Json()))
      flags +=
          (flags.empty() ? "--" : " --") + name + " " + (value.is_string() ? value.get<std::string>() : value.dump());
  return flags;
}

GPTConfig model_config(const LmSettings& s, Index vocabulary) {
  GPTConfig config{s.gpt, s.attention, s.mechanism};
  config.options.vocabulary = s.model == "mlm" ? vocabulary + 1 : vocabulary;
  config.options.causal = s.model == "lm";
  config.mechanism.seed = s.seed;
  return config;
}

}  // namespace heed::examples
