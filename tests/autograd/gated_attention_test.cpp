// Gated attention: values and gradients against the recurrence in float64, position by position.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/gated_attention.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>

#include "tests/autograd/gated_reference.hpp"
#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

constexpr GateKind kGateKinds[] = {GateKind::none, GateKind::decay, GateKind::scalar, GateKind::channel};

void check_gated(const GatedData& x, std::initializer_list<Index> blocks = {0}) {
  const GatedGradientsOf expected = naive_gated(x);
  on_each_float_level([&] {
    for (const Index block : blocks) {
      CAPTURE(block);
      GatedData at = x;
      at.options.block = block;
      const GatedError doubles = gated_error(run_gated(at, DType::float64), expected),
                       floats = gated_error(run_gated(at, DType::float32), expected);
      CAPTURE(std::string(doubles.of));
      CHECK(doubles.error < 1e-12);
      CAPTURE(std::string(floats.of));
      CHECK(floats.error < 1e-5);
    }
  });
}

// Calls f with and without the delta rule, for each kind of gate.
template <class F>
void for_each_rule(F f) {
  for (const GateKind kind : kGateKinds)
    for (const bool delta : {false, true}) {
      CAPTURE(static_cast<int>(kind));
      CAPTURE(delta);
      f(kind, delta);
    }
}

}  // namespace

TEST_CASE("gated attention equals the recurrence at lengths around blocks, for all rules and blocks, on each level") {
  for_each_rule([](GateKind kind, bool delta) {
    for (const Index steps : {1, 2, 15, 16, 17, 63, 64, 65, 130}) {
      CAPTURE(steps);
      check_gated(gated_data({1, 1, 1, steps, 16, 12}, kind, delta), {16, 32, 64});
    }
  });
}

TEST_CASE("gated attention equals the recurrence at widths around vectors") {
  for_each_rule([](GateKind kind, bool delta) {
    for (const Index width : {1, 3, 15, 17, 31, 33, 60, 65}) {
      CAPTURE(width);
      check_gated(gated_data({1, 1, 1, 40, width, 7}, kind, delta));
      check_gated(gated_data({1, 1, 1, 40, 7, width}, kind, delta));
    }
  });
}

RELEASE_TEST_CASE("gated attention in float32 keeps 1e-5 at the sizes of models") {
  for_each_rule([](GateKind kind, bool delta) {
    check_gated(gated_data({1, 1, 1, 200, 60, 60}, kind, delta));
    check_gated(gated_data({1, 1, 2, 200, 64, 128}, kind, delta), {16, 64});
    check_gated(gated_data({1, 1, 1, 200, 100, 60}, kind, delta), {16, 64});
    check_gated(gated_data({1, 1, 1, 1000, 128, 128}, kind, delta));
    check_gated(gated_data({1, 1, 1, 4096, 16, 16}, kind, delta));
  });
}

TEST_CASE("gated attention takes groups of value heads, several rows, and strided inputs") {
  for_each_rule([](GateKind kind, bool delta) {
    check_gated(gated_data({2, 2, 6, 70, 9, 10}, kind, delta));  // each head is a task
    check_gated(gated_data({4, 2, 4, 70, 9, 10}, kind, delta));  // each group of heads is a task
  });
}

TEST_CASE("gated attention has no limit on the size of gates, and a reset is exact") {
  for (const GateKind kind : {GateKind::scalar, GateKind::channel})
    for (const bool delta : {false, true})
      for (const double scale : {0.01, 1.0, 100.0}) {
        CAPTURE(static_cast<int>(kind));
        CAPTURE(delta);
        CAPTURE(scale);
        GatedData x = gated_data({1, 1, 2, 150, 20, 18}, kind, delta, scale);
        check_gated(x, {16, 32, 64});
        for (Index i = 3; i < x.options.log_gate.numel(); i += 7)
          x.options.log_gate.ptr<double>()[i] = -std::numeric_limits<double>::infinity();
        check_gated(x, {16, 32, 64});
      }
}

TEST_CASE("gated attention ends each row at its length, and resets the state at documents") {
  for_each_rule([](GateKind kind, bool delta) {
    GatedData x = gated_data({3, 1, 2, 90, 10, 12}, kind, delta);
    x.options.lengths = Tensor::from<std::int32_t>({90, 0, 37});
    check_gated(x, {16, 64});
    Tensor documents = Tensor::zeros({3, 90}, DType::int32);
    for (Index b = 0; b < 3; ++b)
      for (Index t = 0; t < 90; ++t)
        documents.ptr<std::int32_t>()[b * 90 + t] = static_cast<std::int32_t>(t < 20 + b ? 0 : t < 70 ? 20 + b : 70);
    x.options.documents = documents;
    check_gated(x, {16, 64});
  });
}

