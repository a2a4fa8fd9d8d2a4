// Whole models: predicted activation bytes, copies, conversions, summaries, quantized weights.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/dry_run.hpp>
#include <heed/core/memory.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/layers/decoding.hpp>
#include <heed/layers/gpt.hpp>
#include <heed/layers/language_model.hpp>
#include <heed/layers/lora.hpp>
#include <heed/layers/model.hpp>
#include <heed/layers/sequential.hpp>
#include <map>
#include <numeric>

#include "tests/data/temporary_folder.hpp"
#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::names_of;
using test::normal;

namespace {

// The bytes that a tape keeps after forward(rows).
ActivationBytes kept(const std::function<Tensor(Index)>& forward, Index rows) {
  Tape tape;
  const Tensor y = forward(rows);
  return {tape.saved_bytes(), tape.saved_by_module()};
}

// Compute `predicted` before the call: the prediction sets the paths of the parameters.
void check_same(const ActivationBytes& predicted, const std::function<Tensor(Index)>& forward, Index rows) {
  const ActivationBytes real = kept(forward, rows);
  CHECK(predicted.total > 0);
  CHECK(predicted.total == real.total);
  CHECK((predicted.modules == real.modules));
  std::size_t sum = 0;
  for (const auto& module : predicted.modules) sum += module.second;
  CHECK(sum == predicted.total);
}

GPTOptions small() {
  return {.vocabulary = 50, .context = 40, .blocks = {.layers = 2, .attention = {.width = 24, .heads = 4}}};
}

}  // namespace

TEST_CASE("GPT predicts the bytes that a training step keeps, for every kind of model, type and shape") {
  std::vector<GPTOptions> variants(13, small());
  variants[1].blocks.norm = NormKind::rms, variants[1].positions = PositionKind::rope;
  variants[2].blocks.activation = FeedForwardKind::swiglu, variants[2].positions = PositionKind::sinusoidal;
  variants[3].blocks.activation = FeedForwardKind::relu, variants[3].positions = PositionKind::none;
  variants[4].blocks.activation = FeedForwardKind::silu, variants[4].tied = false;
  variants[5].blocks.activation = FeedForwardKind::gelu_tanh, variants[5].blocks.attention.bias = false;
  variants[6].blocks.dropout = 0.2;
  variants[7].blocks.attention.kv_heads = 2;
  variants[8].blocks.attention.kv_heads = 1, variants[8].positions = PositionKind::rope,
  variants[8].blocks.dropout = 0.1;
  variants[9].vocabulary = 30000;  // the loss has several chunks of rows
  variants[10].blocks.layers = 0;
  variants[11].blocks.hidden = 7, variants[11].blocks.attention.heads = 1, variants[11].tied = false;
  variants[12].blocks.reversible = true;
  for (const GPTOptions& o : variants)
    for (const DType dtype : {DType::float32, DType::float64}) {
      Rng rng(1);
      GPT model(o, rng);
      to(model, dtype);
      CAPTURE(&o - variants.data());
      CAPTURE(std::string(name_of(dtype)));
      for (const auto& [batch, length] : std::vector<std::pair<Index, Index>>{{1, 40}, {2, 1}, {3, 17}, {7, 33}}) {
        const auto loss = [&model, n = length](Index rows) {
          return model.loss(Rng(2).integers({rows, n}, 0, 50), Rng(3).integers({rows, n}, 0, 50));
        };
        check_same(model.predict_activations(batch, length), loss, batch);
      }
    }
}

TEST_CASE("predictions follow frozen parameters and the precision of products") {
  Rng rng(1);
  GPT model(small(), rng);
  const auto loss = [&](Index rows) {
    return model.loss(Rng(2).integers({rows, 20}, 0, 50), Rng(3).integers({rows, 20}, 0, 50));
  };
  const std::size_t all = model.predict_activations(5, 20).total;
  {
    const MatmulPrecision low(DType::bfloat16);
    check_same(model.predict_activations(5, 20), loss, 5);
  }
  freeze(model.transformer.blocks[0]);
  check_same(model.predict_activations(5, 20), loss, 5);
  freeze(*model.input.tokens);
  freeze(*model.input.positions);
  check_same(model.predict_activations(5, 20), loss, 5);
  CHECK(model.predict_activations(5, 20).total < all);
}

