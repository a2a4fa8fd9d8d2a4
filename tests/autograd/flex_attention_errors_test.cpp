// Error messages of flex_attention.
#include <heed/autograd/flex_attention.hpp>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("flex_attention refuses arguments that do not fit") {
  const Tensor q = normal({2, 4, 5, 8}), k = normal({2, 2, 7, 8}), table = normal({4, 3});
  const auto f = [](auto x, int, int, int, int, auto...) { return x; };
  const auto always = [](int, int, int, int) { return true; };
  const auto with = [&](FlexAttentionOptions o) { return [&, o] { flex_attention(q, k, k, o); }; };
  const Tensor four = normal({4, 5, 7}), starts = Tensor::zeros({2}, DType::int32);
  check_errors({
      {"flex_attention: q is [2, 4, 5, 8] float64, k is [2, 5, 8] float64",
       [&] {
         flex_attention(q, normal({2, 5, 8}), k);
       }},
      {"block_mask has shape [1, 1, 7, 5] but [batch, heads, queries, keys] is [2, 4, 5, 7]",
       with({.block_mask = create_block_mask(always, 1, 1, 7, 5)})},
      {"block_mask has shape [3, 1, 5, 7]", with({.block_mask = create_block_mask(always, 3, 1, 5, 7)})},
      {"sinks is [2] float64", with({.sinks = normal({2})})},
      {"sinks is [4] float32", with({.sinks = Tensor::zeros({4})})},
      {"positions is [2] float32", with({.positions = Tensor::zeros({2})})},
      {"positions is [4] int32", with({.positions = Tensor::zeros({4}, DType::int32)})},
      {"scale is inf", with({.scale = kInf})},
      {"create_block_mask: mask_mod is empty", [] { create_block_mask({}, 1, 1, 5, 7); }},
      {"[batch, heads, queries, keys] is [0, 1, 5, 7]", [&] { create_block_mask(always, 0, 1, 5, 7); }},
      {"positions is [2] int32; it must be [1] int32", [&] { create_block_mask(always, 1, 1, 5, 7, starts); }},
      {"a parameter is [2] int32", [&] { ScoreMod(f, starts); }},
      {"a parameter is [0] float32", [&] { ScoreMod(f, Tensor::zeros({0})); }},
      {"a parameter is undefined", [&] { ScoreMod(f, Tensor()); }},
      {"a parameter is [1, 1, 1, 1, 1] float32",
       [&] {
         ScoreMod(f, Tensor::zeros({1, 1, 1, 1, 1}));
       }},
      {"2 parameters were given to a function with 1",
       [&] {
         ScoreMod(f, table).with(std::vector<Tensor>{table, table});
       }},
      {"shape() was called on a mask that allows all pairs", [] { BlockMask().shape(); }},
  });
}
