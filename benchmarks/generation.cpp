// Generation of text by a GPT, token by token: the time per step, compared with the time to read the same weights
// without computing, measured in turn. Same model sizes as benchmarks/peers/generation_llama_cpp.py.
//
//   bench_generation [85m|gpt2] [--threads N] [--dtype f32|bf16] [--rows N]
//
// Each row generates 200 tokens after a prompt of 28, greedily, so a step attends to 128 positions on average.
#include <cstdint>
#include <cstdio>
#include <heed/heed.hpp>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

constexpr Index kPrompt = 28, kTokens = 200;

struct Config {
  const char* name;
  Index vocabulary;
  const char* what;
};
constexpr Config kConfigs[] = {{"85m", 287, "85M parameters"}, {"gpt2", 50257, "GPT-2, 124M parameters"}};

// The weights that a step reads: all except the table of positions, from which a step reads one row.
std::vector<std::span<const char>> weights_of(GPT& model) {
  std::vector<std::span<const char>> weights;
  for (const NamedParameter& p : named_parameters(model))
    if (p.name != "positions.weight")
      weights.emplace_back(static_cast<const char*>(p.parameter->raw()),
                           static_cast<std::size_t>(p.parameter->numel()) * size_of(p.parameter->dtype()));
  return weights;
}

std::vector<std::vector<std::int32_t>> prompts_of(Index rows, Index vocabulary) {
  Rng rng(3);
  std::vector<std::vector<std::int32_t>> prompts;
  for (Index i = 0; i < rows; ++i) prompts.push_back(rng.integers({kPrompt}, 0, vocabulary).to_vector<std::int32_t>());
  return prompts;
}

// Seconds per step (one token per row), for the prompts, and for reading the weights.
struct Times {
  std::vector<double> step, prompt, read;
};

void add_times(Times& times, GPT& model, Index rows) {
  const auto prompts = prompts_of(rows, model.options().vocabulary);
  std::vector<double> at;
  const double start = benchmarks::seconds();
  generate(model, prompts,
           {.count = kTokens, .sampling = {.temperature = 0}, .on_token = [&](Index row, std::int32_t) {
              if (row == 0) at.push_back(benchmarks::seconds());
              return true;
            }});
  times.prompt.push_back(at[0] - start);
  for (std::size_t i = 1; i < at.size(); ++i) times.step.push_back(at[i] - at[i - 1]);
  const auto weights = weights_of(model);
  for (int i = 0; i < 20; ++i) times.read.push_back(benchmarks::read_seconds(threads(), weights));
}

void measure(const Config& c, DType type, const std::vector<Index>& rows) {
  Rng rng(0);
  GPT model(
      {.vocabulary = c.vocabulary, .context = 512, .blocks = {.layers = 12, .attention = {.width = 768, .heads = 12}}},
      rng);
  if (type == DType::bfloat16) to(model, type);
  double bytes = 0, one = 0;
  for (const std::span<const char> w : weights_of(model)) bytes += static_cast<double>(w.size());
  for (const Index n : rows) {
    Times warm_up, times;
    add_times(warm_up, model, n);
    for (int i = 0; i < 3; ++i) add_times(times, model, n);
    const double step = benchmarks::median(times.step), read = benchmarks::median(times.read),
                 rate = static_cast<double>(n) / step;
    if (n == 1) one = rate;
    std::printf("heed %s, %s, %d threads, %s, %ld rows: %.2f ms per step, %.1f tokens/s", c.what,
                type == DType::bfloat16 ? "bf16" : "f32", threads(), arch(), long{n}, step * 1e3, rate);
    if (n > 1 && one > 0) std::printf(" = %.2f times the rate of one row", rate / one);
    std::printf(
        "; reading the weights takes %.2f ms (%.1f GB/s), %.0f%% of a step; %.1f ms for prompts of %ld tokens\n",
        read * 1e3, bytes / read / 1e9, 100 * read / step, benchmarks::median(times.prompt) * 1e3, long{kPrompt});
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string name = "85m", dtype;
  std::vector<Index> rows = {1, 8};
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--threads" && i + 1 < argc)
      set_threads(std::stoi(argv[++i]));
    else if (a == "--dtype" && i + 1 < argc)
      dtype = argv[++i];
    else if (a == "--rows" && i + 1 < argc)
      rows = {std::stoi(argv[++i])};
    else
      name = a;
  }
  for (const Config& c : kConfigs) {
    if (c.name != name) continue;
    for (const DType type : {DType::float32, DType::bfloat16})
      if (dtype.empty() || (dtype == "bf16") == (type == DType::bfloat16)) measure(c, type, rows);
    return 0;
  }
  std::fprintf(stderr, "bench_generation: unknown configuration '%s'; it must be 85m or gpt2\n", name.c_str());
  return 2;
}
