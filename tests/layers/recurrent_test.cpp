// RNN, GRU, LSTM and LSTMN against PyTorch and their formulas.
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/model.hpp>
#include <heed/layers/recurrent.hpp>

#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

const StoredCases& reference() { return stored_cases("recurrent_torch.json"); }

void take_values(auto& layer, const Named& stored) {
  to(layer, DType::float64);
  for (const NamedParameter& p : named_parameters(layer)) {
    REQUIRE_MESSAGE(stored.count(p.name) == 1, p.name);
    p.parameter->copy_(stored.at(p.name));
  }
}

// Compares y, the states, and the gradients of the sum of y and states weighted by the stored weights.
void check_case(auto& layer, const Named& stored, RecurrentInput input) {
  const Named& given = reference().inputs;
  Tape tape;
  const Tensor x = tape.watch(given.at("x"));
  Tensor begin;
  if (stored.count("states0") == 1) {
    begin = tape.watch(stored.at("states0"));
    for (Index i = 0; i < begin.dim(0); ++i) input.states.push_back(begin.select(0, i));
  }
  const RecurrentOutput out = layer(x, input);
  const Tensor states = stack(out.states, 0);
  CHECK(close(out.y, stored.at("y"), 1e-12, 1e-12));
  CHECK(close(states, stored.at("states"), 1e-12, 1e-12));
  std::string shape;
  for (const Index n : states.shape()) shape += (shape.empty() ? "" : "x") + std::to_string(n);
  const std::string width = std::to_string(out.y.dim(2));
  tape.backward(sum(out.y * given.at("dy " + width)) + sum(states * given.at("dstates " + width + " " + shape)));
  CHECK(close(tape.grad(x), stored.at("d x"), 1e-11, 1e-11));
  if (begin.defined()) CHECK(close(tape.grad(begin), stored.at("d states0"), 1e-11, 1e-11));
  for (const NamedParameter& p : named_parameters(layer)) {
    CAPTURE(p.name);
    CHECK(close(p.parameter->grad(), stored.at("d " + p.name), 1e-11, 1e-11));
  }
}

struct Kind {
  std::string name;
  RecurrentKind kind;
};
const std::vector<Kind> kKinds = {{"rnn_tanh", RecurrentKind::rnn_tanh},
                                  {"rnn_relu", RecurrentKind::rnn_relu},
                                  {"gru", RecurrentKind::gru},
                                  {"lstm", RecurrentKind::lstm}};

Tensor lengths_of_rows() { return reference().inputs.at("lengths").to(DType::int32); }

}  // namespace

TEST_CASE("recurrent layers have PyTorch's names, values and gradients, single and two bidirectional layers") {
  for (const Kind& k : kKinds) {
    CAPTURE(k.name);
    Rng rng(1);
    Recurrent one(k.kind, {.input = 3, .hidden = 4}, rng);
    const Named& plain = reference().cases.at(k.name);
    take_values(one, plain);
    check_case(one, plain, {});
    Recurrent two(k.kind, {.input = 3, .hidden = 4, .layers = 2, .bidirectional = true}, rng);
    const Named& padded = reference().cases.at(k.name + " 2 layers both ways padded");
    take_values(two, padded);
    check_case(two, padded, {.lengths = lengths_of_rows()});
  }
}

TEST_CASE("the original GRU and the LSTMN have the values and gradients of their formulas") {
  Rng rng(1);
  Recurrent original(RecurrentKind::gru_original, {.input = 3, .hidden = 4}, rng);
  const Named& gru = reference().cases.at("gru_original padded");
  take_values(original, gru);
  check_case(original, gru, {.lengths = lengths_of_rows()});

  LSTMN lstmn({.input = 3, .hidden = 4, .units = 3}, rng);
  const Named& stored = reference().cases.at("lstmn padded");
  take_values(lstmn, stored);
  check_case(lstmn, stored, {.lengths = lengths_of_rows()});
  const Tensor weights = lstmn.attention_weights(reference().inputs.at("x"), {.lengths = lengths_of_rows()});
  for (Index b = 0; b < 4; ++b) {
    const Index length = lengths_of_rows().ptr<std::int32_t>()[b];
    CHECK(close(weights.select(0, b).slice(0, 0, length), stored.at("weights").select(0, b).slice(0, 0, length), 1e-12,
                1e-12));
  }
}

