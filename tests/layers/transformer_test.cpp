// Transformer blocks and stacks: parts, memories and states.
#include <heed/heed.hpp>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::normal;

TEST_CASE("a transformer without biases has none at all, as nn.TransformerEncoderLayer(bias=False)") {
  Rng rng(6);
  Transformer model(
      {.layers = 2, .attention = {.width = 8, .heads = 2, .memory_width = 4, .bias = false}, .norm_first = true}, rng);
  for (const std::string& name : test::names_of(model)) CHECK_MESSAGE(!name.ends_with("bias"), name);
  CHECK(test::names_of(model).size() == 2 * 10 + 1);
}

TEST_CASE("decoding token by token, in chunks and at once gives equal results") {
  Rng rng(7);
  Transformer decoder({.layers = 2,
                       .attention = {.width = 8, .heads = 2, .memory_width = 8, .rope = true},
                       .hidden = 12,
                       .dropout = 0,
                       .norm_first = true,
                       .causal = true},
                      rng);
  to(decoder, DType::float64);
  const Tensor x = normal({2, 9, 8}), memory = normal({2, 3, 8}, 2), whole = decoder(x, memory);
  for (const std::vector<Index>& chunks : {std::vector<Index>{9}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {4, 1, 3, 1}}) {
    TransformerState state = decoder.make_state(memory);
    Index at = 0;
    for (const Index n : chunks) {
      const Tensor part = decoder.decode(x.slice(1, at, at + n), state);
      CHECK(test::close(part, whole.slice(1, at, at + n), 1e-11, 1e-11));
      at += n;
    }
    CHECK(state.self[0].length() == 9);
  }
}

TEST_CASE("rows of a decoder's state that are picked within one memory share the projected memory") {
  Rng rng(8);
  Transformer decoder({.layers = 2,
                       .attention = {.width = 8, .heads = 2, .memory_width = 8},
                       .hidden = 12,
                       .dropout = 0,
                       .causal = true},
                      rng);
  to(decoder, DType::float64);
  const Tensor x = normal({4, 6, 8}), memory = normal({2, 5, 8}, 2);
  const auto picks = [](std::vector<std::int32_t> rows) {
    return Tensor::from(rows, {static_cast<Index>(rows.size())});
  };
  const TransformerState two = decoder.make_state(memory, {.key_lengths = Tensor::from<std::int32_t>({5, 3})});
  TransformerState four = two.rows(picks({0, 0, 1, 1}));
  CHECK(!four.memory[0].k.shares_storage(two.memory[0].k));
  decoder.decode(x.slice(1, 0, 3), four);
  TransformerState turned = four.rows(picks({1, 0, 2, 2}));  // row 1 is dropped, as a beam may be
  CHECK(turned.memory[1].v.shares_storage(four.memory[1].v));
  TransformerState other = four.rows(picks({2, 1, 0, 3}));
  CHECK(!other.memory[0].k.shares_storage(four.memory[0].k));
  TransformerState fewer = four.rows(picks({3, 2}));
  const Tensor next = x.slice(1, 3, 4), whole = decoder.decode(next, four);
  const auto agree = [&](TransformerState& state, const Tensor& rows) {
    CHECK(test::close(decoder.decode(index_select(next, 0, rows), state), index_select(whole, 0, rows), 1e-12, 1e-12));
  };
  agree(turned, picks({1, 0, 2, 2}));
  agree(other, picks({2, 1, 0, 3}));
  agree(fewer, picks({3, 2}));
  CHECK(fewer.memory_call.key_lengths.to_vector<std::int32_t>() == std::vector<std::int32_t>{3, 3});
}

TEST_CASE("a decoder's state holds the memory projected: steps do not touch its projections, and rows can be picked") {
  Rng rng(8);
  Transformer decoder({.layers = 2,
                       .attention = {.width = 8, .heads = 2, .memory_width = 6},
                       .hidden = 12,
                       .dropout = 0,
                       .causal = true},
                      rng);
  to(decoder, DType::float64);
  const Tensor x = normal({3, 6, 8}), memory = normal({3, 5, 6}, 2);
  Tensor keys = Tensor::ones({3, 5}, DType::bool8);
  keys[2].slice(0, 1, 3).fill_(0);
  const AttentionCall of_memory{.key_lengths = Tensor::from<std::int32_t>({5, 2, 4}), .key_mask = keys};
  const Tensor whole = decoder(x, memory, {}, of_memory);
  TransformerState state = decoder.make_state(memory, of_memory);
  for (TransformerBlock& block : decoder.blocks) block.cross->kv->weight.fill_(7);
  CHECK(test::close(decoder.decode(x.slice(1, 0, 3), state), whole.slice(1, 0, 3), 1e-11, 1e-11));
  // Row 2 twice and row 0. The original state continues unchanged.
  const Tensor picked = Tensor::from<std::int32_t>({2, 0, 2});
  TransformerState other = state.rows(picked), copy = state;
  const Tensor next = x.slice(1, 3, 4), expected = whole.slice(1, 3, 4);
  CHECK(test::close(decoder.decode(index_select(next, 0, picked), other), index_select(expected, 0, picked), 1e-11,
                    1e-11));
  CHECK(test::close(decoder.decode(next, state), expected, 1e-11, 1e-11));
  CHECK(test::close(decoder.decode(x.slice(1, 4, 6), state), whole.slice(1, 4, 6), 1e-11, 1e-11));
  CHECK(test::close(decoder.decode(next, copy), expected, 1e-11, 1e-11));
  // Masks and biases with an axis of rows are picked too.
  TransformerState masked = decoder.make_state(memory, {.mask = keys.view({3, 1, 1, 5}), .bias = normal({1, 1, 1, 5})});
  CHECK(test::same_bits(masked.rows(picked).memory_call.mask, index_select(keys, 0, picked).view({3, 1, 1, 5})));
  CHECK(masked.rows(picked).memory_call.bias.shape() == Shape{1, 1, 1, 5});
}

