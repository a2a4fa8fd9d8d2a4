// The settings of train_lm: flags, presets, and their form in a checkpoint.
#pragma once
#include <heed/layers/model_config.hpp>
#include <string>
#include <vector>

#include "examples/support/command_line.hpp"
#include "examples/support/program.hpp"
#include "examples/support/run_flags.hpp"
#include "examples/support/settings.hpp"
#include "examples/support/text_flags.hpp"

namespace heed::examples {

// The settings that decide the result of a run. Each has a flag. They are stored in the checkpoint, and --resume reads
// them from there. The defaults are those of preset nano.
struct LmSettings {
  std::vector<std::string> data;  // empty: the built-in stories
  std::string tokenizer = "char";
  TextSettings text;
  std::string preset = "nano", recipe = "plain";
  std::string model = "lm";  // lm or mlm
  GPTOptions gpt =
      GPTOptions{// its fields with a description are settings
                 .context = 64,
                 .blocks = {.layers = 4, .attention = {.width = 128, .heads = 4, .bias = false}}}
          .settled();
  std::string attention = "softmax";
  MechanismOptions mechanism;  // the options in mechanism_options() are settings
  Index steps = 2000, batch = 12, accumulate = 1, shards = 1;
  double lr = 3e-3, min_lr = 3e-4;
  Index warmup = 100;
  double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.99, grad_clip = 1;
  std::string optimizer = "adamw", schedule = "cosine";
  std::uint64_t seed = 1;
  std::string dtype = "f32", communication_dtype = "f32";
  double val_fraction = 0.1;
  Index eval_every = 250, eval_batches = 20;

  void fields(SettingFields& f);

 private:
  void data_fields(SettingFields& f);
  void model_fields(SettingFields& f);
  void training_fields(SettingFields& f);
};

// Flags that may differ between a run and its continuation.
struct LmRunFlags : RunFlags {
  LmRunFlags() : RunFlags{"lm.h5"} { init_published = true; }

  Index sample = 300;
  std::string prompt;
  SamplingOptions sampling{.temperature = 0.8};
};

// The files that a run with these settings reads; built-in data have none.
std::vector<FileUse> input_files(const LmSettings& settings);

// The flags of train_lm. After parsing, resolve() returns the settings.
class LmFlags {
 public:
  LmFlags();

  CommandLine& line() { return line_; }
  const CommandLine& line() const { return line_; }
  const LmRunFlags& run() const { return run_; }
  bool given(const std::string& name) const { return line_.given(name); }
  // The settings given by flags. Others are those of `stored`, the to_json() text in a resumed checkpoint, or of the
  // preset if it is null. Adds the stored settings that flags change to `changed`, unless it is null. Throws UsageError
  // if a flag contradicts a stored setting that cannot change, or has no effect with the others. File names may differ,
  // because files may have been moved: run() compares their contents.
  LmSettings resolve(const std::string* stored, std::vector<ChangedSetting>* changed = nullptr) const;
  // The settings of a new training that starts from this model, which `file` contains, with the settings of its
  // training if it was one of train_lm. Throws UsageError also for a flag that contradicts the model; but rows may be
  // shorter than the context of the model (--context).
  LmSettings resolve(const GPTConfig& init, const std::string& file, const std::string* settings = nullptr) const;
  // Throws FileError if a file to be written is also another file of the run, or one that its checkpoint names.
  void check_files(const LmSettings& resolved) const { examples::check_files(line_, input_files(resolved)); }
  // The command that continues this run, quoted for a shell: the program as it was called, with the flags of run()
  // again. The checkpoint has the settings.
  std::string resume_command() const;

 private:
  CommandLine line_;
  LmRunFlags run_;
  LmSettings given_;

  LmSettings resolved(const GPTConfig* init, const std::string& file, const std::string* settings) const;
};

// The settings as JSON, for a checkpoint.
std::string to_json(LmSettings settings);

// Throws Error unless settings and config in a checkpoint's file describe the same model.
void check_config(LmSettings settings, const GPTConfig& config, const std::string& file);

// The settings that recipe fast sets, as flags with their final values: «--optimizer muon --lr 0.01 ...».
std::string fast_flags(LmSettings settings);

// The config of the model for a tokenizer's vocabulary. A masked model has one token more, the mask.
GPTConfig model_config(const LmSettings& settings, Index vocabulary);

}  // namespace heed::examples