TEST_CASE("a padded batch gives the results of its rows one by one") {
  Rng rng(3);
  const GRU gru({.input = 6, .hidden = 10, .layers = 2, .bidirectional = true}, rng);
  const LSTMN lstmn({.input = 6, .hidden = 10}, rng);
  const Tensor x = normal({4, 7, 6}, 2, DType::float32), lengths = Tensor::from<std::int32_t>({7, 2, 5, 0});
  const auto check_rows = [&](const auto& layer, double tolerance) {
    const RecurrentOutput all = layer(x, {.lengths = lengths});
    for (Index b = 0; b < 3; ++b) {
      const Index length = lengths.ptr<std::int32_t>()[b];
      const RecurrentOutput one = layer(x.slice(0, b, b + 1).slice(1, 0, length));
      CHECK(close(all.y.slice(0, b, b + 1).slice(1, 0, length), one.y, tolerance, tolerance));
      for (std::size_t i = 0; i < one.states.size(); ++i)
        CHECK(close(all.states[i].slice(0, b, b + 1), one.states[i], tolerance, tolerance));
    }
    CHECK(close(all.y.select(0, 3), Tensor::zeros({7, all.y.dim(2)})));
    CHECK(close(all.states[0].select(0, 3), all.states[0].select(0, 3) * 0));
  };
  check_rows(gru, 1e-6);
  check_rows(lstmn, 1e-6);
}

TEST_CASE("padding that is not a number reaches neither values nor gradients of recurrent layers") {
  Rng rng(3);
  RecurrentOptions o{.input = 6, .hidden = 10, .layers = 2, .bidirectional = true};
  const Tensor lengths = Tensor::from<std::int32_t>({7, 2, 5, 0}), zeros = normal({4, 7, 6}, 2, DType::float32);
  Tensor nans = zeros.clone();
  for (Index b = 0; b < 4; ++b)
    for (Index t = lengths.ptr<std::int32_t>()[b]; t < 7; ++t)
      zeros.select(0, b)[t].fill_(0), nans.select(0, b)[t].fill_(t % 2 == 0 ? NAN : INFINITY);
  const auto same = [&](auto layer) {
    const auto all_of = [&](const Tensor& values) {
      for (const NamedParameter& p : named_parameters(layer)) p.parameter->zero_grad();
      Tape tape;
      const Tensor x = tape.watch(values), y = layer(x, {.lengths = lengths}).y;
      tape.backward(sum(square(y)));
      std::vector<Tensor> all = {y.detach(), tape.grad(x)};
      for (const NamedParameter& p : named_parameters(layer)) all.push_back(p.parameter->grad().clone());
      return all;
    };
    const std::vector<Tensor> expected = all_of(zeros), got = all_of(nans);
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(same_bits(got[i], expected[i]));
  };
  same(GRU(o, rng)), same(LSTM(o, rng)), same(RNN(o, rng));
  same(LSTMN({.input = 6, .hidden = 10}, rng));
}

TEST_CASE("single steps give the results of the whole sequence") {
  for (const Kind& k : kKinds) {
    Rng rng(4);
    const Recurrent net(k.kind, {.input = 5, .hidden = 8, .layers = 2}, rng);
    const Tensor x = normal({3, 4, 5}, 2, DType::float32);
    const RecurrentOutput whole = net(x);
    std::vector<Tensor> states = net.zero_states(3);
    for (Index t = 0; t < 4; ++t) CHECK(close(net.step(x.select(1, t), states), whole.y.select(1, t)));
    for (std::size_t i = 0; i < states.size(); ++i) CHECK(close(states[i], whole.states[i]));
  }
}

