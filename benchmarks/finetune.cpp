// Speed and memory of a step of fine-tuning: forward, backward, clipping, AdamW. The model has the sizes of
// SmolLM2-135M, or of Qwen3-4B, and random weights. The same work as benchmarks/peers/finetune_peft.py.
//
//   bench_finetune full|lora [--threads N] [--dtype f32|bf16] [--recompute] [--steps N] [--length N] [--batch N]
//                            [--model smollm2|qwen3-4b] [--base-dtype f32|q8_0]
#include <cstdio>
#include <heed/heed.hpp>
#include <string>
#include <vector>

#include "benchmarks/peak.hpp"
#include "benchmarks/resident.hpp"

using namespace heed;

namespace {

// SmolLM2-135M, of the family of Llama.
GPTOptions smollm2(Index length) {
  return {.vocabulary = 49152,
          .context = length,
          .blocks = {.layers = 30,
                     .attention = {.width = 576,
                                   .heads = 9,
                                   .kv_heads = 3,
                                   .bias = false,
                                   .rope_base = 1e5,
                                   .norm_eps = 1e-5},
                     .hidden = 1536,
                     .activation = FeedForwardKind::swiglu,
                     .norm = NormKind::rms},
          .positions = PositionKind::rope};
}

// Qwen3-4B.
GPTOptions qwen3_4b(Index length) {
  return {.vocabulary = 151936,
          .context = length,
          .blocks = {.layers = 36,
                     .attention = {.width = 2560,
                                   .heads = 32,
                                   .kv_heads = 8,
                                   .key_size = 128,
                                   .bias = false,
                                   .rope_base = 1e6,
                                   .qk_norm = true,
                                   .norm_eps = 1e-6},
                     .hidden = 9728,
                     .activation = FeedForwardKind::swiglu,
                     .norm = NormKind::rms},
          .positions = PositionKind::rope};
}

struct Options {
  std::string mode, model = "smollm2", base = "f32";
  DType precision = DType::float32;
  int steps = 4;
  bool recompute = false;
  Index length = 512, batch = 4;
};

// Operations per token. A frozen weight has 4 instead of 6, since its gradient is not computed.
double flops_per_token(GPT& model, const Options& o) {
  double frozen = 0;
  for (const NamedParameter& p : named_parameters(model))
    if (!p.parameter->requires_grad() && p.parameter->rank() == 2) frozen += static_cast<double>(p.parameter->numel());
  return model.flops_per_token(o.length) - 2 * frozen;
}

// A model whose matrices are q8_0. They are drawn and rounded one by one, so that few of them are float32 at a time.
GPT quantized_model(const GPTOptions& options, Rng& rng) {
  GPT model = skip_init<GPT>(options, rng);
  for (const NamedParameter& p : named_parameters(model)) {
    const Shape shape = p.parameter->shape();
    *p.parameter =
        shape.rank() == 2 ? Parameter((rng.normal(shape) * 0.02).to(DType::q8_0)) : Parameter(Tensor::ones(shape));
    release_cached_memory();
  }
  return model;
}

void measure(const Options& o) {
  const benchmarks::ResidentGrowth resident;
  Rng rng(0);
  const GPTOptions options = o.model == "qwen3-4b" ? qwen3_4b(o.length) : smollm2(o.length);
  GPT model = o.base == "q8_0" ? quantized_model(options, rng) : GPT(options, rng);
  model.transformer.recomputes = o.recompute;
  if (o.mode == "lora") add_lora(model, {.rank = 16, .alpha = 32}, rng);
  AdamW optimizer(trainable_parameters(model), {.lr = 1e-4});
  const Tensor x = rng.integers({o.batch, o.length}, 0, 49152), y = rng.integers({o.batch, o.length}, 0, 49152);
  const AwakeThreads awake;  // as in run()
  std::vector<double> times;
  for (int step = 0; step < o.steps + 1; ++step) {
    const double start = benchmarks::seconds();
    const MatmulPrecision scope(o.precision);
    {
      Tape tape;
      tape.backward(model.loss(x, y));
    }
    optimizer.clipped_step(1.0);
    optimizer.zero_grad();
    if (step >= 1) times.push_back(benchmarks::seconds() - start);
  }
  const double median = benchmarks::median(times), tokens = static_cast<double>(o.batch * o.length);
  const double flops = flops_per_token(model, o) * tokens / median;
  const DType operands = o.precision == DType::bfloat16 ? DType::bfloat16 : DType::float32;
  const double peak = benchmarks::peak_flops(operands, threads());
  std::printf(
      "heed finetune %s %s%s%s, %d threads, %s: %.0f ms/step, %.0f tokens/s, %.0f GFLOP/s = %.0f%% of the peak of "
      "%.0f; "
      "resident memory grew by %.0f MiB\n",
      o.mode.c_str(), o.precision == DType::bfloat16 ? "bf16" : "f32", o.model == "smollm2" ? "" : " qwen3-4b",
      o.base == "q8_0" ? " on q8_0" : "", threads(), arch(), median * 1e3, tokens / median, flops / 1e9,
      100 * flops / peak, peak / 1e9, resident.mib());
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--threads" && i + 1 < argc)
      set_threads(std::stoi(argv[++i]));
    else if (a == "--steps" && i + 1 < argc)
      o.steps = std::stoi(argv[++i]);
    else if (a == "--dtype" && i + 1 < argc)
      o.precision = std::string(argv[++i]) == "bf16" ? DType::bfloat16 : DType::float32;
    else if (a == "--model" && i + 1 < argc)
      o.model = argv[++i];
    else if (a == "--base-dtype" && i + 1 < argc)
      o.base = argv[++i];
    else if (a == "--recompute")
      o.recompute = true;
    else if (a == "--length" && i + 1 < argc)
      o.length = std::stoi(argv[++i]);
    else if (a == "--batch" && i + 1 < argc)
      o.batch = std::stoi(argv[++i]);
    else
      o.mode = a;
  }
  if (o.mode != "full" && o.mode != "lora") {
    std::fprintf(stderr, "bench_finetune: the mode is '%s'; it must be full or lora\n", o.mode.c_str());
    return 2;
  }
  measure(o);
}
