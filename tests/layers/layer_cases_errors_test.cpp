// Error messages of layers.
#include <heed/heed.hpp>
#include <heed/layers/model.hpp>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::check_errors;
using test::contains;
using test::error_of;
using test::MeanAttention;

namespace {

Rng generator(1);

Tensor zeros(const Shape& shape) { return Tensor::zeros(shape); }

// A mechanism without capabilities, and with a reason.
struct Nothing : MeanAttention {
  std::string name() const { return "nothing"; }
  AttentionCapabilities capabilities() const { return {.why = "it is empty"}; }
};

// A mechanism that declares a state but makes none.
struct WrongCapabilities : MeanAttention {
  AttentionCapabilities capabilities() const { return {.causal = true, .state = true}; }
};

}  // namespace

TEST_CASE("layers: invalid sizes are errors of the constructor") {
  check_errors({
      {"Linear: in is 0 and out is 3; both must be 1 or more", [] { Linear(0, 3, generator); }},
      {"Linear: in is 3 and out is 0; both must be 1 or more", [] { Linear(3, 0, generator); }},
      {"Embedding: count is 0 and width is 4; both must be 1 or more", [] { Embedding(0, 4, generator); }},
      {"Embedding: padding_idx is 5 and count is 5; padding_idx must be in [-5, 5)",
       [] { Embedding(5, 4, generator, 5); }},
      {"FeedForward: hidden is -1; it must be 0 (the default) or more",
       [] { FeedForward(4, generator, {.hidden = -1}); }},
      {"MultiHeadAttention: width is 8 and heads is 3; both must be 1 or more and heads must divide width",
       [] { MultiHeadAttention({.width = 8, .heads = 3}, generator); }},
      {"MultiHeadAttention: width is 0 and heads is 1", [] { MultiHeadAttention({}, generator); }},
      {"MultiHeadAttention: heads is 4 and kv_heads is 3; kv_heads must divide heads",
       [] { MultiHeadAttention({.width = 8, .heads = 4, .kv_heads = 3}, generator); }},
      {"MultiHeadAttention: the size of a head is 3; rope requires an even size",
       [] { MultiHeadAttention({.width = 6, .heads = 2, .rope = true}, generator); }},
      {"Transformer: layers is -1; it must be 0 or more", [] { Transformer({.layers = -1}, generator); }},
      {"GPT: layers is -1 and context is 4; layers must be 0 or more and context 1 or more",
       [] { GPT({.context = 4, .blocks = {.layers = -1, .attention = {.width = 4, .heads = 1}}}, generator); }},
      {"GPT: layers is 1 and context is 0",
       [] { GPT({.context = 0, .blocks = {.layers = 1, .attention = {.width = 4, .heads = 1}}}, generator); }},
      {"sinusoidal_positions: count is -1 and width is 4; count must be 0 or more and width 1 or more",
       [] { sinusoidal_positions(-1, 4); }},
      {"sinusoidal_positions: count is 3 and width is 0", [] { SinusoidalPositions(3, 0); }},
      {"LearnedPositions: offset is 2 and length is 3; the positions must be in [0, 4) (layer_cases_errors_test.cpp:",
       [] { LearnedPositions(4, 6, generator)(3, 2); }},
      {"LearnedPositions: offset is -1 and length is 2", [] { LearnedPositions(4, 6, generator)(2, -1); }},
      {"LearnedPositions: offset is 9223372036854775807 and length is 2",
       [] { LearnedPositions(4, 6, generator)(2, std::numeric_limits<Index>::max()); }},
      {"LearnedPositions: offset is 1 and length is 9223372036854775807",
       [] { LearnedPositions(4, 6, generator)(std::numeric_limits<Index>::max(), 1); }},
      {"SinusoidalPositions: offset is 1 and length is -1", [] { SinusoidalPositions(4, 6)(-1, 1); }},
      {"and clip is 9223372036854775807; both must be 1 or more, and clip below 2^31",
       [] { RelativePositionBias(1, std::numeric_limits<Index>::max(), generator); }},
      {"SinusoidalPositions: offset is 2 and length is 3; the positions must be in [0, 4) "
       "(layer_cases_errors_test.cpp:",
       [] { SinusoidalPositions(4, 6)(3, 2); }},
      {"trunc_normal_: deviation is 0 and the interval [-2, 2]; the deviation must be positive and the interval not "
       "empty",
       [] {
         Parameter p(zeros({2}));
         init::trunc_normal_(p, generator, 0, 0);
       }},
      {"xavier_uniform_: the parameter is [3] float32; it must have at least 2 axes, [out, in, ...]",
       [] {
         Parameter p(zeros({3}));
         init::xavier_uniform_(p, generator);
       }},
      {"orthogonal_: the parameter is [] float32; it must have at least 2 axes",
       [] {
         Parameter p(zeros({}));
         init::orthogonal_(p, generator);
       }},
  });
}

