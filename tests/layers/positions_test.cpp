// Clipped relative positions: the bias and its gradient, in attention layers, in GPT and in decoding.
#include <algorithm>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/language_model.hpp>
#include <heed/layers/model.hpp>
#include <heed/layers/model_config.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

Tensor tokens(const Shape& shape, std::uint64_t seed) { return Rng(seed).integers(shape, 0, 11); }

GPTOptions relative_gpt() {
  return {.vocabulary = 11,
          .context = 12,
          .blocks = {.layers = 2, .attention = {.width = 8, .heads = 2, .relative_clip = 3}},
          .positions = PositionKind::relative};
}

MechanismFactory mechanism_of(const std::string& name) {
  return mechanism_by_name(name, {.heads = 2, .head_size = 4, .context = 12, .window = 5});
}

// Enlarges the tables, so that positions affect the result.
void enlarge_tables(GPT& model) {
  Rng rng(8);
  for (const NamedParameter& p : named_parameters(model))
    if (p.name.ends_with("relative.weight"))
      p.parameter->copy_(rng.normal(p.parameter->shape(), 0, 1, p.parameter->dtype()));
}

}  // namespace

TEST_CASE("relative positions: the bias and the gradient of its table equal loops over all pairs") {
  for (const DType dtype : {DType::float64, DType::float32})
    for (const std::array<Index, 3>& sizes : std::vector<std::array<Index, 3>>{
             {1, 1, 1}, {5, 5, 2}, {1, 9, 3}, {4, 9, 2}, {9, 4, 3}, {70, 130, 16}, {3, 3, 8}, {0, 3, 2}}) {
      const Index queries = sizes[0], keys = sizes[1], clip = sizes[2];
      Rng rng(1);
      RelativePositionBias layer(3, clip, rng);
      layer.weight.copy_(rng.normal(layer.weight.shape()));
      Parameter table(layer.weight.detach().to(dtype).clone());
      Tape tape;
      const Tensor bias = relative_position_bias(table, queries, keys);
      REQUIRE(bias.shape() == Shape{3, queries, keys});
      const Tensor dbias = rng.normal(bias.shape(), 0, 1, dtype);
      tape.backward(bias, dbias);
      Tensor expected = Tensor::zeros(bias.shape(), DType::float64),
             dtable = Tensor::zeros(table.shape(), DType::float64);
      for (Index h = 0; h < 3; ++h)
        for (Index i = 0; i < queries; ++i)
          for (Index j = 0; j < keys; ++j) {
            Index distance = j - (i + keys - queries);
            if (distance > clip) distance = clip;
            if (distance < -clip) distance = -clip;
            const Index column = clip + distance;
            expected.ptr<double>()[(h * queries + i) * keys + j] = table.at({h, column});
            dtable.ptr<double>()[h * (2 * clip + 1) + column] += dbias.at({h, i, j});
          }
      CAPTURE(queries);
      CAPTURE(keys);
      CHECK(close(bias.detach(), expected, 0, 1e-300));
      CHECK(
          close(table.grad(), dtable, dtype == DType::float64 ? 1e-13 : 1e-6, dtype == DType::float64 ? 1e-13 : 1e-6));
    }
  const Tensor table = Rng(2).normal({2, 7}, 0, 1, DType::float64);
  gradcheck([](const std::vector<Tensor>& x) { return relative_position_bias(x[0], 4, 6); }, {table});
}

TEST_CASE("relative positions: such a layer is softmax attention with their bias, with masks and a further bias") {
  Rng rng(3), again(3);
  MultiHeadAttention layer({.width = 8, .heads = 2, .relative_clip = 2}, rng);
  const MultiHeadAttention plain({.width = 8, .heads = 2}, again);
  CHECK(parameter_count(layer) == 8 * 24 + 24 + 8 * 8 + 8 + 2 * 5);
  layer.relative->weight.copy_(rng.normal({2, 5}));
  const Tensor x = rng.normal({2, 6, 8}), own = rng.normal({6, 6}), lengths = Tensor::from<std::int32_t>({6, 4});
  const NoTape guard;
  const Tensor bias = (*layer.relative)(6, 6);
  for (const bool causal : {false, true}) {
    CHECK(close(layer(x, {.causal = causal, .key_lengths = lengths}),
                plain(x, {.causal = causal, .key_lengths = lengths, .bias = bias})));
    CHECK(close(layer(x, {.causal = causal, .bias = own}), plain(x, {.causal = causal, .bias = bias + own})));
  }
  CHECK(!close(layer(x), plain(x), 1e-2, 1e-2));
}

TEST_CASE("GPT with relative positions passes gradcheck, and its tables have a gradient in each block") {
  Rng rng(1);
  GPT model(relative_gpt(), rng);
  to(model, DType::float64);
  enlarge_tables(model);
  const Tensor x = tokens({2, 7}, 1), y = tokens({2, 7}, 2);
  std::vector<NamedParameter> tables;
  for (const NamedParameter& p : named_parameters(model))
    if (p.name.ends_with("relative.weight")) tables.push_back(p);
  REQUIRE(tables.size() == 2);
  CHECK(tables[1].name == "blocks.1.attention.relative.weight");
  gradcheck([&] { return model.loss(x, y); }, tables);
  gradcheck([&] { return model.loss(x, y); }, named_parameters(model), {.min_samples = 10});
}

