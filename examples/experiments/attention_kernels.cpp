// Measures how close the weights of other kernels are to those of softmax attention, for random queries and keys.
//
//   attention_kernels --plot kernels.svg            distances by the spread of the scores
//   attention_kernels --reference cosine            distances to softmax of cosines, which Taylor's series expands
//   attention_kernels --weights weights.svg         draws the weights of each causal mechanism, and measures nothing
//
// The distance of two rows of weights is the sum of |w - w'| over the keys: 0 for equal rows, 2 for rows without a
// common key. Elements of queries and keys are normal numbers. Their spread is chosen so that the scores q.k / sqrt(D)
// have the standard deviations in the table.
#include <cmath>
#include <cstdio>
#include <heed/data/detail/disk.hpp>
#include <heed/heed.hpp>
#include <heed/plot/plot.hpp>
#include <nlohmann/json.hpp>

#include "examples/support/program.hpp"

using namespace heed;
using namespace heed::examples;

namespace {

constexpr double kSpreads[] = {0.25, 0.5, 1, 2, 4};  // standard deviations of the scores

struct KernelFlags {
  Index size = 64, length = 256, draws = 20;
  std::string reference = "softmax", plot, weights, log;
  std::uint64_t seed = 1;
  int threads = 0;
};

// A mechanism by its name, with options, under a name of its own.
struct Kernel {
  std::string name, mechanism;
  MechanismOptions options = {};
};

std::vector<Kernel> kernels() {
  std::vector<Kernel> all;
  for (const char* map : {"elu", "relu", "softplus", "exp", "poly2"})
    all.push_back({std::string("linear ") + map, "linear", {.feature_map = map}});
  all.push_back({"linear elu 0.2", "linear", {.elu_alpha = 0.2}});
  for (const char* name : {"taylor", "efficient", "favor", "cosine", "rbf"}) all.push_back({name, name});
  for (const Index degree : {2, 4, 8})
    all.push_back({"polynomial " + std::to_string(degree), "polynomial", {.degree = degree}});
  return all;
}

// The weights [n, n] of one head; queries see all keys.
Tensor weights_of(const Kernel& kernel, const Tensor& q, const Tensor& k, std::uint64_t seed) {
  MechanismOptions options = kernel.options;
  options.causal = false, options.heads = 1, options.head_size = q.dim(3), options.context = q.dim(2);
  options.seed = seed;
  Rng rng(seed);
  return mechanism_by_name(kernel.mechanism, options)(0, rng).weights(q, k, {}).select(0, 0).select(0, 0);
}

// ---- Picture of the weights ----

constexpr Index kPositions = 32, kWords = 8, kColumns = 7;

// Vectors of a text of 32 positions with 8 different words, [1, 1, positions, size]. Equal words have nearly equal
// vectors, so that their product is large.
Tensor words(Rng& rng, Index size) {
  const Tensor vectors = rng.normal({kWords, size});
  const Tensor text = embedding(rng.integers({kPositions}, 0, kWords), vectors) + 0.2 * rng.normal({kPositions, size});
  return text.reshape({1, 1, kPositions, size});
}

// The weights of a mechanism for this text, with NaN where a query may not see a key, divided by the largest of all.
MatrixPanel panel_of(const std::string& name, const AttentionMechanism& mechanism, const Tensor& text) {
  const Tensor w = mechanism.weights(text, text, {.causal = true}).select(0, 0).select(0, 0);
  const double largest = max(w).item();
  MatrixPanel panel{name, {}};
  for (Index i = 0; i < kPositions; ++i) {
    panel.values.push_back((w[i] / largest).to_vector<double>());
    for (Index j = i + 1; j < kPositions; ++j) panel.values.back()[static_cast<std::size_t>(j)] = NAN;
  }
  return panel;
}

void draw_weights(const KernelFlags& f) {
  Rng rng(f.seed);
  const Tensor text = words(rng, 16);
  MechanismOptions options;
  options.causal = true, options.heads = 1, options.head_size = 16, options.context = kPositions, options.window = 6;
  options.seed = f.seed;
  std::vector<std::vector<MatrixPanel>> panels;
  for (const std::string& name : mechanism_names()) {
    const AttentionMechanism mechanism = mechanism_by_name(name, options)(0, rng);
    if (!mechanism.capabilities().weights || !mechanism.inputs().empty()) continue;
    if (panels.empty() || panels.back().size() == kColumns) panels.emplace_back();
    panels.back().push_back(panel_of(name, mechanism, text));
  }
  MatrixLabels labels{.title = "Weights of 32 words: rows are queries, columns are keys"};
  labels.rows.resize(kPositions), labels.columns.resize(kPositions);
  plot_matrices(f.weights, labels, panels);
  std::fprintf(stderr, "drawn: %s\n", printable(f.weights).c_str());
}

// ---- Distances ----

// A mean over draws, and the standard error of the mean.
struct Distance {
  double mean = 0, error = 0;
};

Distance distance_of(const std::vector<double>& draws) {
  const auto n = static_cast<double>(draws.size());
  double sum = 0, squares = 0;
  for (const double x : draws) sum += x;
  for (const double x : draws) squares += (x - sum / n) * (x - sum / n);
  return {sum / n, n > 1 ? std::sqrt(squares / (n - 1) / n) : 0};
}

// One list of draws per kernel; the last is of equal weights.
std::vector<Distance> distances(const std::vector<Kernel>& all, double spread, const KernelFlags& f) {
  std::vector<std::vector<double>> draws(all.size() + 1);
  const auto n = static_cast<double>(f.length);
  for (Index draw = 0; draw < f.draws; ++draw) {
    Rng rng(f.seed, static_cast<std::uint64_t>(draw));
    const Shape shape = {1, 1, f.length, f.size};
    const Tensor q = rng.normal(shape, 0, std::sqrt(spread)), k = rng.normal(shape, 0, std::sqrt(spread));
    const std::uint64_t seed = f.seed + static_cast<std::uint64_t>(draw);
    const Tensor reference = weights_of({f.reference, f.reference}, q, k, seed);
    const auto add = [&](std::size_t i, const Tensor& w) { draws[i].push_back(sum(abs(w - reference)).item() / n); };
    for (std::size_t i = 0; i < all.size(); ++i) add(i, weights_of(all[i], q, k, seed));
    add(all.size(), Tensor::full({f.length, f.length}, 1 / n));
  }
  std::vector<Distance> means;
  for (const std::vector<double>& of_kernel : draws) means.push_back(distance_of(of_kernel));
  return means;
}

using DistanceTable = std::vector<std::vector<Distance>>;  // [spreads][names]

void print_table(const KernelFlags& f, const std::vector<std::string>& names, const DistanceTable& table) {
  std::printf(
      "L1 distance to the weights of %s: mean of %lld draws of %lld queries and keys of size %lld, +- standard error\n"
      "%-16s",
      f.reference.c_str(), static_cast<long long>(f.draws), static_cast<long long>(f.length),
      static_cast<long long>(f.size), "spread of scores");
  for (const double spread : kSpreads) std::printf("%17g", spread);
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::printf("\n%-16s", names[i].c_str());
    for (const std::vector<Distance>& row : table) std::printf("%8.3f +- %5.3f", row[i].mean, row[i].error);
  }
  std::printf("\n");
}

