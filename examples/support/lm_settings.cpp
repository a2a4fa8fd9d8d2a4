#include "examples/support/lm_settings.hpp"

#include <algorithm>
#include <cstdlib>
#include <heed/core/check.hpp>
#include <heed/core/parallel.hpp>
#include <heed/data/text.hpp>
#include <heed/data/token_file.hpp>
#include <heed/optim/optimizers.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "examples/support/mechanism_flags.hpp"
#include "examples/support/program.hpp"

namespace heed::examples {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
std::vector<std::string> names(const std::map<std::string, T>& map) {
  std::vector<std::string> list;
  for (const auto& [name, value] : map) list.push_back(name);
  return list;
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

// What measurably shortens the time to a loss, put together: docs/training.md. The model has the preset's sizes.
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

// Every setting by its flag's name: f(name, member).
template <class S, class F>
void for_each_setting(S& s, F&& f) {
  f("data", s.data), f("tokenizer", s.tokenizer), f("preset", s.preset), f("recipe", s.recipe);
  f("model", s.model), f("layers", s.layers), f("heads", s.heads), f("width", s.width), f("context", s.context),
      f("batch", s.batch), f("accumulate", s.accumulate), f("shards", s.shards);
  f("communication-dtype", s.communication_dtype);
  f("dropout", s.dropout), f("attention", s.attention);
  for_each_option(s.mechanism, [&](const MechanismOption& o, auto& value) { f(o.name.c_str(), value); });
  f("norm", s.norm), f("activation", s.activation), f("positions", s.positions), f("bias", s.bias);
  f("qk-norm", s.qk_norm), f("zero-init-residual", s.zero_init_residual);
  f("steps", s.steps), f("lr", s.lr), f("min-lr", s.min_lr), f("warmup", s.warmup);
  f("weight-decay", s.weight_decay), f("beta1", s.beta1), f("beta2", s.beta2), f("grad-clip", s.grad_clip);
  f("optimizer", s.optimizer), f("schedule", s.schedule), f("seed", s.seed), f("dtype", s.dtype);
  f("val-fraction", s.val_fraction), f("eval-every", s.eval_every), f("eval-batches", s.eval_batches);
}

// A setting as JSON. JSON is UTF-8, which the name of a file need not be: such a name is kept as {"hex": its bytes}.
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

// Whether a setting names files.
bool names_files(const std::string& name, const Json& value) {
  return (name == "data" && !value.empty()) || (name == "tokenizer" && value != "char" && value != "byte");
}

// Why --model (lm or mlm) and a mechanism do not go together; empty if they do.
std::string model_error(const std::string& model, const std::string& attention) {
  try {
    mechanism_by_name(attention, {.causal = model == "lm", .heads = 1, .head_size = 1, .context = 1});
  } catch (const Error& e) {
    return std::string(e.what()) + (model == "lm" ? "; --model mlm is one" : "");
  }
  return {};
}

// Throws UsageError for settings that do not go together, and for flags that would do nothing.
void check_together(const LmSettings& s, const CommandLine& line) {
  for (const std::string& path : s.data)
    if (line.given("--tokenizer") && is_token_file(path))
      throw UsageError("--tokenizer is " + s.tokenizer + " but " + path +
                       " is a token file, which holds its tokenizer; leave --tokenizer out");
  if (s.data.empty() && line.given("--val-fraction"))
    throw UsageError("--val-fraction is " + Json(s.val_fraction).dump() +
                     " but --data is not given; the built-in stories have no last part, and others of them validate: "
                     "leave --val-fraction out");
  if (s.warmup > s.steps)
    throw UsageError("--warmup is " + std::to_string(s.warmup) + " and --steps " + std::to_string(s.steps) +
                     "; the warm-up must not be longer");
  if (s.width % s.heads != 0)
    throw UsageError("--width is " + std::to_string(s.width) + " and --heads " + std::to_string(s.heads) +
                     "; heads must divide the width");
  if (const std::string error = model_error(s.model, s.attention); !error.empty())
    throw UsageError("--attention is " + s.attention + " and --model " + s.model + ": " + error);
  MechanismOptions mechanism = s.mechanism;
  mechanism.causal = s.model == "lm", mechanism.heads = mechanism.head_size = 1;
  check_mechanism("--attention", s.attention, mechanism);
  if (s.min_lr > s.lr)
    throw UsageError("--min-lr is " + Json(s.min_lr).dump() + " and --lr " + Json(s.lr).dump() +
                     "; the least rate must not be above the highest");
}

}  // namespace

LmFlags::LmFlags() : line_("Trains a small language model on text files, or on the built-in stories", "train_lm") {
  CommandLine& line = line_;
  LmSettings& s = given_;
  const Takes file = file_name("FILE"), share = number(0, 1), rate = number(0);
  line.group("Data");
  line.add("--data", s.data, "Text files, folders, or one token file. Without it: the built-in stories",
           file_name("PATH..."));
  line.add("--tokenizer", s.tokenizer,
           "byte, char (characters of the text), or a SentencePiece FILE.model [char; a token file holds its own]",
           {"byte|char|FILE.model", tokenizer_name_error});
  line.add("--val-fraction", s.val_fraction, "Last part of --data, kept for validation [0.1]", number(0, 0.9));
  line.group("Model");
  line.add("--preset", s.preset,
           "Sizes and rates: nano (4 layers, 4 heads, width 128, context 64, batch 12), baby (6, 6, 384, 256, 16), "
           "gpt2 (12, 12, 768, 1024, 4; GPT-2's architecture) [nano]",
           one_of({"nano", "baby", "gpt2"}));
  line.add("--recipe", s.recipe,
           "plain, or fast: what measurably shortens the time to a loss (docs/training.md); sets what is marked (fast: "
           "...), each of which its own flag overrides [plain]",
           one_of({"plain", "fast"}));
  line.add("--model", s.model, "lm goes on with a text; mlm, after BERT, fills in hidden tokens of one [lm]",
           one_of({"lm", "mlm"}));
  line.add("--layers", s.layers, "Blocks [by preset]", whole(1));
  line.add("--heads", s.heads, "Attention heads; must divide the width [by preset]", whole(1));
  line.add("--width", s.width, "Size of a token's vector [by preset]", whole(1));
  line.add("--context", s.context, "Tokens that the model sees at once [by preset; stories 144]", whole(1));
  const std::vector<std::string>& mechanisms = all_mechanism_names();
  line.add("--attention", s.attention,
           "Attention mechanism: " + choice(mechanisms, ", ") +
               " (docs/attention.md); linformer with mlm only, forgetting with "
               "lm only [softmax]",
           one_of(mechanisms, "NAME"));
  add_mechanism_flags(line, s.mechanism, mechanisms);
  line.add("--norm", s.norm, "Normalisation [layer; fast: rms]", one_of(names(norm_kinds())));
  line.add("--activation", s.activation, "Of the feed-forward part [gelu; gelu-tanh in gpt2; fast: relu-squared]",
           one_of(names(feed_forward_kinds())));
  line.add("--positions", s.positions, "How a token's place is told [learned; rope with mlm; fast: rope]",
           one_of(names(position_kinds())));
  line.add("--bias", s.bias, "Biases in the linear layers [false; true in gpt2]", one_of({"true", "false"}));
  line.add("--qk-norm", s.qk_norm, "RMSNorm of each head's queries and keys [false; fast: true]",
           one_of({"true", "false"}));
  line.add("--zero-init-residual", s.zero_init_residual,
           "Weights before a residual sum begin as 0 [false; fast: true]", one_of({"true", "false"}));
  line.add("--dropout", s.dropout, "Share of activations dropped in training [0; 0.2 in baby]", number(0, 0.99));
  line.group("Training");
  line.add("--steps", s.steps,
           "Optimizer steps [nano 2000, baby 5000, gpt2 10000; stories 3000; fast: 270, 1500, 5000]",
           whole(0));
  line.add("--batch", s.batch, "Rows a batch [by preset; stories 24; fast: 32 in baby]", whole(1));
  line.add("--accumulate", s.accumulate, "Batches a shard [1]", whole(1));
  line.add("--shards", s.shards, "Parts of a step, whose gradients are summed in a tree [1]", whole(1, kMostShards));
  line.add("--communication-dtype", s.communication_dtype, "Of what ranks send each other; bf16: half the bytes [f32]",
           dtype_name());
  line.add("--lr", s.lr,
           "Highest learning rate [nano 3e-3, baby 1e-3, gpt2 6e-4; stories 5e-3; fast: 6e-3, 4e-3, 2e-3]", rate);
  line.add("--min-lr", s.min_lr, "Learning rate at the end [a tenth of lr; fast: 0]", rate);
  line.add("--warmup", s.warmup,
           "Steps in which the rate rises from 0 [nano 100, baby 100, gpt2 500; fast: 0, 25, 500; at most a tenth of "
           "the steps]",
           whole(0));
  line.add("--schedule", s.schedule, "Of the learning rate [cosine; fast: linear]",
           one_of({"constant", "linear", "cosine", "inverse-sqrt", "step", "one-cycle", "plateau"}));
  line.add("--optimizer", s.optimizer,
           "Of the weights; muon trains embeddings and vectors by AdamW [adamw; fast: muon]",
           one_of(optimizer_names()));
  line.add("--weight-decay", s.weight_decay, "Of matrices [0.1; fast: 0 in nano]", rate);
  line.add("--beta1", s.beta1,
           "Of optimizers that have it; momentum of SGD, RMSprop and Muon [0.9; fast: 0.95]", share);
  line.add("--beta2", s.beta2, "Of optimizers that have it [0.99; 0.95 in gpt2; fast: 0.95]", share);
  line.add("--grad-clip", s.grad_clip, "Largest norm of the gradient; 0: any [1]", rate);
  line.add("--dtype", s.dtype, "Operands of matrix products [f32; fast: bf16 where the machine has it]",
           dtype_name());
  line.add_seed(s.seed, "Of initial weights, batches, dropout and the sample [1]");
  line.add_threads(run_.threads);
  line.group("Evaluation, checkpoints, output");
  line.add("--eval-every", s.eval_every, "Steps between evaluations; 0: only at the end [250]", whole(0));
  line.add("--eval-batches", s.eval_batches,
           "Batches an evaluation; 0: the whole validation split, as the last one always is [20]", whole(0));
  line.add("--checkpoint", run_.checkpoint, "File, written at the end in any case [lm.h5]", file);
  line.add("--checkpoint-every", run_.checkpoint_every, "Steps between checkpoints; 0: only at the end [0]", whole(0));
  line.add_switch("--resume", run_.resume, "Go on from the checkpoint, with its settings, if it is there");
  line.add("--log", run_.log, "One JSON object a step", file_name("FILE.jsonl"));
  line.add("--plot", run_.plot, "Picture of the losses, .svg or .png", file_name("FILE.svg|png"));
  line.add("--sample", run_.sample, "Tokens of text to write at the end; mlm: of held-out text to fill in [300]",
           whole(0));
  line.add("--prompt", run_.prompt,
           "What the sample goes on from [a line feed; a space or the first token where the tokenizer has none]; mlm: "
           "a text with places to fill in, as 'Where is the m[MASK]p?'",
           anything("TEXT"));
  line.add_sampling(run_.sampling);
  add_profile_flags(line, run_.profile);
}

// The settings that a checkpoint holds: of the types, and each one that its flag would take.
static Json stored_settings(const std::string& text, const CommandLine& line) {
  const Json stored = Json::parse(text, nullptr, false);
  require(stored.is_object(), "resume: the settings in the checkpoint are damaged: they must be JSON by flags");
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
    // A list may be so deep that to print it would take all of the stack.
    std::string word = given.is_structured() ? "a list" : "";
    if (is_text(given))
      from_setting(given, word);
    else if (word.empty())
      word = given.dump();
    const std::string error = same ? line.error("--" + name, word) : "it is " + word + ", of another type";
    require(error.empty(), "resume: the setting ", name, " in the checkpoint is wrong: ", printable(error));
  });
  return stored;
}