TEST_CASE("layers: inputs that do not fit are errors that show their shapes") {
  const MultiHeadAttention self({.width = 8, .heads = 2}, generator),
      cross({.width = 8, .heads = 2, .memory_width = 6}, generator),
      apart({.width = 8, .heads = 2, .memory_width = 6, .value_width = 4}, generator);
  const TransformerBlock encoder({.attention = {.width = 8, .heads = 2}}, generator),
      decoder({.attention = {.width = 8, .heads = 2, .memory_width = 8}}, generator);
  const GPT model({.vocabulary = 5, .context = 4, .blocks = {.layers = 1, .attention = {.width = 4, .heads = 1}}},
                  generator);
  AttentionState state;
  std::vector<AttentionState> states;
  const Tensor x = zeros({2, 3, 8});
  check_errors({
      {"MultiHeadAttention: this layer attends to a memory; call it with one (layer_cases_errors_test.cpp:",
       [&] { cross(x); }},
      {"MultiHeadAttention: this layer attends to a memory", [&] { cross.decode(x, state); }},
      {"MultiHeadAttention: this layer is self-attention; call it without a memory", [&] { self(x, x); }},
      {"MultiHeadAttention: x is [2, 3, 9] float32; it must be [batch, positions, 8]",
       [&] {
         self(zeros({2, 3, 9}));
       }},
      {"MultiHeadAttention: x is [3, 8] float32; it must be [batch, positions, 8]",
       [&] {
         self(zeros({3, 8}));
       }},
      {"MultiHeadAttention: memory is [2, 3, 8] float32; it must be [batch, positions, 6]", [&] { cross(x, x); }},
      {"MultiHeadAttention: x is [2, 3, 9] float32 and the memory's keys are [2, 2, 5, 4] float32; x must be [batch, "
       "positions, 8] with the same batch",
       [&] {
         cross(zeros({2, 3, 9}), zeros({2, 5, 6}));
       }},
      {"MultiHeadAttention: value_width is 4 and memory_width is 0; value_width requires memory_width",
       [&] { MultiHeadAttention({.width = 8, .heads = 2, .value_width = 4}, generator); }},
      {"MultiHeadAttention: value_width is 4, so the memory holds only keys; call this layer with keys and values",
       [&] {
         apart(x, zeros({2, 5, 6}));
       }},
      {"MultiHeadAttention: keys are [2, 5, 6] float32 and values are [2, 5, 6] float32; values must be [batch, "
       "positions, 0] with the batch and positions of keys, and require value_width above 0",
       [&] {
         cross(x, zeros({2, 5, 6}), zeros({2, 5, 6}));
       }},
      {"MultiHeadAttention: keys are [2, 5, 6] float32 and values are [2, 4, 4] float32; values must be [batch, "
       "positions, 4] with the batch and positions of keys",
       [&] {
         apart(x, zeros({2, 5, 6}), zeros({2, 4, 4}));
       }},
      {"and the memory's keys are [3, 2, 4, 4] float32; x must be",
       [&] {
         cross(x, zeros({3, 4, 6}));
       }},
      {"TransformerBlock: this block attends to a memory; call it with one", [&] { decoder(x); }},
      {"TransformerBlock: this block attends to a memory; call it with one", [&] { decoder.decode(x, state); }},
      {"TransformerBlock: this block has no cross-attention; set memory_width, or call it without a memory",
       [&] { encoder(x, x); }},
      {"TransformerBlock: this block has no cross-attention", [&] { encoder.project(x); }},
      {"linear: x is [2, 3, 7] float32 but weight is [8, 8] float32",
       [&] {
         Linear(8, 8, generator)(zeros({2, 3, 7}));
       }},
      {"layer_norm: x is [2, 3, 8] float64 but weight is [8] float32",
       [&] {
         LayerNorm norm(8);
         norm(x.to(DType::float64));
       }},
      {"GPT: x is [2, 3] float32; it must be int32 [batch, positions]",
       [&] {
         model(zeros({2, 3}));
       }},
      {"GPT: x is [3] int32; it must be int32 [batch, positions]", [&] { model(Tensor::arange(3)); }},
      {"GPT: x reaches position 5 but the model's context is 4",
       [&] {
         model(Tensor::zeros({1, 5}, DType::int32));
       }},
      {"GPT: x is [1, 3] int32 and y is [1, 2] int32; the shapes must be the same",
       [&] {
         model.loss(Tensor::zeros({1, 3}, DType::int32), Tensor::zeros({1, 2}, DType::int32));
       }},
      {"embedding: indices[0, 1] is 5; it must be in [0, 5)",
       [&] {
         model(Tensor::from<std::int32_t>({0, 5}, {1, 2}));
       }},
  });
  CHECK(error_of([&] { model.decode(Tensor::zeros({1, 4}, DType::int32), states); }).empty());
  CHECK(contains(error_of([&] {
                   model.decode(Tensor::zeros({1, 1}, DType::int32), states);
                 }),
                 "GPT: x reaches position 5 but the model's context is 4"));
}

