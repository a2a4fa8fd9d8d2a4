// Sampling text from a language model.
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

}  // namespace heed
