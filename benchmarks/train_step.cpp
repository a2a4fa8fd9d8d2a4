// Speed of one training step of a GPT: forward, backward, AdamW. The same work as benchmarks/peers/gpt_step_torch.py.
//
//   bench_train_step [nano|baby|gpt2] [--threads N] [--dtype f32|bf16] [--steps N] [--context N] [--batch N]
//
// gpt2 is measured on 4 texts of 64 tokens. Its preset has 4 texts of 1024 tokens: --context 1024.
#include <cstdio>
#include <heed/heed.hpp>
#include <string>
#include <vector>

#include "benchmarks/gpt_sizes.hpp"
#include "benchmarks/peak.hpp"
#include "benchmarks/resident.hpp"

using namespace heed;

namespace {

void measure(const benchmarks::GptSize& c, DType precision, int steps) {
  const benchmarks::ResidentGrowth resident;
  Rng rng(0);
  GPT model = c.model(rng);
  AdamW optimizer(named_parameters(model), {.lr = 3e-4});
  const Tensor x = rng.integers({c.batch, c.context}, 0, c.vocabulary),
               y = rng.integers({c.batch, c.context}, 0, c.vocabulary);
  const AwakeThreads awake;  // as in run()
  std::vector<double> times;
  std::size_t allocations = 0;
  for (int step = 0; step < steps + 2; ++step) {
    const double start = benchmarks::seconds();
    if (step == 2) allocations = memory_use().system_allocations;
    const MatmulPrecision scope(precision);
    {
      Tape tape;
      tape.backward(model.loss(x, y));
    }
    optimizer.step();
    optimizer.zero_grad();
    if (step >= 2) times.push_back(benchmarks::seconds() - start);
  }
  const double median = benchmarks::median(times), tokens = static_cast<double>(c.batch * c.context);
  const double flops = model.flops_per_token(c.context) * tokens / median;
  const double peak =
      benchmarks::peak_flops(precision == DType::bfloat16 ? DType::bfloat16 : DType::float32, threads());
  std::printf(
      "heed %s %s, %d threads, %s: %.2f ms/step, %.0f tokens/s, %.0f GFLOP/s = %.0f%% of the peak of %.0f; "
      "resident memory grew by %.0f MiB, "
      "the pool's peak is %.0f MiB; %zu system allocations in %d warm steps\n",
      c.name, precision == DType::bfloat16 ? "bf16" : "f32", threads(), arch(), median * 1e3, tokens / median,
      flops / 1e9, 100 * flops / peak, peak / 1e9, resident.mib(), static_cast<double>(memory_use().peak) / 1048576,
      memory_use().system_allocations - allocations, steps);
}

}  // namespace

int main(int argc, char** argv) {
  std::string name;
  DType precision = DType::float32;
  int steps = 10;
  Index context = 0, batch = 0;  // 0: from the configuration
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--threads" && i + 1 < argc)
      set_threads(std::stoi(argv[++i]));
    else if (a == "--steps" && i + 1 < argc)
      steps = std::stoi(argv[++i]);
    else if (a == "--dtype" && i + 1 < argc)
      precision = std::string(argv[++i]) == "bf16" ? DType::bfloat16 : DType::float32;
    else if (a == "--context" && i + 1 < argc)
      context = std::stoi(argv[++i]);
    else if (a == "--batch" && i + 1 < argc)
      batch = std::stoi(argv[++i]);
    else
      name = a;
  }
  bool any = false;
  for (benchmarks::GptSize c : benchmarks::kGptSizes) {
    if (name != c.name && !(name.empty() && c.vocabulary < 1000)) continue;
    if (context > 0) c.context = context;
    if (batch > 0) c.batch = batch;
    measure(c, precision, steps);
    any = true;
  }
  if (!any)
    std::fprintf(stderr, "bench_train_step: unknown configuration '%s'; it must be nano, baby or gpt2\n", name.c_str());
  return any ? 0 : 2;
}
