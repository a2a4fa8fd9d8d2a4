// Growth of the cost of a training step (forward, backward, AdamW; float32), counted and measured: tables by width,
// context (with softmax and with linear attention), batch, vocabulary and threads. Also the largest GPT that trains in
// 2, 8 and 20 GiB, counted, and checked against a measured step. docs/performance.md shows the tables.
//
//   bench_scaling [width|context|batch|vocabulary|threads|memory [ROW ...]] [--threads N]
//
// Each ROW is a number in the first column of the table (`width 512`, `memory 8`): only these rows are measured. The
// memory table without ROWs measures only 2 GiB; a step of the larger rows takes up to a minute and the counted memory.
//
// Operations are counted as in GPT::flops_per_token, 6 per weight, except that softmax attention counts only the pairs
// that the causal mask allows. Memory is the peak memory of tensors, including parameters, gradients and AdamW's state.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <heed/heed.hpp>
#include <string>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

constexpr double kMiB = 1048576, kGiB = 1024 * kMiB;

struct Step {
  double seconds, flops, bytes;
  double cores[2];  // round trip between cores in seconds, before and after the measurement
};

Tensor loss_of(const GPT& model, const Tensor& x, const Tensor& y, bool recomputed) {
  if (!recomputed) return model.loss(x, y);
  Tensor h = (*model.input.tokens)(x) + (*model.input.positions)(x.dim(1));
  for (const TransformerBlock& block : model.transformer.blocks)
    h = recompute([&block](const std::vector<Tensor>& in) { return block(in[0]); }, {h});
  return linear_cross_entropy((*model.transformer.norm)(h), model.input.tokens->weight, Tensor(), y);
}

// Measures a step of a GPT on `batch` random texts of full context: the median of runs for about `budget` seconds, at
// least one, after an uncounted run. With a budget of 0, only the first run is measured.
Step measure(const GPTOptions& o, Index batch, double budget, const MechanismFactory& mechanism = softmax_mechanism,
             bool recomputed = false) {
  Rng rng(0);
  reset_peak_memory();
  GPT model(o, rng, mechanism);
  AdamW optimizer(named_parameters(model), {.lr = 3e-4});
  const Tensor x = rng.integers({batch, o.context}, 0, o.vocabulary),
               y = rng.integers({batch, o.context}, 0, o.vocabulary);
  const auto step = [&] {
    const double start = benchmarks::seconds();
    {
      Tape tape;
      tape.backward(loss_of(model, x, y, recomputed));
    }
    optimizer.step();
    optimizer.zero_grad();
    return benchmarks::seconds() - start;
  };
  std::vector<double> times = {step()};  // also allocates the memory
  if (budget > 0) times.clear();
  const double before = benchmarks::core_to_core(threads());
  for (const double start = benchmarks::seconds(); times.empty() || benchmarks::seconds() - start < budget;)
    times.push_back(step());
  double flops = model.flops_per_token(o.context);
  const auto context = static_cast<double>(o.context), width = static_cast<double>(o.blocks.attention.width);
  if (model.transformer.blocks[0].attention.mechanism.keys_per_query(o.context, o.blocks.attention.head_size()) ==
      context)
    flops -= 6 * static_cast<double>(o.blocks.layers) * 2 * width * (context - 1) / 2;
  return {benchmarks::median(times),
          flops * static_cast<double>(batch * o.context),
          static_cast<double>(memory_use().peak),
          {before, benchmarks::core_to_core(threads())}};
}

using Rows = std::vector<Index>;

// The requested rows, or all.
Rows chosen(const Rows& sizes, const Rows& all) { return sizes.empty() ? all : sizes; }

void head(const char* title, const char* first) {
  std::printf("\n%s\n%12s%12s%14s%16s%16s%16s%14s%20s\n", title, first, "ms", "us per token", "GFLOP per step",
              "GFLOP/s", "% of peak", "MiB", "core to core, ns");
}

void row(Index first, const Step& s, Index tokens, double peak) {
  std::printf("%12ld%12.2f%14.2f%16.2f%16.1f%16.0f%14.0f%13.0f,%6.0f\n", long{first}, s.seconds * 1e3,
              s.seconds * 1e6 / static_cast<double>(tokens), s.flops / 1e9, s.flops / s.seconds / 1e9,
              100 * s.flops / s.seconds / peak, s.bytes / kMiB, s.cores[0] * 1e9, s.cores[1] * 1e9);
  std::fflush(stdout);
  release_cached_memory();
}

