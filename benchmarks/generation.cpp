// Generation of text by a GPT, token by token: the time per step, compared with the time to read the same weights
// without computing, measured in turn. Same model sizes as benchmarks/peers/generation_llama_cpp.py.
//
//   bench_generation [85m|gpt2] [--threads N] [--dtype f32|bf16] [--rows N]
//   bench_generation --model PATH [--threads N] [--dtype f32|bf16|q8_0|stored] [--rows N] [--prompt N]
//
// Each row generates 200 tokens after a prompt of 28, greedily, so a step attends to 128 positions on average. A
// published model begins with a prompt of 206 tokens; its time per token of the prompt is shown, too.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <heed/heed.hpp>
#include <heed/io/pretrained.hpp>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

constexpr Index kTokens = 200;

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
      weights.emplace_back(static_cast<const char*>(p.parameter->memory()),
                           bytes_of(p.parameter->dtype(), p.parameter->numel()));
  return weights;
}

std::vector<std::vector<std::int32_t>> prompts_of(Index rows, Index length, Index vocabulary) {
  Rng rng(3);
  std::vector<std::vector<std::int32_t>> prompts;
  for (Index i = 0; i < rows; ++i) prompts.push_back(rng.integers({length}, 0, vocabulary).to_vector<std::int32_t>());
  return prompts;
}

// Seconds per step (one token per row), for the prompts, and for reading the weights.
struct Times {
  std::vector<double> step, prompt, read;
};

void add_times(Times& times, GPT& model, Index rows, Index prompt) {
  const auto prompts = prompts_of(rows, prompt, model.options().vocabulary);
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

// A model, its name and the name of the type of its weights.
struct Named {
  GPT& model;
  std::string what, type;
};

void measure(const Named& m, const std::vector<Index>& rows, Index prompt) {
  double bytes = 0, one = 0;
  for (const std::span<const char> w : weights_of(m.model)) bytes += static_cast<double>(w.size());
  for (const Index n : rows) {
    Times warm_up, times;
    add_times(warm_up, m.model, n, prompt);
    for (int i = 0; i < 3; ++i) add_times(times, m.model, n, prompt);
    const double step = benchmarks::median(times.step), read = benchmarks::median(times.read),
                 rate = static_cast<double>(n) / step, first = benchmarks::median(times.prompt);
    if (n == 1) one = rate;
    std::printf("heed %s, %s, %d threads, %s, %ld rows: %.2f ms per step, %.1f tokens/s", m.what.c_str(),
                m.type.c_str(), threads(), arch(), long{n}, step * 1e3, rate);
    if (n > 1 && one > 0) std::printf(" = %.2f times the rate of one row", rate / one);
    std::printf(
        "; reading the weights takes %.2f ms (%.1f GB/s), %.0f%% of a step; %.1f ms for prompts of %ld tokens, "
        "%.2f ms per token\n",
        read * 1e3, bytes / read / 1e9, 100 * read / step, first * 1e3, long{prompt},
        first * 1e3 / static_cast<double>(n * prompt));
    std::fflush(stdout);
  }
}

// A model of random weights.
void measure(const Config& c, const std::string& dtype, const std::vector<Index>& rows) {
  Rng rng(0);
  GPT model(
      {.vocabulary = c.vocabulary, .context = 512, .blocks = {.layers = 12, .attention = {.width = 768, .heads = 12}}},
      rng);
  if (dtype == "bf16") to(model, DType::bfloat16);
  measure({model, c.what, dtype}, rows, 28);
}

void measure_published(const std::string& path, const std::string& dtype, const std::vector<Index>& rows,
                       Index prompt) {
  Pretrained p = dtype == "stored" ? load_pretrained(path, {.as_stored = true})
                                   : load_pretrained(path, {.dtype = dtype == "f32"    ? DType::float32
                                                                     : dtype == "bf16" ? DType::bfloat16
                                                                                       : DType::q8_0});
  measure({p.lm.model, std::filesystem::path(path).filename().string(), dtype}, rows, prompt);
}

}  // namespace

int main(int argc, char** argv) {
  std::string name = "85m", dtype, path;
  std::vector<Index> rows = {1, 8};
  Index prompt = 206;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--threads" && i + 1 < argc)
      set_threads(std::stoi(argv[++i]));
    else if (a == "--dtype" && i + 1 < argc)
      dtype = argv[++i];
    else if (a == "--rows" && i + 1 < argc)
      rows = {std::stoi(argv[++i])};
    else if (a == "--model" && i + 1 < argc)
      path = argv[++i];
    else if (a == "--prompt" && i + 1 < argc)
      prompt = std::stoi(argv[++i]);
    else
      name = a;
  }
  if (!path.empty()) {
    measure_published(path, dtype.empty() ? "stored" : dtype, rows, prompt);
    return 0;
  }
  for (const Config& c : kConfigs) {
    if (c.name != name) continue;
    for (const char* type : {"f32", "bf16"})
      if (dtype.empty() || dtype == type) measure(c, type, rows);
    return 0;
  }
  std::fprintf(stderr, "bench_generation: unknown configuration '%s'; it must be 85m or gpt2\n", name.c_str());
  return 2;
}
