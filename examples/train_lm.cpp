// Trains a small language model: text in, a checkpoint, a log, a plot and a sample out.
//
//   train_lm                                          the built-in stories
//   train_lm --data shakespeare.txt --preset nano     a text of your own
//   train_lm --checkpoint lm.h5 --resume              goes on where a run was stopped, to the same bits
#include <heed/heed.hpp>

#include "examples/support/language_model.hpp"
#include "examples/support/lm_data.hpp"
#include "examples/support/machine_peak.hpp"
#include "examples/support/plot.hpp"
#include "examples/support/program.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

double activation_mebibytes(const GPT& model, const LmSettings& s) {
  const MatmulPrecision precision(s.dtype == "bf16" ? DType::bfloat16 : DType::float32);
  return static_cast<double>(model.predict_activations(s.batch, s.context).total) / (1 << 20);
}

void plot_losses(const std::string& file, const RunResult& result, const std::optional<double>& floor) {
  Series training{"training", {}, Series::thin_line}, validation{"validation", {}, Series::line},
      least{"floor: no model can be below", {}, Series::dashed};
  for (std::size_t i = 0; i < result.history.losses.size(); ++i)
    training.points.emplace_back(static_cast<double>(i + 1), result.history.losses[i]);
  for (const auto& [step, loss] : result.history.validation_losses)
    validation.points.emplace_back(static_cast<double>(step), loss);
  if (floor) least.points = {{1, *floor}, {static_cast<double>(result.steps), *floor}};
  plot(file, {"Loss by step", "step", "loss, nats a token"}, {training, validation, least});
}

int train(const LmFlags& flags) {
  const LmRunFlags& run_flags = flags.run();
  set_threads(run_flags.threads);
  if (!run_flags.plot.empty()) check_plot(run_flags.plot);
  const bool goes_on = run_flags.resume && std::filesystem::exists(run_flags.checkpoint);
  std::optional<Checkpoint> old;
  if (goes_on) old = load_checkpoint(run_flags.checkpoint);
  const LmSettings s = flags.resolve(old ? &old->text("settings") : nullptr);
  const LmData data = load_data(s, old ? &old->text("tokenizer") : nullptr);
  require(!old || old->text("data") == data.fingerprint, "resume: the data are ", data.fingerprint,
          " but those of the checkpoint were ", old ? old->text("data") : "", "; they must be the same");
  old.reset();
  if (run_flags.sample > 0) prompt_tokens(data.tokenizer, run_flags.prompt);  // an error now, not after the training

  Rng rng(s.seed);
  const LmModel config = lm_model(s, data.tokenizer.vocabulary_size());
  GPT model = make_gpt(config, rng);
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(
      s.optimizer, decay_groups(model, s.weight_decay), {.lr = s.lr, .betas = {s.beta1, s.beta2}, .momentum = s.beta1});
  Schedule schedule(s.schedule, {.lr = s.lr, .min_lr = s.min_lr, .warmup = s.warmup, .steps = s.steps});
  std::fprintf(stderr,
               "%s\n%lld layers, %lld heads, width %lld, context %lld: %.2fM parameters\n"
               "%.1f MiB of activations a batch; %s, %d threads, seed %llu; %s\n",
               data.description.c_str(), static_cast<long long>(s.layers), static_cast<long long>(s.heads),
               static_cast<long long>(s.width), static_cast<long long>(s.context),
               static_cast<double>(parameter_count(model)) / 1e6, activation_mebibytes(model, s), arch(), threads(),
               static_cast<unsigned long long>(s.seed), goes_on ? "going on" : "starting afresh");

  RunOptions run_options;
  run_options.steps = s.steps;
  run_options.accumulate = s.accumulate;
  run_options.grad_clip = s.grad_clip;
  run_options.seed = s.seed;
  run_options.precision = s.dtype == "bf16" ? DType::bfloat16 : DType::float32;
  run_options.eval_every = s.eval_every;
  run_options.eval_batches = s.eval_batches;
  run_options.checkpoint = run_flags.checkpoint;
  run_options.checkpoint_every = run_flags.checkpoint_every;
  run_options.resume = run_flags.resume;
  run_options.texts = {{"config", to_json(config)},
                       {"settings", to_json(s)},
                       {"tokenizer", data.tokenizer.to_json()},
                       {"data", data.fingerprint}};
  run_options.log = run_flags.log;
  run_options.progress = stderr;
  run_options.floor = data.floor;
  run_options.flops_per_token = model.flops_per_token(s.context);
  run_options.peak_flops = machine_peak_flops();
  run_options.handle_interrupt = true;
  const RunResult result = run(model, *optimizer, schedule, data.training, data.validation, run_options);

  if (!run_flags.plot.empty() && result.steps > 0) plot_losses(run_flags.plot, result, data.floor);
  if (result.interrupted) {
    std::fprintf(stderr, "stopped after step %lld of %lld; to go on: train_lm --checkpoint %s --resume\n",
                 static_cast<long long>(result.steps), static_cast<long long>(s.steps), run_flags.checkpoint.c_str());
    return 130;
  }
  if (result.validation_loss) {
    std::fprintf(stderr, "validation loss %.4f", *result.validation_loss);
    if (data.floor)
      std::fprintf(stderr, ", %.1f%% above the floor of %.4f", 100 * (*result.validation_loss / *data.floor - 1),
                   *data.floor);
    std::fprintf(stderr, "\n");
  }
  std::fprintf(stderr, "checkpoint: %s\n", run_flags.checkpoint.c_str());
  if (run_flags.sample > 0)
    stream_sample(model, data.tokenizer, run_flags.prompt, run_flags.sample, run_flags.sampling, s.seed);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  LmFlags flags;
  return run_program(flags.app(), argc, argv, [&] { return train(flags); });
}
