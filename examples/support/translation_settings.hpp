// The settings of translate: flags, and their form in a checkpoint.
#pragma once
#include <heed/data/samples.hpp>
#include <heed/layers/translation.hpp>
#include <string>
#include <vector>

#include "examples/support/run_flags.hpp"
#include "examples/support/settings.hpp"
#include "examples/support/text_flags.hpp"

namespace heed::examples {

// The settings of a training run.
struct TranslationSettings {
  // Empty: the built-in language.
  std::string source = {}, target = {}, val_source = {}, val_target = {};
  Index vocabulary = 0;  // pieces, shared by both languages; 0: words of each language
  Index min_freq = 2;
  Index longest = 100;
  TextSettings text = {};

  std::string model = "gru-bahdanau";
  std::string encoder_attention = "softmax", decoder_attention = "softmax", cross_attention = "softmax";
  MechanismOptions mechanism = {};  // for all attentions that have the option
  // The options of a transformer. Other models have these layers, width, hidden, dropout and label smoothing.
  TransformerSeq2SeqOptions options = {.blocks = {.layers = 1,
                                                  .attention = {.width = 128, .heads = 4},
                                                  .hidden = 256,
                                                  .dropout = 0.1,
                                                  .norm_first = false},
                                       .label_smoothing = 0};
  double attention_dropout = -1;  // negative: as dropout
  Index kernel = 3;               // of convolutional models
  Index directions = 2;
  bool input_feeding = false, output_from_state = false;
  std::string bridge = "linear";

  // The run ends at the first of these limits that is set; without any, after kDefaultSteps.
  Index steps = -1, epochs = 0;
  double minutes = 0;
  Index batch_tokens = 4096, shards = 1, eval_every = 500, average_last = 1, average_every = 0;
  double lr = 2e-3, beta2 = 0.98, grad_clip = 1;
  Index warmup = 200;
  std::uint64_t seed = 1;
  std::string dtype = "f32", communication_dtype = "f32", schedule = "linear";

  void fields(SettingFields& f) { data_fields(f), model_fields(f), training_fields(f); }

  static constexpr Index kDefaultSteps = 1000;
  bool built_in() const { return source.empty(); }
  // The last step of a run with this many batches per epoch; kUntilStopped if only time ends the run.
  Index last_step(Index batches) const;
  bool only_time_ends() const { return steps < 0 && epochs == 0 && minutes > 0; }
  bool needs_last_step() const { return schedule != "inverse-sqrt" && schedule != "constant"; }  // for its schedule

 private:
  void data_fields(SettingFields& f);
  void model_fields(SettingFields& f);
  void training_fields(SettingFields& f);
};

// The files that a run with these settings reads; built-in data have none.
std::vector<FileUse> input_files(const TranslationSettings& settings);
// The settings as JSON, for a checkpoint.
std::string to_json(TranslationSettings settings);
// The settings of a run: those given by flags. If the run continues from a checkpoint: those of the checkpoint, or of
// its model, with the flags that may change. Prints what changes. Throws UsageError if a flag contradicts the
// checkpoint or would have no effect, and for settings that do not fit together.
TranslationSettings settings_of(TranslationSettings given, const CommandLine& line, const Start& start,
                                bool other_data);

// Throws Error unless the config in the checkpoint is that of its settings.
void check_config(const TranslationConfig& by_settings, const Checkpoint& checkpoint);

// The config of the model for the vocabularies of these tokenizers.
TranslationConfig translation_config(const TranslationSettings& settings, const Tokenizer& source,
                                     const Tokenizer& target);

}  // namespace heed::examples
