// Models with quantized weights: results, gradients of adapters, decoding, copies, and what is refused.
#include <heed/autograd/tape.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/layers/decoding.hpp>
#include <heed/layers/gpt.hpp>
#include <heed/layers/language_model.hpp>
#include <heed/layers/lora.hpp>
#include <heed/layers/model.hpp>
#include <map>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using heed::test::close, heed::test::contains, heed::test::error_of, heed::test::same_bits;

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
        CHECK(close(m.quantized(x), m.numbers(x), 1e-4, 1e-5));
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
          CHECK(close(gradients[0][i], gradients[1][i], 1e-3, 1e-6));
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
  CHECK(same_bits(model(x), copy(x)));
  CHECK(copy.input.tokens->weight.dtype() == DType::q8_0);
  const test::TemporaryFolder folder;
  Checkpoint c;
  CHECK(contains(error_of([&] {
                   store_model(c, model);
                   save_checkpoint(folder.path / "x.h5", c);
                 }),
                 "checkpoints have no quantized values"));
}
