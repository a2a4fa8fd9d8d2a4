// Decode states of all mechanisms: rows of different length, copies, picked rows, and files.
#include <heed/heed.hpp>
#include <set>

#include "tests/data/temporary_folder.hpp"
#include "tests/layers/attention/mechanism_inputs.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;
using test::close;
using test::contains;
using test::same_bits;
using test::TemporaryFolder;

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
                     "AttentionState: q is [2, 4, 2, 8] float32 and k is [2, 4, 5, 8] float32; both must be [batch, "
                     "heads, positions, size], with as many queries as keys"));
      CHECK(contains(error_of([&] { state.apply(x, few, few); }), "with as many queries as keys"));
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

TEST_CASE("decode states: all mechanisms refuse tensors that need a gradient, which would be lost") {
  Rng rng(1);
  const Tensor x = rng.normal({1, 3, 16});
  for (const std::string& name : mechanism_names()) {
    CAPTURE(name);
    MultiHeadAttention layer({.width = 16, .heads = 2}, rng,
                             mechanism_by_name(name, {.heads = 2, .head_size = 8, .context = 16})(0, rng));
    AttentionState state;
    Tape tape;
    CHECK(contains(error_of([&] { layer.decode(x, state); }),
                   "AttentionState: q, k or v requires a gradient, but no gradient passes through a state"));
    CHECK(state.length() == 0);
    const NoTape guard;
    CHECK(layer.decode(x, state).shape() == Shape{1, 3, 16});
  }
}

TEST_CASE("decode states: rows of different length have the bits of each row alone, prompts and single tokens") {
  const NoTape guard;
  for (const std::string& name : mechanism_names()) {
    CAPTURE(name);
    // These mechanisms multiply by a matrix, and such products round differently for other numbers of rows. Longformer
    // has lists of keys for rows of one length, and masks for others. Rules with a state compute few positions one by
    // one, and many in blocks.
    const std::set<std::string> projecting = {"favor",    "luong-general", "luong-concat",
                                              "bahdanau", "polynomial",    "talking-heads",
                                              "shaw",     "nezha",         "longformer",
                                              "luna"};
    const bool projects = projecting.contains(name) || is_state_rule(name);
    const auto same = [&](const Tensor& a, const Tensor& b) { return projects ? close(a, b) : same_bits(a, b); };
    Rng rng(1);
    const AttentionMechanism m =
        mechanism_by_name(name, {.heads = 4, .head_size = 8, .context = 200, .window = 20, .top_k = 5})(0, rng);
    const Tensor q = rng.normal({3, 4, 150, 8}), k = rng.normal({3, 4, 150, 8}), v = rng.normal({3, 4, 150, 8});
    std::vector<std::int32_t> seen = {90, 41, 3};
    const std::vector<Tensor> inputs = inputs_for(m, q, k);
    const auto part = [](const Tensor& x, Index b, Index from, Index to) {
      return x.slice(0, b, b + 1).slice(2, from, to);
    };
    const auto each = [](const std::vector<Tensor>& all, const auto& f) {
      std::vector<Tensor> some;
      for (const Tensor& x : all) some.push_back(f(x));
      return some;
    };
    const auto alone_at = [&](AttentionState& state, Index b, Index from, Index to) {
      const auto own = [&](const Tensor& x) { return part(x, b, from, to); };
      return state.apply(own(q), own(k), own(v), {}, each(inputs, own));
    };
    AttentionState together = m.make_state();
    std::vector<AttentionState> alone;
    const auto first = [](const Tensor& x) { return x.slice(2, 0, 90); };
    const Tensor prompts =
        together.apply(first(q), first(k), first(v), {.key_lengths = Tensor::from(seen, {3})}, each(inputs, first));
    for (Index b = 0; b < 3; ++b) {
      const Index n = seen[static_cast<std::size_t>(b)];
      CHECK(same(part(prompts, b, 0, n), alone_at(alone.emplace_back(m.make_state()), b, 0, n)));
    }
    for (int step = 0; step < 30; ++step) {
      const auto next = [&](const Tensor& x) {
        return concatenate(
            {part(x, 0, seen[0], seen[0] + 1), part(x, 1, seen[1], seen[1] + 1), part(x, 2, seen[2], seen[2] + 1)}, 0);
      };
      const Tensor y = together.apply(next(q), next(k), next(v), {}, each(inputs, next));
      for (Index b = 0; b < 3; ++b) {
        const Index n = seen[static_cast<std::size_t>(b)]++;
        CHECK(same(y.slice(0, b, b + 1), alone_at(alone[static_cast<std::size_t>(b)], b, n, n + 1)));
      }
    }
    CHECK(together.lengths().to_vector<double>() == std::vector<double>{120, 71, 33});
  }
}

