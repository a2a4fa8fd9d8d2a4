// Sampling text from a language model.
//
//   Rng rng(1);
//   const auto text = generate(model, tokenizer.encode("The "), 80, {.temperature = 0.8}, rng);
//   const std::vector<std::vector<std::int32_t>> prompts = {tokenizer.encode("The "), tokenizer.encode("Who is ")};
//   const auto texts = generate(model, prompts, {.count = 80, .stop_tokens = {0}});
#pragma once
#include <cstdint>
#include <functional>
#include <heed/core/random.hpp>
#include <heed/layers/gpt.hpp>
#include <span>
#include <vector>

namespace heed {

struct SamplingOptions {
  double temperature = 1;  // 0: always the likeliest
  Index top_k = 0;         // > 0: only the k likeliest
  double top_p = 1;        // < 1: only the fewest likeliest whose probabilities reach top_p (Holtzman et al. 2020)
};

// Throws Error for options out of range.
void check_sampling(const SamplingOptions& options);

// Draws one index from logits [V]: one random number of rng a call. Ties go to the lowest index.
std::int32_t sample(const Tensor& logits, const SamplingOptions& options, Rng& rng);

// Continues `prompt` (not empty) by `count` tokens, each given to on_token as it comes; stops early where that returns
// false. Beyond the model's context, it goes on from the last half context, read anew.
std::vector<std::int32_t> generate(const GPT& model, std::span<const std::int32_t> prompt, Index count,
                                   const SamplingOptions& options, Rng& rng,
                                   const std::function<bool(std::int32_t)>& on_token = {});

struct GenerateOptions {
  Index count = 100;  // tokens of a row at most
  SamplingOptions sampling = {};
  std::vector<std::int32_t> stop_tokens = {};  // a row ends with the first of them, which is its last token
  std::uint64_t seed = 1, stream = 0;          // row i draws from Rng(seed, stream + i)
  // Each token as it comes; false: the row ends with it.
  std::function<bool(Index row, std::int32_t token)> on_token = {};
};

// The same for prompts of any lengths (none empty) at once. Rows know nothing of each other: each is what the above gives
// with its generator, where the rounding of the model's ops does not depend on the batch.
std::vector<std::vector<std::int32_t>> generate(const GPT& model, std::span<const std::vector<std::int32_t>> prompts,
                                                const GenerateOptions& options = {});

}  // namespace heed
