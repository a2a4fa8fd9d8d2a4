// The settings of a language-model training: flags, presets, and how they are kept in a checkpoint.
#pragma once
#include <functional>
#include <heed/layers/model_config.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "examples/support/command_line.hpp"
#include "examples/support/profile_flags.hpp"
#include "examples/support/program.hpp"
#include "examples/support/setting_origins.hpp"
#include "examples/support/start_flags.hpp"
#include "examples/support/text_flags.hpp"

namespace heed::examples {

// What decides the result of a run: kept in the checkpoint, and taken from there on --resume. A flag fills one of
// these.
struct LmSettings {
  std::vector<std::string> data;  // empty: the built-in stories
  std::string tokenizer = "char";
  TextSettings text;
  std::string preset = "nano", recipe = "plain";
  std::string model = "lm";  // or mlm
  Index layers = 0, heads = 0, width = 0, context = 0, batch = 0, accumulate = 1, shards = 1;
  double dropout = 0;
  std::string attention = "softmax", norm = "layer", activation = "gelu", positions = "learned";
  MechanismOptions mechanism;  // those of mechanism_options() are settings
  bool bias = false, qk_norm = false, zero_init_residual = false;
  Index steps = 0;
  double lr = 0, min_lr = 0;
  Index warmup = 0;
  double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.99, grad_clip = 1;
  std::string optimizer = "adamw", schedule = "cosine";
  std::uint64_t seed = 1;
  std::string dtype = "f32", communication_dtype = "f32";
  double val_fraction = 0.1;
  Index eval_every = 250, eval_batches = 20;
};

// What may differ between a run and its resumption.
struct LmRunFlags {
  int threads = 0;
  std::string checkpoint = "lm.h5", log, plot;
  Index checkpoint_every = 0;
  StartFlags start;
  bool find_nan = false;
  Index sample = 300;
  std::string prompt;
  SamplingOptions sampling{.temperature = 0.8};
  ProfileFlags profile;
};

// The files that a run with these settings reads.
std::vector<FileUse> input_files(const LmSettings& settings);

// Declares the flags of train_lm. After parsing, resolve() gives the settings.
class LmFlags {
 public:
  LmFlags();

  CommandLine& line() { return line_; }
  const CommandLine& line() const { return line_; }
  const LmRunFlags& run() const { return run_; }
  bool given(const std::string& name) const { return line_.given(name); }
  // The settings given by flags, the others from `stored` (to_json() in a checkpoint that is resumed; null: none) or
  // else from the preset. Adds to `changed`, if given, the stored settings that flags change. Throws UsageError
  // where a flag differs from a stored setting that cannot change, and where a flag would do nothing beside the others.
  // Names of files may differ, as files may have been moved: run() compares their content.
  LmSettings resolve(const std::string* stored, std::vector<ChangedSetting>* changed = nullptr) const;
  // Those of a new training of this model, which comes from a checkpoint's file. Throws UsageError, too, for a flag
  // that contradicts the model.
  LmSettings resolve(const GPTConfig& init, const std::string& file) const;
  // Throws FileError where a file that the run would write is another one of it, or one that its checkpoint names.
  void check_files(const LmSettings& resolved) const { examples::check_files(line_, input_files(resolved)); }
  // What goes on with this run, for a shell: the program as it was called, and the flags of run() again, as the
  // checkpoint holds the settings.
  std::string resume_command() const;

 private:
  CommandLine line_;
  LmRunFlags run_;
  LmSettings given_;

  using Json = nlohmann::ordered_json;
  LmSettings resolved(const GPTConfig* init, const std::string& file) const;
  LmSettings settled(LmSettings settings, const SettingOrigins& origins) const;
  void for_each_given(const std::function<void(const std::string&, const Json&)>& f) const;
};

std::string to_json(const LmSettings& settings);

// Throws Error unless the settings in a checkpoint's file say of the model what its config says.
void check_config(const LmSettings& settings, const GPTConfig& config, const std::string& file);

// What recipe fast settled, as flags: «--optimizer muon --lr 0.01 ...».
std::string fast_flags(const LmSettings& settings);

// The model for a tokenizer's vocabulary; a masked one has one token more.
GPTConfig model_config(const LmSettings& settings, Index vocabulary);

}  // namespace heed::examples
