// Mechanisms by name, and what is particular to each.
#include <heed/layers/attention/by_name.hpp>
#include <heed/layers/attention/linear.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::close;
using test::contains;
using test::error_of;

TEST_CASE("mechanisms are made by their names") {
  Rng rng(1);
  for (const std::string& name : mechanism_names()) CHECK(mechanism_by_name(name)(0, rng).name() == name);
  CHECK(contains(error_of([] { mechanism_by_name("linaer"); }),
                 "the mechanism is 'linaer'; it must be one of softmax, linear"));
  CHECK(contains(error_of([] { mechanism_by_name("linear", {.feature_map = "sine"}); }),
                 "the feature map is 'sine'; it must be one of elu, relu, softplus, identity"));
  for (const FeatureMap map : {FeatureMap::elu, FeatureMap::relu, FeatureMap::softplus, FeatureMap::identity})
    CHECK(feature_map(name_of(map)) == map);
}

TEST_CASE("linear attention as a mechanism takes a bias a key, and refuses what needs single weights") {
  const AttentionMechanism linear(LinearAttention{});
  const Tensor x = Rng(1).normal({2, 2, 5, 4}), bias = Rng(2).normal({2, 1, 1, 5});
  CHECK(close(linear.apply(x, x, x, {.bias = bias}), linear_attention(x, x, x, {.key_bias = bias.view({2, 1, 5})}), 0,
              1e-7));
  CHECK(close(linear.apply(x, x, x, {.bias = bias[0][0][0]}), linear_attention(x, x, x, {.key_bias = bias[0][0][0]}), 0,
              1e-7));
  const auto refused = [&](const AttentionCall& call, const char* what) {
    CHECK(contains(error_of([&] { linear.apply(x, x, x, call); }),
                   std::string("linear attention: ") + what +
                       " was asked for, which it does not have: the weights of single pairs are never there"));
  };
  refused({.mask = Tensor::ones({5, 5}, DType::bool8)}, "a mask of single pairs");
  refused({.bias = Tensor::ones({5, 5})}, "a bias of single pairs");
  refused({.dropout = 0.1}, "dropout on weights");
}

TEST_CASE("the state of linear attention keeps one size") {
  AttentionState state = LinearAttention{}.make_state();
  const auto items = [&] {
    Index n = 0;
    state.buffers([&](const std::string&, Tensor& b) { n += b.defined() ? b.numel() : 0; });
    return n;
  };
  const Tensor x = Rng(1).normal({1, 2, 10, 4});
  state.apply(x, x, x);
  const Index after_ten = items();
  CHECK(after_ten == 1 + 2 * 4 * 4 + 2 * 4);  // the length, S and z
  for (int i = 0; i < 20; ++i) state.apply(x, x, x);
  CHECK(items() == after_ten);
  CHECK(state.length() == 210);
}