void by_width(const Rows& sizes, double peak) {
  head("Width: 2 layers, heads of 64, vocabulary 256, 4 texts of 128 tokens", "width");
  for (const Index width : chosen(sizes, {128, 256, 512, 1024, 2048}))
    row(width,
        measure({.vocabulary = 256,
                 .context = 128,
                 .blocks = {.layers = 2, .attention = {.width = width, .heads = width / 64}}},
                4, 1.5),
        512, peak);
}

// Both attentions per context, since longer tables of angles stay in memory for shorter texts.
void by_context(const Rows& sizes, double peak) {
  head("Context: one layer of width 128, 2 heads of 64, one text; softmax attention, then linear attention", "context");
  for (const Index context : chosen(sizes, {64, 256, 1024, 4096, 16384, 65536}))
    for (const char* name : {"softmax", "linear"}) {
      GPTOptions o{
          .vocabulary = 256, .context = context, .blocks = {.layers = 1, .attention = {.width = 128, .heads = 2}}};
      o.positions = PositionKind::rope;
      const MechanismFactory mechanism = mechanism_by_name(
          name, {.heads = o.blocks.attention.heads, .head_size = o.blocks.attention.head_size(), .context = context});
      row(context, measure(o, 1, 1, mechanism), context, peak);
    }
}

void by_batch(const Rows& sizes, double peak) {
  head("Batch: 4 layers of width 128, vocabulary 65, texts of 64 tokens", "texts");
  for (const Index batch : chosen(sizes, {1, 4, 16, 64, 256}))
    row(batch,
        measure({.vocabulary = 65, .context = 64, .blocks = {.layers = 4, .attention = {.width = 128, .heads = 4}}},
                batch, 1),
        batch * 64, peak);
}

void by_vocabulary(const Rows& sizes, double peak) {
  head("Vocabulary: 2 layers of width 256, 8 texts of 128 tokens", "vocabulary");
  for (const Index vocabulary : chosen(sizes, {256, 4096, 16384, 50257, 131072}))
    row(vocabulary,
        measure({.vocabulary = vocabulary,
                 .context = 128,
                 .blocks = {.layers = 2, .attention = {.width = 256, .heads = 4}}},
                8, 1.5),
        1024, peak);
}

void by_threads(const Rows& sizes) {
  const int max_threads = threads();
  Rows powers;
  for (int n = 1; n < max_threads; n *= 2) powers.push_back(n);
  powers.push_back(max_threads);
  const struct {
    const char* name;
    GPTOptions options;
    Index batch;
  } cases[] = {
      {"nano", {.vocabulary = 65, .context = 64, .blocks = {.layers = 4, .attention = {.width = 128, .heads = 4}}}, 12},
      {"baby",
       {.vocabulary = 65, .context = 256, .blocks = {.layers = 6, .attention = {.width = 384, .heads = 6}}},
       16},
      {"gpt2",
       {.vocabulary = 50257, .context = 64, .blocks = {.layers = 12, .attention = {.width = 768, .heads = 12}}},
       4}};
  std::printf("\nThreads: ms per step, times faster than one thread, and core to core and back\n%12s", "threads");
  for (const auto& c : cases) std::printf("%20s", c.name);
  double one[std::size(cases)] = {};
  for (const Index n : chosen(sizes, powers)) {
    set_threads(static_cast<int>(n));
    std::printf("\n%12ld", long{n});
    for (std::size_t i = 0; i < std::size(cases); ++i) {
      const Step step = measure(cases[i].options, cases[i].batch, 1.5);
      const double seconds = step.seconds;
      if (n == 1) one[i] = seconds;
      std::printf("%12.1f", seconds * 1e3);
      if (one[i] > 0) std::printf(" %6.2fx", one[i] / seconds);
      if (n > 1) std::printf(" %5.0f,%4.0f ns", step.cores[0] * 1e9, step.cores[1] * 1e9);
      std::fflush(stdout);
      release_cached_memory();
    }
  }
  std::printf("\n");
}

