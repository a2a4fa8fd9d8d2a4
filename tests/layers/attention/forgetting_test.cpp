// The forget gate near and at 0, with its gradients, against the definition in float64.
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>

#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

struct Case {
  Tensor q, k, v, forget;  // [B, H, T, D], [B, Hk, S, D], [B, Hk, S, Dv], [B, Hk, S, 1], float32
  AttentionCall call = {};
};

// Values and gradients in float64.
struct Result {
  Tensor y, dq, dk, dv, dforget;
};

double log_sigmoid(double z) { return z < 0 ? z - std::log1p(std::exp(z)) : -std::log1p(std::exp(-z)); }

// A row of the definition for one head, in double. Sums run from the query backwards, so that nothing cancels.
struct DefinedRow {
  std::vector<double> weights, dscores;

  DefinedRow(const Case& c, const Result& r, const Tensor& dy, Index b, Index h, Index i) {
    const Index g = h / (c.q.dim(1) / c.k.dim(1)), keys = c.k.dim(2), position = i + keys - c.q.dim(2);
    const Index size = c.q.dim(3), width = c.v.dim(3);
    const double scale = 1 / std::sqrt(static_cast<double>(size));
    weights.assign(static_cast<std::size_t>(keys), 0.0), dscores = weights;
    std::vector<double> scores(static_cast<std::size_t>(keys), -kInf);
    double left = 0, max_score = -kInf, sum = 0, delta = 0;
    for (Index j = std::min(position, keys - 1); j >= 0; --j) {
      const bool padding = (c.call.key_lengths.defined() && static_cast<double>(j) >= c.call.key_lengths.at({b})) ||
                           (c.call.key_mask.defined() && c.call.key_mask.at({b, j}) == 0);
      if (padding) continue;
      double s = left;
      if (left > -kInf)
        for (Index d = 0; d < size; ++d) s += scale * c.q.at({b, h, i, d}) * c.k.at({b, g, j, d});
      if (!c.call.mask.defined() || c.call.mask.at({i, j}) != 0) scores[static_cast<std::size_t>(j)] = s;
      left += log_sigmoid(c.forget.at({b, g, j, 0}));
    }
    for (const double s : scores) max_score = std::max(max_score, s);
    if (max_score == -kInf) return;
    for (Index j = 0; j < keys; ++j) sum += at(weights, j) = std::exp(at(scores, j) - max_score);
    for (Index j = 0; j < keys; ++j) {
      at(weights, j) /= sum;
      for (Index d = 0; d < width; ++d) {
        const double part = at(weights, j) * c.v.at({b, g, j, d});
        r.y.ptr<double>()[((b * c.q.dim(1) + h) * c.q.dim(2) + i) * width + d] += part;
        delta += part * dy.at({b, h, i, d});
      }
    }
    for (Index j = 0; j < keys; ++j) {
      double dweight = 0;
      for (Index d = 0; d < width; ++d) dweight += dy.at({b, h, i, d}) * c.v.at({b, g, j, d});
      at(dscores, j) = at(weights, j) * (dweight - delta);
    }
  }
  static double& at(std::vector<double>& x, Index j) { return x[static_cast<std::size_t>(j)]; }
};

Result reference(const Case& c, const Tensor& dy) {
  const auto zeros = [](const Tensor& x) { return Tensor::zeros(x.shape(), DType::float64); };
  Result r{zeros(dy), zeros(c.q), zeros(c.k), zeros(c.v), zeros(c.forget)};
  const Index heads = c.q.dim(1), queries = c.q.dim(2), keys = c.k.dim(2), size = c.q.dim(3), width = c.v.dim(3);
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  for (Index n = 0; n < c.q.dim(0) * heads * queries; ++n) {
    const Index b = n / queries / heads, h = n / queries % heads, i = n % queries, g = h / (heads / c.k.dim(1));
    DefinedRow row(c, r, dy, b, h, i);
    const Index first = (b * c.k.dim(1) + g) * keys, position = std::min(i + keys - queries, keys - 1);
    double later = 0;  // sum of the derivatives of all keys before the gate
    for (Index j = 0; j < keys; ++j) {
      const double w = DefinedRow::at(row.weights, j), ds = DefinedRow::at(row.dscores, j),
                   z = c.forget.at({b, g, j, 0});
      const bool padding = (c.call.key_lengths.defined() && static_cast<double>(j) >= c.call.key_lengths.at({b})) ||
                           (c.call.key_mask.defined() && c.call.key_mask.at({b, j}) == 0);
      if (j <= position && !padding && z > -1e300) r.dforget.ptr<double>()[first + j] += later / (1 + std::exp(z));
      later += ds;
      for (Index d = 0; d < size; ++d) {
        r.dq.ptr<double>()[n * size + d] += scale * ds * c.k.at({b, g, j, d});
        r.dk.ptr<double>()[(first + j) * size + d] += scale * ds * c.q.at({b, h, i, d});
      }
      for (Index d = 0; d < width; ++d) r.dv.ptr<double>()[(first + j) * width + d] += w * dy.at({b, h, i, d});
    }
  }
  return r;
}