TEST_CASE("activation bytes of any model are predicted from runs with one and two rows") {
  Rng rng(1);
  Sequential mlp(
      Linear(6, 10, rng), [](In x) { return relu(x); }, Linear(10, 3, rng));
  const ActivationBytes nine = predict_activations(mlp, {9, 6});
  check_same(
      nine,
      [&](Index n) {
        return mlp(Tensor::zeros({n, 6}));
      },
      9);
  CHECK(nine.total == 9 * (6 + 10) * sizeof(float));  // the input, and relu's output for its derivative
  CHECK(predict_activations(mlp, {1, 6}).total == (6 + 10) * sizeof(float));
  CHECK(predict_activations(mlp, {1, 6}, DType::float32).modules.front().first == "0");
  for (const bool first : {false, true}) {
    Transformer encoder({.layers = 2, .attention = {.width = 8, .heads = 2}, .dropout = 0.1, .norm_first = first}, rng);
    Transformer decoder(
        {.layers = 2, .attention = {.width = 8, .heads = 2, .memory_width = 8}, .norm_first = first, .causal = true},
        rng);
    const auto translate = [&](Index n) { return decoder(rng.normal({n, 5, 8}), encoder(rng.normal({n, 7, 8}), {})); };
    named_parameters(encoder), named_parameters(decoder);
    check_same(predict_activations(translate, 6), translate, 6);
  }
  CHECK(contains(error_of([&] { predict_activations(mlp, {0, 6}); }), "the batch has 0 rows; it must have 1 or more"));
  const auto other_layers = [&](Index n) {
    const Tensor x = Tensor::zeros({n, 6});
    return n == 1 ? x * 2 : mlp(x);
  };
  CHECK(contains(error_of([&] { predict_activations(other_layers, 3); }),
                 "forward uses different modules for two rows than for one; it must use the same"));
}

TEST_CASE("a prediction leaves the random numbers and the gradients as they were") {
  GPTOptions o = small();
  o.blocks.dropout = 0.3;
  Rng rng(1);
  GPT model(o, rng);
  manual_seed(7);
  default_rng().set_position(12);
  model.predict_activations(4, 9);
  CHECK(default_rng().position() == 12);
  CHECK(default_rng().seed() == 7);
  for (const NamedParameter& p : named_parameters(model)) CHECK_FALSE(p.parameter->grad().defined());
}

TEST_CASE("a summary shows the bytes of each module in the line of its first parameter") {
  Rng rng(1);
  Sequential mlp(
      Linear(6, 10, rng), [](In x) { return relu(x); }, Linear(10, 3, rng));
  CHECK(summary(mlp, predict_activations(mlp, {9, 6})) ==
        "parameter  shape    elements  kept for backward\n0.weight   [10, 6]        60                576\n0.bias     "
        "[10]           10                   \n2.weight   [3, 10]        30                  0\n2.bias     [3]         "
        "    3                   \ntotal                    103                576\nkept for backward: bytes per "
        "training step, without parameters\n");
  CHECK(summary(mlp) ==
        "parameter  shape    elements\n"
        "0.weight   [10, 6]        60\n"
        "0.bias     [10]           10\n"
        "2.weight   [3, 10]        30\n"
        "2.bias     [3]             3\n"
        "total                    103\n");
  GPT model(small(), rng);
  const std::string text = summary(model, model.predict_activations(3, 20));
  for (const char* name : {"tokens.weight", "positions.weight", "blocks.1.mlp.down.weight", "norm.bias"})
    CHECK(contains(text, name));
}