LmSettings LmFlags::resolve(const std::string* stored_text) const {
  const std::optional<Json> stored = stored_text ? std::optional(stored_settings(*stored_text, line_)) : std::nullopt;
  const auto is_given = [&](const std::string& name) { return line_.given("--" + name); };
  LmSettings s = preset(given_.preset);
  if (!stored && !is_given("data") && !is_given("preset")) {
    // The stories: nearly all fit into the context, so that their questions can be answered.
    s.context = 144, s.batch = 24, s.steps = 3000, s.lr = 5e-3, s.min_lr = 5e-4;
  }
  if (!stored && given_.recipe == "fast") make_fast(s);
  const auto take_stored = [&](const char* name, auto& value) {
    if (stored && stored->contains(name)) from_setting(stored->at(name), value);
  };
  for_each_setting(s, take_stored);
  if (stored) s.mechanism = older_options(s.attention, s.context);
  for_each_option(s.mechanism, [&](const MechanismOption& o, auto& value) { take_stored(o.name.c_str(), value); });
  check_mechanism_flags(line_, "--attention", {stored ? s.attention : given_.attention});
  const LmSettings& given = given_;
  Json flags;
  for_each_setting(given, [&](const char* name, const auto& value) { flags[name] = to_setting(value); });
  for_each_setting(s, [&](const char* name, auto& value) {
    if (!is_given(name)) return;
    const Json was = to_setting(value);
    const bool may_move = names_files(name, was) && names_files(name, flags[name]);
    if (stored && was != flags[name] && !may_move) {
      throw UsageError("--" + std::string(name) + " is " + flags[name].dump() + " but the checkpoint was made with " +
                       was.dump() + "; it must be the same, or leave --resume out to start afresh");
    }
    from_setting(flags[name], value);
  });
  // Whoever fills places in reads their neighbours: distances tell it more than places do.
  if (!stored && s.model == "mlm" && !is_given("positions")) s.positions = "rope";
  if (!stored && is_given("lr") && !is_given("min-lr") && s.recipe == "plain") s.min_lr = s.lr / 10;
  if (!stored && !is_given("warmup")) s.warmup = std::min(s.warmup, s.steps / 10);
  s.mechanism.context = s.context;
  s.mechanism = settled_options(s.attention, s.mechanism);
  check_together(s, line_);
  return s;
}

