// Decode states of whole models, saved to a file and resumed.
#include <heed/heed.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::close;
using test::contains;
using test::same_bits;
using test::TemporaryFolder;

namespace {

GPT make_model(const std::string& mechanism, Index layers = 2, std::uint64_t seed = 2) {
  const GPTOptions o{.vocabulary = 11, .context = 64, .layers = layers, .heads = 2, .width = 16};
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

TEST_CASE("decode states: saved in a file and resumed by a model of another seed, each goes on with the same bits") {
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

TEST_CASE("decode states: random features and rotations are saved with what was computed by them") {
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

TEST_CASE("decode states: what does not fit is refused, and the state stays as it was") {
  const NoTape guard;
  const GPT softmax = make_model("softmax"), linear = make_model("linear"), deep = make_model("softmax", 3);
  std::vector<AttentionState> states = states_of(softmax);
  Checkpoint saved;
  store_state(saved, states, "decoding");
  std::vector<AttentionState> other = linear.make_states(), more = deep.make_states(),
                              less = make_model("softmax", 1).make_states();
  CHECK(test::error_of([&] { load_state(saved, other); }) ==
        "load_state: the checkpoint has no tensors in the section state");
  CHECK(contains(
      test::error_of([&] { load_state(saved, other, "decoding"); }),
      "load_state: the checkpoint has decoding/0.keys, which the state lacks; it must be of the same mechanism "
      "and have as many layers"));
  CHECK(contains(test::error_of([&] { load_state(saved, more, "decoding"); }),
                 "load_state: the checkpoint lacks decoding/2.lengths, which the state needs"));
  CHECK(contains(test::error_of([&] { load_state(saved, less, "decoding"); }), "the checkpoint has decoding/1.keys"));
  CHECK(other[0].length() == 0);
  CHECK(less[0].length() == 0);
  // A state of another batch is found out at the next step, by its shapes.
  std::vector<AttentionState> same = softmax.make_states();
  load_state(saved, same, "decoding");
  CHECK(contains(test::error_of([&] { softmax.decode(tokens(0, 1).slice(0, 0, 1), same); }),
                 "the batch must stay the same, or rows() change it"));
}
