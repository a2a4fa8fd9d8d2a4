// The sizes of the GPTs whose training steps are measured.
#pragma once
#include <heed/layers/gpt.hpp>

namespace heed::benchmarks {

struct GptSize {
  const char* name;
  Index vocabulary, context, layers, heads, width, batch;

  GPT model(Rng& rng) const {
    return {{.vocabulary = vocabulary,
             .context = context,
             .blocks = {.layers = layers, .attention = {.width = width, .heads = heads}}},
            rng};
  }
};
inline constexpr GptSize kGptSizes[] = {
    {"nano", 65, 64, 4, 4, 128, 12}, {"baby", 65, 256, 6, 6, 384, 16}, {"gpt2", 50257, 64, 12, 12, 768, 4}};

}  // namespace heed::benchmarks
