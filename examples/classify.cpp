// Trains an encoder to compute the value of nested lists, ListOps (Nangia and Bowman 2018; Tay et al. 2020):
//
//   [MAX 2 9 [MIN 4 7 ] 0 ]  =  9
//
// Any mechanism that attends to all positions can be used, also one that cannot be causal:
//
//   classify                                          softmax
//   classify --attention linformer --plot lists.svg
//   classify --length 200 --depth 6 --steps 20000     harder lists
#include <heed/heed.hpp>
#include <heed/plot/plot.hpp>

#include "examples/support/mechanism_flags.hpp"
#include "examples/support/memory_need.hpp"
#include "examples/support/program.hpp"
#include "examples/support/run_flags.hpp"
#include "examples/support/run_report.hpp"
#include "examples/support/sequence_classifier.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

struct Settings {
  std::string attention = "softmax";
  MechanismOptions mechanism;
  Index layers = 3, heads = 4, width = 64, length = 24, depth = 3;
  Index steps = 2000, batch = 64, held_out = 1000;
  double lr = 2e-3;
  std::uint64_t seed = 1;

  void fields(SettingFields& f) {
    const std::vector<std::string>& names = mechanism_names(false);
    f.order({"attention", "layers", "heads", "width", "length", "depth", "steps", "batch", "held-out", "lr", "seed"});
    f("attention", attention, Kind::model,
      "Attention mechanism: " + choice(names, ", ") + " (docs/attention.md) [softmax]", one_of(names, "NAME"));
    mechanism_fields(f, mechanism, names,
                     [this](const MechanismOption& o, bool has_value) { return has_value && o.of(attention); });
    f.counted("layers", layers, Kind::model, "Blocks", whole(0));
    f.counted("heads", heads, Kind::model, "Attention heads; must divide the width");
    f.counted("width", width, Kind::model, "Size of a token's vector");
    f.counted("length", length, Kind::model, "Max tokens per expression; the minimum is a quarter of it", whole(4));
    f.counted("depth", depth, Kind::start, "Max depth of nested lists");
    f.counted("steps", steps, Kind::run, "Optimizer steps", whole(0));
    f.counted("batch", batch, Kind::run, "Expressions per batch");
    f("held-out", held_out, Kind::start, "Expressions to evaluate on [1000]", whole(1, 10000000));
    f("lr", lr, Kind::run, "Peak learning rate [2e-3]", number(0));
    f("seed", seed, Kind::start, "Seed of weights and expressions [1]", seed_number());
  }
};

// Completes and checks the options of the mechanism, which depend on other settings. Throws UsageError for settings
// that do not fit together.
void settle(const SettingOrigins& origins, Settings& s) {
  if (s.width % s.heads != 0)
    throw UsageError(origins.describe("--width", std::to_string(s.width)) + " and " +
                     origins.describe("--heads", std::to_string(s.heads)) + "; heads must divide the width");
  check_mechanism_flags(origins, "--attention", {s.attention});
  MechanismOptions& o = s.mechanism;
  o.causal = false, o.heads = s.heads, o.head_size = s.width / s.heads, o.context = s.length, o.seed = s.seed;
  o = settled_options(s.attention, o);
  check_mechanism(origins, "--attention", s.attention, o);
}

MechanismFactory mechanism_of(const SettingOrigins& origins, const Settings& s) {
  const MechanismFactory make = mechanism_by_name(s.attention, s.mechanism);
  Rng rng;
  const AttentionCapabilities has = make(0, rng).capabilities();
  if (!has.key_mask)
    throw UsageError(origins.describe("--attention", s.attention) + ", which does not support padding: " + has.why +
                     "; the lists differ in length");
  return make;
}

// Where the settings come from: flags, and the settings of the checkpoint that the run resumes or takes its model from.
SettingOrigins origins_of(const Start& start, const CommandLine& line) {
  Settings s;
  if (start.resumed) return {line, start.resumed->source, StoredSettings(*start.resumed).names()};
  if (start.init) return {line, start.init->source, SettingFields(s).names(Kind::model)};
  return line;
}

// The settings of a run that continues from a checkpoint, with the flags that may change: all are those of the
// checkpoint if the run resumes, otherwise only those of the model.
Settings settings_of(const Checkpoint& old, bool resumes, const SettingOrigins& origins, Settings given) {
  const StoredSettings stored(old);
  require(stored.has("held-out"), old.source, " is not a checkpoint of classify: its settings are ",
          printable(old.text("settings").substr(0, 200)));
  const std::optional<Kind> kind = resumes ? std::nullopt : std::optional(Kind::model);
  Settings s;
  const SettingFields fields(s), flags(given);
  fields.read(stored, kind);
  // The checkpoint may be older than an option of its mechanism. older_options() has the values that were used then.
  s.mechanism = older_options(s.attention, s.length);
  fields.read(stored, kind);
  check_mechanism_flags(origins, "--attention", {s.attention});
  if (resumes)
    print_changed(fields.resume(origins.line(), flags, false));
  else
    fields.init(origins.line(), flags, old.source);
  return s;
}