TEST_CASE("attention mechanisms: unsupported calls, and shapes that do not fit, are refused with the reason") {
  const AttentionMechanism nothing = Nothing(), mean = MeanAttention(), softmax = SoftmaxAttention();
  const Tensor q = zeros({2, 4, 3, 5}), mask = Tensor::ones({2, 3}, DType::bool8);
  const auto apply_with = [&](const AttentionCall& call) { return [&, call] { nothing.apply(q, q, q, call); }; };
  check_errors({
      {"nothing attention does not support causal masking: it is empty (layer_cases_errors_test.cpp:",
       apply_with({.causal = true})},
      {"nothing attention does not support a key mask: it is empty", apply_with({.key_mask = mask})},
      {"nothing attention does not support a key mask", apply_with({.key_lengths = Tensor::arange(2)})},
      {"nothing attention does not support a mask of single pairs: it is empty", apply_with({.mask = mask})},
      {"nothing attention does not support a bias of single pairs: it is empty", apply_with({.bias = zeros({3, 3})})},
      {"nothing attention does not support a bias: it is empty", apply_with({.bias = zeros({3})})},
      {"nothing attention does not support dropout on weights: it is empty", apply_with({.dropout = 0.1})},
      {"nothing attention does not support different numbers of queries and keys: it is empty",
       [&] {
         nothing.apply(q, zeros({2, 4, 6, 5}), zeros({2, 4, 6, 5}), {});
       }},
      {"GPT: layers is 0, but decode() reads the position from the states of layers; layers must be 1 or more, or "
       "positions rope (layer_cases_errors_test.cpp:",
       [] {
         GPT model({.context = 4, .blocks = {.layers = 0, .attention = {.width = 4, .heads = 1}}}, generator);
         std::vector<AttentionState> states;
         model.decode(Tensor::zeros({1, 2}, DType::int32), states);
       }},
      {"AttentionState: the state is empty",
       [] {
         const MultiHeadAttention layer({.width = 4}, generator, WrongCapabilities());
         AttentionState state;
         layer.decode(zeros({1, 1, 4}), state);
       }},
      {"nothing attention does not support a decode state: it is empty", [&] { nothing.make_state(); }},
      {"mean attention: q is [3, 5] float32, k is [2, 4, 3, 5] float32 and v is [2, 4, 3, 5] float32; each must be "
       "[batch, "
       "heads, positions, size]",
       [&] {
         mean.apply(zeros({3, 5}), q, q, {});
       }},
      {"and v is [2, 4, 2, 5] float32; batch, key positions and the size of q and k must agree",
       [&] {
         softmax.apply(q, q, zeros({2, 4, 2, 5}), {});
       }},
      {"batch, key positions and the size of q and k must agree",
       [&] {
         softmax.apply(q, zeros({2, 4, 3, 6}), q, {});
       }},
      {"mean attention: q has 4 heads and k has 2; they must be equal",
       [&] { mean.apply(q, q.slice(1, 0, 2), q.slice(1, 0, 2), {}); }},
      {"softmax attention: q has 4 heads and k has 3; the heads of q must be a multiple of the heads of k",
       [&] { softmax.apply(q, q.slice(1, 0, 3), q.slice(1, 0, 3), {}); }},
      {"softmax attention: q has 4 heads and k has 0; the heads of q must be a multiple of the heads of k",
       [&] { softmax.apply(q, q.slice(1, 0, 0), q.slice(1, 0, 0), {}); }},
  });
}

