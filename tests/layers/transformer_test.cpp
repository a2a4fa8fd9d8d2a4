// Transformer blocks and stacks: their parts, memories and states.
#include <heed/heed.hpp>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::normal;

TEST_CASE("a transformer without biases has none at all, as nn.TransformerEncoderLayer(bias=False)") {
  Rng rng(6);
  Transformer model({.width = 8, .heads = 2, .layers = 2, .memory_width = 4, .norm_first = true, .bias = false}, rng);
  for (const std::string& name : test::names_of(model)) CHECK_MESSAGE(!name.ends_with("bias"), name);
  CHECK(test::names_of(model).size() == 2 * 10 + 1);
}

TEST_CASE("decoding token by token, in chunks and at once is the same") {
  Rng rng(7);
  Transformer decoder({.width = 8,
                       .heads = 2,
                       .hidden = 12,
                       .layers = 2,
                       .memory_width = 8,
                       .dropout = 0,
                       .norm_first = true,
                       .rope = true,
                       .causal = true},
                      rng);
  to(decoder, DType::float64);
  const Tensor x = normal({2, 9, 8}), memory = normal({2, 3, 8}, 2), whole = decoder(x, memory);
  for (const std::vector<Index>& chunks : {std::vector<Index>{9}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {4, 1, 3, 1}}) {
    std::vector<AttentionState> states;
    Index at = 0;
    for (const Index n : chunks) {
      const Tensor part = decoder.decode(x.slice(1, at, at + n), memory, states);
      CHECK(test::close(part, whole.slice(1, at, at + n), 1e-11, 1e-11));
      at += n;
    }
    CHECK(states[0].length() == 9);
  }
}