// The bytes that a float32 step of a GPT holds at once: P parameters with gradients and AdamW's two means (16 P), and
// per token the tensors saved for backward.
// - A block of width C saves 12 C numbers per token: its input and the sum after attention (2), the results of both
//   norms (2), queries, keys and values (3), the result of attention (1), the hidden part of the feed-forward network
//   before the activation (4).
// - With recomputation a block saves only its input, and one block at a time has all 12.
// - In addition there are the gradients of one block's feed-forward network (9), the input and the result of the final
//   norm (2), a chunk of logits (64 MiB), and the output weights in the layout that the product reads.
double bytes_of(const GPTOptions& o, Index tokens, bool recomputed) {
  const auto c = static_cast<double>(o.blocks.attention.width), layers = static_cast<double>(o.blocks.layers),
             vocabulary = static_cast<double>(o.vocabulary), context = static_cast<double>(o.context);
  const double parameters = layers * (12 * c * c + 13 * c) + (vocabulary + context + 2) * c;
  const double numbers = recomputed ? layers + 12 : 12 * layers;
  const double head = std::min(static_cast<double>(tokens) * vocabulary, double{1 << 24}) + vocabulary * c;
  return 16 * parameters + 4 * static_cast<double>(tokens) * c * (numbers + 9 + 2) + (tokens > 0 ? 4 * head : 0);
}

GPTOptions gpt_of_width(Index width) {
  return {.vocabulary = 50257,
          .context = 1024,
          .blocks = {.layers = width / 64, .attention = {.width = width, .heads = width / 64}}};
}

double parameters_of(const GPTOptions& o) { return bytes_of(o, 0, false) / 16; }

void by_memory(const Rows& sizes) {
  std::printf(
      "\nThe largest GPT of GPT-2's shape (width / 64 layers and heads, vocabulary 50257) that fits, with a "
      "step on one text of 1024 tokens\n%12s%14s%12s%12s%16s%16s%16s\n",
      "GiB", "recomputed", "width", "layers", "parameters", "GiB counted", "GiB measured");
  for (const Index row : chosen(sizes, {2, 8, 20}))
    for (const bool recomputed : {false, true}) {
      const auto gibibytes = static_cast<double>(row);
      Index width = 64;
      while (bytes_of(gpt_of_width(width + 64), 1024, recomputed) <= gibibytes * kGiB) width += 64;
      const GPTOptions o = gpt_of_width(width);
      std::printf("%12.0f%14s%12ld%12ld%15.0fM%16.2f", gibibytes, recomputed ? "yes" : "no", long{width},
                  long{o.blocks.layers}, parameters_of(o) / 1e6, bytes_of(o, 1024, recomputed) / kGiB);
      std::fflush(stdout);
      if (!sizes.empty() || row < 8) {
        std::printf("%16.2f", measure(o, 1, 0, softmax_mechanism, recomputed).bytes / kGiB);
        release_cached_memory();
      }
      std::printf("\n");
    }
}

}  // namespace

int main(int argc, char** argv) {
  std::string only;
  Rows sizes;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--threads" && i + 1 < argc) {
      set_threads(std::stoi(argv[++i]));
    } else if (only.empty()) {
      only = a;
    } else {
      sizes.push_back(std::atol(argv[i]));
      if (sizes.back() > 0) continue;
      std::fprintf(stderr, "bench_scaling: row '%s'; it must be a positive number from the first column of the table\n",
                   argv[i]);
      return 2;
    }
  }
  const double peak = benchmarks::peak_flops(DType::float32, threads());
  std::printf("%s, float32, %d threads: peak %.0f GFLOP/s\n", arch(), threads(), peak / 1e9);
  bool any = false;
  const auto selected = [&](const char* name) {
    const bool yes = only.empty() || only == name;
    any = any || yes;
    return yes;
  };
  if (selected("width")) by_width(sizes, peak);
  if (selected("context")) by_context(sizes, peak);
  if (selected("batch")) by_batch(sizes, peak);
  if (selected("vocabulary")) by_vocabulary(sizes, peak);
  if (selected("threads")) by_threads(sizes);
  if (selected("memory")) by_memory(sizes);
  if (any) return 0;
  std::fprintf(stderr,
               "bench_scaling: unknown table '%s'; it must be width, context, batch, vocabulary, threads or memory\n",
               only.c_str());
  return 2;
}
