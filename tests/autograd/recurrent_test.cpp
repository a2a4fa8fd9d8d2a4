// Recurrent cells against sequences, in any batch and at any number of threads. tests/layers/recurrent_test.cpp
// compares with PyTorch, and op_cases_test.cpp checks derivatives with difference quotients.
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/recurrent.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>

#include "tests/autograd/fused_support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using List = std::vector<Tensor>;

constexpr RecurrentKind kKinds[] = {RecurrentKind::rnn_tanh, RecurrentKind::rnn_relu, RecurrentKind::gru,
                                    RecurrentKind::gru_original, RecurrentKind::lstm};

struct Sizes {
  Index batch = 7, steps = 5, units = 9;
};

// Input sums, state, weight and bias.
List arguments(RecurrentKind kind, DType dtype, const Sizes& s = {}) {
  const Index gates = recurrent_gates(kind) * s.units;
  return {normal({s.batch, s.steps, gates}, 1, dtype), normal({s.batch, recurrent_states(kind) * s.units}, 2, dtype),
          normal({gates, s.units}, 3, dtype) * 0.4, normal({gates}, 4, dtype)};
}

Tensor some_lengths(Index batch, Index steps) {
  Tensor lengths = Tensor::zeros({batch}, DType::int32);
  for (Index b = 0; b < batch; ++b)
    lengths.ptr<std::int32_t>()[b] = static_cast<std::int32_t>((3 * b + 2) % (steps + 1));
  return lengths;
}

// The result of a sequence, computed with one cell after another.
Tensor by_cells(RecurrentKind kind, const List& x, const Tensor& lengths, bool reverse) {
  const Index B = x[0].dim(0), T = x[0].dim(1);
  std::vector<Tensor> rows;
  for (Index b = 0; b < B; ++b) {
    const Index length = lengths.defined() ? lengths.ptr<std::int32_t>()[b] : T;
    Tensor state = x[1].slice(0, b, b + 1);
    std::vector<Tensor> states(static_cast<std::size_t>(T + 1), state * 0);
    for (Index s = 0; s < length; ++s) {
      const Index t = reverse ? length - 1 - s : s;
      state = recurrent_cell(kind, x[0].select(1, t).slice(0, b, b + 1), state, x[2], x[3]);
      states[static_cast<std::size_t>(t)] = state;
    }
    states[static_cast<std::size_t>(T)] = state;
    rows.push_back(stack(states, 1));
  }
  return concatenate(rows, 0);
}

}  // namespace

TEST_CASE("a recurrent sequence is its cells one after another, forward and in reverse, values and gradients") {
  for (const RecurrentKind kind : kKinds) {
    for (const bool reverse : {false, true}) {
      for (const bool padded : {false, true}) {
        CAPTURE(static_cast<int>(kind));
        CAPTURE(reverse);
        CAPTURE(padded);
        const List x = arguments(kind, DType::float64);
        const Tensor lengths = padded ? some_lengths(7, 5) : Tensor();
        const auto sequence = [&](const List& in) {
          return recurrent_sequence(kind, in[0], in[1], in[2], in[3], {.lengths = lengths, .reverse = reverse});
        };
        const Tensor dy = normal({7, 6, recurrent_states(kind) * 9}, 5);
        const Run got = run(sequence, x, dy);
        const Run expected = run([&](const List& in) { return by_cells(kind, in, lengths, reverse); }, x, dy);
        CHECK(close(got.y, expected.y, 1e-12, 1e-12));
        for (std::size_t i = 0; i < x.size(); ++i) CHECK(close(got.gradients[i], expected.gradients[i], 1e-11, 1e-11));
        List narrow;
        for (const Tensor& t : x) narrow.push_back(t.to(DType::float32));
        CHECK(close(sequence(narrow).to(DType::float64), expected.y, 1e-5, 1e-5));
      }
    }
  }
}

TEST_CASE("a recurrent cell and a sequence without state or bias have zeros in their place") {
  for (const RecurrentKind kind : kKinds) {
    const List x = arguments(kind, DType::float64);
    const Tensor no_state = x[1] * 0, no_bias = x[3] * 0, first = x[0].select(1, 0).contiguous();
    CHECK(close(recurrent_cell(kind, first, Tensor(), x[2], Tensor()),
                recurrent_cell(kind, first, no_state, x[2], no_bias), 1e-14, 1e-14));
    CHECK(close(recurrent_sequence(kind, x[0], Tensor(), x[2], Tensor()),
                recurrent_sequence(kind, x[0], no_state, x[2], no_bias), 1e-14, 1e-14));
  }
}

