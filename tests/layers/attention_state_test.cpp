// What all decode states have in common, and mechanisms that are reached through the layers that hold them.
#include <heed/heed.hpp>

#include "tests/layers/mechanism_inputs.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("decode states: other numbers of queries and keys are refused by all mechanisms, before and after a step") {
  const NoTape guard;
  Rng rng(1);
  const Tensor x = rng.normal({2, 4, 5, 8}), few = x.slice(2, 0, 2), one = x.slice(2, 0, 1);
  const auto check_refused = [&](const AttentionMechanism& m) {
    CAPTURE(m.name());
    AttentionState state = m.make_state(), unharmed = m.make_state();
    const std::vector<Tensor> inputs = inputs_for(m, x, x), of_one = inputs_at(inputs, 0, 1);
    for (const Index length : {0, 5}) {
      const std::string error = error_of([&] { state.apply(few, x, x); });
      CHECK(contains(error,
                     "AttentionState: q is [2, 4, 2, 8] float32 and k is [2, 4, 5, 8] float32; both must be "
                     "[batch, heads, positions, size], and a step takes as many queries as keys"));
      CHECK(contains(error_of([&] { state.apply(x, few, few); }), "a step takes as many queries as keys"));
      CHECK(contains(error_of([&] { state.apply(x[0], x[0], x[0]); }), "both must be [batch, heads, positions, size]"));
      CHECK(state.length() == length);
      if (length == 0) CHECK(same_bits(state.apply(x, x, x, {}, inputs), unharmed.apply(x, x, x, {}, inputs)));
    }
    CHECK(same_bits(state.apply(one, one, one, {}, of_one), unharmed.apply(one, one, one, {}, of_one)));
  };
  for (const std::string& name : mechanism_names())
    check_refused(mechanism_by_name(name, {.heads = 4, .head_size = 8, .context = 64})(0, rng));
  check_refused(GenericAttention(similarity_by_name("softplus")));
}

TEST_CASE("decode states: what wants a gradient is refused by all mechanisms, as it would be lost") {
  Rng rng(1);
  const Tensor x = rng.normal({1, 3, 16});
  for (const std::string& name : mechanism_names()) {
    CAPTURE(name);
    MultiHeadAttention layer({.width = 16, .heads = 2}, rng,
                             mechanism_by_name(name, {.heads = 2, .head_size = 8, .context = 16})(0, rng));
    AttentionState state;
    Tape tape;
    CHECK(contains(error_of([&] { layer.decode(x, state); }),
                   "AttentionState: q, k or v wants a gradient, which what a state keeps cannot pass on"));
    CHECK(state.length() == 0);
    const NoTape guard;
    CHECK(layer.decode(x, state).shape() == Shape{1, 3, 16});
  }
}

TEST_CASE("a mechanism is reached by its type: const and not, null for another type") {
  Rng rng(1);
  AttentionMechanism m = FavorAttention(8, {.features = 6, .seed = 5});
  const AttentionMechanism& constant = m;
  REQUIRE(m.get<FavorAttention>() != nullptr);
  CHECK(constant.get<FavorAttention>() == m.get<FavorAttention>());
  CHECK(m.get<LinearAttention>() == nullptr);
  CHECK(constant.get<SoftmaxAttention>() == nullptr);
  CHECK(same_bits(constant.get<FavorAttention>()->features(), random_features(6, 8, 5)));

  // The step of a decoder that attends once a step, through the layer.
  MultiHeadAttention layer({.width = 8, .heads = 2, .memory_width = 6}, rng,
                           LuongLocalAttention(2, 4, rng, {.radius = 1}));
  const Tensor x = rng.normal({1, 5, 8}), memory = rng.normal({1, 7, 6});
  const NoTape guard;
  const Tensor whole = layer(x, memory);
  for (Index t = 0; t < 5; ++t) {
    layer.mechanism.get<LuongLocalAttention>()->options.first_query = t;
    CHECK(close(layer(x.slice(1, t, t + 1), memory), whole.slice(1, t, t + 1)));
  }
}

TEST_CASE("favor: new features are drawn in a layer, and a state goes on with those that it began with") {
  const NoTape guard;
  Rng rng(1), same(1);
  const FavorOptions options{.features = 6, .seed = 5, .layer = 2};
  MultiHeadAttention layer({.width = 16, .heads = 2}, rng, FavorAttention(8, options));
  const MultiHeadAttention before({.width = 16, .heads = 2}, same, FavorAttention(8, options));
  const Tensor x = rng.normal({2, 9, 16}), old = before(x, {.causal = true});
  AttentionState begun;
  CHECK(close(layer.decode(x.slice(1, 0, 4), begun), old.slice(1, 0, 4), 1e-4, 1e-5));

  layer.mechanism.get<FavorAttention>()->redraw(3);
  const Tensor features = random_features(6, 8, 5, 2, 3);
  CHECK(same_bits(layer.mechanism.get<FavorAttention>()->features(), features));
  CHECK(same_bits(*named_buffers(layer).front().buffer, features));
  const Tensor now = layer(x, {.causal = true});
  CHECK_FALSE(close(now, old, 1e-2, 1e-2));
  const Tensor q = rng.normal({2, 2, 5, 8});
  CHECK(same_bits(layer.mechanism.apply(q, q, q, {.causal = true}).contiguous(),
                  favor_attention(q, q, q, features, {.causal = true})));

  AttentionState fresh;
  CHECK(close(layer.decode(x.slice(1, 0, 4), fresh), now.slice(1, 0, 4), 1e-4, 1e-5));
  CHECK(close(layer.decode(x.slice(1, 4, 9), begun), old.slice(1, 4, 9), 1e-4, 1e-5));
  CHECK(close(layer.decode(x.slice(1, 4, 9), fresh), now.slice(1, 4, 9), 1e-4, 1e-5));

  // Nor do values that are written into the mechanism, as load_model() does, reach a state that has begun.
  AttentionState third;
  layer.decode(x.slice(1, 0, 4), third);
  named_buffers(layer).front().buffer->copy_(random_features(6, 8, 5, 2, 4));
  CHECK(close(layer.decode(x.slice(1, 4, 9), third), now.slice(1, 4, 9), 1e-4, 1e-5));
}

TEST_CASE("lsh: values that are written into the mechanism do not reach a state that has begun") {
  const NoTape guard;
  Rng rng(1), same(1);
  const LshAttentionOptions options{.size = 8, .buckets = 4, .rounds = 1, .window = 2};
  MultiHeadAttention layer({.width = 16, .heads = 2}, rng, LshAttention(options));
  const MultiHeadAttention before({.width = 16, .heads = 2}, same, LshAttention(options));
  const Tensor x = rng.normal({2, 9, 16}), old = before(x, {.causal = true});
  AttentionState begun;
  layer.decode(x.slice(1, 0, 4), begun);
  named_buffers(layer).front().buffer->copy_(Rng(7).normal({1, 8, 2}));
  CHECK_FALSE(close(layer(x, {.causal = true}), old, 1e-2, 1e-2));
  CHECK(close(layer.decode(x.slice(1, 4, 9), begun), old.slice(1, 4, 9), 1e-4, 1e-5));
}

TEST_CASE("favor: features that are drawn anew keep the dtype of the model") {
  AttentionMechanism m = FavorAttention(4);
  to(m, DType::float64);
  m.get<FavorAttention>()->redraw(1);
  CHECK(m.get<FavorAttention>()->features().dtype() == DType::float64);
}
