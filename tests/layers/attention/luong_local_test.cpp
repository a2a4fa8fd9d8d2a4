// Local attention of Luong's decoder: against plain loops in float64, and by the conformance kit.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/heed.hpp>
#include <heed/layers/model.hpp>

#include "tests/layers/attention/naive_row.hpp"
#include "tests/support.hpp"
//
#include <heed/layers/attention/conformance_doctest.hpp>

using namespace heed;
using namespace heed::test;

namespace {

using List = std::vector<Tensor>;

const LuongScore kScores[] = {LuongScore::dot, LuongScore::general, LuongScore::concat};

// The defined parameters of the mechanism, by name.
using Values = TensorsByName;

double at(const Tensor& x, Index h, Index a, Index d = -1) { return d < 0 ? x.at({h, a}) : x.at({h, a, d}); }

// (W q)_a for head h.
double hidden(const Values& p, const char* W, Index h, Index a, const double* q, Index size) {
  double sum = 0;
  for (Index d = 0; d < size; ++d) sum += at(p.at(W), h, a, d) * q[d];
  return sum;
}

double score_of(const Values& p, LuongScore score, Index h, const double* q, const double* k, Index size) {
  double s = 0;
  if (score == LuongScore::dot)
    for (Index d = 0; d < size; ++d) s += q[d] * k[d];
  if (score == LuongScore::general)
    for (Index a = 0; a < size; ++a) s += q[a] * hidden(p, "W", h, a, k, size);
  if (score == LuongScore::concat)
    for (Index a = 0; a < p.at("W").dim(1); ++a)
      s += at(p.at("score"), h, a) *
           std::tanh(hidden(p, "W", h, a, q, size) + hidden(p, "U", h, a, k, size) + at(p.at("bias"), h, a));
  return s;
}

struct Naive {
  Tensor out, weights, positions;
};

// The formulas of luong_local.hpp, pair by pair.
Naive naive(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, const Values& p, const LuongLocalOptions& o,
            const AttentionCall& call) {
  const Tensor q = q_in.dense(), k = k_in.dense(), v = v_in.dense();
  const Index B = q.dim(0), H = q.dim(1), T = q.dim(2), size = q.dim(3), Hk = k.dim(1), S = k.dim(2), V = v.dim(3);
  Naive r{Tensor::zeros({B, H, T, V}, DType::float64), Tensor::zeros({B, H, T, S}, DType::float64),
          Tensor::zeros({B, H, T}, DType::float64)};
  for (Index row = 0; row < B * H * T; ++row) {
    const Index b = row / T / H, h = row / T % H, i = row % T, g = b * Hk + h / (H / Hk);
    const Index length = call.key_lengths.defined() ? static_cast<Index>(call.key_lengths.at({b})) : S;
    const double* query = q.ptr<double>() + row * size;
    double centre = static_cast<double>(i);
    if (const Tensor& first = call.first_query; first.defined())
      centre += first.rank() == 0 ? first.item() : first.at({b});
    if (o.alignment == LuongAlignment::predictive) {
      double s = 0;
      for (Index a = 0; a < p.at("position_W").dim(1); ++a)
        s += at(p.at("position_score"), h, a) * std::tanh(hidden(p, "position_W", h, a, query, size));
      centre = static_cast<double>(length) / (1 + std::exp(-s));
    }
    r.positions.ptr<double>()[row] = centre;
    const double middle = o.window_around_key ? std::fmin(std::floor(centre), static_cast<double>(length - 1)) : centre,
                 radius = static_cast<double>(o.radius);
    std::vector<double> w(static_cast<std::size_t>(S));
    double total = 0, again = 0;
    const auto seen = [&](Index j) {
      return j < length && static_cast<double>(j) >= middle - radius && static_cast<double>(j) <= middle + radius &&
             !(call.key_mask.defined() && call.key_mask.at({b, j}) == 0) &&
             !(call.mask.defined() && call.mask.expand({B, H, T, S}).at({b, h, i, j}) == 0);
    };
    for (Index j = 0; j < S; ++j) {
      if (!seen(j)) continue;
      double s = score_of(p, o.score, h, query, k.ptr<double>() + (g * S + j) * size, size);
      if (call.bias.defined()) s += call.bias.expand({B, H, T, S}).at({b, h, i, j});
      total += w[static_cast<std::size_t>(j)] = std::exp(s);
    }
    for (Index j = 0; j < S; ++j) {
      double& x = w[static_cast<std::size_t>(j)];
      if (x == 0) continue;
      x /= total;
      const double sigma = static_cast<double>(o.radius) / 2, off = static_cast<double>(j) - centre;
      if (o.alignment == LuongAlignment::predictive) x *= std::exp(-off * off / (2 * sigma * sigma));
      again += x;
    }
    for (Index j = 0; j < S; ++j) {
      const double x = w[static_cast<std::size_t>(j)] / (o.renormalise && again > 0 ? again : 1);
      r.weights.ptr<double>()[row * S + j] = x;
      for (Index e = 0; e < V; ++e) r.out.ptr<double>()[row * V + e] += x * v.ptr<double>()[(g * S + j) * V + e];
    }
  }
  return r;
}

LuongLocalAttention mechanism(LuongLocalOptions o, Index heads, Index size) {
  Rng rng(4);
  LuongLocalAttention m(heads, size, rng, o);
  to(m, DType::float64);
  for (const NamedParameter& p : named_parameters(m))
    p.parameter->copy_(rng.normal(p.parameter->shape(), 0, 0.8, DType::float64));
  return m;
}

Values values_of(LuongLocalAttention& m) {
  Values all;
  for (const NamedParameter& p : named_parameters(m)) all[p.name] = p.parameter->detach();
  return all;
}

std::vector<LuongLocalOptions> variants() {
  std::vector<LuongLocalOptions> all;
  for (const LuongScore score : kScores) {
    all.push_back({.score = score, .alignment = LuongAlignment::monotonic, .radius = 2});
    all.push_back({.score = score, .alignment = LuongAlignment::predictive, .radius = 3, .units = 5});
    all.push_back(
        {.score = score, .alignment = LuongAlignment::predictive, .radius = 1, .renormalise = true, .units = 5});
    all.push_back({.score = score, .radius = 2, .window_around_key = true});
  }
  return all;
}

// The mechanism for self-attention only. With T != S the kit requires that the last queries of the square problem give
// the same rows, but local-m counts its queries from first_query.
struct SquareOnly {
  LuongLocalAttention inner;

