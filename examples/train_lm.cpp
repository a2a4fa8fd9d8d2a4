// Trains a small language model on a text. Writes a checkpoint, a log, a plot and a sample.
//
//   train_lm                                          the built-in stories
//   train_lm --data shakespeare.txt --preset nano     your own text
//   train_lm --model mlm --attention linformer        a masked language model: fills in hidden tokens
//   mpirun -n 4 train_lm --shards 8                   four processes, each with two of the eight shards of a step
//   train_lm --init SmolLM2.gguf --data poems.txt     trains all weights of a published model further
//   train_lm --checkpoint lm.h5 --resume              continues a stopped run, to the same bits
#include <cmath>
#include <heed/heed.hpp>
#include <heed/plot/plot.hpp>

#include "examples/support/lm_data.hpp"
#include "examples/support/masked_sample.hpp"
#include "examples/support/memory_need.hpp"
#include "examples/support/program.hpp"
#include "examples/support/program_ranks.hpp"
#include "examples/support/run_report.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

template <class M>
double activation_mebibytes(const M& model, const LmSettings& s) {
  const MatmulPrecision precision(dtype_named(s.dtype));
  return static_cast<double>(model.predict_activations(s.batch, s.gpt.context).total) / (1 << 20);
}

// Predicts the memory of training. Returns zeros if lists of keys depend on values, which a dry run does not compute.
template <class M>
TrainingMemory training_memory(M& model, const Optimizer& optimizer, const LmSettings& s, const LmData& data,
                               const RunOptions& options) {
  Rng rng;
  if (model.mechanism_factory()(0, rng).capabilities().discrete) return {};
  const Tensor x = Tensor::zeros({s.batch, s.gpt.context}, DType::int32);
  const Batch held_out = data.validation.size() > 0 ? data.validation.batch(0) : Batch{x, x};
  return predict_training_memory(
      named_parameters(model), optimizer, options, [&] { return model.loss(x, x); },
      [&] { model.loss(held_out.inputs, held_out.targets); });
}

void print_start(const LmSettings& s, const LmData& data, Index parameters, double mebibytes,
                 const TrainingMemory& memory, bool goes_on) {
  const std::string in_all =
      memory.process > 0 ? ", about " + std::to_string(std::lround(memory.process / (1 << 20))) + " MiB" : "";
  std::fprintf(stderr,
               "%s\n%lld layers, %lld heads, width %lld, context %lld: %.2fM parameters%s\n"
               "%.1f MiB of activations; %s, %d threads, seed %llu; %s\n",
               data.description.c_str(), static_cast<long long>(s.gpt.blocks.layers),
               static_cast<long long>(s.gpt.blocks.attention.heads),
               static_cast<long long>(s.gpt.blocks.attention.width), static_cast<long long>(s.gpt.context),
               static_cast<double>(parameters) / 1e6, in_all.c_str(), mebibytes, arch(), threads(),
               static_cast<unsigned long long>(s.seed), goes_on ? "resuming" : "new training");
}

void print_result(const RunResult& result, const LmData& data) {
  if (!result.validation_loss) return;
  std::fprintf(stderr, "validation loss %.4f", *result.validation_loss);
  if (data.floor) std::fprintf(stderr, ", %s", above_floor(*result.validation_loss, *data.floor).c_str());
  for (const auto& [name, value] : result.validation_metrics) std::fprintf(stderr, ", %s %.4f", name.c_str(), value);
  std::fprintf(stderr, "\n");
}

// `old`: the checkpoint that the run continues or starts from, or null.
RunOptions run_options(RunOptions o, const LmSettings& s, const LmData& data, const GPTConfig& config,
                       const Checkpoint* old) {
  o.steps = s.steps;
  o.accumulate = s.accumulate;
  o.shards = s.shards;
  o.grad_clip = s.grad_clip;
  o.seed = s.seed;
  o.precision = dtype_named(s.dtype);
  o.ranks.dtype = dtype_named(s.communication_dtype);
  o.evaluation.every = s.eval_every;
  o.evaluation.batches = s.eval_batches;
  o.checkpoint.texts = language_model_texts(config, data.tokenizer);
  o.checkpoint.texts.insert({"settings", to_json(s)});
  for (const char* name : kPretrainedTexts)
    if (old != nullptr && old->texts.contains(name)) o.checkpoint.texts.insert({name, old->text(name)});
  for (const FileUse& input : input_files(s)) o.inputs.push_back(input.path);
  if (data.floor) o.evaluation.floor = data.floor->loss;
  if (data.eval_floor) o.evaluation.batches_floor = data.eval_floor->loss;
  return o;
}

