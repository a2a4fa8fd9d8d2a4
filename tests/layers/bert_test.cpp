// The masked language model: it sees both sides, padding has no effect, and it is a GPT in all else.
#include <heed/autograd/losses.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/layers/gpt.hpp>
#include <heed/layers/model_config.hpp>
#include <heed/optim/optimizers.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::random_ids;

namespace {

BERTOptions small_bert() { return {.vocabulary = 11, .context = 8, .layers = 2, .heads = 2, .width = 8}; }

BERT with(const std::string& mechanism, const BERTOptions& o, Rng& rng) {
  BERT model(o, rng,
             mechanism_by_name(
                 mechanism, {.causal = false, .heads = o.heads, .head_size = o.width / o.heads, .context = o.context}));
  to(model, DType::float64);
  for (const NamedParameter& p : named_parameters(model))
    p.parameter->copy_(*p.parameter + rng.normal(p.parameter->shape(), 0, 0.2, DType::float64));
  return model;
}

}  // namespace

TEST_CASE("BERT: its loss is the cross-entropy of the targets that count, with the right derivative") {
  Rng rng(1);
  BERT model = with("softmax", small_bert(), rng);
  const Tensor x = random_ids({2, 6}, 11, 1);
  Tensor y = Tensor::full({2, 6}, -100, DType::int32);
  y.mutable_data<std::int32_t>()[2] = 4, y.mutable_data<std::int32_t>()[9] = 0;
  {
    const NoTape no_tape;
    const Tensor logits = model(x);
    CHECK(logits.shape() == Shape{2, 6, 11});
    CHECK(test::close(model.loss(x, y), cross_entropy(logits, y), 1e-12, 1e-12));
    const Tensor two = (cross_entropy(logits[0][2], Tensor::from<std::int32_t>({4}, {})) +
                        cross_entropy(logits[1][3], Tensor::from<std::int32_t>({0}, {}))) *
                       0.5;
    CHECK(test::close(model.loss(x, y), two, 1e-12, 1e-12));
  }
  const Tensor lengths = Tensor::from<std::int32_t>({6, 4});
  gradcheck([&] { return model.loss(x, y, lengths); }, named_parameters(model), {.most_elements = 25});
}

TEST_CASE("BERT: every position sees all others, with every mechanism of encoders, and a GPT's sees those before it") {
  for (const std::string& name : mechanism_names(false)) {
    CAPTURE(name);
    if (name == "lsh" || name == "top-k" || name == "window" || name == "strided" || name == "fixed") continue;  // few
    Rng rng(2);
    const BERT model = with(name, small_bert(), rng);
    const NoTape no_tape;
    Tensor x = random_ids({1, 8}, 11, 3);
    const Tensor before = model(x);
    x.mutable_data<std::int32_t>()[7] = (x.data<std::int32_t>()[7] + 1) % 11;
    const Tensor after = model(x);
    for (Index t = 0; t < 8; ++t) CHECK(test::worst(before.select(1, t), after.select(1, t), 0, 1e-9) > 1);
  }
  Rng rng(2);
  const GPT model(small_bert(), rng);
  const NoTape no_tape;
  Tensor x = random_ids({1, 8}, 11, 3);
  const Tensor before = model(x);
  x.mutable_data<std::int32_t>()[7] = (x.data<std::int32_t>()[7] + 1) % 11;
  CHECK(test::same_bits(before.slice(1, 0, 7), model(x).slice(1, 0, 7)));
}

TEST_CASE("BERT: padding has no effect, with every mechanism that takes it") {
  int taken = 0;
  for (const std::string& name : mechanism_names(false)) {
    CAPTURE(name);
    Rng rng(4);
    const BERT model = with(name, small_bert(), rng);
    if (!model.net.blocks[0].attention.mechanism.capabilities().key_mask) continue;
    ++taken;
    const NoTape no_tape;
    const Tensor x = random_ids({2, 8}, 11, 5), other = x.clone(), lengths = Tensor::from<std::int32_t>({8, 5});
    for (Index t = 5; t < 8; ++t) other.ptr<std::int32_t>()[8 + t] = static_cast<std::int32_t>(t);
    const Tensor a = model(x, lengths), b = model(other, lengths);
    CHECK(test::same_bits(a[0], b[0]));
    CHECK(test::same_bits(a[1].slice(0, 0, 5), b[1].slice(0, 0, 5)));
    CHECK(test::close(model(x.slice(0, 1, 2).slice(1, 0, 5))[0], a[1].slice(0, 0, 5), 1e-10, 1e-10));
  }
  CHECK(taken >= 12);
}

TEST_CASE("BERT: names and start of a GPT, cloned, summed up, and no decoding") {
  Rng rng(6), same(6);
  BERT model(small_bert(), rng);
  GPT gpt(small_bert(), same);
  std::vector<std::string> names, gpt_names;
  for (const NamedParameter& p : named_parameters(model)) names.push_back(p.name);
  for (const NamedParameter& p : named_parameters(gpt)) gpt_names.push_back(p.name);
  CHECK(names == gpt_names);
  const NoTape no_tape;
  CHECK(test::same_bits(model.net.tokens.weight, gpt.tokens.weight));
  BERT copy = clone(model);
  const Tensor x = random_ids({2, 8}, 11, 1);
  CHECK(test::same_bits(copy(x), model(x)));
  CHECK_FALSE(model.options().causal);
  CHECK(contains(summary(model, model.predict_activations(2, 8)), "blocks.1.mlp.up"));
  CHECK(model.flops_per_token(8) == gpt.flops_per_token(8));
  std::vector<AttentionState> states;
  CHECK(contains(error_of([&] { model.net.decode(x, states); }), "GPT: this model is not causal"));
}