// What follows a reset does not depend on what was before, and the gradient before it does not depend on what follows.
TEST_CASE("a document has the bits of the same document alone") {
  for_each_rule([](GateKind kind, bool delta) {
    const GatedData x = gated_data({1, 1, 1, 128, 16, 16}, kind, delta);
    const auto part = [](const Tensor& t) { return t.defined() ? t.to(DType::float32).slice(2, 64, 128) : t; };
    GatedAttentionOptions alone, all;
    alone.log_gate = part(x.options.log_gate), alone.beta = part(x.options.beta);
    all.documents = Tensor::zeros({1, 128}, DType::int32);
    for (Index t = 64; t < 128; ++t) all.documents.ptr<std::int32_t>()[t] = 64;
    const auto whole = [](const Tensor& t) { return t.defined() ? t.to(DType::float32) : t; };
    all.log_gate = whole(x.options.log_gate), all.beta = whole(x.options.beta);
    const Tensor y = gated_attention(whole(x.q), whole(x.k), whole(x.v), all).slice(2, 64, 128),
                 z = gated_attention(part(x.q), part(x.k), part(x.v), alone);
    CHECK(close(y, z, 0, kind == GateKind::none ? 0 : 1e-6));
  });
}

TEST_CASE("gated attention continues from a state, and without one returns the same result") {
  for_each_rule([](GateKind kind, bool delta) {
    const GatedData x = gated_data({2, 1, 2, 100, 12, 9}, kind, delta);
    const GatedAttentionResult all = gated_attention_states(x.q, x.k, x.v, x.options);
    CHECK(close(gated_attention(x.q, x.k, x.v, x.options), all.out, 0, 0));
    GatedAttentionOptions o = x.options;
    std::vector<Tensor> parts;
    const Index ends[] = {1, 30, 64, 100};
    for (Index i = 0, begin = 0; i < 4; begin = ends[i++]) {
      const auto part = [&](const Tensor& t) { return t.defined() ? t.slice(2, begin, ends[i]) : t; };
      o.log_gate = part(x.options.log_gate), o.beta = part(x.options.beta);
      const GatedAttentionResult y = gated_attention_states(part(x.q), part(x.k), part(x.v), o);
      o.state = y.state;
      parts.push_back(y.out);
    }
    CHECK(close(concatenate(parts, 2), all.out, 0, 1e-12));
    CHECK(close(o.state, all.state, 0, 1e-12));
  });
}

TEST_CASE("gated attention has the same bits at any number of threads") {
  for_each_rule([](GateKind kind, bool delta) {
    const GatedData x = gated_data({2, 2, 4, 100, 16, 16}, kind, delta);
    const int before = threads();
    set_threads(1);
    const GatedGradientsOf one = run_gated(x, DType::float32);
    set_threads(4);
    const GatedGradientsOf four = run_gated(x, DType::float32);
    set_threads(before);
    CHECK(gated_error(four, one).error == 0);
  });
}

TEST_CASE("later positions change nothing earlier, even if they hold NaN") {
  for_each_rule([](GateKind kind, bool delta) {
    const GatedData x = gated_data({1, 1, 1, 80, 8, 8}, kind, delta);
    const Tensor y = gated_attention(x.q, x.k, x.v, x.options).slice(2, 0, 37);
    GatedData later = x;
    for (Tensor* t : {&later.q, &later.k, &later.v}) {
      *t = t->clone();
      t->slice(2, 37, 80).fill_(std::numeric_limits<double>::quiet_NaN());
    }
    const Tensor z = gated_attention(later.q, later.k, later.v, later.options).slice(2, 0, 37);
    CHECK(close(y, z, 0, 0));
  });
}

TEST_CASE("gates broadcast over rows, heads, positions and channels, and so do their gradients") {
  const GatedData x = gated_data({2, 1, 3, 40, 6, 5}, GateKind::none, false);
  for (const Shape& shape : {Shape{3, 1}, Shape{40}, Shape{2, 1, 40}, Shape{1, 3, 1, 6}, Shape{2, 3, 40, 1}}) {
    CAPTURE(shape.rank());
    const Tensor gate = Rng(3).uniform(shape, -1, 0, DType::float64);
    const auto run = [&](bool expanded) {
      Tape tape;
      const Tensor given = tape.watch(gate), beta = tape.watch(Rng(4).uniform({3, 1}, 0, 1, DType::float64));
      GatedAttentionOptions o;
      o.log_gate =
          expanded ? given.expand(shape.rank() == 4 ? Shape{2, 3, 40, 6} : Shape{2, 3, 40}).contiguous() : given;
      o.beta = expanded ? beta.expand({2, 3, 40}).contiguous() : beta;
      const Tensor y = gated_attention(x.q, x.k, x.v, o);
      tape.backward(sum(y * x.dout));
      return std::vector<Tensor>{y.detach(), tape.grad(given), tape.grad(beta)};
    };
    const std::vector<Tensor> a = run(false), b = run(true);
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(close(a[i], b[i], 0, 1e-12));
  }
}

