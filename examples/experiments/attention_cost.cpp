// Compares the cost of attention with the rest of a Transformer layer, counted and measured, and measures generation.
#include <algorithm>
#include <cstdio>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/data/detail/disk.hpp>
#include <heed/data/text.hpp>
#include <heed/plot/plot.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "examples/experiments/cost_measure.hpp"
#include "examples/experiments/generation_cost.hpp"
#include "examples/experiments/linear_forms.hpp"
#include "examples/experiments/median.hpp"
#include "examples/support/program.hpp"
#include "examples/support/settings.hpp"

namespace {

using namespace heed;
using namespace heed::examples;
using Json = nlohmann::ordered_json;

struct Flags {
  LayerShape layer;
  std::vector<Index> lengths = {64, 128, 256, 512, 1024, 2048, 4096, 8192};
  bool forward = false;
  std::string measure = "all", log, plot;
  MeasureOptions options;
  GenerationShape generation;
  std::vector<Index> at = {100, 1000, 10000, 100000};
  int token_repeats = 20, threads = 0;
};

// A log of JSON objects, one per line, each with the number of threads and the instruction set.
class Log {
 public:
  explicit Log(const std::string& file) : lines_(file) {}
  void add(Json entry) {
    entry["threads"] = threads();
    entry["arch"] = arch();
    lines_.write(entry.dump());
  }