Result run(const Case& c, const Tensor& dy, DType dtype = DType::float32) {
  Tape tape;
  const Tensor q = tape.watch(c.q.to(dtype)), k = tape.watch(c.k.to(dtype)), v = tape.watch(c.v.to(dtype)),
               forget = tape.watch(c.forget.to(dtype));
  AttentionCall call = c.call;
  call.causal = true;
  const Tensor y = ForgettingAttention().apply(q, k, v, call, std::vector{forget});
  tape.backward(y, dy.to(dtype));
  return {y.detach(), tape.grad(q), tape.grad(k), tape.grad(v), tape.grad(forget)};
}

void check_close(const Result& got, const Result& expected, double tolerance) {
  const auto off = [&](const Tensor& a, const Tensor& b) {
    const double scale = std::max(1.0, max(abs(b)).item());
    return worst(a.to(DType::float64), b, 0, tolerance * scale);
  };
  CHECK(off(got.y, expected.y) <= 1);
  CHECK(off(got.dq, expected.dq) <= 1);
  CHECK(off(got.dk, expected.dk) <= 1);
  CHECK(off(got.dv, expected.dv) <= 1);
  CHECK(off(got.dforget, expected.dforget) <= 1);
}

Case draw(Index batch, Index heads, Index key_heads, Index queries, Index keys, double gate = 3) {
  Rng rng(7);
  return {rng.normal({batch, heads, queries, 8}) * 2.0, rng.normal({batch, key_heads, keys, 8}) * 2.0,
          rng.normal({batch, key_heads, keys, 4}), rng.normal({batch, key_heads, keys, 1}, gate, 1)};
}

Tensor upstream(const Case& c) { return normal(c.q.shape().with(-1, c.v.dim(3)), 11, DType::float32); }

// Sets the gates at these positions to z, for all heads or for the first head only.
void close_gates(Case& c, double z, const std::vector<Index>& positions, bool all = true) {
  for (const Index p : positions)
    for (Index n = 0; n < (all ? c.forget.dim(0) * c.forget.dim(1) : 1); ++n)
      c.forget.ptr<float>()[n * c.forget.dim(2) + p] = static_cast<float>(z);
}

const std::vector<double> kShut = {-15, -30, -100, -1e3, -1e4, -1e6, -1e9, -1e20, -3e38, -kInf};

}  // namespace

TEST_CASE("forgetting: gates that close are exact to float32, forward and backward, on each level") {
  int number = 0;
  for (const double z : kShut) {
    if (!is_taken(number++, 3)) continue;
    Case c = draw(2, 2, 1, 75, 75);
    close_gates(c, z, {0, 10, 11, 12, 30, 64, 74});
    close_gates(c, -2, {40}, false);
    const Tensor dy = upstream(c);
    const Result expected = reference(c, dy);
    CAPTURE(z);
    on_each_float_level([&] { check_close(run(c, dy), expected, 1e-5); });
    check_close(run(c, dy, DType::float64), expected, 1e-12);
  }
}

TEST_CASE("forgetting: all gates closed, or any of them, over blocks of queries and of keys") {
  const Index n = thinned<Index>(600, 340);
  int number = 0;
  for (const double z : {-8.0, -40.0, -1e5, -3e38, -kInf}) {
    if (!is_taken(number++, 4)) continue;
    Case c = draw(1, 1, 1, n, n);
    std::vector<Index> some;
    for (Index p = 0; p < n; p += p < 300 ? 1 : 37) some.push_back(p);
    close_gates(c, z, some);
    const Tensor dy = upstream(c);
    CAPTURE(z);
    check_close(run(c, dy), reference(c, dy), 1e-5);
  }
  Case c = draw(1, 1, 1, 300, 300, 0);  // between fully open and closed
  c.forget = c.forget * 60.0;
  const Tensor dy = upstream(c);
  check_close(run(c, dy), reference(c, dy), 1e-5);
  c.forget.fill_(-kInf);
  const Result alone = run(c, dy);  // each position sees itself only
  CHECK(close(alone.y, c.v, 0, 0));
  CHECK(max(abs(alone.dforget)).item() == 0);
}

TEST_CASE("forgetting: positions after a closed gate equal a sequence that begins there") {
  Case c = draw(1, 2, 2, 200, 200);
  close_gates(c, -kInf, {96});
  const Case rest{c.q.slice(2, 96, 200), c.k.slice(2, 96, 200), c.v.slice(2, 96, 200), c.forget.slice(2, 96, 200)};
  const Tensor dy = upstream(c);
  const Result all = run(c, dy), alone = run(rest, dy.slice(2, 96, 200));
  CHECK(close(all.y.slice(2, 96, 200), alone.y, 1e-6, 1e-6));
  CHECK(close(all.dq.slice(2, 96, 200), alone.dq, 1e-5, 1e-6));
  CHECK(close(all.dv.slice(2, 96, 200), alone.dv, 1e-5, 1e-6));
  c.v.slice(2, 0, 96).fill_(kNaN);  // hidden, as by a mask
  CHECK(!any(isnan(run(c, dy).y.slice(2, 96, 200))).item());
}

