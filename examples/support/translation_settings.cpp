// Flags, checks and stored settings of translate, and the configs of its models.
#include "examples/support/translation_settings.hpp"

#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/optim/run/options.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "examples/support/mechanism_flags.hpp"

namespace heed::examples {
namespace {

template <class S, class F>
void for_each_setting(S& s, const F& f) {
  f("source", s.source), f("target", s.target), f("val-source", s.val_source), f("val-target", s.val_target);
  f("vocabulary", s.vocabulary), f("min-freq", s.min_freq), f("longest", s.longest);
  for_each_text_setting(s.text, f);
  f("model", s.model), f("encoder-attention", s.encoder_attention), f("decoder-attention", s.decoder_attention);
  f("cross-attention", s.cross_attention);
  for_each_option(s.mechanism, [&](const MechanismOption& o, auto& value) { f(o.name.c_str(), value); });
  f("layers", s.layers), f("heads", s.heads), f("width", s.width), f("hidden", s.hidden);
  f("directions", s.directions), f("input-feeding", s.input_feeding), f("norm-first", s.norm_first);
  f("dropout", s.dropout), f("attention-dropout", s.attention_dropout);
  f("steps", s.steps), f("epochs", s.epochs), f("minutes", s.minutes);
  f("batch-tokens", s.batch_tokens), f("shards", s.shards), f("eval-every", s.eval_every);
  f("average-last", s.average_last), f("average-every", s.average_every), f("label-smoothing", s.label_smoothing);
  f("lr", s.lr), f("beta2", s.beta2);
  f("grad-clip", s.grad_clip), f("warmup", s.warmup), f("seed", s.seed), f("dtype", s.dtype);
  f("schedule", s.schedule), f("communication-dtype", s.communication_dtype);
}

bool is_duration(std::string_view name) { return name == "steps" || name == "epochs" || name == "minutes"; }

// Settings that the weights depend on, settings that a resumed run may change, and names of files, which may have been
// moved. All others are fixed from the start of a run.
bool is_of_model(const std::string& name) {
  static const std::set<std::string> names = {
      "vocabulary", "min-freq", "model",  "encoder-attention", "decoder-attention", "cross-attention", "layers",
      "heads",      "width",    "hidden", "directions",        "input-feeding",     "norm-first",
      "unicode"};
  const auto& options = mechanism_options();
  return names.count(name) > 0 || std::ranges::any_of(options, [&](const auto& o) { return o.name == name; });
}
bool may_change(const std::string& name) {
  static const std::set<std::string> names = {
      "dropout", "attention-dropout", "batch-tokens", "shards", "eval-every", "average-every", "lr",
      "beta2",   "label-smoothing",   "grad-clip",    "warmup", "dtype",      "schedule",      "communication-dtype",
      "line-ends", "invalid-utf8"};
  return is_duration(name) || names.count(name) > 0;
}
bool names_a_file(const std::string& name) { return name.ends_with("source") || name.ends_with("target"); }

nlohmann::json stored_settings(const Checkpoint& c) {
  const auto text = c.texts.find("settings");
  require(text != c.texts.end(), c.source, " is not a checkpoint of translate: it has no settings");
  auto json = nlohmann::json::parse(text->second, nullptr, false);
  require(json.is_object(), c.source, ": the settings are damaged; they must be a JSON object");
  return json;
}

template <class T>
void take_stored(const nlohmann::json& json, const char* name, T& value, const Checkpoint& c) {
  try {
    json.at(name).get_to(value);
  } catch (const nlohmann::json::exception&) {
    fail(c.source, ": the setting ", name, " is ", json.at(name).is_structured() ? "a list" : json.at(name).dump(),
         ", which has the wrong type");
  }
}

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const char* cell : {"gru", "lstm"})
      for (const char* attention :
           {"none", "bahdanau", "luong-dot", "luong-general", "luong-concat", "luong-location", "local-m", "local-p"})
        names.push_back(std::string(cell) + "-" + attention);
    names.emplace_back("transformer");
    return names;
  }();
  return all;
}