TEST_CASE("a mechanism's computations on the memory's keys alone run once for all steps") {
  for (const char* name : {"bahdanau", "luong-concat", "cosine"}) {
    CAPTURE(name);
    Rng rng(8);
    MechanismOptions options{.heads = 2, .head_size = 4};
    options.memory = true;
    Transformer decoder({.layers = 2,
                         .attention = {.width = 8, .heads = 2, .memory_width = 6},
                         .hidden = 12,
                         .dropout = 0,
                         .causal = true},
                        rng, softmax_mechanism, mechanism_by_name(name, options));
    to(decoder, DType::float64);
    const Tensor x = normal({3, 6, 8}), memory = normal({3, 5, 6}, 2);
    const AttentionCall of_memory{.key_lengths = Tensor::from<std::int32_t>({5, 2, 4})};
    const Tensor whole = decoder(x, memory, {}, of_memory);
    TransformerState state = decoder.make_state(memory, of_memory);
    int keys = 0;
    for (const NamedParameter& p : named_parameters(decoder))
      if (p.name.ends_with("cross.mechanism.U")) p.parameter->fill_(7), ++keys;
    CHECK(keys == (std::string(name) == "cosine" ? 0 : 2));
    CHECK(test::close(decoder.decode(x.slice(1, 0, 3), state), whole.slice(1, 0, 3), 1e-11, 1e-11));
    const Tensor picked = Tensor::from<std::int32_t>({2, 0, 2});
    TransformerState other = state.rows(picked);
    CHECK(test::close(decoder.decode(index_select(x.slice(1, 3, 4), 0, picked), other),
                      index_select(whole.slice(1, 3, 4), 0, picked), 1e-11, 1e-11));
    CHECK(test::close(decoder.decode(x.slice(1, 3, 6), state), whole.slice(1, 3, 6), 1e-11, 1e-11));
  }
}

TEST_CASE("rows of different length decode as each alone, with memories of different length") {
  const NoTape guard;
  Rng rng(9);
  Transformer decoder({.layers = 2,
                       .attention = {.width = 8, .heads = 2, .memory_width = 6, .rope = true},
                       .dropout = 0,
                       .causal = true},
                      rng);
  to(decoder, DType::float64);
  const Tensor x = normal({2, 7, 8}), memory = normal({2, 5, 6}, 2);
  TransformerState both = decoder.make_state(memory, {.key_lengths = Tensor::from<std::int32_t>({3, 5})});
  decoder.decode(x.slice(1, 0, 5), both, {.key_lengths = Tensor::from<std::int32_t>({5, 2})});
  const Tensor last = decoder.decode(x.slice(1, 5, 6), both);
  for (Index b = 0; b < 2; ++b) {
    const Tensor own = x.slice(0, b, b + 1), first = own.slice(1, 0, b == 0 ? 5 : 2);
    TransformerState alone = decoder.make_state(memory.slice(0, b, b + 1).slice(1, 0, b == 0 ? 3 : 5));
    decoder.decode(first, alone);
    CHECK(test::close(last.slice(0, b, b + 1), decoder.decode(own.slice(1, 5, 6), alone), 1e-11, 1e-11));
  }
}

namespace {
struct SelfOnly : test::MeanAttention {
  AttentionCapabilities capabilities() const { return {}; }
};
}  // namespace