TEST_CASE("decode states: copies and picked rows share no memory with the original state") {
  const NoTape guard;
  const Tensor x = Rng(1).normal({2, 4, 5, 8});
  Rng rng(1);
  for (const std::string& name : mechanism_names()) {
    CAPTURE(name);
    const AttentionMechanism m = mechanism_by_name(name, {.heads = 4, .head_size = 8, .context = 64})(0, rng);
    AttentionState state = m.make_state();
    state.apply(x, x, x, {}, inputs_for(m, x, x));
    AttentionState copy = state, rows = state.rows(Tensor::from<std::int32_t>({0, 1}, {2})), assigned;
    assigned = copy;
    for (AttentionState* other : {&copy, &rows, &assigned})
      for (std::size_t i = 0; i < named_buffers(state).size(); ++i) {
        const Tensor &mine = *named_buffers(state)[i].buffer, &theirs = *named_buffers(*other)[i].buffer;
        CHECK(mine.defined() == theirs.defined());
        if (!mine.defined()) continue;
        CHECK(mine.storage() != theirs.storage());
        CHECK(mine.shape() == theirs.shape());
      }
  }
}

TEST_CASE("decode states: an unsupported step is an Error and does not change the state") {
  const NoTape guard;
  const Tensor x = Rng(1).normal({2, 4, 3, 8}), more = Rng(1).normal({3, 4, 3, 8});
  const AttentionMechanism softmax{SoftmaxAttention{}};
  AttentionState state = softmax.make_state(), nothing;
  CHECK(state.lengths().shape() == Shape{0});
  CHECK(state.rows(Tensor::from<std::int32_t>({7}, {1})).length() == 0);  // rows without positions are all equal
  state.apply(x, x, x);
  const auto lengths = [](const std::vector<std::int32_t>& l) {
    return AttentionCall{.key_lengths = Tensor::from(l, {static_cast<Index>(l.size())})};
  };
  const std::vector<Tensor> inputs = {x};
  check_errors({
      {"AttentionState: the state is empty; create it with make_state() of a mechanism (states_test.cpp:",
       [&] { nothing.apply(x, x, x); }},
      {"AttentionState: the state is empty", [&] { nothing.rows(Tensor::zeros({1}, DType::int32)); }},
      {"AttentionState: q is [3, 4, 3, 8] float32 but the state has 2 rows; the batch must stay the same (rows() "
       "changes it)",
       [&] { state.apply(more, more, more); }},
      {"KeyValueState: key_lengths is [3] int32; it must be [2] int32",
       [&] {
         state.apply(x, x, x, lengths({1, 2, 3}));
       }},
      {"KeyValueState: key_lengths[1] is 4; it must be from 0 to the number of new positions, 3",
       [&] {
         state.apply(x, x, x, lengths({1, 4}));
       }},
      {"KeyValueState: key_lengths[0] is -1",
       [&] {
         state.apply(x, x, x, lengths({-1, 0}));
       }},
      {"KeyValueState: key_lengths is [2] float32", [&] { state.apply(x, x, x, {.key_lengths = Tensor::zeros({2})}); }},
      {"AttentionState: the call has a mask or dropout; a step supports only key_lengths and bias",
       [&] {
         state.apply(x, x, x, {.mask = Tensor::ones({3, 3}, DType::bool8)});
       }},
      {"the call has a mask or dropout", [&] { state.apply(x, x, x, {.dropout = 0.5}); }},
      {"attention: bias is [3, 5] float64 and q is [2, 4, 3, 8] float32; the dtypes must be the same",
       [&] {
         state.apply(x, x, x, {.bias = Tensor::zeros({3, 5}, DType::float64)});
       }},
      {"AttentionState: got 1 input in addition to q, k and v; expected 0, as declared",
       [&] { state.apply(x, x, x, {}, inputs); }},
      {"index_select: index[0] is 2", [&] { state.rows(Tensor::from<std::int32_t>({2}, {1})); }},
  });
  CHECK(state.lengths().to_vector<double>() == std::vector<double>{3, 3});
}

