// Flags, checks and stored settings of translate, and the configs of its models.
#include "examples/support/translation_settings.hpp"

#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/optim/optimizers/schedule.hpp>
#include <heed/optim/run/options.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "examples/support/mechanism_flags.hpp"

namespace heed::examples {
namespace {

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const char* cell : {"gru", "lstm"})
      for (const char* attention :
           {"none", "bahdanau", "luong-dot", "luong-general", "luong-concat", "luong-location", "local-m", "local-p"})
        names.push_back(std::string(cell) + "-" + attention);
    for (const char* other : {"transformer", "conv", "bytenet"}) names.emplace_back(other);
    return names;
  }();
  return all;
}

bool is_transformer(const TranslationSettings& s) { return s.model == "transformer"; }
bool is_convolutional(const TranslationSettings& s) { return s.model == "conv" || s.model == "bytenet"; }

// The parts of a model's name: gru and luong-dot for gru-luong-dot.
std::pair<std::string, std::string> cell_and_attention(const std::string& model) {
  const std::size_t dash = model.find('-');
  const std::string attention = model.substr(dash + 1);
  return {model.substr(0, dash), attention.starts_with("local") ? "luong-" + attention : attention};
}

std::vector<std::string> mechanisms(const TranslationSettings& s) {
  if (is_transformer(s)) return {s.encoder_attention, s.decoder_attention, s.cross_attention};
  if (is_convolutional(s)) return {};
  const std::string attention = cell_and_attention(s.model).second;
  return attention == "none" ? std::vector<std::string>() : std::vector{attention};
}

TransformerSeq2SeqConfig transformer_config(const TranslationSettings& s, Index source, Index target) {
  TransformerSeq2SeqConfig c{s.options};
  c.options.source_vocabulary = source, c.options.target_vocabulary = target;
  c.options.joined = s.built_in() || s.vocabulary > 0;
  if (s.attention_dropout >= 0) c.options.blocks.attention.dropout = s.attention_dropout;
  c.encoder_attention = s.encoder_attention, c.decoder_attention = s.decoder_attention;
  c.cross_attention = s.cross_attention;
  c.encoder_mechanism = c.decoder_mechanism = c.cross_mechanism = s.mechanism;
  return c;
}

Seq2SeqConfig recurrent_config(const TranslationSettings& s, Index source, Index target) {
  const auto [cell, attention] = cell_and_attention(s.model);
  const TransformerOptions& blocks = s.options.blocks;
  Seq2SeqConfig c;
  c.options = {.source_vocabulary = source,
               .target_vocabulary = target,
               .embedding = blocks.attention.width,
               .hidden = blocks.hidden,
               .layers = blocks.layers,
               .cell = cell == "gru" ? RecurrentKind::gru : RecurrentKind::lstm,
               .bidirectional = s.directions == 2,
               .attention = attention == "none"       ? DecoderAttention::none
                            : attention == "bahdanau" ? DecoderAttention::bahdanau
                                                      : DecoderAttention::luong,
               .input_feeding = s.input_feeding,
               .output_from_state = s.output_from_state,
               .bridge = s.bridge == "linear" ? Bridge::linear
                         : s.bridge == "copy" ? Bridge::copy
                                              : Bridge::zeros,
               .dropout = *blocks.dropout,
               .label_smoothing = s.options.label_smoothing};
  if (attention != "none") c.attention = attention;
  c.mechanism = s.mechanism;
  c.mechanism.context = s.longest + 1;
  return c;
}

// ConvS2SConfig or ByteNetConfig.
template <class Config>
Config convolutional_config(const TranslationSettings& s, Index source, Index target) {
  Config c;
  auto& o = c.options;
  o.source_vocabulary = source, o.target_vocabulary = target;
  o.width = s.options.blocks.attention.width, o.hidden = s.options.blocks.hidden, o.kernel = s.kernel;
  o.layers = s.options.blocks.layers, o.dropout = *s.options.blocks.dropout;
  o.label_smoothing = s.options.label_smoothing;
  if constexpr (requires { o.context; }) o.context = std::max(o.context, s.longest + 1);
  return c;
}

}  // namespace

Index TranslationSettings::last_step(Index batches) const {
  const Index all = steps < 0 && epochs == 0 && minutes == 0 ? kDefaultSteps : steps < 0 ? kUntilStopped : steps;
  return epochs > 0 ? std::min(all, epochs * batches) : all;
}