 private:
  heed::detail::LogFile lines_;
};

using Values = std::map<Part, std::vector<double>>;  // one value per length

// The measurements of a layer.
struct Layer {
  Values times;   // medians in ms
  Values memory;  // peaks in MiB
};

void print_length(Index n, const Flags& flags, double peak, Layer& layer, Log& log) {
  std::printf("\nn = %lld\n%-14s %14s %12s %9s %10s %6s %10s\n", static_cast<long long>(n), "", "counted, M",
              "median, ms", "of peak", "sequential", "path", "MiB");
  for (Part part : parts_of(flags.layer)) {
    const Measured m = measure(part, n, flags.layer, flags.options);
    const double count = multiplications(part, n, flags.layer), ms = median(m.milliseconds);
    layer.times[part].push_back(ms);
    layer.memory[part].push_back(m.peak_mebibytes);
    // Backward takes two products per product. A multiplication includes an addition, so it counts as two operations.
    const double share = count * 2 * (flags.forward ? 1 : 3) / (ms / 1000) / peak;
    const Index sequential = sequential_operations(part, n);
    const std::optional<Index> path = longest_path(part, n, flags.layer);
    std::printf("%-14s %14.2f %12.4g %8.0f%% %10lld %6s %10.2f\n", name_of(part).c_str(), count / 1e6, ms, 100 * share,
                static_cast<long long>(sequential), path ? std::to_string(*path).c_str() : "-", m.peak_mebibytes);
    flush_output();
    for (std::size_t i = 0; i < m.milliseconds.size(); ++i)
      log.add({{"section", "layer"},
               {"part", name_of(part)},
               {"n", n},
               {"run", i},
               {"ms", m.milliseconds[i]},
               {"peak_mib", m.peak_mebibytes},
               {"multiplications", count},
               {"sequential", sequential},
               {"longest_path", path ? Json(*path) : Json()},
               {"backward", !flags.forward},
               {"causal", flags.layer.causal}});
  }
}

void print_crossovers(const Flags& flags, const Values& times, Log& log) {
  std::printf("\nCrossovers: the first costs more from this n on\n%-52s %12s %18s\n", "", "by count", "by time");
  for (const Comparison& c : comparisons(flags.layer)) {
    const auto counted = [&](const std::vector<Part>& parts) {
      return [&](Index n) { return total(parts, [&](Part p) { return multiplications(p, n, flags.layer); }); };
    };
    const auto measured = [&](const std::vector<Part>& parts) {
      std::vector<double> sums;
      for (std::size_t i = 0; i < flags.lengths.size(); ++i)
        sums.push_back(total(parts, [&](Part p) { return times.at(p)[i]; }));
      return sums;
    };
    const std::optional<Index> by_count = counted_crossover(counted(c.a), counted(c.b));
    const MeasuredCrossover by_time = measured_crossover(flags.lengths, measured(c.a), measured(c.b));
    const std::string count_text = by_count ? std::to_string(*by_count) : "none",
                      time_text = describe(by_time, flags.lengths);
    std::printf("%-52s %12s %18s\n", c.name.c_str(), count_text.c_str(), time_text.c_str());
    log.add({{"section", "crossover"}, {"name", c.name}, {"counted", count_text}, {"measured", time_text}});
  }
  std::printf("By time: interpolated between the medians above, linearly in log n and log ms.\n");
}

// The frames of a layer: counts, times and memory.
std::vector<Frame> frames_of(const Flags& flags, const Layer& layer) {
  const std::string passes = flags.forward ? "forward" : "forward and backward";
  Frame counted{{"Counted, forward", "n", "million multiplications"}, {}};
  Frame measured{{"Measured, " + passes, "n", "ms"}, {}};
  Frame memory{{"Memory of tensors, " + passes, "n", "MiB"}, {}};
  for (Part part : parts_of(flags.layer)) {
    const Series::Style style = part == Part::projections || part == Part::feed_forward || part == Part::no_attention
                                    ? Series::dashed
                                    : Series::line;
    Series count{name_of(part), {}, style}, time = count, peak = count;
    for (std::size_t i = 0; i < flags.lengths.size(); ++i) {
      const auto n = static_cast<double>(flags.lengths[i]);
      count.points.emplace_back(n, multiplications(part, flags.lengths[i], flags.layer) / 1e6);
      time.points.emplace_back(n, layer.times.at(part)[i]);
      peak.points.emplace_back(n, layer.memory.at(part)[i]);
    }
    counted.series.push_back(std::move(count));
    measured.series.push_back(std::move(time));
    memory.series.push_back(std::move(peak));
  }
  return {counted, measured, memory};
}

std::vector<Frame> measure_layer(const Flags& flags, Log& log) {
  const LayerShape& s = flags.layer;
  const double peak = peak_flops();
  std::printf(
      "A layer of %lld heads of %lld, width %lld, FFN %lld; one sequence%s, float32, %s\n"
      "%s, %d threads: peak %.0f GFLOP/s\n"
      "counted: multiplications of products, forward; MiB: peak of tensors, without input and weights\n"
      "window, longformer: %lld keys; favor: %lld features; longformer: one global position\n"
      "strided: l = sqrt(n); lsh: %lld rounds of the %s %lld keys in %lld buckets, the count is an upper bound%s\n"
      "recurrent: a GRU; convolution, dilated: kernel %lld; sequential, path: operations one after another, and layers "
      "or steps between the farthest positions\n",
      static_cast<long long>(s.heads), static_cast<long long>(s.head_size), static_cast<long long>(s.width()),
      static_cast<long long>(s.hidden), s.causal ? ", causal" : "", flags.forward ? "forward" : "forward and backward",
      arch(), threads(), peak / 1e9, static_cast<long long>(s.window), static_cast<long long>(s.favor_features),
      static_cast<long long>(s.lsh_rounds), s.causal ? "last" : "nearest", static_cast<long long>(s.lsh_window),
      static_cast<long long>(s.lsh_buckets),
      s.causal ? "; reformer, linformer and luna are left out"
               : ("\nreformer: as many rounds, chunks of " + std::to_string(s.chunk) + "; linformer: " +
                  std::to_string(s.linformer_rows) + " rows; luna: " + std::to_string(s.luna_memory) + " vectors")
                     .c_str(),
      static_cast<long long>(s.kernel));
  Layer layer;
  for (Index n : flags.lengths) print_length(n, flags, peak, layer, log);
  print_crossovers(flags, layer.times, log);
  return frames_of(flags, layer);
}

// Measures forms of causal attention with the same result. Returns the frames for time and memory. A form that needs
// more than kMaxFormBytes is left out.
constexpr double kMaxFormBytes = 2e9;
std::vector<Frame> measure_forms(const Flags& flags, Log& log) {
  const std::string passes = flags.forward ? "forward" : "forward and backward";
  Frame time{{"Forms of causal attention, " + passes, "n", "ms"}, {}}, memory{{"Memory of the forms", "n", "MiB"}, {}};
  std::printf("\nForms of causal attention, %lld heads of %lld, %s: median ms, and MiB of tensors\n%-20s",
              static_cast<long long>(flags.layer.heads), static_cast<long long>(flags.layer.head_size), passes.c_str(),
              "");
  for (Index n : flags.lengths) std::printf(" %20s", ("n = " + std::to_string(n)).c_str());
  for (const AttentionForm form : attention_forms()) {
    std::printf("\n%-20s", name_of(form).c_str());
    Series times{name_of(form), {}}, peaks = times;
    for (Index n : flags.lengths) {
      if (bytes_of(form, n, flags.layer, !flags.forward) > kMaxFormBytes) {
        std::printf(" %20s", "-");
        continue;
      }
      const Measured m = measure(form, n, flags.layer, flags.options);
      const double ms = median(m.milliseconds);
      std::printf(" %11.4g %8.2f", ms, m.peak_mebibytes);
      flush_output();
      times.points.emplace_back(static_cast<double>(n), ms);
      peaks.points.emplace_back(static_cast<double>(n), m.peak_mebibytes);
      log.add({{"section", "form"},
               {"form", name_of(form)},
               {"n", n},
               {"ms", ms},
               {"peak_mib", m.peak_mebibytes},
               {"backward", !flags.forward}});
    }
    if (times.points.empty()) continue;
    time.series.push_back(std::move(times)), memory.series.push_back(std::move(peaks));
  }
  std::printf("\n");
  return {time, memory};
}

void measure_sequences(const Flags& flags, Log& log) {
  const GenerationShape& s = flags.generation;
  std::printf(
      "\nGenerating %lld positions one by one: %lld layers, %lld heads, width %lld, batch %lld\n"
      "%-18s %12s %14s %10s %18s\n",
      static_cast<long long>(s.positions), static_cast<long long>(s.layers), static_cast<long long>(s.heads),
      static_cast<long long>(s.width), static_cast<long long>(s.batch), "", "seconds", "sequences/s", "ratio",
      "in the paper, GPU");
  double first = 0;
  for (Generating way : {Generating::softmax_uncached, Generating::softmax_cached, Generating::linear}) {
    const double seconds = generate_seconds(way, s), rate = static_cast<double>(s.batch) / seconds;
    if (first == 0) first = rate;
    std::printf("%-18s %12.3f %14.4g %9.1fx %17.1fx\n", name_of(way).c_str(), seconds, rate, rate / first,
                gpu_ratio(way));
    flush_output();
    log.add({{"section", "sequence"},
             {"way", name_of(way)},
             {"positions", s.positions},
             {"batch", s.batch},
             {"seconds", seconds},
             {"sequences_per_second", rate},
             {"ratio", rate / first}});
  }
}

// Measures one more token by position. Returns the frames for time and memory.
std::vector<Frame> measure_tokens(const Flags& flags, Log& log) {
  Frame time{{"One more token", "position", "ms"}, {{"softmax, cache", {}}, {"linear, sums", {}}}};
  Frame memory{{"Memory of the state", "position", "MiB"}, time.series};
  std::printf("\nOne more token, batch 1: median ms, and MiB of the state\n%10s %18s %10s %18s %10s\n", "position",
              "softmax, cache", "MiB", "linear, sums", "MiB");
  const Generating ways[] = {Generating::softmax_cached, Generating::linear};
  for (Index position : flags.at) {
    std::printf("%10lld", static_cast<long long>(position));
    for (std::size_t series = 0; series < 2; ++series) {
      const Generating way = ways[series];
      const TokenCost cost = token_cost(way, position, flags.token_repeats, flags.generation);
      std::printf(" %18.3f %10.2f", median(cost.milliseconds), cost.state_mebibytes);
      time.series[series].points.emplace_back(position, median(cost.milliseconds));
      memory.series[series].points.emplace_back(position, cost.state_mebibytes);
      for (std::size_t i = 0; i < cost.milliseconds.size(); ++i)
        log.add({{"section", "token"},
                 {"way", name_of(way)},
                 {"position", position},
                 {"run", i},
                 {"ms", cost.milliseconds[i]},
                 {"state_mib", cost.state_mebibytes}});
    }
    std::printf("\n");
    flush_output();
  }
  return {time, memory};
}

int run(Flags& flags, const SettingOrigins& origins) {
  set_threads(flags.threads);
  if (flags.layer.hidden == 0) flags.layer.hidden = 4 * flags.layer.width();
  flags.options.backward = !flags.forward;
  flags.generation.seed = flags.options.seed;
  for (std::size_t i = 1; i < flags.lengths.size(); ++i)
    if (flags.lengths[i] <= flags.lengths[i - 1])
      throw UsageError("--lengths has " + std::to_string(flags.lengths[i]) + " after " +
                       std::to_string(flags.lengths[i - 1]) + "; lengths must increase");
  if (flags.generation.width % flags.generation.heads != 0)
    throw UsageError(origins.describe("--generation-width", std::to_string(flags.generation.width)) + " and " +
                     origins.describe("--generation-heads", std::to_string(flags.generation.heads)) +
                     "; heads must divide the width");
  if (flags.layer.kernel % 2 == 0)
    throw UsageError(origins.describe("--kernel", std::to_string(flags.layer.kernel)) + "; it must be odd");
  // The memory needed by one layer, and by the keys and values of all layers of the generated sequence.
  const double width = static_cast<double>(flags.layer.width()), n = static_cast<double>(flags.lengths.back()),
               ffn = static_cast<double>(flags.layer.hidden);
  const bool layer = flags.measure == "layer" || flags.measure == "all",
             generation = flags.measure == "generation" || flags.measure == "all";
  if (layer)
    check_memory("a layer of width " + std::to_string(flags.layer.width()) + " and FFN " +
                     std::to_string(flags.layer.hidden) + " on " + std::to_string(flags.lengths.back()) + " positions",
                 4 * (width * std::max(4 * width, 2 * ffn) + n * std::max(4 * width, ffn)));
  const GenerationShape& g = flags.generation;
  const Index kept = std::max(g.batch * g.positions, *std::max_element(flags.at.begin(), flags.at.end()));
  if (generation)
    check_memory("generating with " + std::to_string(g.layers) + " layers of width " + std::to_string(g.width) +
                     ", up to " + std::to_string(kept) + " positions in total,",
                 4.0 * static_cast<double>(g.layers) * static_cast<double>(g.width) *
                     (12.0 * static_cast<double>(g.width) + 2.0 * static_cast<double>(kept)));
  check_plot(flags.plot);
  Log log(flags.log);
  std::vector<Frame> frames;
  const auto draw = [&] {
    if (!flags.plot.empty()) plot_frames(flags.plot, frames, true);
  };
  if (layer) {
    frames = measure_layer(flags, log);
    draw();  // generation takes minutes: a run stopped there has this picture
  }
  if (flags.measure == "forms") {
    frames = measure_forms(flags, log);
    draw();
  }
  if (generation) {
    measure_sequences(flags, log);
    for (Frame& frame : measure_tokens(flags, log)) frames.push_back(std::move(frame));
    draw();
  }
  if (!flags.plot.empty()) std::printf("drawn: %s\n", printable(flags.plot).c_str());
  return 0;
}

void add_flags(CommandLine& line, Flags& f) {
  constexpr Index kMaxValue = Index{1} << 24;
  const auto counted = [&](const char* name, Index& value, const char* text, Index min = 1) {
    line.add(name, value, text, whole(min, kMaxValue));
  };
  const auto list = [&](const char* name, std::vector<Index>& values, const char* text) {
    line.add(name, values, text, list_of(whole(1, kMaxValue), "N,N..."));
  };
  line.group("Layer, by default that of BERT-base");
  list("--lengths", f.lengths, "Lengths of the sequence, increasing [64,128,256,512,1024,2048,4096,8192]");
  counted("--heads", f.layer.heads, "Attention heads [12]");
  counted("--head-size", f.layer.head_size, "Size of a head [64]");
  counted("--window", f.layer.window, "Keys per query of window and longformer [256]");
  counted("--favor-features", f.layer.favor_features, "Random features of favor [256]");
  counted("--kernel", f.layer.kernel, "Positions that a convolution reads; odd [3]");
  counted("--ffn", f.layer.hidden, "Size of the feed-forward part; 0: four times the width [3072]", 0);
  line.add_switch("--causal", f.layer.causal,
                  "Causal attention; leaves out reformer, linformer and luna, as their forms here are for encoders");
  line.add_switch("--forward", f.forward, "Measure the forward pass only [forward and backward]");
  line.add("--repeats", f.options.repeats, "Timed runs of each part [5]", whole(1, 1000));
  line.group("Generation");
  counted("--positions", f.generation.positions,
          "Positions to generate one by one [784, the pixels of an MNIST image]");
  counted("--batch", f.generation.batch, "Sequences per batch [1]");
  counted("--generation-layers", f.generation.layers, "Layers of the model [8]");
  counted("--generation-heads", f.generation.heads, "Heads of the model [8]");
  counted("--generation-width", f.generation.width, "Width of the model [256]");
  list("--at", f.at, "Positions at which one more token is timed [100,1000,10000,100000]");
  line.add("--token-repeats", f.token_repeats, "Timed tokens per position [20]", whole(1, 100000));
  line.group("Layer and generation");
  line.add(
      "--measure", f.measure,
      "What to run: layer; generation; all, which is both; or forms, causal attention in chunks, by cumulative sums, "
      "by recurrence and with all weights in memory [all]",
      one_of({"layer", "generation", "all", "forms"}));
  line.add("--plot", f.plot, "Picture of counts, times and memory, .svg or .png",
           file_name("FILE.svg|png", FileRole::output));
  line.add_threads(f.threads);
  line.add("--seed", f.options.seed, "Seed of inputs, weights and samples [1]", seed_number());
  line.add("--log", f.log, "One JSON object per measurement", file_name("FILE.jsonl", FileRole::log));
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CommandLine line("Measures the cost of attention in a Transformer layer and in generation", "attention_cost");
  add_flags(line, flags);
  return run_program(line, argc, argv, [&] { return run(flags, line); });
}
