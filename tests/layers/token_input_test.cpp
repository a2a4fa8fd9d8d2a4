#include <cmath>
#include <heed/layers/token_input.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::same_bits;

namespace {

TokenInput input_of(TokenInputOptions o) {
  o.context = 6, o.width = 4;
  Rng rng(1);
  return TokenInput(o, rng);
}

const Tensor kWords = Tensor::from<std::int32_t>({3, 1, 4, 1, 5, 2}, {2, 3});

}  // namespace

TEST_CASE("token input: embeddings, scaled, plus the vectors of their positions") {
  const TokenInput learned = input_of({.vocabulary = 7}),
                   none = input_of({.vocabulary = 7, .positions = PositionKind::rope}),
                   waves = input_of({.vocabulary = 7, .positions = PositionKind::sinusoidal, .scaled = true});
  CHECK(same_bits(learned(kWords), (*learned.tokens)(kWords) + (*learned.positions)(3)));
  CHECK(same_bits(none(kWords), (*none.tokens)(kWords)));
  CHECK(same_bits(waves(kWords), (*waves.tokens)(kWords)*std::sqrt(4.0) + sinusoidal_positions(3, 4)));
}

TEST_CASE("token input: each row continues after the positions that it has seen") {
  for (const PositionKind kind : {PositionKind::learned, PositionKind::sinusoidal}) {
    const TokenInput input = input_of({.vocabulary = 7, .positions = kind});
    const Tensor seen = Tensor::from<std::int32_t>({2, 0}), h = input(kWords, seen);
    const Tensor whole = input(Tensor::from<std::int32_t>({0, 0, 3, 1, 4}, {1, 5}));
    CHECK(same_bits(h[0], whole[0].slice(0, 2, 5)));
    CHECK(same_bits(h[1], input(kWords)[1]));
  }
}

TEST_CASE("token input: without a vocabulary, another table is read") {
  const TokenInput input = input_of({});
  Rng rng(2);
  const Embedding other(9, 4, rng);
  CHECK(!input.tokens);
  CHECK(same_bits(input.embed(kWords, other), other(kWords) + (*input.positions)(3)));
}

TEST_CASE("token input: positions after the context") {
  const Tensor seen = Tensor::from<std::int32_t>({4, 4});
  const TokenInputOptions waves{.vocabulary = 7, .positions = PositionKind::sinusoidal};
  TokenInputOptions longer = waves;
  longer.beyond_context = true;
  for (const TokenInputOptions& o : {TokenInputOptions{.vocabulary = 7}, waves}) {
    const TokenInput bounded = input_of(o);
    CHECK(bounded.bounded());
    CHECK(contains(error_of([&] { bounded(kWords, seen); }), "x reaches position 7 but the model's context is 6"));
  }
  const TokenInput endless = input_of(longer);
  CHECK_FALSE(endless.bounded());
  CHECK(same_bits(endless(kWords, seen)[0], (*endless.tokens)(kWords)[0] + sinusoidal_positions(7, 4).slice(0, 4, 7)));
  CHECK(error_of([&] {
          endless(kWords.to(DType::float32));
        }).starts_with("TokenInput: x is [2, 3] float32; it must be "));
}