void print_examples(const SequenceClassifier& model, const ListOpsHeldOut& held_out, Index count) {
  const NoTape no_tape;
  const Evaluation evaluation;
  for (Index i = 0; i < count; ++i) {
    const ListOpsExample e = held_out.example(i);
    const Tensor logits = model(Tensor::from(e.tokens, {1, static_cast<Index>(e.tokens.size())}));
    const auto predicted = argmax(logits).item<std::int32_t>();
    std::printf("%s %s = %d%s\n", predicted == e.value ? "right:" : "wrong:", ListOps::text(e.tokens).c_str(),
                predicted, predicted == e.value ? "" : (", not " + std::to_string(e.value)).c_str());
  }
}

RunOptions run_options(RunOptions o, Settings s) {
  o.steps = s.steps;
  o.seed = s.seed;
  o.evaluation.every = std::max<Index>(1, s.steps / 10);
  o.checkpoint.texts = {{"config", R"({"model": "listops classifier"})"}, {"settings", SettingFields(s).json()}};
  return o;
}

int train(const RunFlags& flags, Settings s, const CommandLine& line) {
  set_threads(flags.threads);
  check_plot(flags.plot);
  const Start start = open_start(flags, "", true);
  const SettingOrigins origins = origins_of(start, line);
  if (start.resumed) s = settings_of(*start.resumed, true, origins, s);
  if (start.init) s = settings_of(*start.init, false, origins, s);
  settle(origins, s);
  check_training_memory({.layers = s.layers, .width = s.width, .context = s.length, .batch = s.batch, .moments = 2});
  const ListOps lists({.depth = s.depth, .min_tokens = s.length / 4, .max_tokens = s.length});
  const ListOpsHeldOut held_out(lists, s.held_out, 100, s.seed);
  Rng rng(s.seed);
  SequenceClassifier model({.vocabulary = ListOps::kVocabulary,
                            .context = s.length,
                            .blocks = {.layers = s.layers, .attention = {.width = s.width, .heads = s.heads}}},
                           {.classes = ListOps::kValues, .padding = ListOps::kPadding}, rng, mechanism_of(origins, s));
  AdamW optimizer(decay_groups(model, 0.1), {.lr = s.lr, .betas = {0.9, 0.99}});
  Schedule schedule("cosine",
                    {.lr = s.lr, .min_lr = s.lr / 10, .warmup = s.steps / 20, .steps = std::max<Index>(s.steps, 1)});
  RunOptions options = run_options(flags.options(start), s);
  const double majority = held_out.majority();
  std::fprintf(stderr,
               "lists of %lld to %lld tokens, at most %lld deep; %lld held out, %.1f%% of which have the most common "
               "value\n%s attention, %lld layers, %lld heads, width %lld: %.2fM parameters; %s, %d threads\n",
               static_cast<long long>(lists.options().min_tokens), static_cast<long long>(s.length),
               static_cast<long long>(s.depth), static_cast<long long>(s.held_out), 100 * majority, s.attention.c_str(),
               static_cast<long long>(s.layers), static_cast<long long>(s.heads), static_cast<long long>(s.width),
               static_cast<double>(parameter_count(model)) / 1e6, arch(), threads());
  options.output.flops_per_token = model.encoder.flops_per_token(s.length);
  RunProfile profile(flags.profile);
  options.output.profile = profile.get();
  const RunResult result = run(model, optimizer, schedule, ListOpsBatches(lists, s.batch), held_out, options, {},
                               [&](const Batch& b) { return classification_metrics(model(b.inputs), b.targets); });
  profile.report();

  const bool draws = !flags.plot.empty() && !result.validation_metrics.empty();
  if (draws) plot_accuracy(flags.plot, result, majority);
  if (result.interrupted) {
    print_stopped(result, s.steps, flags.resume_command(line));
    return 130;
  }
  if (result.validation_metrics.count("accuracy") == 1)
    std::printf("held-out accuracy %.1f%%; always the most common value: %.1f%%\n",
                100 * result.validation_metrics.at("accuracy"), 100 * majority);
  print_examples(model, held_out, 5);
  std::fprintf(stderr, "checkpoint: %s\n", printable(flags.checkpoint).c_str());
  if (draws) std::fprintf(stderr, "drawn: %s\n", printable(flags.plot).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Trains an encoder to compute the value of nested lists (ListOps)", "classify");
  Settings settings;
  RunFlags flags{"classify.h5"};
  SettingFields(settings).add_flags(line);
  flags.add_to(line, "accuracy");
  return run_program(line, argc, argv, [&] { return train(flags, settings, line); });
}