void draw_table(const KernelFlags& f, const std::vector<std::string>& names, const DistanceTable& table) {
  std::vector<Series> lines;
  for (std::size_t i = 0; i < names.size(); ++i) {
    lines.push_back({names[i], {}, i + 1 == names.size() ? Series::dashed : Series::line});
    for (std::size_t s = 0; s < table.size(); ++s) lines.back().points.emplace_back(kSpreads[s], table[s][i].mean);
  }
  plot(f.plot, {"Closeness of kernels to " + f.reference, "spread of scores", "L1 distance of weights"}, lines,
       {.log_x = true, .names_outside = true});
}

int measure(const KernelFlags& f) {
  set_threads(f.threads);
  check_plot(f.plot), check_plot(f.weights);
  heed::detail::LogFile log(f.log);
  const NoTape off;
  const Evaluation evaluation;
  if (!f.weights.empty()) {
    for (const auto& [flag, file] : {std::pair("--plot", f.plot), std::pair("--log", f.log)})
      if (!file.empty()) throw UsageError(std::string(flag) + " is given with --weights, which measures nothing");
    draw_weights(f);
    return 0;
  }
  const std::vector<Kernel> all = kernels();
  std::vector<std::string> names;
  for (const Kernel& kernel : all) names.push_back(kernel.name);
  names.emplace_back("equal weights");
  DistanceTable table;
  for (const double spread : kSpreads) {
    table.push_back(distances(all, spread, f));
    for (std::size_t i = 0; i < names.size(); ++i)
      log.write(nlohmann::ordered_json{{"kernel", names[i]},
                                       {"reference", f.reference},
                                       {"spread", spread},
                                       {"distance", table.back()[i].mean},
                                       {"error", table.back()[i].error}}
                    .dump());
  }
  print_table(f, names, table);
  if (!f.plot.empty()) draw_table(f, names, table);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line("Measures how close the weights of other kernels are to those of softmax attention",
                   "attention_kernels");
  KernelFlags f;
  line.add("--reference", f.reference, "Weights to compare with: of q.k / sqrt(D), or of cosines [softmax]",
           one_of({"softmax", "cosine"}));
  line.add("--size", f.size, "Size of queries and keys [64]", whole(1, 4096));
  line.add("--length", f.length, "Queries and keys per draw [256]", whole(1, 4096));
  line.add("--draws", f.draws, "Random draws [20]", whole(1, 10000));
  line.add("--plot", f.plot, "Picture of the table, .svg or .png", file_name("FILE.svg|png", FileRole::output));
  line.add("--weights", f.weights,
           "Picture of the weights of each causal mechanism, .svg or .png, instead of the table",
           file_name("FILE.svg|png", FileRole::output));
  line.add("--log", f.log, "One JSON object per kernel and spread", file_name("FILE.jsonl", FileRole::log));
  line.add("--seed", f.seed, "Seed of queries, keys and random features [1]", seed_number());
  line.add_threads(f.threads);
  return run_program(line, argc, argv, [&] { return measure(f); });
}