  std::string name() const { return inner.name(); }
  AttentionCapabilities capabilities() const {
    AttentionCapabilities can = inner.capabilities();
    can.cross = false;
    return can;
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const { return inner.apply(q, k, v, call); }
  void members(auto&& visit) { inner.members(visit); }
};

}  // namespace

TEST_CASE("local attention: the window is [p - D, p + D], or around a key of the sentence") {
  const Tensor q = normal({1, 1, 1, 4}), k = normal({1, 1, 7, 4});
  using Keys = std::vector<Index>;
  const auto seen = [&](const LuongLocalOptions& o, Index length = 7, Index step = 0) {
    LuongLocalAttention m = mechanism(o, 1, 4);
    if (m.position_score.defined()) m.position_score.fill_(0);  // p = S sigmoid(0)
    const AttentionCall call{.key_lengths = Tensor::from(std::vector<Index>{length}),
                             .first_query = Tensor::scalar(static_cast<double>(step), DType::int32)};
    const Tensor w = AttentionMechanism(std::move(m)).weights(q, k, call);
    Keys keys;
    for (Index j = 0; j < 7; ++j)
      if (w.at({0, 0, 0, j}) > 0) keys.push_back(j);
    return keys;
  };
  LuongLocalOptions predictive{.alignment = LuongAlignment::predictive, .radius = 1};
  CHECK(seen(predictive) == Keys{3, 4});     // p = 3.5
  CHECK(seen(predictive, 5) == Keys{2, 3});  // p = 2.5
  CHECK(seen(predictive, 4) == Keys{1, 2, 3});
  CHECK(seen(predictive, 1) == Keys{0});
  const auto monotonic = [&](Index step, bool around_key, Index length = 7) {
    return seen({.radius = 2, .window_around_key = around_key}, length, step);
  };
  CHECK(monotonic(4, false) == Keys{2, 3, 4, 5, 6});
  CHECK(monotonic(6, false) == Keys{4, 5, 6});
  CHECK(monotonic(8, false) == Keys{6});
  for (const Index step : {Index{9}, Index{30}, (Index{1} << 31) - 1}) CHECK(monotonic(step, false) == Keys{});
  CHECK(monotonic(5, false, 4) == Keys{3});

  predictive.window_around_key = true;
  CHECK(seen(predictive) == Keys{2, 3, 4});
  CHECK(seen(predictive, 5) == Keys{1, 2, 3});
  CHECK(seen(predictive, 1) == Keys{0});
  for (const Index step : {Index{6}, Index{7}, Index{30}, (Index{1} << 31) - 1})
    CHECK(monotonic(step, true) == Keys{4, 5, 6});
  CHECK(monotonic(9, true, 4) == Keys{1, 2, 3});
}

TEST_CASE("local attention equals the naive loops, with lengths, masks, biases and grouped heads") {
  const Index B = 2, H = 4, size = 4;
  for (const LuongLocalOptions& o : variants())
    for (const auto& [T, S] :
         std::vector<std::pair<Index, Index>>{{1, 1}, {6, 13}, {13, 6}, {9, 9}, {1, 40}, {3, 130}}) {
      const Index groups = T % 2 == 0 ? 2 : 4;  // rows are gathered, or all keys are masked
      LuongLocalAttention m = mechanism(o, H, size);
      const Tensor q = normal({B, H, T, size}, 1), k = normal({B, groups, S, size}, 2),
                   v = normal({B, groups, S, 3}, 3);
      Tensor keys = Tensor::ones({B, S}, DType::bool8), pairs = Tensor::ones({T, S}, DType::bool8);
      for (Index j = 1; j < S; j += 3) keys.ptr<bool>()[j] = false;
      for (Index n = 2; n < T * S; n += 5) pairs.ptr<bool>()[n] = false;
      const Tensor lengths = Tensor::from<std::int32_t>({static_cast<double>(S), static_cast<double>(S / 2)});
      AttentionCall calls[] = {{},
                               {.key_lengths = lengths},
                               {.key_mask = keys},
                               {.mask = pairs, .bias = normal({H, T, S}, 5)},
                               {.key_lengths = lengths, .key_mask = keys, .mask = pairs, .bias = normal({S}, 6)}};
      for (AttentionCall& call : calls) {
        if (T == 1) call.first_query = Tensor::from<std::int32_t>({3, 1});
        const Naive expected = naive(q, k, v, values_of(m), m.options, call);
        CAPTURE(static_cast<int>(o.score));
        CAPTURE(m.name());
        CHECK(close(m.apply(q, k, v, call), expected.out, 1e-12, 1e-13));
        CHECK(close(weights_by([&](In x) { return m.apply(q, k, x, call); }, k), expected.weights, 1e-12, 1e-13));
        CHECK(close(m.positions(q, k, call), expected.positions, 1e-12, 1e-13));
      }
    }
}

TEST_CASE("local attention: gradients of inputs and parameters, with p away from integers") {
  const GradcheckOptions few{.min_samples = thinned<Index>(200, 10)};
  for (const LuongLocalOptions& o : variants())
    for (const Index groups : {1, 2}) {  // rows are gathered, or all keys are masked
      LuongLocalAttention m = mechanism(o, 2, 4);
      const Tensor q = normal({2, 2, 3, 4}, 1), k = normal({2, groups, 9, 4}, 2), v = normal({2, groups, 9, 3}, 3);
      Tensor mask = Tensor::ones({3, 9}, DType::bool8);
      mask[1].fill_(0);  // a query without keys
      const Tensor lengths = Tensor::from<std::int32_t>({9, 5});
      if (o.alignment == LuongAlignment::predictive)
        for (const double p : m.positions(q, k, {.key_lengths = lengths}).to_vector<double>())
          REQUIRE(std::fabs(p - std::round(p)) > 1e-4);
      const auto f = [&](const List& x) {
        manual_seed(3);
        return m.apply(x[0], x[1], x[2], {.key_lengths = lengths, .mask = mask, .bias = x[3], .dropout = 0.2});
      };
      const List inputs = {q, k, v, normal({2, 3, 9}, 5)};
      gradcheck(f, inputs, few);
      if (!named_parameters(m).empty()) gradcheck([&] { return f(inputs); }, named_parameters(m), few);
    }
}

TEST_CASE("local attention: a decoder that attends once per step gives the rows of all steps at once") {
  for (const LuongLocalOptions& o : variants()) {
    LuongLocalAttention m = mechanism(o, 2, 4);
    const Tensor q = normal({2, 2, 8, 4}, 1), k = normal({2, 2, 6, 4}, 2), v = normal({2, 2, 6, 3}, 3);
    const Tensor lengths = Tensor::from<std::int32_t>({6, 4});
    const Tensor whole = m.apply(q, k, v, {.key_lengths = lengths});
    for (Index t = 0; t < 8; ++t) {
      const Tensor at = Tensor::scalar(static_cast<double>(t), DType::int32);
      const Tensor step = m.apply(q.slice(2, t, t + 1), k, v, {.key_lengths = lengths, .first_query = at});
      CHECK(close(step, whole.slice(2, t, t + 1), 1e-12, 1e-13));
    }
  }
}

TEST_CASE("local attention: the sums of concat are never held, forward and backward") {
  const Index n = 1500, radius = 40, units = 48;
  const LuongLocalAttention m = [&] {
    Rng rng(1);
    return LuongLocalAttention(1, 8, rng, {.score = LuongScore::concat, .radius = radius, .units = units});
  }();
  const Tensor q = Rng(1).normal({1, 1, n, 8}), v = Rng(2).normal({1, 1, n, 1});
  const std::size_t before = memory_use().current, sums = static_cast<std::size_t>(n * (2 * radius + 1) * units) * 4;
  reset_peak_memory();
  Tape tape;
  const Tensor x = tape.watch(q), y = m.apply(x, x, v, {});
  tape.backward(y, y.detach());
  CHECK(tape.grad(x).defined());
  CHECK(memory_use().peak - before < sums * 2 / 3);  // the sums would take 23 MB
}

TEST_CASE("local attention: a window is no wider than the sentence") {
  for (const LuongLocalOptions& o : variants()) {
    LuongLocalOptions wide = o, wider = o;
    wide.radius = 3, wider.radius = 1 << 30;
    const Tensor q = normal({1, 2, 4, 4}, 1), k = normal({1, 2, 6, 4}, 2), v = normal({1, 2, 6, 3}, 3);
    LuongLocalAttention m = mechanism(wide, 2, 4), other = mechanism(wider, 2, 4);
    CHECK(close(m.apply(q, k, v, {}), naive(q, k, v, values_of(m), wide, {}).out, 1e-12, 1e-13));
    CHECK(close(other.apply(q, k, v, {}), naive(q, k, v, values_of(other), wider, {}).out, 1e-12, 1e-13));
  }
}

TEST_CASE("local attention: local-p weights sum to less than 1, and local-m over all keys equals Luong's dot") {
  LuongLocalAttention p = mechanism({.alignment = LuongAlignment::predictive, .radius = 4}, 2, 4);
  const Tensor q = normal({1, 2, 5, 4}, 1), k = normal({1, 2, 7, 4}, 2),
               ones = Tensor::ones({1, 2, 7, 1}, DType::float64);
  for (const double sum : p.apply(q, k, ones, {}).to_vector<double>()) CHECK_UNARY((sum > 0 && sum < 1));
  p.options.renormalise = true;
  for (const double sum : p.apply(q, k, ones, {}).to_vector<double>()) CHECK(sum == doctest::Approx(1));
  const LuongLocalAttention m = mechanism({.radius = 7}, 2, 4);
  CHECK(close(m.apply(q, k, k, {}), LuongDot{}.apply(q, k, k, {}), 1e-12, 1e-13));
  // Without keys.
  for (const double x : m.apply(q, k.slice(2, 0, 0), k.slice(2, 0, 0), {}).to_vector<double>()) CHECK_UNARY(x == 0);
}

// Each score with one window, and each window with one score. The cases above compare all variants with plain loops.
TEST_CASE("conformance: local attention passes all that it declares") {
  int number = 0;
  for (const LuongLocalOptions& o : variants()) {
    if (!test::is_taken(number++, 6)) continue;
    const bool first_window = o.alignment == LuongAlignment::monotonic && !o.window_around_key;
    if (o.score != LuongScore::general && !first_window) continue;
    CAPTURE(static_cast<int>(o.score));
    const auto reference = [o](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                               const TensorsByName& values) { return naive(q, k, v, values, o, call).out; };
    const bool monotonic = o.alignment == LuongAlignment::monotonic;
    const ConformanceReport report = check_conformance_in_test(
        [=](Index, Rng& rng) -> AttentionMechanism {
          LuongLocalAttention m(4, 8, rng, o);
          if (monotonic) return SquareOnly{std::move(m)};
          return m;
        },
        thinned({.normalised = monotonic || o.renormalise, .reference = reference}));
    CHECK(report.mechanism == (monotonic ? "luong-local-m" : "luong-local-p"));
    CHECK(report.checks.size() >= thinned(12u, 6u));
  }
}

TEST_CASE("local attention: errors") {
  Rng rng(1);
  const Tensor q = Tensor::ones({1, 2, 3, 4}), W = Tensor::ones({2, 3, 4}), u = Tensor::ones({2, 3});
  struct Tensors {
    Tensor W = {}, U = {}, bias = {}, score = {}, position_W = {};
  };
  const auto call = [&](const Tensors& x, const LuongLocalOptions& o, const AttentionCall& c = {}) {
    return [&, x, o, c] {
      LuongLocalAttention m(2, 4, rng);
      m.options = o;
      const std::pair<Parameter*, const Tensor*> all[] = {
          {&m.W, &x.W}, {&m.U, &x.U}, {&m.bias, &x.bias}, {&m.score, &x.score}, {&m.position_W, &x.position_W}};
      for (const auto& [parameter, value] : all)
        if (value->defined()) *parameter = Parameter(value->clone());
      m.apply(q, q, q, c);
    };
  };
  const LuongLocalOptions general{.score = LuongScore::general}, concat{.score = LuongScore::concat},
      predictive{.alignment = LuongAlignment::predictive};
  check_errors({
      {"luong-local attention does not support causal masking: the keys are from another sentence",
       call({}, {}, {.causal = true})},
      {"luong-local attention: radius is 0; it must be 1 or more", call({}, {.radius = 0})},
      {"first_query holds -1; its values must be 0 or more",
       call({}, {}, {.first_query = Tensor::scalar(-1, DType::int32)})},
      {"first_query is [3] int32; it must be int32 [] or [", call({}, {}, {.first_query = Tensor::arange(3)})},
      {"first_query is [] float32", call({}, {}, {.first_query = Tensor::scalar(1)})},
      {"luong-local attention: W is [2, 3, 4] float32; it must be [heads, size, size]", call({.W = W}, general)},
      {"luong-local attention: W is [2, 3, 4] float32 and U is undefined; both must be [heads, units, size]",
       call({.W = W}, concat)},
      {"luong-local attention: W is [2, 3, 4] float32 and score is undefined; they must be [heads, units, size] and "
       "[heads, units]",
       call({.W = W, .U = W}, concat)},
      {"and bias is [3, 2] float32; they must be", call({.W = W, .U = W, .bias = u.t(), .score = u}, concat)},
      {"luong-local attention: position_W is undefined; it must be [heads, units, size]", call({}, predictive)},
      {"and position_score is undefined; they must be", call({.position_W = W}, predictive)},
      {"LuongLocalAttention: heads is 2, size is 4, radius is 0 and units is 0; all must be 1 or more, or units 0",
       [&] { LuongLocalAttention(2, 4, rng, {.radius = 0}); }},
      {"luong-local-m attention does not support a decode state: the keys are from another sentence",
       [&] { AttentionMechanism(LuongLocalAttention(2, 4, rng)).make_state(); }},
  });
}
