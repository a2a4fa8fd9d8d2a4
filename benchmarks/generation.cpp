// Text from a GPT, token by token: what a token costs, and the share of the memory's bandwidth that its weights take.
// The same size as benchmarks/peers/generation_llama_cpp.py.
//
//   bench_generation [85m|gpt2] [--threads N] [--dtype f32|bf16] [--rows N]
//
// A row writes 200 tokens behind a prompt of 28, greedily: it sees 128 positions on average.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <heed/heed.hpp>
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

// Bytes of weights that a token reads: all but the tables of embeddings, of which it reads a row, and the output's.
double weight_bytes(GPT& model) {
  double bytes = 0;
  for (const NamedParameter& p : named_parameters(model))
    if (p.name != "positions.weight")
      bytes += static_cast<double>(p.parameter->numel()) * static_cast<double>(size_of(p.parameter->dtype()));
  return bytes;
}

std::vector<std::vector<std::int32_t>> prompts_of(Index rows, Index vocabulary) {
  Rng rng(3);
  std::vector<std::vector<std::int32_t>> prompts;
  for (Index i = 0; i < rows; ++i) prompts.push_back(rng.integers({kPrompt}, 0, vocabulary).to_vector<std::int32_t>());
  return prompts;
}

// Median seconds of a step, in which each row writes a token, and of the prompts.
struct Times {
  double step, prompt;
};

Times times_of(const GPT& model, Index rows) {
  const auto prompts = prompts_of(rows, model.options().vocabulary);
  std::vector<double> at;
  const double start = benchmarks::seconds();
  generate(model, prompts,
           {.count = kTokens, .sampling = {.temperature = 0}, .on_token = [&](Index row, std::int32_t) {
              if (row == 0) at.push_back(benchmarks::seconds());
              return true;
            }});
  std::vector<double> steps;
  for (std::size_t i = 1; i < at.size(); ++i) steps.push_back(at[i] - at[i - 1]);
  std::nth_element(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2), steps.end());
  return {steps[steps.size() / 2], at[0] - start};
}

void measure(const Config& c, DType type, const std::vector<Index>& rows) {
  Rng rng(0);
  GPT model({.vocabulary = c.vocabulary, .context = 512, .layers = 12, .heads = 12, .width = 768}, rng);
  if (type == DType::bfloat16) to(model, type);
  double one = 0;
  for (const Index n : rows) {
    times_of(model, n);
    const Times t = times_of(model, n);
    const double bandwidth = benchmarks::read_bandwidth(threads()), rate = static_cast<double>(n) / t.step;
    if (n == 1) one = rate;
    std::printf("heed %s, %s, %d threads, %s, %ld rows: %.2f ms a step, %.1f tokens/s", c.what,
                type == DType::bfloat16 ? "bf16" : "f32", threads(), arch(), long{n}, t.step * 1e3, rate);
    if (n > 1 && one > 0) std::printf(" = %.2f times those of one row", rate / one);
    std::printf(", %.0f%% of the %.1f GB/s that this machine reads; %.1f ms for prompts of %ld tokens\n",
                100 * weight_bytes(model) / t.step / bandwidth, bandwidth / 1e9, t.prompt * 1e3, long{kPrompt});
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
