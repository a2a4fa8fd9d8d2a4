// Trains the same small encoder with each attention mechanism on sequences of thousands of tokens, for the same time,
// and prints losses, accuracies, speeds and memory: the comparison of "Long Range Arena" (Tay et al. 2020).
//
//   attention_long_range --plot arena.svg                                   everything; hours
//   attention_long_range --tasks text --mechanisms softmax,linear --minutes 1
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <heed/core/clock.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/text.hpp>
#include <heed/optim/optimizers/optimizers.hpp>
#include <heed/optim/run/run.hpp>
#include <heed/plot/plot.hpp>
#include <nlohmann/json.hpp>

#include "examples/experiments/long_range_tasks.hpp"
#include "examples/support/mechanism_flags.hpp"
#include "examples/support/program.hpp"

namespace {

using namespace heed;
using namespace heed::examples;

struct Settings {
  std::vector<std::string> mechanisms = {"softmax", "window",    "strided", "longformer", "lsh",
                                         "linear",  "efficient", "favor",   "synthesizer"};
  std::vector<std::string> tasks = long_range_task_names();
  MechanismOptions options = {};
  LongRangeSizes sizes = {};
  double minutes = 5, lr = 1e-3;
  Index steps = 0, layers = 2, heads = 4, width = 64, batch = 16, held_out = 500;
  std::uint64_t seed = 1;
  int threads = 0;
  std::string plot, log;
};

// A mechanism on a task.
struct Cell {
  std::string task, mechanism;
  Index steps = 0;
  double loss = 0, accuracy = 0;  // held out
  double sequences_per_second = 0;
  std::size_t peak_bytes = 0;  // of all tensors in training
  std::string error = {};      // empty if it ran
};

std::string mib(std::size_t bytes) { return detail::formatted("%.0f", static_cast<double>(bytes) / 1048576.0); }

SequenceClassifier classifier(const LongRangeTask& task, const std::string& mechanism, const Settings& s) {
  MechanismOptions o = s.options;
  o.causal = false, o.heads = s.heads, o.head_size = s.width / s.heads, o.context = task.length, o.seed = s.seed;
  const MechanismFactory make = mechanism_by_name(mechanism, settled_options(mechanism, o));
  Rng rng(s.seed), unused;
  const AttentionCapabilities has = make(0, unused).capabilities();
  require(has.key_mask || !task.padded, mechanism, " does not support padding: ", has.why);
  return SequenceClassifier({.vocabulary = task.vocabulary,
                             .context = task.length,
                             .blocks = {.layers = s.layers, .attention = {.width = s.width, .heads = s.heads}}},
                            task.classes, rng, make);
}

// Trains until the time of a cell has passed, and evaluates once. Returns false if the user stopped it.
bool train(Cell& c, const LongRangeTask& task, const LongRangeHeldOut& held_out, const Settings& s) {
  SequenceClassifier model = classifier(task, c.mechanism, s);
  AdamW optimizer(decay_groups(model, 0.1), {.lr = s.lr});
  Schedule schedule("constant", {.lr = s.lr, .warmup = 50});
  RunOptions o{.steps = s.steps > 0 ? s.steps : kUntilStopped, .seconds = s.steps > 0 ? 0 : 60 * s.minutes};
  o.seed = s.seed;
  o.evaluation.every = 0;
  o.output.progress = stderr;
  double first = 0, last = 0;
  o.after_step = [&](RunStep& step) {  // the first step allocates, and is not counted
    last = detail::seconds_now();
    if (step.step == 1) first = last;
    c.peak_bytes = std::max(c.peak_bytes, memory_use().peak);
  };
  release_cached_memory();
  reset_peak_memory();
  const RunResult result = run(model, optimizer, schedule, LongRangeBatches(task, s.batch), held_out, o, {},
                               [&](const Batch& b) { return classification_metrics(model(b.inputs), b.targets); });
  c.steps = result.steps;
  if (result.steps > 1) c.sequences_per_second = static_cast<double>((result.steps - 1) * s.batch) / (last - first);
  if (result.interrupted) return false;
  c.loss = result.validation_loss.value(), c.accuracy = result.validation_metrics.at("accuracy");
  return true;
}

std::string cell_json(const Cell& c) {
  nlohmann::ordered_json j = {{"task", c.task}, {"mechanism", c.mechanism}};
  if (!c.error.empty())
    j["error"] = c.error;
  else
    j.update({{"steps", c.steps},
              {"loss", c.loss},
              {"accuracy", c.accuracy},
              {"sequences_per_second", c.sequences_per_second},
              {"peak_bytes", c.peak_bytes}});
  return j.dump();
}

void print_task(const LongRangeTask& task, double majority, const std::vector<Cell>& cells) {
  std::printf("\n%s: %s of up to %lld tokens; always the most common class: %.1f%%\n", task.name.c_str(),
              task.about.c_str(), static_cast<long long>(task.length), 100 * majority);
  std::printf("%-14s %9s %8s %8s %12s %8s\n", "", "accuracy", "loss", "steps", "sequences/s", "MiB");
  for (const Cell& c : cells) {
    if (c.task != task.name) continue;
    if (c.error.empty())
      std::printf("%-14s %8.1f%% %8.3f %8lld %12.1f %8s\n", c.mechanism.c_str(), 100 * c.accuracy, c.loss,
                  static_cast<long long>(c.steps), c.sequences_per_second, mib(c.peak_bytes).c_str());
    else
      std::printf("%-14s %s\n", c.mechanism.c_str(), printable(c.error).c_str());
  }
}

// The accuracies of all tasks, and the cost of the longest, as in the article's table.
void print_summary(const Settings& s, const std::vector<Cell>& cells) {
  std::printf("\n%-14s", "accuracy, %");
  for (const std::string& task : s.tasks) std::printf(" %9s", task.c_str());
  std::printf(" %9s\n", "mean");
  for (const std::string& mechanism : s.mechanisms) {
    std::printf("%-14s", mechanism.c_str());
    double sum = 0;
    bool complete = true;
    for (const std::string& task : s.tasks) {
      const auto c = std::find_if(cells.begin(), cells.end(), [&](const Cell& cell) {
        return cell.task == task && cell.mechanism == mechanism && cell.error.empty();
      });
      complete = complete && c != cells.end();
      if (c == cells.end()) {
        std::printf(" %9s", "-");
        continue;
      }
      sum += 100 * c->accuracy;
      std::printf(" %9.1f", 100 * c->accuracy);
    }
    std::printf(" %9s\n",
                complete ? detail::formatted("%.1f", sum / static_cast<double>(s.tasks.size())).c_str() : "-");
  }
}

// Accuracy against speed, one frame per task.
void draw(const Settings& s, const std::vector<Cell>& cells) {
  std::vector<Frame> frames;
  for (const std::string& task : s.tasks) {
    Frame frame{{task, "sequences per second", "accuracy, %"}, {}};
    for (const Cell& c : cells)
      if (c.task == task && c.error.empty() && c.sequences_per_second > 0)
        frame.series.push_back({c.mechanism, {{c.sequences_per_second, 100 * c.accuracy}}, Series::points_only});
    if (!frame.series.empty()) frames.push_back(std::move(frame));
  }
  if (frames.empty()) return;
  plot_frames(s.plot, frames, false);
  std::fprintf(stderr, "drawn: %s\n", printable(s.plot).c_str());
}

int compare(const Settings& s) {
  set_threads(s.threads);
  check_plot(s.plot);
  detail::LogFile log(s.log);
  std::vector<Cell> cells;
  bool failed = false;
  for (const std::string& name : s.tasks) {
    const LongRangeTask task = long_range_task(name, s.sizes);
    const LongRangeHeldOut held_out(task, s.held_out, std::min<Index>(s.batch, s.held_out), s.seed);
    for (const std::string& mechanism : s.mechanisms) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), mechanism.c_str());
      Cell c{name, mechanism};
      try {
        if (!train(c, task, held_out, s)) return 130;
      } catch (const Error& e) {
        c.error = e.what(), failed = true;
        std::fprintf(stderr, "failed: %s\n", printable(c.error).c_str());
      }
      log.write(cell_json(c));
      cells.push_back(std::move(c));
    }
    print_task(task, held_out.majority(), cells);
    flush_output();
  }
  if (!s.plot.empty()) draw(s, cells);
  print_summary(s, cells);
  flush_output();
  return failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CommandLine line("Compares attention mechanisms on sequences of thousands of tokens", "attention_long_range");
  const std::vector<std::string>& names = mechanism_names(false);
  line.add("--mechanisms", s.mechanisms,
           "Mechanisms, separated by commas: " + choice(names, ", ") + " [" + choice(s.mechanisms, ",") + "]",
           list_of(one_of(names), "LIST"));
  SettingFields options;
  mechanism_fields(options, s.options, names);
  options.add_flags(line);
  line.add("--tasks", s.tasks,
           "listops: nested lists. text: bytes of reviews. retrieval: bytes of two reports. pixels: drawn digits. "
           "path: dashed lines, and whether one connects two dots [all]",
           list_of(one_of(long_range_task_names()), "LIST"));
  line.add("--minutes", s.minutes, "Training time of each mechanism on each task [5]", positive_number());
  line.add("--steps", s.steps, "Training steps instead of a time: the losses depend on the seed only [by --minutes]",
           whole(1));
  line.add("--length", s.sizes.length, "Max tokens of lists and max bytes of texts [2000]", whole(16));
  line.add("--side", s.sizes.side, "Side of an image in pixels [32]", whole(16));
  line.add("--layers", s.layers, "Blocks [2]", whole(1));
  line.add("--heads", s.heads, "Attention heads; must divide the width [4]", whole(1));
  line.add("--width", s.width, "Size of a token's vector [64]", whole(1));
  line.add("--batch", s.batch, "Sequences per batch [16]", whole(1));
  line.add("--held-out", s.held_out, "Sequences to evaluate on [500]", whole(1, 10000000));
  line.add("--lr", s.lr, "Learning rate after 50 steps [1e-3]", positive_number());
  line.add("--seed", s.seed, "Seed of weights and data [1]", seed_number());
  line.add_threads(s.threads);
  line.add("--plot", s.plot, "Picture of accuracy by speed, .svg or .png", file_name("FILE.svg|png", FileRole::output));
  line.add("--log", s.log, "One JSON object per mechanism and task", file_name("FILE", FileRole::log));
  return run_program(line, argc, argv, [&] {
    if (s.width % s.heads != 0)
      throw UsageError("--width is " + std::to_string(s.width) + " and --heads is " + std::to_string(s.heads) +
                       "; heads must divide the width");
    check_mechanism_flags(line, "--mechanisms", s.mechanisms);
    return compare(s);
  });
}