void TranslationSettings::data_fields(SettingFields& f) {
  const Takes file = file_name("FILE", FileRole::input);
  f.group("Data");
  f("source", source, Kind::data, "Source sentences, one per line, words separated by spaces [built-in dates]", file);
  f("target", target, Kind::data, "Their translations, one per line", file);
  f("val-source", val_source, Kind::data, "Source sentences for validation", file);
  f("val-target", val_target, Kind::data, "Their translations, one per line", file);
  f("vocabulary", vocabulary, Kind::model,
    "Tokens are pieces of words: this number of pieces, shared by both languages", whole(1));
  f("min-freq", min_freq, Kind::model, "Tokens are words; words that occur less often than this are unknown [2]",
    whole(1), {.excludes = "--vocabulary"});
  f("longest", longest, Kind::start,
    "Max tokens per sentence: longer pairs are left out of training [100]; a longer text to translate is an error "
    "[1000]",
    whole(1));
  text.reading_fields(f);
  text.unicode_field(f);
}

void TranslationSettings::model_fields(SettingFields& f) {
  f.group("Model");
  f("model", model, Kind::model,
    "gru or lstm followed by -none, -bahdanau, -luong-dot, -luong-general, -luong-concat, -luong-location, "
    "-local-m or -local-p; or transformer, conv (ConvS2S) or bytenet [gru-bahdanau]",
    one_of(model_names(), "NAME"));
  f("encoder-attention", encoder_attention, Kind::model, "Self-attention of a transformer's encoder [softmax]",
    one_of(mechanism_names(false), "NAME"));
  f("decoder-attention", decoder_attention, Kind::model, "Self-attention of a transformer's decoder [softmax]",
    one_of(mechanism_names(true), "NAME"));
  f("cross-attention", cross_attention, Kind::model, "Attention of a transformer's decoder to its encoder [softmax]",
    one_of(memory_mechanism_names(), "NAME"));
  std::vector<std::string> names = all_mechanism_names();  // and those that need a memory
  names.insert(names.end(), memory_mechanism_names().begin(), memory_mechanism_names().end());
  // Older checkpoints have these options also without a value.
  static const std::set<std::string> always = {"window",       "stride",      "top-k-keys",     "linformer-rows",
                                               "lsh-rounds",   "lsh-buckets", "favor-features", "additive-units",
                                               "local-radius", "feature-map"};
  mechanism_fields(f, mechanism, names,
                   [](const MechanismOption& o, bool has_value) { return has_value || always.contains(o.name); });
  TransformerOptions& blocks = options.blocks;
  f("layers", blocks.layers, Kind::model,
    "Layers of the encoder and of the decoder, each [1; 4 for conv, 10 for bytenet]", whole(1));
  f("heads", blocks.attention.heads, Kind::model, "Heads of a transformer's attention [4]", whole(1));
  f("width", blocks.attention.width, Kind::model,
    "Width of embeddings, of a transformer and between the blocks of bytenet [128; 32 for dates with -bahdanau]",
    whole(1));
  f("hidden", blocks.hidden, Kind::model,
    "Size of a recurrent model's states, of a transformer's feed-forward part, or channels of convolutions [256]",
    whole(2));
  f("kernel", kernel, Kind::model, "Positions that a convolution of conv or bytenet reads; odd [3]", whole(1)).stored =
      kernel != 3;
  f("directions", directions, Kind::model, "Reading directions of a recurrent encoder [2]", whole(1, 2));
  f("input-feeding", input_feeding, Kind::model,
    "A recurrent decoder also reads its last attention output, as in Luong");
  f("output-from-state", output_from_state, Kind::model,
    "A decoder with Bahdanau's attention computes its output from its state alone, without context and last word")
      .stored = output_from_state;
  f("bridge", bridge, Kind::model,
    "First state of a recurrent decoder: linear, tanh of a linear map of the encoder's last state; copy, that state "
    "itself, as in Sutskever; or zeros [linear]",
    one_of({"linear", "copy", "zeros"}))
      .stored = bridge != "linear";
  f("norm-first", *blocks.norm_first, Kind::model, "Norms before each part of a transformer, not after it");
  f("dropout", *blocks.dropout, Kind::training, "Share of activations dropped in training [0.1]", number(0, 0.99));
  f("attention-dropout", attention_dropout, Kind::training,
    "Share of a transformer's attention weights dropped in training [as --dropout]", number(0, 0.99));
}