TEST_CASE("AttentionMechanism::get returns the mechanism by its type, const and not, and null for another type") {
  Rng rng(1);
  AttentionMechanism m = FavorAttention(8, {.features = 6, .seed = 5});
  const AttentionMechanism& constant = m;
  REQUIRE(m.get<FavorAttention>() != nullptr);
  CHECK(constant.get<FavorAttention>() == m.get<FavorAttention>());
  CHECK(m.get<LinearAttention>() == nullptr);
  CHECK(constant.get<SoftmaxAttention>() == nullptr);
  CHECK(same_bits(constant.get<FavorAttention>()->features(), random_features(6, 8, 5)));

  // One step of a decoder that attends once per step, through the layer.
  MultiHeadAttention layer({.width = 8, .heads = 2, .memory_width = 6}, rng,
                           LuongLocalAttention(2, 4, rng, {.radius = 1}));
  const Tensor x = rng.normal({1, 5, 8}), memory = rng.normal({1, 7, 6});
  const NoTape guard;
  const Tensor whole = layer(x, memory);
  for (Index t = 0; t < 5; ++t) {
    const Tensor at = Tensor::scalar(static_cast<double>(t), DType::int32);
    CHECK(close(layer(x.slice(1, t, t + 1), memory, {.first_query = at}), whole.slice(1, t, t + 1)));
  }
}

TEST_CASE("favor: redrawing changes the features of a layer, and existing states keep their features") {
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
  FavorAttention of_features(8, options);
  of_features.redraw(3);
  CHECK(same_bits(layer.mechanism.apply(q, q, q, {.causal = true}).contiguous(),
                  of_features.apply(q, q, q, {.causal = true}).contiguous()));

  AttentionState fresh;
  CHECK(close(layer.decode(x.slice(1, 0, 4), fresh), now.slice(1, 0, 4), 1e-4, 1e-5));
  CHECK(close(layer.decode(x.slice(1, 4, 9), begun), old.slice(1, 4, 9), 1e-4, 1e-5));
  CHECK(close(layer.decode(x.slice(1, 4, 9), fresh), now.slice(1, 4, 9), 1e-4, 1e-5));

  // Values written into the mechanism, as by load_model(), do not affect an existing state either.
  AttentionState third;
  layer.decode(x.slice(1, 0, 4), third);
  named_buffers(layer).front().buffer->copy_(random_features(6, 8, 5, 2, 4));
  CHECK(close(layer.decode(x.slice(1, 4, 9), third), now.slice(1, 4, 9), 1e-4, 1e-5));
}

TEST_CASE("favor: redrawn features keep the dtype of the model") {
  AttentionMechanism m = FavorAttention(4);
  to(m, DType::float64);
  m.get<FavorAttention>()->redraw(1);
  CHECK(m.get<FavorAttention>()->features().dtype() == DType::float64);
}

namespace {

GPT make_model(const std::string& mechanism, Index layers = 2, std::uint64_t seed = 2) {
  const GPTOptions o{
      .vocabulary = 11, .context = 64, .blocks = {.layers = layers, .attention = {.width = 16, .heads = 2}}};
  Rng rng(seed);
  return GPT(
      o, rng,
      mechanism_by_name(mechanism, {.heads = 2, .head_size = 8, .context = o.context, .window = 4, .seed = seed}));
}

Tensor tokens(Index first, Index last) { return Rng(5).integers({2, 64}, 0, 11).slice(1, first, last); }

// The states of a model that has read 9 tokens.
std::vector<AttentionState> states_of(const GPT& model) {
  std::vector<AttentionState> states;
  model.decode(tokens(0, 5), states);
  for (Index t = 5; t < 9; ++t) model.decode(tokens(t, t + 1), states);
  return states;
}

}  // namespace