TEST_CASE("LSTMN: steps give the results of the whole sequence, and a span bounds the memory") {
  Rng rng(4);
  const Tensor x = normal({3, 9, 5}, 2);
  for (const Index span : {0, 1, 3, 8, 20}) {
    CAPTURE(span);
    LSTMN net({.input = 5, .hidden = 4, .units = 3, .span = span}, rng);
    to(net, DType::float64);
    const Tensor whole = net(x).y, weights = net.attention_weights(x);
    LSTMNState state;
    for (Index t = 0; t < 9; ++t) {
      CHECK(close(net.step(x.select(1, t), state), whole.select(1, t), 1e-13, 1e-13));
      CHECK(state.keys.dim(1) == (span == 0 ? t + 1 : std::min(span, t + 1)));
      for (Index i = 0; i < 9; ++i) {
        const bool seen = i < t && (span == 0 || i >= t - span);
        CHECK((weights.at({1, t, i}) > 0) == seen);
      }
    }
    const LSTMNState two = pick_rows(state, Tensor::from<std::int32_t>({2, 0}));
    LSTMNState picked = two, all = state;
    const Tensor next = x.select(1, 0), both = Tensor::from<std::int32_t>({2, 0});
    CHECK(
        close(net.step(index_select(next, 0, both), picked), index_select(net.step(next, all), 0, both), 1e-13, 1e-13));
  }
  // With a span of 1 the last state is recalled alone: an LSTM.
  LSTMN one({.input = 5, .hidden = 4, .span = 1}, rng);
  to(one, DType::float64);
  Tensor state;
  for (Index t = 0; t < 9; ++t) {
    state = one.cell(x.select(1, t), state);
    CHECK(close(one.cell.h(state), one(x).y.select(1, t), 1e-13, 1e-13));
  }
  LSTMN bounded({.input = 5, .hidden = 4, .units = 3, .span = 2}, rng);
  to(bounded, DType::float64);
  gradcheck([&](const std::vector<Tensor>& in) { return bounded(in[0]).y; }, {x});
  gradcheck([&] { return bounded(x).y; }, named_parameters(bounded));
}

TEST_CASE("dropout acts between the layers of a recurrent stack, in training alone") {
  Rng rng(4);
  const GRU net({.input = 5, .hidden = 8, .layers = 2, .dropout = 0.5}, rng);
  const Tensor x = normal({3, 4, 5}, 2, DType::float32);
  const Tensor quiet = net(x).y;
  CHECK(same_bits(net(x).y.contiguous(), quiet.contiguous()));
  Tape tape;
  CHECK(!close(net(x).y.detach(), quiet));
}

TEST_CASE("recurrent layers: errors") {
  Rng rng(1);
  const GRU both({.input = 3, .hidden = 4, .bidirectional = true}, rng);
  std::vector<Tensor> states = both.zero_states(2);
  check_errors({
      {"Recurrent: x is",
       [&] {
         both(normal({2, 5, 4}));
       }},
      {"the number of states is 1; it must be 2, one per cell",
       [&] {
         both(normal({2, 5, 3}, 1, DType::float32), {.states = {states[0]}});
       }},
      {"a bidirectional stack does not support single steps",
       [&] {
         both.step(normal({2, 3}, 1, DType::float32), states);
       }},
      {"hidden is 0", [&] { GRU({.input = 3}, rng); }},
      {"dropout is 1", [&] { GRU({.input = 3, .hidden = 2, .dropout = 1}, rng); }},
      {"Recurrent: the length of row 1 is 6; it must be from 0 to 5, the number of steps",
       [&] {
         both(normal({2, 5, 3}, 1, DType::float32), {.lengths = Tensor::from<std::int32_t>({5, 6})});
       }},
      {"LSTMN: the length of row 0 is -1; it must be from 0 to 5",
       [&] {
         LSTMN({.input = 3, .hidden = 4}, rng)(normal({2, 5, 3}, 1, DType::float32),
                                               {.lengths = Tensor::from<std::int32_t>({-1, 5})});
       }},
      {"LSTMN: span is -1; it must be 1 or more, or 0 for all positions",
       [&] { LSTMN({.input = 3, .hidden = 4, .span = -1}, rng); }},
      {"LSTMN: x is [2, 4] float32; one step takes [batch, 3]",
       [&] {
         LSTMNState state;
         LSTMN({.input = 3, .hidden = 4}, rng).step(normal({2, 4}, 1, DType::float32), state);
       }},
      {"LSTMN: the input has states",
       [&] {
         LSTMN({.input = 3, .hidden = 4}, rng)(normal({2, 5, 3}, 1, DType::float32), {.states = states});
       }},
  });
}