TEST_CASE("a summary ends with the options of the model, except optional ones with their defaults") {
  Rng rng(1);
  GPTOptions options{.vocabulary = 9, .context = 6, .blocks = {.layers = 1, .attention = {.width = 8, .heads = 2}}};
  const auto last_line = [&] {
    GPT model(options, rng);
    const std::string text = summary(model);
    return text.substr(text.rfind('\n', text.size() - 2) + 1);
  };
  CHECK(last_line() ==
        "options: model gpt, vocabulary 9, layers 1, context 6, kv_heads 0, positions learned, width 8, heads 2, bias "
        "true, hidden 0, dropout 0.0, activation gelu, norm layer, tied true\n");
  options.logit_cap = 30, options.blocks.attention.qk_norm = true;
  CHECK(contains(last_line(), "qk_norm true, "));
  CHECK(contains(last_line(), "logit_cap 30.0\n"));
  options.blocks.reversible = true;
  CHECK(contains(last_line(), "reversible true, "));
}

namespace {
struct Pair {
  Linear a, b;
  void members(auto&& visit) {
    visit("a", a);
    visit("b", b);
  }
};
}  // namespace

TEST_CASE("models: clone, convert, tie, freeze, count, summary") {
  static_assert(!std::is_copy_constructible_v<Pair> && !std::is_copy_constructible_v<Linear> &&
                std::is_move_constructible_v<Pair>);
  Rng rng(9);
  const auto make = [&] { return Pair{Linear(3, 3, rng), Linear(3, 3, rng)}; };
  Pair model = make();
  Pair copy = clone(model, make);
  CHECK(test::same_bits(copy.b.weight, model.b.weight));
  CHECK(!copy.b.weight.shares_storage(model.b.weight));
  CHECK(parameter_count(model) == 24);
  tie(model.a.weight, model.b.weight);
  CHECK(parameter_count(model) == 15);
  to(model, DType::float64);
  CHECK(model.a.weight.shares_storage(model.b.weight));
  CHECK(model.a.weight.dtype() == DType::float64);
  freeze(model.a);
  CHECK(!model.b.weight.requires_grad());
  Tape tape;
  tape.backward(model.b(normal({1, 3})), Tensor::ones({1, 3}, DType::float64));
  CHECK(!model.a.weight.grad().defined());
  CHECK(model.b.bias.grad().defined());
  CHECK(contains(summary(model), "a.weight (frozen)"));
}

TEST_CASE("model: a dry run takes the memory of a real one") {
  for (const DType precision : {DType::float32, DType::bfloat16}) {
    Rng rng(1);
    GPT model({.vocabulary = 65,
               .context = 128,
               .blocks = {.layers = 2, .attention = {.width = 128, .heads = 4}, .dropout = 0.1}},
              rng);
    const Tensor x = rng.integers({8, 128}, 0, 65);
    const auto peak_of_step = [&] {
      const MatmulPrecision scope(precision);
      reset_peak_memory();
      {
        Tape tape;
        tape.backward(model.loss(x, x));
      }
      zero_grad(model);
      return memory_use().peak;
    };
    peak_of_step();  // allocates memory for the gradients
    std::size_t dry = 0;
    detail::dry_run([&] { dry = peak_of_step(); });
    CHECK(dry == peak_of_step());
  }
}

// ---- Quantized weights ----

namespace {

GPT small_gpt(bool tied, FeedForwardKind kind, std::uint64_t seed = 1) {
  GPTOptions o{.vocabulary = 70, .context = 32, .tied = tied};
  o.positions = tied ? PositionKind::rope : PositionKind::learned;
  o.blocks.layers = 2;
  o.blocks.attention.width = 64, o.blocks.attention.heads = 2;
  o.blocks.hidden = 96, o.blocks.activation = kind;
  Rng rng(seed);
  return GPT(o, rng);
}

// A copy with the numbers of the quantized weights.
GPT with_numbers(GPT& model) {
  GPT copy = clone(model);
  to(copy, DType::float32);
  return copy;
}

struct QuantizedModels {
  GPT quantized, numbers;
  QuantizedModels(bool tied, FeedForwardKind kind) : quantized(small_gpt(tied, kind)), numbers(small_gpt(tied, kind)) {
    to(quantized, DType::q8_0);
    numbers = with_numbers(quantized);
  }
};

}  // namespace