TEST_CASE("padding of a recurrent sequence has no effect and no gradient, even NaN") {
  for (const RecurrentKind kind : kKinds) {
    List x = arguments(kind, DType::float32);
    const Tensor lengths = some_lengths(7, 5), dy = normal({7, 6, recurrent_states(kind) * 9}, 5, DType::float32);
    const auto f = [&](const List& in) {
      return recurrent_sequence(kind, in[0], in[1], in[2], in[3], {.lengths = lengths, .reverse = true});
    };
    const Run clean = run(f, x, dy);
    for (Index b = 0; b < 7; ++b) {
      const Index length = lengths.ptr<std::int32_t>()[b];
      Tensor padding = x[0].select(0, b).slice(0, length, 5), of_dy = dy.select(0, b).slice(0, length, 5);
      padding.fill_(kNaN);
      of_dy.fill_(kNaN);
    }
    const Run dirty = run(f, x, dy);
    CHECK(same_bits(clean.y, dirty.y));
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(same_bits(clean.gradients[i], dirty.gradients[i]));
    for (Index b = 0; b < 7; ++b) {
      const Tensor rest = clean.gradients[0].select(0, b).slice(0, lengths.ptr<std::int32_t>()[b], 5).contiguous();
      CHECK(same_bits(rest, Tensor::zeros(rest.shape())));
    }
  }
}

TEST_CASE("a row of a recurrent sequence has the same bits alone, in any batch and at any number of threads") {
  for (const RecurrentKind kind : kKinds) {
    const List x = arguments(kind, DType::float32, {.batch = 41, .steps = 6, .units = 33});
    const Tensor lengths = some_lengths(41, 6);
    const auto f = [&](const List& in) {
      return recurrent_sequence(kind, in[0], in[1], in[2], in[3], {.lengths = lengths});
    };
    const Tensor all = f(x);
    for (const Index b : {0, 1, 17, 40}) {
      const Tensor one = recurrent_sequence(kind, x[0].slice(0, b, b + 1).contiguous(), x[1].slice(0, b, b + 1), x[2],
                                            x[3], {.lengths = lengths.slice(0, b, b + 1)});
      CHECK(same_bits(one.contiguous(), all.slice(0, b, b + 1).contiguous()));
    }
    const Tensor dy = normal(all.shape(), 6, DType::float32);
    same_at_any_threads([&] {
      const Run r = run(f, x, dy);
      List list = r.gradients;
      list.push_back(r.y);
      return list;
    });
  }
}

TEST_CASE("recurrent products round to bfloat16 under MatmulPrecision") {
  const List x = arguments(RecurrentKind::gru, DType::float32, {.batch = 9, .steps = 4, .units = 40});
  const auto f = [&](const List& in) { return recurrent_sequence(RecurrentKind::gru, in[0], in[1], in[2], in[3]); };
  const Tensor dy = normal({9, 5, 40}, 5, DType::float32);
  const Run wide = run(f, x, dy);
  const MatmulPrecision precision(DType::bfloat16);
  const Run narrow = run(f, x, dy);
  CHECK(!same_bits(wide.y, narrow.y));
  CHECK(close(narrow.y, wide.y, 0.05, 0.05));
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(close(narrow.gradients[i], wide.gradients[i], 0.2, 0.2));
}

TEST_CASE("recurrent ops: errors show the rule for each argument") {
  const List x = arguments(RecurrentKind::gru, DType::float32);
  const RecurrentKind kind = RecurrentKind::gru;
  const Tensor first = x[0].select(1, 0).contiguous();
  check_errors({
      {"recurrent_cell: the sums are", [&] { recurrent_cell(kind, x[0], x[1], x[2], x[3]); }},
      {"weight_hh is", [&] { recurrent_cell(kind, first, x[1], x[2].t(), x[3]); }},
      {"must be [3 * units, units]", [&] { recurrent_cell(kind, first, x[1], first, x[3]); }},
      {"bias_hh is", [&] { recurrent_cell(kind, first, x[1], x[2], x[1]); }},
      {"the state is", [&] { recurrent_cell(kind, first, first, x[2], x[3]); }},
      {"recurrent_sequence: the sums are", [&] { recurrent_sequence(kind, first, x[1], x[2], x[3]); }},
      {"lengths are", [&] { recurrent_sequence(kind, x[0], x[1], x[2], x[3], {.lengths = x[1]}); }},
      {"the length of row 1 is 6; it must be from 0 to 5",
       [&] {
         recurrent_sequence(kind, x[0], x[1], x[2], x[3],
                            {.lengths = Tensor::from<std::int32_t>({0, 6, 0, 0, 0, 0, 0})});
       }},
  });
}