bool is_transformer(const TranslationSettings& s) { return s.model == "transformer"; }

// The parts of a model's name: gru and luong-dot for gru-luong-dot.
std::pair<std::string, std::string> cell_and_attention(const std::string& model) {
  const std::size_t dash = model.find('-');
  const std::string attention = model.substr(dash + 1);
  return {model.substr(0, dash), attention.starts_with("local") ? "luong-" + attention : attention};
}

std::vector<std::string> mechanisms(const TranslationSettings& s) {
  if (is_transformer(s)) return {s.encoder_attention, s.decoder_attention, s.cross_attention};
  const std::string attention = cell_and_attention(s.model).second;
  return attention == "none" ? std::vector<std::string>() : std::vector{attention};
}

TransformerSeq2SeqConfig transformer_config(const TranslationSettings& s, Index source, Index target) {
  TransformerSeq2SeqConfig c;
  c.options = {.source_vocabulary = source,
               .target_vocabulary = target,
               .blocks = {.layers = s.layers,
                          .attention = {.width = s.width, .heads = s.heads},
                          .hidden = s.hidden,
                          .dropout = s.dropout,
                          .norm_first = s.norm_first},
               .joined = s.built_in() || s.vocabulary > 0,
               .label_smoothing = s.label_smoothing};
  if (s.attention_dropout >= 0) c.options.blocks.attention.dropout = s.attention_dropout;
  c.encoder_attention = s.encoder_attention, c.decoder_attention = s.decoder_attention;
  c.cross_attention = s.cross_attention;
  c.encoder_mechanism = c.decoder_mechanism = c.cross_mechanism = s.mechanism;
  return c;
}

Seq2SeqConfig recurrent_config(const TranslationSettings& s, Index source, Index target) {
  const auto [cell, attention] = cell_and_attention(s.model);
  Seq2SeqConfig c;
  c.options = {.source_vocabulary = source,
               .target_vocabulary = target,
               .embedding = s.width,
               .hidden = s.hidden,
               .layers = s.layers,
               .cell = cell == "gru" ? RecurrentKind::gru : RecurrentKind::lstm,
               .bidirectional = s.directions == 2,
               .attention = attention == "none"       ? DecoderAttention::none
                            : attention == "bahdanau" ? DecoderAttention::bahdanau
                                                      : DecoderAttention::luong,
               .input_feeding = s.input_feeding,
               .dropout = s.dropout,
               .label_smoothing = s.label_smoothing};
  if (attention != "none") c.attention = attention;
  c.mechanism = s.mechanism;
  c.mechanism.context = s.longest + 1;
  return c;
}

}  // namespace

Index TranslationSettings::last_step(Index batches) const {
  const Index all = steps < 0 && epochs == 0 && minutes == 0 ? kDefaultSteps : steps < 0 ? kUntilStopped : steps;
  return epochs > 0 ? std::min(all, epochs * batches) : all;
}