void LmFlags::check_files(const LmSettings& s) const {
  FlagFiles files{
      .replaced = {{"--checkpoint", run_.checkpoint}, {"--plot", run_.plot}, {"--trace", run_.profile.trace}},
      .logs = {{"--log", run_.log}}};
  for (const std::string& path : s.data) files.read.push_back({"--data", path});
  if (s.tokenizer != "char" && s.tokenizer != "byte") files.read.push_back({"--tokenizer", s.tokenizer});
  examples::check_files(files);
}

std::string LmFlags::resume_command() const {
  return line_.resume_command(run_.checkpoint, {"--threads", "--checkpoint-every", "--log", "--plot", "--sample",
                                                "--prompt", "--temperature", "--top-k", "--top-p"});
}

std::string to_json(const LmSettings& settings) {
  Json json;
  for_each_setting(settings, [&](const char* name, const auto& value) { json[name] = to_setting(value); });
  for (const MechanismOption& o : mechanism_options())  // the feature map stood there before there were others
    if ((!o.of(settings.attention) && o.name != "feature-map") || json.at(o.name) == 0) json.erase(o.name);
  return json.dump();
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
                    .layers = s.layers,
                    .heads = s.heads,
                    .width = s.width,
                    .dropout = s.dropout,
                    .activation = feed_forward_kinds().at(s.activation),
                    .norm = norm_kinds().at(s.norm),
                    .positions = position_kinds().at(s.positions),
                    .qk_norm = s.qk_norm,
                    .bias = s.bias,
                    .zero_init_residual = s.zero_init_residual,
                    .causal = s.model == "lm"},
                   s.attention,
                   s.mechanism};
  config.mechanism.seed = s.seed;
  return config;
}

}  // namespace heed::examples
