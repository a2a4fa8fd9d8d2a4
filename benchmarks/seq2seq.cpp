// One training step of a GRU encoder-decoder with Bahdanau's attention, beside benchmarks/peers/seq2seq_torch.py: the
// same sizes, Adam included. Milliseconds a step, target tokens per second, and the share of the machine's peak that
// the products alone take (bench_peak).
//   seq2seq [threads] [f32|bf16]
#include <cstdio>
#include <cstdlib>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/seq2seq.hpp>
#include <heed/optim/optimizers.hpp>
#include <optional>
#include <string>

#include "benchmarks/peak.hpp"

using namespace heed;

int main(int argc, char** argv) {
  if (argc > 1) set_threads(std::atoi(argv[1]));
  const bool bf16 = argc > 2 && std::string(argv[2]) == "bf16";
  constexpr Index vocabulary = 8000, embedding = 256, hidden = 512, length = 24, batch = 64;
  Rng rng(1);
  Seq2Seq model({.source_vocabulary = vocabulary,
                 .target_vocabulary = vocabulary,
                 .embedding = embedding,
                 .hidden = hidden,
                 .attention = DecoderAttention::bahdanau,
                 .bridge = Bridge::zeros},
                rng);
  Adam adam(named_parameters(model), {.lr = 1e-3});
  Batch b;
  b["source"] = rng.integers({batch, length}, 0, vocabulary);
  b.inputs = rng.integers({batch, length}, 0, vocabulary);
  b.targets = rng.integers({batch, length}, 0, vocabulary);
  std::optional<MatmulPrecision> precision;
  if (bf16) precision.emplace(DType::bfloat16);
  const double seconds = benchmarks::median_seconds(
      [&] {
        adam.zero_grad();
        Tape tape;
        tape.backward(model.loss(b));
        adam.step();
      },
      8);
  // Multiply-adds of a target token, or of one of the source's, of which there are as many; three products each.
  const double directions = 2.0 * 3 * (hidden / 2) * (embedding + hidden / 2), keys = 1.0 * hidden * hidden,
               cell = 3.0 * hidden * (embedding + 2 * hidden), query = keys,
               output = 1.0 * vocabulary * (2 * hidden + embedding);
  const double flops = 6.0 * batch * length * (directions + keys + cell + query + output);
  std::printf("GRU with Bahdanau's attention, %s, %d threads: %.1f ms a step, %.0f target tokens/s, %.0f GFLOP/s\n",
              bf16 ? "bf16" : "f32", threads(), seconds * 1e3, batch * length / seconds, flops / seconds / 1e9);
}