TEST_CASE("decode states: saved in a file and resumed by a model of another seed, they continue with the same bits") {
  const NoTape guard;
  for (const std::string& mechanism : mechanism_names()) {
    CAPTURE(mechanism);
    const TemporaryFolder folder;
    GPT model = make_model(mechanism);
    std::vector<AttentionState> states = states_of(model);
    Checkpoint saved;
    store_model(saved, model);
    store_state(saved, states);
    save_checkpoint(folder.path / "state.h5", saved);

    const Checkpoint loaded = load_checkpoint(folder.path / "state.h5");
    GPT other = make_model(mechanism, 2, 77);
    CHECK_FALSE(same_bits(other(tokens(0, 9)), model(tokens(0, 9))));
    load_model(loaded, other);
    CHECK(same_bits(other(tokens(0, 9)), model(tokens(0, 9))));
    std::vector<AttentionState> resumed = other.make_states();
    CHECK(resumed.size() == 2);
    load_state(loaded, resumed);
    CHECK(resumed[1].length() == 9);
    for (Index t = 9; t < 20; ++t)
      CHECK(same_bits(other.decode(tokens(t, t + 1), resumed), model.decode(tokens(t, t + 1), states)));
  }
}

TEST_CASE("decode states: random features and rotations are saved with the sums that they produced") {
  const NoTape guard;
  const Tensor x = Rng(1).normal({2, 2, 12, 8});
  const auto part = [&](AttentionState& state, Index first, Index last) {
    const Tensor y = x.slice(2, first, last);
    return state.apply(y, y, y);
  };
  for (const std::string mechanism : {"favor", "lsh"}) {
    CAPTURE(mechanism);
    const auto make_state = [&](std::uint64_t seed) {
      Rng rng(1);
      return mechanism_by_name(mechanism, {.head_size = 8, .window = 3, .seed = seed})(0, rng).make_state();
    };
    AttentionState state = make_state(1), other = make_state(2), resumed = make_state(2);
    part(state, 0, 9);
    part(other, 0, 9);
    Checkpoint saved;
    store_state(saved, state);
    load_state(saved, resumed);
    const Tensor next = part(state, 9, 12);
    CHECK(same_bits(part(resumed, 9, 12), next));
    CHECK_FALSE(close(part(other, 9, 12), next, 1e-3, 1e-3));
  }
}

TEST_CASE("decode states: buffers that do not fit are refused, and the state does not change") {
  const NoTape guard;
  const GPT softmax = make_model("softmax"), linear = make_model("linear"), deep = make_model("softmax", 3);
  std::vector<AttentionState> states = states_of(softmax);
  Checkpoint saved;
  store_state(saved, states, "decoding");
  std::vector<AttentionState> other = linear.make_states(), more = deep.make_states(),
                              less = make_model("softmax", 1).make_states();
  CHECK(test::error_of([&] { load_state(saved, other); }) ==
        "load_state: the checkpoint has no tensors in the section state");
  CHECK(contains(test::error_of([&] { load_state(saved, other, "decoding"); }),
                 "load_state: the checkpoint has decoding/0.keys, which the state lacks; the mechanism and the number "
                 "of layers must be the same"));
  CHECK(contains(test::error_of([&] { load_state(saved, more, "decoding"); }),
                 "load_state: the checkpoint lacks decoding/2.lengths, which the state needs"));
  CHECK(contains(test::error_of([&] { load_state(saved, less, "decoding"); }), "the checkpoint has decoding/1.keys"));
  CHECK(other[0].length() == 0);
  CHECK(less[0].length() == 0);
  // A state of another batch size is detected in the next step, by its shapes.
  std::vector<AttentionState> same = softmax.make_states();
  load_state(saved, same, "decoding");
  CHECK(contains(test::error_of([&] { softmax.decode(tokens(0, 1).slice(0, 0, 1), same); }),
                 "the batch must stay the same (rows() changes it)"));
}