TEST_CASE("copying refuses models of another structure, and sampling refuses invalid options") {
  Linear a(3, 3, generator), narrow(3, 2, generator), plain(3, 3, generator, {.bias = false});
  const Tensor logits = Tensor::from({1, 2, 3});
  const auto sampled = [&](const Tensor& x, const SamplingOptions& o) {
    return [&, x, o] { sample(x, o, generator); };
  };
  check_errors({
      {"copy_values: one model has 2 parameters and the other 1; they must be the same",
       [&] { copy_values(a, plain); }},
      {"copy_values: weight is [3, 3] float32 and in the other model weight is [2, 3] float32; they must be the same",
       [&] { copy_values(a, narrow); }},
      {"copy_values: weight is [3, 3] float32 and in the other model weight is [3, 3] float64; they must be the same",
       [&] {
         Linear wide(3, 3, generator);
         to(wide, DType::float64);
         copy_values(a, wide);
       }},
      {"copy_values: one model has 1 buffers and the other 0; they must be the same",
       [] {
         Tensor b = zeros({2});
         detail::copy_buffers({{"counts", &b}}, {});
       }},
      {"sampling: temperature is -1; it must be 0 or more", sampled(logits, {.temperature = -1})},
      {"sampling: temperature is nan; it must be 0 or more", sampled(logits, {.temperature = NAN})},
      {"sampling: top_k is -1; it must be 0 (all) or more", sampled(logits, {.top_k = -1})},
      {"sampling: top_p is 0; it must be in (0, 1]", sampled(logits, {.top_p = 0})},
      {"sampling: top_p is 1.5; it must be in (0, 1]", sampled(logits, {.top_p = 1.5})},
      {"sample: logits are [1, 3] float32; they must be [vocabulary]", sampled(logits.unsqueeze(0), {})},
      {"sample: logits are [0] float32; they must be [vocabulary]", sampled(zeros({0}), {})},
      {"sample: logits are undefined; they must be [vocabulary]", sampled({}, {})},
      {"sample: logit 1 is nan; it must be a number, or -inf", sampled(Tensor::from({1, NAN}), {})},
      {"sample: logit 0 is inf; it must be a number, or -inf",
       sampled(Tensor::from({INFINITY, 0}), {.temperature = 0})},
      {"sample: all logits are -inf; at least one must be a number", sampled(Tensor::from({-INFINITY, -INFINITY}), {})},
  });
  for (int i = 0; i < 50; ++i)
    CHECK(sample(Tensor::from({-INFINITY, 0, -INFINITY, 0.5}), {.top_k = 3}, generator) % 2 == 1);
}
