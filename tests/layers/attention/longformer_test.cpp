// Longformer: the conformance kit, options by name, and errors.
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>

#include "tests/autograd/attention_reference.hpp"
#include "tests/layers/attention/naive_mechanisms.hpp"
#include "tests/layers/attention/state_file.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
//
#include <heed/layers/attention/conformance_doctest.hpp>

using namespace heed;
using namespace heed::test;

namespace {

MechanismOptions longformer_case() {
  return {.heads = 4, .head_size = 8, .context = 1000, .window = 20, .stride = 12, .top_k = 5};
}

}  // namespace

TEST_CASE("conformance: Longformer with the projections of other positions, and one dilation per head") {
  MechanismOptions o = longformer_case();
  o.window = 9;
  const auto of_heads = [](Index heads, Index) {
    return [=](Index, Rng&) {
      LongformerOptions l{.window = 9, .dilations = {}, .globals = {7, 0, 7}, .own_projections = false};
      for (Index h = 0; h < heads; ++h) l.dilations.push_back(1 + h / 2);
      return LongformerAttention(l);
    };
  };
  const auto naive = [](const NaiveRow& row) {
    return pattern_of(row, [p = row.position, d = 1 + row.head / 2, causal = row.causal](Index j) {
      const bool near = (p - j) % d == 0 && (causal ? p - j < 9 * d : std::abs(p - j) <= 4 * d);
      return near || j == 0 || j == 7 || p == 0 || p == 7;
    });
  };
  check_conformance_in_test(of_heads(4, 8), thinned({.reference = naive_by(naive, o), .of_sizes = of_heads}));
  CHECK(LongformerAttention({.window = 2, .globals = {7, 0, 7}, .own_projections = false}).options().globals ==
        std::vector<Index>{0, 7});
}

TEST_CASE("longformer: each head has its own dilation, with its part of masks and biases, also in decoding") {
  const Tensor q = normal({2, 4, 30, 8}, 1), k = normal({2, 2, 30, 8}, 2), v = normal({2, 2, 30, 3}, 3);
  const std::vector<Index> dilations = {1, 3, 3, 2};
  const LongformerAttention all({.window = 5, .dilations = dilations, .globals = {2}, .own_projections = false});
  const AttentionCall call{.causal = true, .mask = random_mask({2, 4, 30, 30}, 0.8, 4), .bias = normal({4, 30, 30}, 5)};
  const Tensor y = all.apply(q, k, v, call, {}), plain = all.apply(q, k, v, {.causal = true}, {});
  for (Index h = 0; h < 4; ++h) {
    const WindowAttention one({.window = 5, .dilation = dilations[static_cast<std::size_t>(h)], .globals = {2}});
    const auto head = [&](const Tensor& x, Index at) { return x.slice(1, at, at + 1); };
    AttentionCall of_head = call;
    of_head.mask = head(call.mask, h), of_head.bias = call.bias.slice(0, h, h + 1);
    CHECK(close(head(y, h), one.apply(head(q, h), head(k, h / 2), head(v, h / 2), of_head), 1e-12, 1e-12));
  }
  // Rows of 30 and 20 positions, then one more position per row.
  const NoTape guard;
  AttentionState state = all.make_state();
  const auto first = [](const Tensor& x) { return x.slice(2, 0, 29); };
  state.apply(first(q), first(k), first(v), {.key_lengths = Tensor::from<std::int32_t>({29, 20})});
  const auto next = [](const Tensor& x) {
    return concatenate({x.slice(0, 0, 1).slice(2, 29, 30), x.slice(0, 1, 2).slice(2, 20, 21)}, 0);
  };
  CHECK(close(state.apply(next(q), next(k), next(v)), next(plain), 1e-12, 1e-12));
}

TEST_CASE("longformer and window: options by name, and wrong ones") {
  Rng rng(1);
  const MechanismOptions o{.heads = 2, .head_size = 4, .dilation = "1,2", .globals = "3,0"};
  const AttentionMechanism longformer = mechanism_by_name("longformer", o)(0, rng);
  CHECK(longformer.get<LongformerAttention>()->options().dilations == std::vector<Index>{1, 2});
  CHECK(longformer.get<LongformerAttention>()->options().globals == std::vector<Index>{0, 3});
  const AttentionMechanism window = mechanism_by_name("window", {.dilation = "3", .globals = "5"})(0, rng);
  CHECK(window.get<WindowAttention>()->options().dilation == 3);
  CHECK(window.get<WindowAttention>()->options().globals == std::vector<Index>{5});
  const auto refused = [&](const std::string& name, MechanismOptions wrong, const std::string& message) {
    wrong.heads = 2, wrong.head_size = 4;
    CHECK(contains(error_of([&] { mechanism_by_name(name, wrong)(0, rng); }), message));
  };
  refused("window", {.dilation = "1,2"}, "dilation of window is 1,2; it must be one number, as only longformer has");
  refused("window", {.globals = "-1"}, "globals of window is \"-1\"; it must be whole numbers separated by commas");
  refused("longformer", {.globals = "1,"}, "globals of longformer is \"1,\"; it must be whole numbers separated");
  refused("longformer", {.dilation = "1,2,3"}, "dilation of longformer is 1,2,3 and there are 2 heads; it must be one");
  refused("longformer", {.dilation = "0"}, "dilation is 0; both must be 1 or more");
  const Tensor x = normal({1, 3, 4, 4}, 1);
  LongformerAttention two({.window = 2, .dilations = {1, 2}, .own_projections = false});
  CHECK(contains(error_of([&] { two.apply(x, x, x, {}, {}); }),
                 "there are 2 dilations; there must be one, or one per head"));
  CHECK(contains(error_of([] { LongformerAttention({.window = 2}); }), "size is 0 and value_size is 0"));
  CHECK(contains(error_of([] { LongformerAttention({.window = 2, .dilations = {}, .size = 1}); }),
                 "there is no dilation"));
}