TEST_CASE("forgetting: closed gates with lengths, masks and other numbers of queries") {
  int number = 0;
  for (const double z : {-30.0, -1e4, -1e9, -kInf}) {
    if (!is_taken(number++, 3)) continue;
    CAPTURE(z);
    Case c = draw(2, 4, 2, 40, 90);
    close_gates(c, z, {3, 50, 60, 61, 88});
    const Tensor dy = upstream(c);
    check_close(run(c, dy), reference(c, dy), 1e-5);
    c.call.key_lengths = Tensor::from<std::int32_t>({70, 0});
    check_close(run(c, dy), reference(c, dy), 1e-5);
    c.call = {.key_mask = Tensor::ones({2, 90}, DType::bool8)};
    c.call.key_mask.slice(1, 50, 61).fill_(0);  // gates of padding forget nothing
    check_close(run(c, dy), reference(c, dy), 1e-5);
    // All allowed keys are before a closed gate: weights are relative to each other, and zeros if the gate is exactly
    // 0.
    c.call = {.mask = Tensor::ones({40, 90}, DType::bool8)};
    c.call.mask.slice(1, 45, 90).fill_(0);
    check_close(run(c, dy), reference(c, dy), 1e-5);
    Case wide = draw(1, 2, 1, 70, 20);
    close_gates(wide, z, {0, 7, 19});
    check_close(run(wide, upstream(wide)), reference(wide, upstream(wide)), 1e-5);
  }
}

TEST_CASE("forgetting: a bias of -infinity counts as a mask, with closed gates") {
  Case c = draw(1, 1, 1, 60, 60);
  close_gates(c, -1e4, {20, 40});
  c.call.mask = Tensor::ones({60, 60}, DType::bool8);
  c.call.mask.slice(1, 15, 60).fill_(0);
  const Tensor dy = upstream(c);
  const Result expected = reference(c, dy);
  c.call = {.bias = where(c.call.mask, Tensor::zeros({60, 60}), -kInf)};
  check_close(run(c, dy), expected, 1e-5);
}

TEST_CASE("forgetting: decoding in steps of any size gives the rows of the whole sequence, with closed gates") {
  int number = 0;
  for (const double z : {-30.0, -1e4, -1e9, -kInf})
    for (const Index step : {1, 7, 64}) {
      if (!is_taken(number++, 5)) continue;
      Case c = draw(2, 2, 1, 130, 130);
      close_gates(c, z, {0, 10, 64, 65, 100, 129});
      const Tensor expected = reference(c, upstream(c)).y;
      const NoTape guard;
      AttentionState state = ForgettingAttention().make_state();
      std::vector<Tensor> rows;
      for (Index i = 0; i < 130; i += step) {
        const Index end = std::min<Index>(i + step, 130);
        const std::vector<Tensor> inputs = {c.forget.slice(2, i, end)};
        rows.push_back(state.apply(c.q.slice(2, i, end), c.k.slice(2, i, end), c.v.slice(2, i, end), {.causal = true},
                                   inputs));
      }
      CAPTURE(z);
      CAPTURE(step);
      CHECK(worst(concatenate(rows, 2).to(DType::float64), expected, 0, 1e-5) <= 1);
    }
}

TEST_CASE("forgetting: the same bits at any number of threads, on all levels that fuse multiply-add") {
  Case c = draw(1, 2, 1, 300, 300);
  close_gates(c, -1e4, {0, 100, 101, 299});
  close_gates(c, -kInf, {200});
  const Tensor dy = upstream(c);
  const int before = threads();
  std::vector<Result> all;
  on_each_float_level([&] {
    for (const int n : {1, 2, 5}) {
      set_threads(n);
      if (kernels::fuses(kernels::level())) all.push_back(run(c, dy));
    }
  });
  set_threads(before);
  for (const Result& r : all) {
    CHECK((same_bits(r.y, all[0].y) && same_bits(r.dq, all[0].dq) && same_bits(r.dk, all[0].dk)));
    CHECK((same_bits(r.dv, all[0].dv) && same_bits(r.dforget, all[0].dforget)));
  }
}

TEST_CASE("forgetting: errors") {
  const Case c = draw(2, 4, 2, 5, 5);
  const ForgettingAttention f;
  const auto apply = [&](const Tensor& k, const std::vector<Tensor>& gates) {
    f.apply(c.q, k, c.v, {.causal = true}, gates);
  };
  check_errors({
      {"forgetting attention: k is [2, 2, 5, 8] float32 and forget is [2, 4, 5, 1] float32; it must be [2, 2, 5, 1]",
       [&] { apply(c.k, {Tensor::zeros({2, 4, 5, 1})}); }},
      {"forget is undefined; it must be [2, 2, 5, 1]", [&] { apply(c.k, {}); }},
      {"forgetting attention: q is [2, 4, 5, 8] float32", [&] { apply(c.k.slice(3, 0, 4), {c.forget}); }},
  });
}