TEST_CASE("GPT with relative positions: decoding gives the logits of the whole model") {
  for (const std::string& name : mechanism_names()) {
    CAPTURE(name);
    Rng rng(2);
    if (!mechanism_of(name)(0, rng).capabilities().bias) continue;
    GPT model(relative_gpt(), rng, mechanism_of(name));
    to(model, DType::float64);
    enlarge_tables(model);
    const NoTape no_tape;
    const Tensor x = tokens({3, 12}, 5), whole = model(x);
    std::vector<AttentionState> states;
    CHECK(close(model.decode(x.slice(1, 0, 4), states), whole.select(1, 3), 1e-11, 1e-11));
    for (Index t = 4; t < 12; ++t)
      CHECK(close(model.decode(x.slice(1, t, t + 1), states), whole.select(1, t), 1e-11, 1e-11));
  }
}

TEST_CASE(
    "GPT with relative positions is saved, loaded and generates, and has the same bits at any number of threads") {
  Rng rng(3), other(4);
  GPT model(relative_gpt(), rng), loaded(relative_gpt(), other);
  const TemporaryFolder folder;
  Checkpoint file;
  store_model(file, model);
  save_checkpoint(folder.path / "m.h5", file);
  load_model(load_checkpoint(folder.path / "m.h5"), loaded);
  Rng a(1), b(1);
  const std::vector<std::int32_t> prompt = {1, 2, 3};
  CHECK(generate(model, prompt, 30, {}, a) == generate(loaded, prompt, 30, {}, b));
  const int before = threads();
  std::vector<Tensor> gradients;
  for (const int count : {1, 3}) {
    set_threads(count);
    zero_grad(model);
    Tape tape;
    tape.backward(model.loss(tokens({4, 12}, 1), tokens({4, 12}, 2)));
    gradients.push_back(model.transformer.blocks[0].attention.relative->weight.grad().clone());
  }
  set_threads(before);
  CHECK(same_bits(gradients[0], gradients[1]));
}

TEST_CASE("relative positions of rows of different length equal those of each row") {
  Rng rng(1);
  const RelativePositionBias bias(3, 4, rng);
  const std::vector<std::int32_t> seen = {7, 0, 2};
  const Tensor all = bias.of_rows(5, Tensor::from(seen, {3}));
  CHECK(all.shape() == Shape{3, 3, 5, 12});
  for (Index b = 0; b < 3; ++b) {
    const Index keys = seen[static_cast<std::size_t>(b)] + 5;
    CHECK(same_bits(all[b].slice(2, 0, keys).contiguous(), bias(5, keys)));
  }
}

TEST_CASE("relative positions: errors") {
  Rng rng(1);
  GPTOptions without = relative_gpt();
  without.blocks.attention.relative_clip = -1;
  const Tensor x = Tensor::zeros({1, 2, 3, 4});
  AttentionState sums = mechanism_of("linear")(0, rng).make_state();
  check_errors({
      {"linear attention does not support relative positions, which are a bias of single pairs: weights of single "
       "pairs",
       [&] { GPT(relative_gpt(), rng, mechanism_of("linear")); }},
      {"favor attention does not support relative positions", [&] { GPT(relative_gpt(), rng, mechanism_of("favor")); }},
      {"MultiHeadAttention: relative_clip is -1 and memory_width is 0; relative positions require",
       [&] { GPT(without, rng); }},
      {"MultiHeadAttention: relative_clip is 3 and memory_width is 8; relative positions require self-attention",
       [&] { MultiHeadAttention({.width = 8, .memory_width = 8, .relative_clip = 3}, rng); }},
      {"RelativePositionBias: heads is 0 and clip is 2; both must be 1 or more",
       [&] { RelativePositionBias(0, 2, rng); }},
      {"RelativePositionBias: heads is 2 and clip is 0", [&] { RelativePositionBias(2, 0, rng); }},
      {"relative_position_bias: table is [2, 4] float32; it must be [heads, 2 clip + 1], float32 or float64",
       [&] {
         relative_position_bias(Tensor::zeros({2, 4}), 2, 2);
       }},
      {"relative_position_bias: queries is -1 and keys is 2; both must be 0 or more",
       [&] {
         relative_position_bias(Tensor::zeros({2, 3}), -1, 2);
       }},
      {"AttentionState: bias is [3, 3] float32, but this state has no scores of single pairs to add a bias to; it must "
       "be undefined",
       [&] {
         sums.apply(x, x, x, {.bias = Tensor::zeros({3, 3})});
       }},
      {"AttentionState: the state is empty",
       [&] {
         AttentionState().apply(x, x, x, {.bias = Tensor::zeros({3, 3})});
       }},
  });
}