void add_flags(CommandLine& line, TranslationSettings& s) {
  const Takes text = file_name("FILE", FileRole::input);
  line.group("Data");
  line.add("--source", s.source, "Source sentences, one per line, words separated by spaces [built-in dates]", text);
  line.add("--target", s.target, "Their translations, one per line", text);
  line.add("--val-source", s.val_source, "Source sentences for validation", text);
  line.add("--val-target", s.val_target, "Their translations, one per line", text);
  line.add("--min-freq", s.min_freq, "Tokens are words; words that occur less often than this are unknown [2]",
           whole(1));
  line.add("--vocabulary", s.vocabulary, "Tokens are pieces of words: this number of pieces, shared by both languages",
           whole(1), {.excludes = "--min-freq"});
  add_reading_flags(line, s.text);
  add_unicode_flag(line, s.text);
  line.add(
      "--longest", s.longest,
      "Max tokens per sentence: longer pairs are left out of training [100]; a longer text to translate is an error "
      "[1000]",
      whole(1));
  line.group("Model");
  line.add("--model", s.model,
           "gru or lstm followed by -none, -bahdanau, -luong-dot, -luong-general, -luong-concat, -luong-location, "
           "-local-m or -local-p; or transformer [gru-bahdanau]",
           one_of(model_names(), "NAME"));
  line.add("--encoder-attention", s.encoder_attention, "Self-attention of a transformer's encoder [softmax]",
           one_of(mechanism_names(false), "NAME"));
  line.add("--decoder-attention", s.decoder_attention, "Self-attention of a transformer's decoder [softmax]",
           one_of(mechanism_names(true), "NAME"));
  line.add("--cross-attention", s.cross_attention, "Attention of a transformer's decoder to its encoder [softmax]",
           one_of(memory_mechanism_names(), "NAME"));
  add_mechanism_flags(line, s.mechanism, all_mechanism_names());
  line.add("--layers", s.layers, "Layers of the encoder and of the decoder, each [1]", whole(1));
  line.add("--heads", s.heads, "Heads of a transformer's attention [4]", whole(1));
  line.add("--width", s.width, "Width of embeddings, and of a transformer [128; 32 for dates with -bahdanau]",
           whole(1));
  line.add("--hidden", s.hidden, "Size of a recurrent model's states, or of a transformer's feed-forward part [256]",
           whole(2));
  line.add("--directions", s.directions, "Reading directions of a recurrent encoder [2]", whole(1, 2));
  line.add_switch("--input-feeding", s.input_feeding,
                  "A recurrent decoder also reads its last attention output, as in Luong");
  line.add_switch("--norm-first", s.norm_first, "Norms before each part of a transformer, not after it");
  line.add("--dropout", s.dropout, "Share of activations dropped in training [0.1]", number(0, 0.99));
  line.add("--attention-dropout", s.attention_dropout,
           "Share of a transformer's attention weights dropped in training [as --dropout]", number(0, 0.99));
  line.group("Training");
  line.add("--steps", s.steps,
           "Optimizer steps [" + std::to_string(TranslationSettings::kDefaultSteps) +
               " unless --epochs or --minutes is given]",
           whole(0));
  line.add("--epochs", s.epochs, "Passes over all pairs", whole(1));
  line.add("--minutes", s.minutes, "Minutes of training; a resumed run starts counting again", number(0));
  line.add("--batch-tokens", s.batch_tokens, "Tokens per batch on its longer side, with padding [4096]", whole(1));
  line.add("--shards", s.shards, "Batches per step; their gradients are summed in a tree [1]", whole(1, kMaxShards));
  line.add("--communication-dtype", s.communication_dtype,
           "Type of numbers sent between ranks; bf16: half the bytes [f32]", dtype_name());
  line.add("--label-smoothing", s.label_smoothing, "Share of each target's probability spread over all words [0]",
           number(0, 0.99));
  line.add("--lr", s.lr, "Peak learning rate [2e-3]", number(0));
  line.add("--warmup", s.warmup, "Warm-up steps, in which the learning rate rises from 0 [200]", whole(0));
  line.add("--schedule", s.schedule,
           "Schedule of the learning rate after the warm-up [linear, to 0; inverse-sqrt if only --minutes is given]",
           one_of(Schedule::names(), "NAME"));
  line.add("--beta2", s.beta2, "Adam beta2 [0.98]", number(0, 0.99999));
  line.add("--grad-clip", s.grad_clip, "Max norm of the gradient; 0: no clipping [1]", number(0));
  line.add("--average-last", s.average_last, "Translate with the mean of the last N kept weights [1: no mean]",
           whole(1));
  line.add("--average-every", s.average_every, "Steps between kept weights, for --average-last [--eval-every]",
           whole(1));
  line.add("--eval-every", s.eval_every, "Steps between evaluations [500]", whole(0));
  line.add("--dtype", s.dtype, "Type of the operands of matrix products [f32]", dtype_name());
  line.add_seed(s.seed, "Seed of weights, batches and dropout [1]");
}