OptimizerOptions optimizer_options(const LmSettings& s) {
  return {.lr = s.lr, .betas = {s.beta1, s.beta2}, .momentum = s.beta1};
}

// Trains a GPT or a BERT. `metrics` computes the metrics of an evaluation batch, `show` prints the sample. Returns the
// exit code.
template <class M>
int train_model(M& model, const LmFlags& all_flags, const LmRunFlags& flags, const LmSettings& s, const LmData& data,
                RunOptions options, const std::function<Metrics(const Batch&)>& metrics,
                const std::function<void()>& show) {
  const ParameterGroups groups = s.optimizer == "muon" ? muon_groups(model, {.weight_decay = s.weight_decay})
                                                       : decay_groups(model, s.weight_decay);
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(s.optimizer, groups, optimizer_options(s));
  Schedule schedule(s.schedule,
                    {.lr = s.lr, .min_lr = s.min_lr, .warmup = s.warmup, .steps = std::max<Index>(s.steps, 1)});
  if (s.recipe == "fast") std::fprintf(stderr, "recipe fast: %s\n", fast_flags(s).c_str());
  const TrainingMemory memory = training_memory(model, *optimizer, s, data, options);
  check_memory("training", memory.process);
  print_start(s, data, parameter_count(model), activation_mebibytes(model, s), memory,
              options.checkpoint.init.empty() && options.checkpoint.loaded != nullptr);
  options.output.flops_per_token = model.flops_per_token(s.gpt.context);
  RunProfile profile(flags.profile);
  options.output.profile = profile.get();
  RunResult result = run(model, *optimizer, schedule, data.training, data.validation, options, {}, metrics);
  result.loss_unit = "nats per token";  // also if no step was left
  profile.report();

  const bool draws = !flags.plot.empty() && result.steps > 0;
  if (draws) plot_losses(flags.plot, result, data.floor ? std::optional(data.floor->loss) : std::nullopt);
  if (result.interrupted) {
    print_stopped(result, s.steps, all_flags.resume_command());
    return 130;
  }
  print_result(result, data);
  std::fprintf(stderr, "checkpoint: %s\n", printable(flags.checkpoint).c_str());
  if (draws) std::fprintf(stderr, "drawn: %s\n", printable(flags.plot).c_str());
  if (flags.sample > 0) show();
  return 0;
}

// The run uses the tokenizer of the model in `file`. Throws Error if --tokenizer names another tokenizer; the same one
// in another file is accepted.
void check_tokenizer(const LmFlags& flags, const LmSettings& s, const Tokenizer& tokenizer, const std::string& file) {
  if (!flags.given("--tokenizer")) return;
  const std::string name = flags.line().word("--tokenizer"), kind = tokenizer.kind();
  const bool is_file = name != "char" && name != "byte";
  const bool same = is_file
                        ? make_tokenizer(name, std::string_view(), unicode_form_of(s.text)).hash() == tokenizer.hash()
                        : name == kind;
  require(same, is_file ? "" : "--tokenizer is ", name, is_file ? " is not" : ", which is not", " the tokenizer of ",
          file, "; it must be the same");
}

// A GPT or a BERT, with the values of the checkpoint `old` unless it is null.
template <class M>
M make_model(const GPTConfig& config, Rng& rng, const Checkpoint* old) {
  if (old == nullptr) return M(config.options, rng, config.factory());
  M model = skip_init<M>(config.options, rng, config.factory());
  load_model(*old, model);
  return model;
}

// The config of the model: from the checkpoint but with the dropout of the settings, or from the settings if `old` is
// null.
GPTConfig config_of(const LmSettings& s, const LmData& data, const Checkpoint* old, const std::string& file) {
  if (old == nullptr) return model_config(s, data.tokenizer.vocabulary_size());
  GPTConfig config = from_json<GPTConfig>(old->text("config"), file);
  config.options.blocks.dropout = s.gpt.blocks.dropout;
  return config;
}

