// Rows that hold several documents: models give each document the values and gradients that it has in a row by itself.
#include <heed/autograd/losses.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/gpt.hpp>
#include <heed/layers/model.hpp>
#include <heed/layers/model_config.hpp>
#include <map>

#include "tests/layers/documents.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

constexpr Index kVocabulary = 11;

using Gradients = std::map<std::string, Tensor>;
Gradients gradients_of(GPT& model, const std::function<Tensor()>& loss) {
  Gradients all;
  for (const NamedParameter& p : named_parameters(model)) p.parameter->zero_grad();
  Tape tape;
  tape.backward(loss());
  for (const NamedParameter& p : named_parameters(model))
    if (p.parameter->grad().defined()) all[p.name] = p.parameter->grad().clone();
  return all;
}

// Logits, loss and gradients of the packed rows against those of the documents, each in a row by itself.
void check_documents(GPT& model, double tolerance) {
  const Tensor x = random_ids({2, 12}, kVocabulary, 1), y = random_ids({2, 12}, kVocabulary, 2);
  const AttentionCall call{.documents = begins_of_documents()};
  const Tensor logits = model(x, call);
  for (const Document& d : kDocuments) CHECK(worst(part_of(logits, d), model(part_of(x, d)), 0, tolerance) < 1);
  CHECK(worst(part_of(model(x), kDocuments[1]), part_of(logits, kDocuments[1]), 0, tolerance) > 1);
  const Gradients packed = gradients_of(model, [&] { return model.loss(x, y, call); });
  const Gradients alone = gradients_of(model, [&] {
    std::vector<Tensor> losses;
    for (const Document& d : kDocuments)
      losses.push_back(cross_entropy(model(part_of(x, d)), part_of(y, d)) *
                       (static_cast<double>(d.last - d.first) / 24));
    Tensor sum = losses[0];
    for (std::size_t i = 1; i < losses.size(); ++i) sum = sum + losses[i];
    return sum;
  });
  for (const auto& gradient : alone) {
    CAPTURE(gradient.first);
    CHECK(worst(packed.at(gradient.first), gradient.second, 0, tolerance) < 1);
  }
}

GPTOptions options_with(PositionKind positions, Index kv_heads) {
  return {
      .vocabulary = kVocabulary,
      .context = 12,
      .blocks = {.layers = 2, .attention = {.width = 16, .heads = 4, .kv_heads = kv_heads, .qk_norm = kv_heads == 2}},
      .positions = positions};
}

}  // namespace

TEST_CASE("a GPT keeps documents of a row apart, with every kind of positions, in values and gradients") {
  for (const PositionKind kind : {PositionKind::none, PositionKind::learned, PositionKind::sinusoidal,
                                  PositionKind::rope, PositionKind::relative})
    for (const Index kv_heads : {4, 2}) {
      CAPTURE(static_cast<int>(kind));
      Rng rng(3);
      GPT model(options_with(kind, kv_heads), rng);
      for (const NamedParameter& p : named_parameters(model)) {  // larger than initial weights, for attention to matter
        Tensor weight = *p.parameter;
        if (weight.rank() > 1) weight.copy_(rng.normal(weight.shape(), 0, 0.5));
      }
      check_documents(model, 1e-4);
      to(model, DType::float64);
      check_documents(model, 1e-11);
    }
}

TEST_CASE("every causal mechanism keeps documents of a row apart, or refuses them") {
  std::vector<std::string> refused;
  for (const std::string& name : mechanism_names()) {
    CAPTURE(name);
    Rng rng(4);
    GPT model(options_with(PositionKind::rope, 4), rng,
              mechanism_by_name(name, {.heads = 4, .head_size = 4, .context = 12, .window = 3}));
    to(model, DType::float64);
    const AttentionMechanism& mechanism = model.transformer.blocks[0].attention.mechanism;
    if (mechanism.capabilities().documents) {
      check_documents(model, 1e-10);
      continue;
    }
    refused.push_back(name);
    CHECK(contains(error_of([&] {
                     model(random_ids({2, 12}, kVocabulary, 1), {.documents = begins_of_documents()});
                   }),
                   mechanism.name() + " attention does not support several documents in a row"));
  }
  CHECK(refused == std::vector<std::string>{"linear", "efficient", "taylor", "luong-location", "longformer", "fixed",
                                            "synthesizer", "lsh", "favor", "luna"});
}

TEST_CASE("window attention with global positions refuses documents, and the weights of a layer keep to them") {
  Rng rng(1);
  const AttentionCall call{.causal = true, .documents = begins_of_documents()};
  const MultiHeadAttention globals({.width = 8, .heads = 2}, rng, WindowAttention({.window = 4, .globals = {0}}));
  const Tensor x = rng.normal({2, 12, 8});
  CHECK(contains(error_of([&] { globals(x, call); }), "window attention does not support several documents in a row"));
  const MultiHeadAttention layer({.width = 8, .heads = 2, .rope = true}, rng);
  const Tensor weights = layer.weights(x, call);
  const Document d = kDocuments[1];
  const Tensor own = weights.slice(0, 0, 1).slice(2, d.first, d.last).slice(3, d.first, d.last);
  CHECK(close(own, layer.weights(part_of(x, d), {.causal = true}), 1e-5, 1e-6));
  CHECK(weights.at({0, 1, 6, 4}) == 0);
}

TEST_CASE("token input: positions begin with each document, and only they count towards the context") {
  for (const PositionKind kind : {PositionKind::learned, PositionKind::sinusoidal}) {
    Rng rng(1);
    const TokenInput input({.vocabulary = 7, .context = 4, .width = 4, .positions = kind}, rng);
    const Tensor x = random_ids({1, 6}, 7, 1), none = Tensor::zeros({0}, DType::int32);
    const Tensor h = input(x, none, {.documents = Tensor::from<std::int32_t>({0, 0, 0, 3, 3, 3}, {1, 6})});
    CHECK(same_bits(h.slice(1, 0, 3).dense(), input(x.slice(1, 0, 3)).dense()));
    CHECK(same_bits(h.slice(1, 3, 6).dense(), input(x.slice(1, 3, 6)).dense()));
    check_errors({
        {"TokenInput: x reaches position 5 but the model's context is 4",
         [&] {
           input(x, none, {.documents = Tensor::from<std::int32_t>({0, 0, 0, 0, 0, 5}, {1, 6})});
         }},
        {"TokenInput: x is [1, 6] int32, documents is [1, 5] int32 and rows have seen no positions; documents must "
         "have "
         "the shape of x",
         [&] {
           input(x, none, {.documents = Tensor::zeros({1, 5}, DType::int32)});
         }},
        {"rows have seen earlier positions",
         [&] {
           input(x, Tensor::from<std::int32_t>({2}), {.documents = Tensor::zeros({1, 6}, DType::int32)});
         }},
    });
  }
}

TEST_CASE("documents are for causal models and whole rows: encoders and decode states refuse them") {
  Rng rng(1);
  const Tensor documents = Tensor::zeros({1, 4}, DType::int32), x = random_ids({1, 4}, kVocabulary, 1);
  const BERT bert(options_with(PositionKind::learned, 4), rng);
  const GPT gpt(options_with(PositionKind::learned, 4), rng);
  check_errors({
      {"documents require a causal call", [&] { bert.GPT::hidden(x, {.documents = documents}); }},
      {"AttentionState: the call has documents, but a state continues one document per row",
       [&] {
         const NoTape no_tape;
         AttentionState state = SoftmaxAttention().make_state();
         const Tensor q = Tensor::zeros({1, 2, 4, 8});
         state.apply(q, q, q, {.documents = documents});
       }},
  });
}