std::vector<FileUse> input_files(const TranslationSettings& s) {
  return {
      {"--source", s.source}, {"--target", s.target}, {"--val-source", s.val_source}, {"--val-target", s.val_target}};
}

void choose_defaults(const CommandLine& line, TranslationSettings& s) {
  if (s.only_time_ends() && !line.given("--schedule")) s.schedule = "inverse-sqrt";  // needs no last step
  // With wider embeddings of about sixty characters, Bahdanau's attention has as much weight on the space before a word
  // as on the word: the backward state at the space has read the word (docs/translation.md).
  if (s.built_in() && s.model.ends_with("-bahdanau") && !line.given("--width")) s.width = 32;
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

SettingOrigins setting_origins(const CommandLine& line, const Checkpoint* checkpoint, bool resumes) {
  if (checkpoint == nullptr) return line;
  const auto stored = is_among(checkpoint->text("settings"));
  return {line, checkpoint->source,
          [stored, resumes](const std::string& name) { return stored(name) && (resumes || is_of_model(name)); }};
}

void check_settings(const SettingOrigins& origins, const TranslationSettings& s) {
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
  only_of(!is_transformer(s), "recurrent models", {"--directions", "--input-feeding"});
  check_mechanism_options(origins, s);
  if (s.average_last > 1 && s.average_every == 0 && s.eval_every == 0)
    throw UsageError(origins.describe("--average-last", std::to_string(s.average_last)) + " and " +
                     origins.describe("--eval-every", "0") + "; give --average-every");
  if (s.only_time_ends() && s.needs_last_step())
    throw UsageError(origins.describe("--schedule", s.schedule) +
                     ", which depends on the last step; give --steps or --epochs");
}

std::string to_json(const TranslationSettings& s) {
  nlohmann::ordered_json json;
  for_each_setting(s, [&](const char* name, const auto& value) { json[name] = value; });
  if (s.mechanism.global_every == 0) json.erase("global-every");  // as in older checkpoints
  return json.dump();
}

TranslationSettings resumed_settings(const TranslationSettings& given, const CommandLine& line, const Checkpoint& old,
                                     bool other_data, std::vector<ChangedSetting>& changed) {
  const nlohmann::json json = stored_settings(old);
  const bool new_duration = line.given("--steps") || line.given("--epochs") || line.given("--minutes");
  TranslationSettings s = given;
  for_each_setting(s, [&](const char* name, auto& value) {
    const std::string flag = std::string("--") + name;
    if (!json.contains(name) || (is_duration(name) && new_duration)) return;
    auto stored = value;
    take_stored(json, name, stored, old);
    if (!line.given(flag) || stored == value) return value = stored, void();
    const ChangedSetting change{name, json.at(name).dump(), line.word(flag)};
    const bool moved = names_a_file(name) && (other_data || json.at(name) != "");
    if (!may_change(name) && !moved) throw UsageError(refusal_of(change, is_of_model(name)));
    if (!names_a_file(name)) changed.push_back(change);
  });
  return s;
}

TranslationSettings initial_settings(const TranslationSettings& given, const CommandLine& line,
                                     const Checkpoint& init) {
  const nlohmann::json json = stored_settings(init);
  TranslationSettings s = given;
  for_each_setting(s, [&](const char* name, auto& value) {
    if (!json.contains(name) || !is_of_model(name)) return;
    auto stored = value;
    take_stored(json, name, stored, init);
    const std::string flag = std::string("--") + name;
    if (line.given(flag) && stored != value)
      throw UsageError(flag + " is " + line.word(flag) + " but the model of " + init.source + " has " +
                       json.at(name).dump() + "; leave it out");
    value = stored;
  });
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
  return recurrent_config(s, sources, targets);
}

}  // namespace heed::examples