void TranslationSettings::training_fields(SettingFields& f) {
  f.group("Training");
  f("steps", steps, Kind::run,
    "Optimizer steps [" + std::to_string(kDefaultSteps) + " unless --epochs or --minutes is given]", whole(0));
  f("epochs", epochs, Kind::run, "Passes over all pairs", whole(1));
  f("minutes", minutes, Kind::run, "Minutes of training; a resumed run starts counting again", number(0));
  f("batch-tokens", batch_tokens, Kind::run, "Tokens per batch on its longer side, with padding [4096]", whole(1));
  f("shards", shards, Kind::run, "Batches per step; their gradients are summed in a tree [1]", whole(1, kMaxShards));
  f("eval-every", eval_every, Kind::run, "Steps between evaluations [500]", whole(0));
  f("average-last", average_last, Kind::start, "Translate with the mean of the last N kept weights [1: no mean]",
    whole(1));
  f("average-every", average_every, Kind::training, "Steps between kept weights, for --average-last [--eval-every]",
    whole(1));
  f("label-smoothing", options.label_smoothing, Kind::training,
    "Share of each target's probability spread over all words [0]", number(0, 0.99));
  f("lr", lr, Kind::run, "Peak learning rate [2e-3]", number(0));
  f("beta2", beta2, Kind::training, "Adam beta2 [0.98]", number(0, 0.99999));
  f("grad-clip", grad_clip, Kind::run, "Max norm of the gradient; 0: no clipping [1]", number(0));
  f("warmup", warmup, Kind::training, "Warm-up steps, in which the learning rate rises from 0 [200]", whole(0));
  f("seed", seed, Kind::start, "Seed of weights, batches and dropout [1]", seed_number());
  f("dtype", dtype, Kind::run, "Type of the operands of matrix products [f32]", dtype_name());
  f("schedule", schedule, Kind::training,
    "Schedule of the learning rate after the warm-up [linear, to 0; inverse-sqrt if only --minutes is given]",
    one_of(Schedule::names(), "NAME"));
  f("communication-dtype", communication_dtype, Kind::run,
    "Type of numbers sent between ranks; bf16: half the bytes [f32]", dtype_name());
}

std::vector<FileUse> input_files(const TranslationSettings& s) {
  return {
      {"--source", s.source}, {"--target", s.target}, {"--val-source", s.val_source}, {"--val-target", s.val_target}};
}

static void check_mechanism_options(const SettingOrigins& origins, const TranslationSettings& s) {
  const std::vector<std::string> used = mechanisms(s);
  const CommandLine& line = origins.line();
  for (const MechanismOption& o : mechanism_options()) {
    const auto has = [&](const std::string& mechanism) { return o.of(mechanism); };
    const std::string flag = "--" + o.name;
    if (!line.given(flag) || std::ranges::any_of(used, has)) continue;
    const std::string now =
        is_transformer(s) ? origins.describe("--encoder-attention", s.encoder_attention) + ", " +
                                origins.describe("--decoder-attention", s.decoder_attention) + " and " +
                                origins.describe("--cross-attention", s.cross_attention) + "; choose it for one of them"
                          : origins.describe("--model", s.model) + "; choose another model with --model";
    throw UsageError(flag + " is an option of the attention mechanism " + choice(o.mechanisms, " or ") + ", but " +
                     now + ", or leave " + flag + " out");
  }
}