TEST_CASE("gated attention in bfloat16 rounds the result of float32") {
  const GatedData x = gated_data({1, 2, 2, 70, 16, 16}, GateKind::scalar, true);
  const auto half = [](const Tensor& t) { return t.to(DType::bfloat16); };
  GatedAttentionOptions o{.log_gate = half(x.options.log_gate), .beta = half(x.options.beta)};
  const Tensor y = gated_attention(half(x.q), half(x.k), half(x.v), o);
  CHECK(y.dtype() == DType::bfloat16);
  const auto wide = [&](const Tensor& t) { return half(t).to(DType::float32); };
  const Tensor z = gated_attention(wide(x.q), wide(x.k), wide(x.v),
                                   {.log_gate = wide(x.options.log_gate), .beta = wide(x.options.beta)});
  CHECK(close(y, half(z), 0, 0));
}

TEST_CASE("gated attention refuses other shapes and dtypes") {
  const Tensor q = Tensor::zeros({2, 2, 5, 4}), v = Tensor::zeros({2, 4, 5, 3});
  const auto message = [&](const GatedAttentionOptions& o) { return error_of([&] { gated_attention(q, q, v, o); }); };
  CHECK(contains(error_of([&] { gated_attention(q, q.slice(2, 0, 4), v); }), "they must be [batch, key heads, steps"));
  CHECK(contains(error_of([&] { gated_attention(q, q.to(DType::float64), v); }), "all be float32, all float64"));
  CHECK(contains(error_of([&] { gated_attention(q, q, v.slice(1, 0, 3)); }), "the heads of q must divide"));
  CHECK(contains(message({.block = 48}), "block is 48; it must be 16, 32 or 64"));
  CHECK(contains(message({.log_gate = Tensor::zeros({2, 4, 6})}), "log_gate is [2, 4, 6] float32"));
  CHECK(contains(message({.log_gate = Tensor::zeros({2, 4, 5, 3})}), "broadcast to [2, 4, 5, 4]"));
  CHECK(contains(message({.beta = Tensor::zeros({5}, DType::float64)}), "beta is [5] float64"));
  CHECK(contains(message({.state = Tensor::zeros({2, 4, 3, 4})}), "it must have v's dtype and be [2, 4, 4, 3]"));
  CHECK(contains(message({.lengths = Tensor::from<std::int32_t>({5, 6})}), "the length of row 1 is 6"));
  CHECK(contains(message({.documents = Tensor::zeros({2, 4}, DType::int32)}), "documents is [2, 4] int32"));
}

TEST_CASE("steps of decoding equal the whole sequence, in the memory of the state") {
  for_each_rule([](GateKind kind, bool delta) {
    for (const Index width : {5, 20, 64}) {
      GatedData x = gated_data({2, 1, 2, 30, 12, width}, kind, delta);
      x.options.documents = Tensor::zeros({2, 30}, DType::int32);
      const GatedAttentionResult all = gated_attention_states(x.q, x.k, x.v, x.options);
      on_each_float_level([&] {
        for (const DType type : {DType::float64, DType::float32}) {
          const double error = type == DType::float64 ? 1e-12 : 1e-5;
          GatedAttentionOptions o;
          Tensor state = Tensor::zeros({2, 2, 12, width}, type);  // position 0 begins a document
          const void* const memory = state.raw();
          std::vector<Tensor> parts;
          for (Index t = 0, n = 0; t < 30; t += n) {
            n = t < 20 ? 1 + t % 3 : 10;  // the last steps are a block
            const Index end = std::min<Index>(30, t + n);
            const auto part = [&](const Tensor& y) { return y.defined() ? y.slice(2, t, end).to(type) : y; };
            o.log_gate = part(x.options.log_gate), o.beta = part(x.options.beta);
            parts.push_back(gated_attention_step(part(x.q), part(x.k), part(x.v), state, o).to(DType::float64));
            if (n < 8) CHECK(state.raw() == memory);
          }
          CHECK(relative_error(concatenate(parts, 2), all.out) < error);
          CHECK(relative_error(state, all.state) < error);
        }
      });
    }
  });
}