TEST_CASE("a decoder's mechanism for its memory is independent of its mechanism for itself") {
  Rng rng(10);
  const TransformerOptions o{
      .layers = 2, .attention = {.width = 8, .heads = 2, .memory_width = 6}, .dropout = 0.5, .causal = true};
  const MechanismFactory linear = [](Index, Rng&) { return LinearAttention(); };
  const Transformer decoder(o, rng, softmax_mechanism, linear);
  CHECK(decoder.blocks[0].attention.options().dropout == 0.5);
  CHECK(decoder.blocks[0].cross->options().dropout == 0);  // linear attention has no weights to drop
  CHECK(decoder.blocks[0].cross->mechanism.name() == "linear");
  Rng other(10);
  CHECK(Transformer(o, other, linear).blocks[1].cross->mechanism.name() == "softmax");

  const Tensor x = rng.normal({2, 4, 8}), memory = rng.normal({2, 5, 6});
  const TransformerBlock& block = decoder.blocks[0];
  const Tensor own = block.norm1(x + block.attention(x, {.causal = true}));
  const Tensor crossed = (*block.norm_cross)(own + (*block.cross)(own, memory));
  CHECK(test::close(block(x, memory), block.norm2(crossed + block.mlp(crossed))));
  TransformerState state = decoder.make_state(memory);
  const NoTape guard;
  CHECK(test::close(decoder.decode(x, state), decoder(x, memory)));

  const auto refused = [&](AttentionMechanism m) {
    return test::error_of([&] { TransformerBlock(o, rng, SoftmaxAttention(), std::move(m)); });
  };
  CHECK(refused(ForgettingAttention()) ==
        "forgetting attention cannot attend to a memory: forget gates act between a key and a later query");
  CHECK(refused(SelfOnly()) == "mean attention cannot attend to a memory");
  Transformer more(o, rng, softmax_mechanism), encoder({.layers = 1, .attention = {.width = 8, .heads = 2}}, rng);
  test::check_errors({
      {"TransformerBlock: this block attends to a memory; call it with one",
       [&] {
         TransformerState none = more.make_state();
         more.decode(x, none);
       }},
      {"Transformer: the state has 2 blocks and the model has 1; create the state with make_state()",
       [&] { encoder.decode(x, state); }},
      {"TransformerBlock: this block has no cross-attention; set memory_width, or call it without a memory",
       [&] { encoder.make_state(memory); }},
      {"TransformerBlock: this block has no cross-attention", [&] { encoder.blocks[0](x, state.memory[0]); }},
  });
}

TEST_CASE("transformer: blocks that are computed again give the same bits of losses and gradients, with dropout") {
  Rng rng(1);
  GPT model(
      {.vocabulary = 20, .context = 8, .blocks = {.layers = 2, .attention = {.width = 16, .heads = 2}, .dropout = 0.2}},
      rng);
  const Tensor x = rng.integers({2, 8}, 0, 20);
  const auto step = [&](bool recomputes) {
    model.transformer.recomputes = recomputes;
    default_rng() = Rng(5);
    Tape tape;
    const Tensor loss = model.loss(x, x);
    const std::size_t kept = tape.saved_bytes();
    tape.backward(loss);
    std::vector<Tensor> gradients = {loss.detach()};
    for (const NamedParameter& p : named_parameters(model)) {
      gradients.push_back(p.parameter->grad().clone());
      p.parameter->zero_grad();
    }
    return std::pair(gradients, kept);
  };
  const auto [plain, kept] = step(false);
  const auto [again, kept_again] = step(true);
  for (std::size_t i = 0; i < plain.size(); ++i) CHECK(test::same_bits(plain[i], again[i]));
  CHECK(kept_again < kept / 2);
}

TEST_CASE("transformer: reversible blocks have two streams, in calls, decoding and weights, and keep one block") {
  Rng rng(1);
  TransformerOptions o{.layers = 3, .attention = {.width = 8, .heads = 2}, .dropout = 0, .norm_first = true};
  o.causal = o.reversible = true;
  Transformer model(o, rng);
  to(model, DType::float64);
  const Tensor x = normal({2, 5, 8});
  Tensor x1 = x, x2 = x;
  std::vector<Tensor> weights;
  for (const TransformerBlock& b : model.blocks) {
    weights.push_back(b.attention.weights(b.norm1(x2), {.causal = true}));
    x1 = x1 + b.attention(b.norm1(x2), {.causal = true});
    x2 = x2 + b.mlp(b.norm2(x1));
  }
  const Tensor expected = (*model.norm)((x1 + x2) / 2);
  CHECK(test::close(model(x), expected, 1e-12, 1e-12));
  const std::vector<Tensor> got = model.weights(x);
  REQUIRE(got.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(test::close(got[i], weights[i], 1e-12, 1e-12));
  {
    const NoTape guard;
    TransformerState state = model.make_state();
    CHECK(test::close(model.decode(x.slice(1, 0, 3), state), expected.slice(1, 0, 3), 1e-11, 1e-11));
    CHECK(test::close(model.decode(x.slice(1, 3, 5), state), expected.slice(1, 3, 5), 1e-11, 1e-11));
  }
  const auto kept = [&](Index layers) {
    o.layers = layers;
    const Transformer of_layers(o, rng);
    Tape tape;
    const Tensor y = of_layers(normal({2, 5, 8}, 1, DType::float32));
    return tape.saved_bytes();
  };
  CHECK(kept(4) == kept(16));

  o.norm_first = false;
  CHECK(test::error_of([&] { Transformer(o, rng); }) ==
        "TransformerBlock: reversible requires norm_first and no memory");
  o.norm_first = true, o.attention.memory_width = 8;
  CHECK(test::contains(test::error_of([&] { Transformer(o, rng); }), "reversible requires norm_first and no memory"));
}