static void check_settings(const SettingOrigins& origins, const TranslationSettings& s) {
  const CommandLine& line = origins.line();
  const bool one_file = !s.source.empty() || !s.target.empty() || !s.val_source.empty() || !s.val_target.empty();
  if (one_file && (s.source.empty() || s.target.empty() || s.val_source.empty() || s.val_target.empty()))
    throw UsageError(
        "--source, --target, --val-source and --val-target must be given together; give all of them, or none");
  for (const char* flag : {"--vocabulary", "--min-freq", "--unicode", "--line-ends", "--invalid-utf8"})
    if (s.built_in() && line.given(flag))
      throw UsageError(std::string(flag) + " is for text files, but --source is not given; leave " + flag + " out");
  const auto only_of = [&](bool of, const char* flags_of, std::initializer_list<const char*> flags) {
    for (const char* flag : flags)
      if (!of && line.given(flag))
        throw UsageError(std::string(flag) + " is for " + flags_of + ", but " + origins.describe("--model", s.model) +
                         "; leave " + flag + " out, or choose another model with --model");
  };
  only_of(is_transformer(s), "a transformer",
          {"--encoder-attention", "--decoder-attention", "--cross-attention", "--heads", "--norm-first",
           "--attention-dropout"});
  only_of(!is_transformer(s) && !is_convolutional(s), "recurrent models",
          {"--directions", "--input-feeding", "--output-from-state", "--bridge"});
  only_of(is_convolutional(s), "convolutional models", {"--kernel"});
  if (s.kernel % 2 == 0)
    throw UsageError(origins.describe("--kernel", std::to_string(s.kernel)) + "; it must be odd, as convolutions of " +
                     "the encoder read as many positions before as after");
  check_mechanism_options(origins, s);
  if (s.average_last > 1 && s.average_every == 0 && s.eval_every == 0)
    throw UsageError(origins.describe("--average-last", std::to_string(s.average_last)) + " and " +
                     origins.describe("--eval-every", "0") + "; give --average-every");
  if (s.only_time_ends() && s.needs_last_step())
    throw UsageError(origins.describe("--schedule", s.schedule) +
                     ", which depends on the last step; give --steps or --epochs");
}

std::string to_json(TranslationSettings s) { return SettingFields(s).json(); }

TranslationSettings settings_of(TranslationSettings given, const CommandLine& line, const Start& start,
                                bool other_data) {
  TranslationSettings s;
  const SettingFields fields(s), flags(given);
  const Checkpoint* old = start.resumed ? start.resumed.get() : start.init.get();
  if (old == nullptr) s = given;
  // With wider embeddings of about sixty characters, Bahdanau's attention has as much weight on the space before a word
  // as on the word: the backward state at the space has read the word (docs/translation.md).
  if (s.built_in() && s.model.ends_with("-bahdanau") && !line.given("--width")) s.options.blocks.attention.width = 32;
  // Fewer layers would see too little of a sentence.
  if (is_convolutional(s) && !line.given("--layers")) s.options.blocks.layers = s.model == "conv" ? 4 : 10;
  std::set<std::string> stored;
  if (old != nullptr) {
    require(old->texts.contains("settings"), old->source, " is not a checkpoint of translate: it has no settings");
    const StoredSettings settings(*old);
    stored = start.resumed ? settings.names() : fields.names(Kind::model);
    fields.read(settings, start.resumed ? std::nullopt : std::optional(Kind::model));
  }
  if (start.init) fields.init(line, flags, old->source);
  if (start.resumed) {
    if (line.given("--steps") || line.given("--epochs") || line.given("--minutes"))
      s.steps = given.steps, s.epochs = given.epochs, s.minutes = given.minutes;
    print_changed(fields.resume(line, flags, other_data));
  } else if (s.only_time_ends() && !line.given("--schedule")) {
    s.schedule = "inverse-sqrt";  // needs no last step
  }
  check_settings(old ? SettingOrigins(line, old->source, stored) : line, s);
  return s;
}

void check_config(const TranslationConfig& by_settings, const Checkpoint& checkpoint) {
  const auto fields = [](const TranslationConfig& config) {
    auto json = nlohmann::json::parse(std::visit([](const auto& c) { return to_json(c); }, config));
    for (const char* of_training : {"dropout", "attention_dropout", "label_smoothing"}) json.erase(of_training);
    return json;
  };
  const nlohmann::json here = fields(by_settings), there = fields(translation_config(checkpoint));
  for (const auto& [name, value] : there.items())
    require(here.value(name, nlohmann::json()) == value, checkpoint.source, ": its settings have ",
            here.value(name, nlohmann::json()).dump(), " for ", name, " and its config ", value.dump(),
            "; they must agree");
}

TranslationConfig translation_config(const TranslationSettings& s, const Tokenizer& source, const Tokenizer& target) {
  const Index sources = text_marks(source).vocabulary, targets = text_marks(target).vocabulary;
  if (is_transformer(s)) return transformer_config(s, sources, targets);
  if (s.model == "conv") return convolutional_config<ConvS2SConfig>(s, sources, targets);
  if (s.model == "bytenet") return convolutional_config<ByteNetConfig>(s, sources, targets);
  return recurrent_config(s, sources, targets);
}

}  // namespace heed::examples
