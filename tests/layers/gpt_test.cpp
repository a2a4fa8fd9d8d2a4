// GPT and BERT: gradients, names, PyTorch's training, GPT-2's logits, decoding, masks. Above 400 lines: one model with
// many options, and the same few references for all.
#include <heed/autograd/losses.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/layers/gpt.hpp>
#include <heed/layers/model.hpp>
#include <heed/layers/model_config.hpp>
#include <heed/optim/optimizers/optimizers.hpp>
#include <set>

#include "tests/support.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::random_ids;

namespace {

GPTOptions small_gpt() {
  return {.vocabulary = 11, .context = 8, .blocks = {.layers = 2, .attention = {.width = 8, .heads = 2}}};
}

// The largest difference from PyTorch's losses over `steps` steps, on the batches of data/text.
double worst_loss(GPT& model, Optimizer& optimizer, const Checkpoint& file, const std::string& losses, Index steps) {
  const Tensor text = file.tensor("data/text"), expected = file.tensor(losses);
  double max_difference = 0;
  for (Index step = 0; step < steps; ++step) {
    Tape tape;
    const Tensor t = text[step];
    const Tensor loss = model.loss(t.slice(1, 0, 16), t.slice(1, 1, 17));
    max_difference = std::max(max_difference, std::fabs(loss.item() - expected.at({step})));
    tape.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  return max_difference;
}

}  // namespace

TEST_CASE("GPT passes gradcheck with every kind of norm, position and activation") {
  std::vector<GPTOptions> variants(9, small_gpt());
  variants[1].blocks.norm = NormKind::rms, variants[1].positions = PositionKind::rope,
  variants[1].blocks.activation = FeedForwardKind::swiglu;
  variants[2].positions = PositionKind::sinusoidal, variants[2].blocks.attention.bias = false,
  variants[2].blocks.activation = FeedForwardKind::relu;
  variants[3].tied = false, variants[3].blocks.activation = FeedForwardKind::gelu_tanh;
  variants[4].positions = PositionKind::none, variants[4].blocks.attention.kv_heads = 1,
  variants[4].blocks.activation = FeedForwardKind::silu;
  variants[5].blocks.dropout = 0.2;
  variants[6].blocks.attention.qk_norm = true, variants[6].positions = PositionKind::rope,
  variants[6].blocks.activation = FeedForwardKind::relu_squared;
  variants[7].logit_cap = 0.4, variants[7].blocks.norm_first = false;
  variants[8].blocks.reversible = variants[8].blocks.post_norms = true, variants[8].blocks.dropout = 0.2;
  const Tensor x = random_ids({2, 6}, 11, 1), y = random_ids({2, 6}, 11, 2);
  for (const GPTOptions& o : variants) {
    Rng rng(1);
    GPT model(o, rng);
    to(model, DType::float64);
    for (const NamedParameter& p : named_parameters(model))
      p.parameter->copy_(*p.parameter + rng.normal(p.parameter->shape(), 0, 0.2, DType::float64));
    gradcheck([&] { return model.loss(x, y); }, named_parameters(model), {.min_samples = test::thinned<Index>(25, 3)});
    const Evaluation off;
    const NoTape no_tape;
    CHECK(test::close(model.loss(x, y), cross_entropy(model(x), y), 1e-12, 1e-12));
  }
}

TEST_CASE("a soft cap of the logits: cap tanh(logits / cap), in calls and in the loss") {
  GPTOptions o = small_gpt(), capped = o;
  capped.logit_cap = 0.1;
  Rng rng(1), same(1);
  const GPT plain(o, rng), model(capped, same);
  const Tensor x = random_ids({2, 6}, 11, 1), y = random_ids({2, 6}, 11, 2), logits = model(x);
  CHECK(test::close(logits, tanh(plain(x) / 0.1) * 0.1, 1e-6, 1e-7));
  CHECK(max(abs(logits)).item() < 0.1);
  CHECK(max(abs(plain(x))).item() > 0.1);
  CHECK(test::close(model.loss(x, y), cross_entropy(logits, y), 1e-6, 1e-6));
  CHECK(model.loss(x, y).item() != plain.loss(x, y).item());
  capped.logit_cap = -1;
  CHECK(error_of([&] { GPT(capped, rng); }) == "GPT: logit_cap is -1; it must be 0 or more, and finite");
}

TEST_CASE("a GPT that was converted to float64 adds sinusoids of float64") {
  GPTOptions o = small_gpt();
  o.positions = PositionKind::sinusoidal, o.blocks.layers = 0;
  Rng rng(1);
  GPT model(o, rng);
  to(model, DType::float64);
  const Tensor x = random_ids({2, 6}, 11, 1);
  const Tensor h = (*model.input.tokens)(x) + sinusoidal_positions(6, 8, DType::float64);
  CHECK(test::worst(model(x), linear((*model.transformer.norm)(h), model.input.tokens->weight, Tensor()), 1e-13,
                    1e-15) <= 1);
}

TEST_CASE("GPT has the names and the initial weights of GPT-2") {
  Rng rng(1);
  GPT model({.vocabulary = 50, .context = 16, .blocks = {.layers = 3, .attention = {.width = 64, .heads = 4}}}, rng);
  std::set<std::string> names;
  for (const NamedParameter& p : named_parameters(model)) names.insert(p.name);
  for (const char* name :
       {"tokens.weight", "positions.weight", "blocks.2.norm1.weight", "blocks.0.attention.qkv.weight",
        "blocks.1.attention.proj.bias", "blocks.0.mlp.up.weight", "blocks.0.mlp.down.bias", "norm.bias"})
    CHECK(names.count(name) == 1);
  CHECK(names.count("output") == 0);
  // 12 width^2 + 13 width per block, as in GPT-2, plus tokens, positions and the last norm.
  CHECK(parameter_count(model) == 3 * (12 * 64 * 64 + 13 * 64) + (50 + 16) * 64 + 2 * 64);
  const auto deviation = [](const Tensor& t) {
    double sum = 0;
    for (double v : t.to_vector<double>()) sum += v * v;
    return std::sqrt(sum / static_cast<double>(t.numel()));
  };
  CHECK(deviation(model.transformer.blocks[0].mlp.up.weight) == doctest::Approx(0.02).epsilon(0.03));
  CHECK(deviation(model.transformer.blocks[0].mlp.down.weight) == doctest::Approx(0.02 / std::sqrt(6.0)).epsilon(0.03));
  CHECK(deviation(model.transformer.blocks[0].attention.qkv->bias) == 0);
  const NoTape no_tape;
  CHECK(model.loss(random_ids({4, 16}, 50, 1), random_ids({4, 16}, 50, 2)).item() ==
        doctest::Approx(std::log(50.0)).epsilon(0.02));
}

TEST_CASE("50 AdamW steps follow PyTorch's from the same weights and batches") {
  // The file is written by tests/reference/gpt_torch.py.
  const Checkpoint file = load_checkpoint(test::in_source("tests/reference/gpt_torch.h5"));
  for (const DType dtype : {DType::float32, DType::float64}) {
    Rng rng(1);
    GPT model({.vocabulary = 29, .context = 16, .blocks = {.layers = 2, .attention = {.width = 32, .heads = 4}}}, rng);
    to(model, dtype);
    load_model(file, model, {.convert = true});
    AdamW optimizer(named_parameters(model), {.lr = 1e-3, .betas = {0.9, 0.99}, .weight_decay = 0.1});
    const std::string losses = dtype == DType::float64 ? "losses/float64" : "losses/float32";
    const Tensor expected = file.tensor(losses);
    const double max_difference = worst_loss(model, optimizer, file, losses, 50);
    INFO("dtype " << std::string(name_of(dtype)) << ", largest difference " << max_difference);
    CHECK(max_difference <= (dtype == DType::float64 ? 1e-8 : 1e-4));
    CHECK(expected.at({49}) < expected.at({0}) - 0.3);
  }
}

TEST_CASE("40 steps of Muon of a GPT with QK-norm, squared ReLU and rotary positions follow PyTorch's") {
  // The file is written by tests/reference/gpt_muon_torch.py.
  const Checkpoint file = load_checkpoint(test::in_source("tests/reference/gpt_muon_torch.h5"));
  Rng rng(1);
  GPT model({.vocabulary = 29,
             .context = 16,
             .blocks = {.layers = 2,
                        .attention = {.width = 32, .heads = 4, .bias = false, .qk_norm = true},
                        .activation = FeedForwardKind::relu_squared,
                        .norm = NormKind::rms},
             .positions = PositionKind::rope},
            rng);
  to(model, DType::float64);
  load_model(file, model, {.convert = true});
  Muon optimizer(muon_groups(model, {.weight_decay = 0.1, .lr_scale = 0.25}), {.lr = 0.02});
  const Tensor expected = file.tensor("losses/float64");
  const double max_difference = worst_loss(model, optimizer, file, "losses/float64", 40);
  INFO("largest difference " << max_difference);
  CHECK(max_difference <= 1e-8);
  CHECK(expected.at({39}) < expected.at({0}) - 2);
}

TEST_CASE("a GPT with zero-initialized residual weights initially computes the last norm of its embeddings") {
  GPTOptions o = small_gpt();
  o.zero_init_residual = true, o.positions = PositionKind::none;
  Rng rng(1), other(2);
  GPT model(o, rng);
  const Tensor x = random_ids({2, 6}, 11, 1);
  CHECK(test::same_bits(model.hidden(x), (*model.transformer.norm)((*model.input.tokens)(x))));
  CHECK(test::worst(model.transformer.blocks[0].mlp.up.weight, Tensor::zeros({32, 8}), 0, 1e-3) >
        1);  // others are random
  model.init_weights([&](const std::string&) -> Rng& { return other; });
  CHECK(test::same_bits(model.hidden(x), (*model.transformer.norm)((*model.input.tokens)(x))));
}

TEST_CASE("with GPT-2's weights and the settings of the preset gpt2, the logits are GPT-2's") {
  // The file is written by tests/reference/gpt2_transformers.py.
  const Checkpoint file = load_checkpoint(test::in_source("tests/reference/gpt2_transformers.h5"));
  const auto logits = [&](FeedForwardKind activation, DType dtype) {
    Rng rng(1);
    GPT model({.vocabulary = 23,
               .context = 12,
               .blocks = {.layers = 2, .attention = {.width = 8, .heads = 2}, .activation = activation}},
              rng);
    to(model, dtype);
    load_model(file, model, {.convert = true});
    const NoTape no_tape;
    return model(file.tensor("data/tokens"));
  };
  const Tensor expected = file.tensor("data/logits");
  CHECK(test::close(logits(FeedForwardKind::gelu_tanh, DType::float64), expected, 1e-12, 1e-12));
  CHECK(test::close(logits(FeedForwardKind::gelu_tanh, DType::float32), expected, 0, 1e-4));
  CHECK_FALSE(test::close(logits(FeedForwardKind::gelu, DType::float64), expected, 0, 1e-4));  // GELU by erf differs
}

TEST_CASE("decoding gives the logits of the whole model") {
  const PositionKind kinds[] = {PositionKind::learned, PositionKind::rope, PositionKind::sinusoidal};
  for (int i = 0; i < 3 * static_cast<int>(mechanism_names().size()); ++i) {
    const std::string& mechanism = mechanism_names()[static_cast<std::size_t>(i / 3)];
    CAPTURE(mechanism);
    Rng rng(2);
    GPTOptions o = small_gpt();
    o.positions = kinds[i % 3];
    const MechanismFactory make = mechanism_by_name(
        mechanism,
        {.heads = o.blocks.attention.heads, .head_size = o.blocks.attention.head_size(), .context = o.context});
    o.blocks.attention.kv_heads = make(0, rng).capabilities().grouped ? 1 : 0;
    o.blocks.attention.qk_norm = i % 3 == 1;
    o.logit_cap = i % 3 == 2 ? 0.2 : 0;
    o.blocks.reversible = i % 3 == 1;
    GPT model(o, rng, make);
    to(model, DType::float64);
    const NoTape no_tape;
    const Tensor x = random_ids({3, 8}, 11, 5), whole = model(x);
    std::vector<AttentionState> states;
    CHECK(test::close(model.decode(x.slice(1, 0, 3), states), whole.select(1, 2), 1e-11, 1e-11));
    for (Index t = 3; t < 8; ++t)
      CHECK(test::close(model.decode(x.slice(1, t, t + 1), states), whole.select(1, t), 1e-11, 1e-11));
  }
}

TEST_CASE("decoding rows of different length gives the logits of each row's own last position") {
  for (const PositionKind kind : {PositionKind::none, PositionKind::learned, PositionKind::sinusoidal,
                                  PositionKind::rope, PositionKind::relative}) {
    CAPTURE(static_cast<int>(kind));
    GPTOptions o = small_gpt();
    o.context = 14, o.positions = kind, o.blocks.attention.relative_clip = kind == PositionKind::relative ? 3 : 0;
    Rng rng(2);
    GPT model(o, rng);
    to(model, DType::float64);
    for (const NamedParameter& p : named_parameters(model))
      p.parameter->copy_(*p.parameter + rng.normal(p.parameter->shape(), 0, 0.3, DType::float64));
    const NoTape no_tape;
    const Tensor x = random_ids({3, 14}, 11, 5);
    std::vector<std::int32_t> seen = {0, 0, 0};
    std::vector<AttentionState> states;
    const auto step = [&](const std::vector<std::int32_t>& counts) {
      const Index max_count = std::max({counts[0], counts[1], counts[2]});
      Tensor next = Tensor::full({3, max_count}, 10, DType::int32);  // padding
      for (Index b = 0; b < 3; ++b) {
        const auto row = static_cast<std::size_t>(b);
        for (Index t = 0; t < counts[row]; ++t)
          next.ptr<std::int32_t>()[b * max_count + t] = static_cast<std::int32_t>(x.at({b, seen[row] + t}));
        seen[row] += counts[row];
      }
      const Tensor logits = model.decode(next, states, {.key_lengths = Tensor::from(counts, {3})});
      for (Index b = 0; b < 3; ++b) {
        const Index n = seen[static_cast<std::size_t>(b)];
        if (counts[static_cast<std::size_t>(b)] > 0)
          CHECK(test::close(logits[b], model(x.slice(0, b, b + 1).slice(1, 0, n)).select(1, n - 1)[0], 1e-11, 1e-11));
      }
    };
    step({6, 2, 4});
    step({1, 1, 1});
    step({1, 0, 1});
    step({2, 3, 1});
    step({4, 4, 4});  // the first row reaches the end of the context: 14 positions
    CHECK(states[1].lengths().to_vector<double>() == std::vector<double>{14, 10, 11});
    states = pick_rows(states, Tensor::from<std::int32_t>({2, 1, 2}, {3}));
    const Tensor next = Tensor::from<std::int32_t>({1, 2, 3}, {3, 1}), logits = model.decode(next, states);
    const auto logits_after = [&](Index b, Index length, Index token) {
      const Tensor text = concatenate({x.slice(0, b, b + 1).slice(1, 0, length), next.slice(0, token, token + 1)}, 1);
      return model(text).select(1, length)[0];
    };
    CHECK(test::close(logits[0], logits_after(2, 11, 0), 1e-11, 1e-11));
    CHECK(test::close(logits[1], logits_after(1, 10, 1), 1e-11, 1e-11));
    CHECK(test::close(logits[2], logits_after(2, 11, 2), 1e-11, 1e-11));
    if (kind != PositionKind::learned && kind != PositionKind::sinusoidal) continue;
    CHECK(contains(error_of([&] {
                     model.decode(Tensor::zeros({3, 4}, DType::int32), states);
                   }),
                   "GPT: x reaches position 16 but the model's context is 14"));
    // Padding may exceed the context.
    model.decode(Tensor::zeros({3, 4}, DType::int32), states,
                 {.key_lengths = Tensor::from<std::int32_t>({2, 3, 1}, {3})});
    CHECK(states[0].lengths().to_vector<double>() == std::vector<double>{14, 14, 13});
  }
}

TEST_CASE("a clone is an independent model with the same values, and conversion keeps frozen and tied parameters") {
  Rng rng(4);
  GPT model(small_gpt(), rng);
  freeze(model.transformer.blocks[0]);
  GPT copy = clone(model);
  const NoTape no_tape;
  const Tensor x = random_ids({2, 5}, 11, 1), before = model(x);
  CHECK(test::same_bits(copy(x), before));
  CHECK(!copy.transformer.blocks[0].mlp.up.weight.requires_grad());
  CHECK(copy.transformer.blocks[1].mlp.up.weight.requires_grad());
  copy.input.tokens->weight.fill_(0);
  CHECK(test::same_bits(model(x), before));
  const Index count = parameter_count(model);
  to(model, DType::float64);
  CHECK(parameter_count(model) == count);
  CHECK(!model.transformer.blocks[0].mlp.up.weight.requires_grad());
  CHECK(model.transformer.blocks[0].mlp.up.weight.path() == "blocks.0.mlp.up.weight");
  CHECK(test::close(model(x), before, 1e-4, 1e-5));
  to(model, DType::float32);
  CHECK(test::same_bits(model(x), before));
}

TEST_CASE("a clone attends as its model does, and computes in its dtype") {
  for (const std::string& name : mechanism_names()) {
    CAPTURE(name);
    Rng rng(4);
    GPT model(small_gpt(), rng, mechanism_by_name(name, {.heads = 2, .head_size = 4, .context = 8}));
    GPT copy = clone(model);
    const NoTape no_tape;
    const Tensor x = random_ids({2, 5}, 11, 1);
    CHECK(copy.transformer.blocks[1].attention.mechanism.name() == name);
    CHECK(test::same_bits(copy(x), model(x)));
    to(model, DType::float64);
    CHECK(test::same_bits(clone(model)(x), model(x)));
  }
  Rng rng(4);
  BERT encoder(small_gpt(), rng, [](Index, Rng&) { return EfficientAttention(); });
  CHECK(clone(encoder).transformer.blocks[0].attention.mechanism.name() == "efficient");
}

namespace {

// Rounds every weight of linear layers and embeddings to the nearest bfloat16, stored in float32.
void round_weights(GPT& model) {
  GPT narrow = clone(model);
  to(narrow, DType::bfloat16);
  const auto from = named_parameters(narrow), into = named_parameters(model);
  for (std::size_t i = 0; i < into.size(); ++i)
    into[i].parameter->copy_(from[i].parameter->detach().to(DType::float32));
}

// The logits after each token of x, which a decode state reads one by one.
std::vector<Tensor> logits_of_steps(const GPT& model, const Tensor& x) {
  DecodeState state = model.make_state();
  std::vector<Tensor> all;
  for (Index t = 0; t < x.dim(1); ++t) all.push_back(state.read(x.slice(1, t, t + 1)));
  return all;
}

// The largest difference, relative to the largest value.
double apart(const Tensor& got, const Tensor& expected) {
  const std::vector<double> g = got.to_vector<double>(), w = expected.to_vector<double>();
  double worst = 0, max_abs = 0;
  for (std::size_t i = 0; i < w.size(); ++i)
    worst = std::max(worst, std::abs(g[i] - w[i])), max_abs = std::max(max_abs, std::abs(w[i]));
  return worst / max_abs;
}

// Bound of the effect of operand rounding (2^-9 each) on the logits of a small model; the largest measured effect is
// 0.009.
constexpr double kRounded = 0.015;

}  // namespace

TEST_CASE("a GPT of bfloat16 keeps vectors in float32, and gives the logits of its rounded weights") {
  std::vector<GPTOptions> variants(5, small_gpt());
  variants[1].blocks.norm = NormKind::rms, variants[1].positions = PositionKind::rope,
  variants[1].blocks.activation = FeedForwardKind::swiglu, variants[1].blocks.attention.bias = false;
  variants[2].positions = PositionKind::sinusoidal, variants[2].tied = false;
  variants[3].positions = PositionKind::relative, variants[3].blocks.attention.kv_heads = 1;
  variants[4].vocabulary = 150, variants[4].blocks.attention = {.width = 136, .heads = 4};
  for (const GPTOptions& o : variants) {
    CAPTURE(&o - variants.data());
    Rng rng(1);
    GPT model(o, rng), narrow = clone(model), exact = clone(model);
    for (const NamedParameter& p : named_parameters(model))
      p.parameter->copy_(rng.normal(p.parameter->shape(), 0, 0.3));
    copy_values(model, narrow);
    to(narrow, DType::bfloat16);
    for (const NamedParameter& p : named_parameters(narrow)) {
      const bool weight = p.parameter->rank() == 2 && !p.name.ends_with("relative.weight");
      CHECK(p.parameter->dtype() == (weight ? DType::bfloat16 : DType::float32));
    }
    CHECK(narrow.input.tokens->weight.shape() == model.input.tokens->weight.shape());
    round_weights(model);
    copy_values(model, exact);
    to(exact, DType::float64);
    const NoTape no_tape;
    const Tensor x = random_ids({3, 7}, o.vocabulary, 1);
    CHECK(apart(narrow(x), exact(x)) < kRounded);
    const std::vector<Tensor> steps = logits_of_steps(narrow, x), expected = logits_of_steps(exact, x);
    for (std::size_t t = 0; t < steps.size(); ++t) CHECK(apart(steps[t], expected[t]) < kRounded);
    CHECK(apart(narrow.loss(x, x), exact.loss(x, x)) < kRounded);
    to(narrow, DType::float32);
    CHECK(test::same_bits(narrow(x), model(x)));
  }
  Rng rng(1);
  GPT model(small_gpt(), rng);
  CHECK(contains(error_of([&] { to(model, DType::int32); }), "to: the type is int32; it must be float32, float64,"));
}

TEST_CASE("a GPT in bfloat16 generates with every mechanism that has a decode state") {
  for (const std::string& name : mechanism_names()) {
    CAPTURE(name);
    Rng rng(4);
    GPT model(small_gpt(), rng, mechanism_by_name(name, {.heads = 2, .head_size = 4, .context = 8}));
    GPT narrow = clone(model);
    to(narrow, DType::bfloat16);
    round_weights(model);
    const Tensor x = random_ids({2, 6}, 11, 1);
    const std::vector<Tensor> steps = logits_of_steps(narrow, x), expected = logits_of_steps(model, x);
    for (std::size_t t = 0; t < steps.size(); ++t) CHECK(apart(steps[t], expected[t]) < kRounded);
  }
}

TEST_CASE("a GPT in bfloat16 caches keys and values in bfloat16 if the mechanism supports it") {
  for (const std::string name : {"softmax", "cosine"})
    for (const bool rope : {false, true}) {
      CAPTURE(name);
      GPTOptions o = small_gpt();
      o.blocks.attention.rope = rope;
      Rng rng(4);
      GPT model(o, rng,
                mechanism_by_name(name, {.heads = o.blocks.attention.heads,
                                         .head_size = o.blocks.attention.head_size(),
                                         .context = o.context}));
      to(model, DType::bfloat16);
      const NoTape no_tape;
      std::vector<AttentionState> states = model.make_states();
      model.decode(random_ids({2, 3}, 11, 1), states);
      model.decode(random_ids({2, 1}, 11, 2), states);
      states = pick_rows(states, Tensor::from<std::int32_t>({1, 0, 1}));  // as in beam search
      const Tensor logits = model.decode(random_ids({3, 1}, 11, 3), states);
      CHECK(logits.dtype() == DType::float32);
      const DType kept = name == "softmax" ? DType::bfloat16 : DType::float32;
      for (AttentionState& state : states)
        for (const NamedBuffer& buffer : named_buffers(state))
          if (buffer.name != "lengths") CHECK(buffer.buffer->dtype() == kept);
    }
}

TEST_CASE("rows that are read together have the bits of each alone, with any number of threads") {
  GPTOptions o = small_gpt();
  o.vocabulary = 500, o.blocks.attention.width = 192, o.blocks.attention.heads = 3, o.context = 90;
  Rng rng(4);
  GPT model(o, rng);
  for (const DType type : {DType::float32, DType::bfloat16}) {
    to(model, type);
    const Tensor x = random_ids({19, 70}, 500, 1);
    const std::vector<Tensor> all = logits_of_steps(model, x);
    for (const int count : {1, 2, 3}) {
      set_threads(count);
      for (const Index row : {0, 7, 18}) {
        const std::vector<Tensor> alone = logits_of_steps(model, x.slice(0, row, row + 1));
        Index wrong = 0;
        for (std::size_t t = 0; t < all.size(); ++t)
          wrong += !test::same_bits(alone[t], all[t].slice(0, row, row + 1).clone());
        CHECK(wrong == 0);
      }
    }
    set_threads(0);
  }
}

TEST_CASE("a warm training step requests no memory from the system") {
  Rng rng(6);
  GPT model(small_gpt(), rng);
  AdamW optimizer(named_parameters(model), {});
  const Tensor x = random_ids({2, 8}, 11, 1), y = random_ids({2, 8}, 11, 2);
  std::size_t before = 0;
  for (int step = 0; step < 6; ++step) {
    if (step == 3) before = memory_use().system_allocations;
    Tape tape;
    tape.backward(model.loss(x, y));
    optimizer.step();
    optimizer.zero_grad();
  }
  CHECK(memory_use().system_allocations == before);
}

namespace {

BERTOptions small_bert() {
  return {.vocabulary = 11, .context = 8, .blocks = {.layers = 2, .attention = {.width = 8, .heads = 2}}};
}

BERT with(const std::string& mechanism, const BERTOptions& o, Rng& rng) {
  BERT model(o, rng,
             mechanism_by_name(mechanism, {.causal = false,
                                           .heads = o.blocks.attention.heads,
                                           .head_size = o.blocks.attention.head_size(),
                                           .context = o.context}));
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
  gradcheck([&] { return model.loss(x, y, lengths); }, named_parameters(model), {.min_samples = 25});
}

TEST_CASE("BERT: every position sees all others, with every encoder mechanism, and a GPT's sees only earlier ones") {
  for (const std::string& name : mechanism_names(false)) {
    CAPTURE(name);
    const std::set<std::string> few_keys = {"lsh", "reformer", "top-k", "window", "strided", "fixed"};
    if (few_keys.contains(name)) continue;
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
    if (!model.transformer.blocks[0].attention.mechanism.capabilities().key_mask) continue;
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

TEST_CASE("BERT: names and initial values of a GPT, clone, summary, and no decoding") {
  Rng rng(6), same(6);
  BERT model(small_bert(), rng);
  GPT gpt(small_bert(), same);
  std::vector<std::string> names, gpt_names;
  for (const NamedParameter& p : named_parameters(model)) names.push_back(p.name);
  for (const NamedParameter& p : named_parameters(gpt)) gpt_names.push_back(p.name);
  CHECK(names == gpt_names);
  const NoTape no_tape;
  CHECK(test::same_bits(model.input.tokens->weight, gpt.input.tokens->weight));
  BERT copy = clone(model);
  const Tensor x = random_ids({2, 8}, 11, 1);
  CHECK(test::same_bits(copy(x), model(x)));
  CHECK_FALSE(model.options().causal);
  CHECK(contains(summary(model, model.predict_activations(2, 8)), "blocks.1.mlp.up"));
  CHECK(model.flops_per_token(8) == gpt.flops_per_token(8));
  std::vector<AttentionState> states;
  CHECK(contains(error_of([&] { model.decode(x, states); }), "GPT: this model is not causal"));
}

TEST_CASE("BERT: the parts of the loss of pre-training read one result of the blocks") {
  Rng rng(7);
  BERTOptions o = small_bert();
  o.token_types = 2;
  const BERT model(o, rng);
  const NextSentence head(8, rng);
  const NoTape no_tape;
  const Tensor x = random_ids({2, 8}, 11, 1), y = random_ids({2, 8}, 11, 2), h = model.hidden(x);
  CHECK(test::same_bits(model.logits_of(h), model(x)));
  CHECK(model.loss_of(h, y).item() == model.loss(x, y).item());
  const Tensor pooled = tanh(matmul(h.select(1, 0), head.pooler.weight.t()) + head.pooler.bias);
  CHECK(test::close(head.pooled(h), pooled));
  CHECK(test::close(head(h), matmul(pooled, head.output.weight.t()) + head.output.bias));
  const double deviation = std::sqrt(mean(head.pooler.weight * head.pooler.weight).item());
  CHECK(deviation == doctest::Approx(0.02).epsilon(0.3));
  for (const Tensor& wrong : {h[0], h.slice(1, 0, 0)})
    CHECK(contains(error_of([&] { head(wrong); }), "it must be [batch, positions, width], with 1 position or more"));

  const Tensor types = Tensor::from<std::int32_t>({0, 0, 0, 1, 1, 1, 1, 1}, {1, 8}).expand({2, 8});
  CHECK_FALSE(test::same_bits(model.hidden(x, {}, types), h));
  const std::vector<Tensor> weights = model.attention_weights(x, types), without = model.attention_weights(x);
  CHECK_FALSE(test::same_bits(weights[0], without[0]));
  CHECK(test::same_bits(model.attention_weights(x, types * 0)[0], without[0]));
}