TEST_CASE("to: q8_0 converts matrices and tables of tokens, and freezes them") {
  GPT model = small_gpt(false, FeedForwardKind::gelu);
  to(model, DType::q8_0);
  std::map<std::string, DType> types;
  for (const NamedParameter& p : named_parameters(model)) {
    types[p.name] = p.parameter->dtype();
    CHECK(p.parameter->requires_grad() == (p.parameter->dtype() == DType::float32));
  }
  for (const char* name : {"tokens.weight", "output", "blocks.0.attention.qkv.weight", "blocks.1.mlp.down.weight"})
    CHECK(types.at(name) == DType::q8_0);
  for (const char* name : {"positions.weight", "norm.weight", "blocks.0.mlp.up.bias"})
    CHECK(types.at(name) == DType::float32);
  CHECK(contains(summary(model), "blocks.0.attention.qkv.weight (frozen, q8_0)"));
  CHECK(contains(error_of([&] { freeze(model, false); }), "is q8_0, which is not trained"));
  CHECK(contains(error_of([&] { to(model, DType::q4_0); }), "to: the type is q4_0"));
}

TEST_CASE("GPT: quantized weights give the logits, losses and gradients of adapters of their numbers") {
  for (const bool tied : {true, false})
    for (const FeedForwardKind kind : {FeedForwardKind::swiglu, FeedForwardKind::gelu})
      for (const bool recomputes : {false, true}) {
        QuantizedModels m(tied, kind);
        const Tensor x = test::random_ids({3, 20}, 70, 2), y = test::random_ids({3, 20}, 70, 3);
        CHECK(test::close(m.quantized(x), m.numbers(x), 1e-4, 1e-5));
        std::vector<std::vector<Tensor>> gradients;
        for (GPT* model : {&m.quantized, &m.numbers}) {
          Rng rng(4);
          add_lora(*model, {.rank = 2}, rng);
          for (const NamedParameter& p : trainable_parameters(*model)) init::normal_(*p.parameter, rng, 0, 0.05);
          model->transformer.recomputes = recomputes;
          Tape tape;
          tape.backward(model->loss(x, y));
          std::vector<Tensor>& all = gradients.emplace_back();
          for (const NamedParameter& p : trainable_parameters(*model)) all.push_back(p.parameter->grad());
        }
        REQUIRE(gradients[0].size() == 16);
        for (std::size_t i = 0; i < gradients[0].size(); ++i) {
          CAPTURE(i);
          CHECK(test::close(gradients[0][i], gradients[1][i], 1e-3, 1e-6));
        }
        CHECK(contains(error_of([&] { merge_lora(m.quantized); }), "a merged weight must be float32"));
        remove_lora(m.quantized);
      }
}

TEST_CASE("GPT: decoding with quantized weights continues as the model of their numbers does") {
  for (const bool tied : {true, false}) {
    QuantizedModels m(tied, FeedForwardKind::swiglu);
    const std::vector<Tokens> prompts = {{1, 2, 3}, {4}};
    const GenerateOptions options{.count = 20, .sampling = {.temperature = 0}};
    CHECK(generate(m.quantized, prompts, options) == generate(m.numbers, prompts, options));
  }
}

TEST_CASE("clone and copy_values keep quantized weights, and checkpoints refuse them") {
  GPT model = small_gpt(true, FeedForwardKind::swiglu);
  to(model, DType::q8_0);
  GPT copy = clone(model);
  const auto x = test::random_ids({1, 8}, 70, 6);
  CHECK(test::same_bits(model(x), copy(x)));
  CHECK(copy.input.tokens->weight.dtype() == DType::q8_0);
  const test::TemporaryFolder folder;
  Checkpoint c;
  CHECK(contains(error_of([&] {
                   store_model(c, model);
                   save_checkpoint(folder.path / "x.h5", c);
                 }),
                 "checkpoints have no quantized values"));
}