// The value of --tokenizer for the tokenizer of a checkpoint. The SentencePiece file may no longer exist; the
// checkpoint contains its content.
std::string tokenizer_setting(const Checkpoint& old) {
  const std::string kind = Tokenizer::from_json(old.text("tokenizer")).kind();
  return kind == "char" || kind == "byte" ? kind : old.source + ".model";
}

// The settings of the run, checked against the checkpoint that the run continues or takes its model from.
LmSettings settings_of(const LmFlags& flags, const Start& start, const std::string& file) {
  const Checkpoint* old = start.resumed ? start.resumed.get() : start.init.get();
  if (old == nullptr) return flags.resolve(nullptr);
  check_whole_model(*old);
  const GPTConfig config = from_json<GPTConfig>(old->text("config"), file);  // fails for other programs
  const Index vocabulary = Tokenizer::from_json(old->text("tokenizer")).vocabulary_size();
  check_language_model(config, *old, vocabulary);
  if (!start.resumed)
    return flags.resolve(config, file, old->texts.contains("settings") ? &old->text("settings") : nullptr);
  std::vector<ChangedSetting> changed;
  const LmSettings s = flags.resolve(&old->text("settings"), &changed);
  check_config(s, config, file);
  for (const std::string& data : s.data) check_stored_file(flags.line(), "--data", data, file);
  print_changed(changed);
  return s;
}

// The flags of this rank: only rank 0 logs, plots, samples and profiles.
LmRunFlags flags_of(const Ranks* ranks, LmRunFlags flags) {
  if (is_first(ranks)) return flags;
  flags.log = flags.plot = "", flags.sample = 0, flags.profile = {};
  return flags;
}

int train(const LmFlags& flags, Ranks* ranks) {
  const LmRunFlags run_flags = flags_of(ranks, flags.run());
  const Start start = open_start(run_flags, "", is_first(ranks));
  const Checkpoint* old = start.resumed ? start.resumed.get() : start.init.get();
  const std::string file = start.init ? run_flags.init : run_flags.checkpoint;
  LmSettings s = settings_of(flags, start, file);
  if (is_first(ranks)) flags.check_files(s);
  check_plot(run_flags.plot);
  if (start.init) s.tokenizer = tokenizer_setting(*old);
  const LmData data = load_data(s, old ? &old->text("tokenizer") : nullptr);
  if (old) check_tokenizer(flags, s, data.tokenizer, file);

  Rng rng(s.seed);
  const GPTConfig config = config_of(s, data, old, file);
  check_training_memory({.layers = s.gpt.blocks.layers,
                         .width = s.gpt.blocks.attention.width,
                         .vocabulary = config.options.vocabulary,
                         .context = s.gpt.context,
                         .batch = s.batch,
                         .batches = s.accumulate * s.shards,
                         .moments = optimizer_states(s.optimizer, optimizer_options(s))});
  RunOptions options = run_options(run_flags.options(start), s, data, config, old);
  options.ranks.communicator = ranks;
  if (!config.options.causal) {
    // An error in the prompt is thrown now, not after the training.
    if (!run_flags.prompt.empty()) masked_tokens(data.tokenizer, run_flags.prompt, data.masks.mask, s.gpt.context);
    BERT model = make_model<BERT>(config, rng, old);
    const auto metrics = [&](const Batch& b) { return classification_metrics(model(b.inputs), b.targets); };
    return train_model(model, flags, run_flags, s, data, options, metrics, [&] {
      print_filled_in(model, data.tokenizer, data.texts, data.masks, run_flags.prompt, run_flags.sample, s.seed);
    });
  }
  if (run_flags.sample > 0) prompt_tokens(data.tokenizer, run_flags.prompt);
  LanguageModel lm{make_model<GPT>(config, rng, old), data.tokenizer};
  if (start.converted) start.init->tensors.clear();  // the model has copies; run() clears those of a checkpoint
  return train_model(lm.model, flags, run_flags, s, data, options, {}, [&] {
    generate_text(lm, {run_flags.prompt},
                  {.count = run_flags.sample, .sampling = run_flags.sampling, .seed = s.seed, .on_text = print_piece});
    std::puts("");
  });
}

}  // namespace

int main(int argc, char** argv) {
  LmFlags flags;
  return run_program(flags.line(), argc, argv, [&] {
    return run_on_ranks(
        flags.run().threads, [&](Ranks* ranks) { return train(flags, ranks); }, &flags.line());
  });
}
