// What a training run of translate is, as flags and as what its checkpoint keeps of it.
#pragma once
#include <heed/data/samples.hpp>
#include <heed/layers/translation.hpp>
#include <string>
#include <vector>

#include "examples/support/command_line.hpp"
#include "examples/support/setting_origins.hpp"
#include "examples/support/start_flags.hpp"
#include "examples/support/text_flags.hpp"

namespace heed::examples {

struct TranslationSettings {
  // No files: the built-in language.
  std::string source = {}, target = {}, val_source = {}, val_target = {};
  Index vocabulary = 0;  // pieces that both languages share; 0: words, each language its own
  Index min_freq = 2;
  Index longest = 100;
  TextSettings text = {};

  std::string model = "gru-bahdanau";
  std::string encoder_attention = "softmax", decoder_attention = "softmax", cross_attention = "softmax";
  MechanismOptions mechanism = {};  // of all attentions that have these options
  Index layers = 1, heads = 4, width = 128, hidden = 256, directions = 2;
  bool input_feeding = false, norm_first = false;
  double dropout = 0.1, attention_dropout = -1;  // below 0: as dropout

  // The run ends with the first of these that is there; none is: after kDefaultSteps.
  Index steps = -1, epochs = 0;
  double minutes = 0;
  Index batch_tokens = 4096, shards = 1, eval_every = 500, average_last = 1, average_every = 0;
  double label_smoothing = 0, lr = 2e-3, beta2 = 0.98, grad_clip = 1;
  Index warmup = 200;
  std::uint64_t seed = 1;
  std::string dtype = "f32", communication_dtype = "f32", schedule = "linear";

  static constexpr Index kDefaultSteps = 1000;
  bool built_in() const { return source.empty(); }
  // Of the run, where an epoch has so many batches; kUntilStopped where time alone ends it.
  Index last_step(Index batches) const;
  bool only_time_ends() const { return steps < 0 && epochs == 0 && minutes > 0; }
  bool needs_last_step() const { return schedule != "inverse-sqrt" && schedule != "constant"; }  // its schedule
};

void add_flags(CommandLine& line, TranslationSettings& settings);
// The files that a run with these settings reads; built-in data have none.
std::vector<FileUse> input_files(const TranslationSettings& settings);
// Of a run that begins: what depends on other flags, where it is not given itself.
void choose_defaults(const CommandLine& line, TranslationSettings& settings);
// Where the settings of a run that resumes or starts from a checkpoint come from; null: no checkpoint.
SettingOrigins setting_origins(const CommandLine& line, const Checkpoint* checkpoint, bool resumes);
// Throws UsageError for settings that do not go together.
void check_settings(const SettingOrigins& origins, const TranslationSettings& settings);

std::string to_json(const TranslationSettings& settings);
// Those of the checkpoint of a run that is resumed, with the flags that may change. Adds what they change to `changed`.
// Throws UsageError where another flag contradicts the checkpoint.
TranslationSettings resumed_settings(const TranslationSettings& given, const CommandLine& line, const Checkpoint& old,
                                     bool other_data, std::vector<ChangedSetting>& changed);
// Those of a new training that starts from the model of a checkpoint. Throws UsageError where a flag contradicts it.
TranslationSettings initial_settings(const TranslationSettings& given, const CommandLine& line, const Checkpoint& init);

// Throws Error unless the config in the checkpoint is that of its settings.
void check_config(const TranslationConfig& by_settings, const Checkpoint& checkpoint);

// The model of the settings, for these two languages.
TranslationConfig translation_config(const TranslationSettings& settings, const Tokenizer& source,
                                     const Tokenizer& target);

}  // namespace heed::examples
