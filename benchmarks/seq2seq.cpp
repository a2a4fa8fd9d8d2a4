// Speed of encoder-decoder models for translation.
//   - A training step of a GRU encoder-decoder with Bahdanau's attention, with the sizes of
//     benchmarks/peers/seq2seq_torch.py, including Adam: milliseconds, target tokens per second, and GFLOP/s of the
//     products.
//   - The effect of sequential steps: a training step with a fixed number of tokens in sentences of growing length, for
//     recurrent models and for a Transformer with as many parameters.
//   - The cost of a decoder's attention by the length of the source, for attention to the whole source and to a window.
//   bench_seq2seq [threads] [f32|bf16] [step]
// step: only the first measurement.
#include <cstdio>
#include <cstdlib>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/model_config.hpp>
#include <heed/layers/seq2seq.hpp>
#include <heed/layers/transformer_seq2seq.hpp>
#include <heed/optim/optimizers/optimizers.hpp>
#include <optional>
#include <string>

#include "benchmarks/peak.hpp"

using namespace heed;

namespace {

Batch random_pairs(Index rows, Index length, Index vocabulary) {
  Rng rng(1);
  Batch b;
  b["source"] = rng.integers({rows, length}, 0, vocabulary);
  b.inputs = rng.integers({rows, length}, 0, vocabulary);
  b.targets = rng.integers({rows, length}, 0, vocabulary);
  return b;
}

template <class M>
double step_seconds(M& model, const Batch& b, double budget) {
  Adam adam(named_parameters(model), {.lr = 1e-3});
  return benchmarks::median_seconds(
      [&] {
        adam.zero_grad();
        Tape tape;
        tape.backward(model.loss(b));
        adam.step();
      },
      budget);
}

void training_step(bool bf16) {
  constexpr Index vocabulary = 8000, embedding = 256, hidden = 512, length = 24, batch = 64;
  Rng rng(1);
  Seq2Seq model({.source_vocabulary = vocabulary,
                 .target_vocabulary = vocabulary,
                 .embedding = embedding,
                 .hidden = hidden,
                 .attention = DecoderAttention::bahdanau,
                 .bridge = Bridge::zeros},
                rng);
  const double seconds = step_seconds(model, random_pairs(batch, length, vocabulary), 5);
  // Multiply-adds per source or target token (equal numbers of both); three products each.
  const double directions = 2.0 * 3 * (hidden / 2) * (embedding + hidden / 2), keys = 1.0 * hidden * hidden,
               cell = 3.0 * hidden * (embedding + 2 * hidden), query = keys,
               output = 1.0 * vocabulary * (2 * hidden + embedding);
  const double flops = 6.0 * batch * length * (directions + keys + cell + query + output);
  std::printf("GRU with Bahdanau's attention, %s, %d threads: %.1f ms per step, %.0f target tokens/s, %.0f GFLOP/s\n",
              bf16 ? "bf16" : "f32", threads(), seconds * 1e3, batch * length / seconds, flops / seconds / 1e9);
}

// The number of dependent products on the longest path from a word to the loss. Recurrent encoder and decoder: one per
// word. Bahdanau's attention adds three per word in the decoder: the query, the sums of weights and states, and the
// product with the context. A block of a Transformer has six (encoder) or ten (decoder).
void steps_that_wait() {
  constexpr Index vocabulary = 1000, tokens = 4096;
  std::printf(
      "\nA training step with %lld source tokens and as many target tokens: milliseconds, and sequential "
      "products\n%8s%8s%26s%26s%26s\n",
      static_cast<long long>(tokens), "rows", "length", "GRU, Luong", "GRU, Bahdanau", "Transformer");
  for (const Index length : {16, 64, 256, 1024}) {
    const Batch b = random_pairs(tokens / length, length, vocabulary);
    std::printf("%8lld%8lld", static_cast<long long>(tokens / length), static_cast<long long>(length));
    const auto print_row = [](double seconds, Index waits) {
      std::printf("%14.1f ms %8lld", seconds * 1e3, static_cast<long long>(waits));
    };
    for (const DecoderAttention attention : {DecoderAttention::luong, DecoderAttention::bahdanau}) {
      Rng rng(1);
      Seq2Seq model({.source_vocabulary = vocabulary,
                     .target_vocabulary = vocabulary,
                     .embedding = 256,
                     .hidden = 512,
                     .attention = attention},
                    rng);
      print_row(step_seconds(model, b, 3), attention == DecoderAttention::luong ? 2 * length + 4 : length + 4 * length);
    }
    Rng rng(1);
    TransformerSeq2Seq model({.source_vocabulary = vocabulary,
                              .target_vocabulary = vocabulary,
                              .blocks = {.layers = 2, .attention = {.width = 256, .heads = 4}, .dropout = 0}},
                             rng);
    print_row(step_seconds(model, b, 3), (6 + 10) * 2);
    std::printf("\n");
  }
}

// 64 sentences, 24 target words, one head of size 256, in training mode.
void cost_of_attention() {
  constexpr Index batch = 64, targets = 24, width = 256;
  const char* const names[] = {"luong-general", "luong-local-m", "luong-local-p", "luong-concat", "bahdanau"};
  std::printf("\nAttention of a decoder, forward and backward, for 64 sentences of 24 words: ms\n%8s", "source");
  for (const char* name : names) std::printf("%16s", name);
  for (const Index length : {32, 128, 512, 2048}) {
    std::printf("\n%8lld", static_cast<long long>(length));
    Rng rng(1);
    const Tensor q = rng.normal({batch, 1, targets, width}), k = rng.normal({batch, 1, length, width}),
                 dy = rng.normal({batch, 1, targets, width});
    for (const char* name : names) {
      MechanismOptions o{.heads = 1, .head_size = width, .context = length};
      o.memory = true;
      const AttentionMechanism mechanism = mechanism_by_name(name, o)(0, rng);
      const double seconds = benchmarks::median_seconds(
          [&] {
            Tape tape;
            const Tensor query = tape.watch(q), key = tape.watch(k);
            tape.backward(mechanism.apply(query, key, key, {}), dy);
          },
          0.3);
      std::printf("%16.2f", seconds * 1e3);
    }
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) set_threads(std::atoi(argv[1]));
  const bool bf16 = argc > 2 && std::string(argv[2]) == "bf16";
  std::optional<MatmulPrecision> precision;
  if (bf16) precision.emplace(DType::bfloat16);
  training_step(bf16);
  if (argc > 3 && std::string(argv[3]) == "step") return 0;
  steps_that_wait();
  cost_of_attention();
}
