// Rules for all mechanisms: inputs in addition to q, k and v, calls that every mechanism refuses, valid outputs, and
// values that are not finite. Above 400 lines, because these rules hold for every mechanism.
#include <cmath>
#include <heed/heed.hpp>

#include "tests/core/levels.hpp"
#include "tests/layers/attention/mechanism_inputs.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

struct TwoInputs {
  std::string name() const { return "two-inputs"; }
  AttentionCapabilities capabilities() const { return {.weights = true, .cross = true, .grouped = true}; }
  std::vector<MechanismInput> inputs() const {
    return {{.name = "gate", .size = 3}, {.name = "tone", .of = MechanismInput::Of::queries}};
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) const {
    return attention(q, k, v, call) * inputs[1];
  }
  Tensor weights(In q, In k, const AttentionCall&, std::span<const Tensor> inputs) const {
    return Tensor::full({q.dim(0), q.dim(1), q.dim(2), k.dim(2)}, inputs[0].at({0, 0, 0, 2}));
  }
  void members(auto&&) {}
};

struct Declares : TwoInputs {
  std::vector<MechanismInput> declared;
  std::vector<MechanismInput> inputs() const { return declared; }
};

struct Stacked : TwoInputs {
  Parameter maps{Tensor::ones({6, 4})};
  void members(auto&& visit) { visit.stacked("maps", maps, {2, 2}); }
};

}  // namespace

TEST_CASE("the parameters of a mechanism keep the rows of their maps") {
  AttentionMechanism m = Stacked();
  CHECK(named_parameters(m)[0].parts == std::vector<Index>{2, 2, 2});
}

TEST_CASE("a mechanism is given the inputs that it declares, in the shapes that it declares") {
  Rng rng(1);
  const AttentionMechanism m = TwoInputs();
  REQUIRE(m.inputs().size() == 2);
  CHECK(m.inputs()[0].size == 3);
  CHECK(AttentionMechanism(SoftmaxAttention()).inputs().empty());
  const Tensor q = rng.normal({2, 4, 3, 8}), k = rng.normal({2, 2, 5, 8}), gate = rng.normal({2, 2, 5, 3}),
               tone = rng.normal({2, 4, 3, 1});
  const std::vector<Tensor> both = {gate, tone};
  CHECK(test::same_bits(m.apply(q, k, k, {}, both).contiguous(), attention(q, k, k).contiguous() * tone));
  CHECK(m.weights(q, k, {}, both).at({1, 3, 2, 4}) == gate.at({0, 0, 0, 2}));
  const auto declared = [](std::vector<MechanismInput> inputs) {
    return [inputs] { AttentionMechanism(Declares{{}, inputs}); };
  };
  AttentionState state = ForgettingAttention().make_state(), copy = SoftmaxAttention().make_state();
  const auto given = [&](std::vector<Tensor> inputs) { return [&, inputs] { m.apply(q, k, k, {}, inputs); }; };
  check_errors({
      {"two-inputs attention: inputs() declares 5 inputs; it may declare at most 4, each of any size",
       declared(std::vector<MechanismInput>(5))},
      {"two-inputs attention: the size of input gate is 0 and its rank 0; the size must be 1 or more",
       declared({{.name = "gate", .size = 0}})},
      {"two-inputs attention: the size of input gate is 1 and its rank -1; the size must be 1 or more, and the rank 0",
       declared({{.name = "gate", .rank = -1}})},
      {"two-inputs attention: got 0 inputs in addition to q, k and v; expected 2, as declared", given({})},
      {"two-inputs attention: got 1 input in addition", [&] { m.weights(q, k, {}, std::vector{gate}); }},
      {"two-inputs attention: input gate is [2, 2, 5, 1] float32; it must be [2, 2, 5, 3] float32",
       given({gate.slice(3, 0, 1), tone})},
      {"two-inputs attention: input gate is [2, 4, 3, 3] float32; it must be [2, 2, 5, 3] float32",
       given({rng.normal({2, 4, 3, 3}), tone})},
      {"input tone is [2, 4, 3, 1] float64; it must be [2, 4, 3, 1] float32", given({gate, tone.to(DType::float64)})},
      {"input tone is undefined", given({gate, Tensor()})},
      {"softmax attention: got 2 inputs in addition to q, k and v; expected 0, as declared",
       [&] { AttentionMechanism(SoftmaxAttention()).apply(q, k, k, {}, both); }},
      {"AttentionState: got 0 inputs in addition to q, k and v; expected 1, as declared",
       [&] { state.apply(q, q, q); }},
      {"AttentionState: input forget is [2, 4, 3, 2] float32; it must be [2, 4, 3, 1] float32",
       [&] { state.rows(Tensor::from<std::int32_t>({0})).apply(q, q, q, {}, std::vector{q.slice(3, 0, 2)}); }},
      {"AttentionState: got 1 input in addition to q, k and v; expected 0, as declared",
       [&] { copy.apply(q, q, q, {}, std::vector{tone}); }},
      {"AttentionState: q, k or v requires a gradient",
       [&] {
         Tape tape;
         state.apply(q, q, q, {}, std::vector{tape.watch(tone)});
       }},
  });
}

TEST_CASE("every mechanism refuses masks, lengths and biases of other dtypes and sizes before it reads them") {
  Rng rng(1);
  const Tensor q = rng.normal({2, 2, 5, 4}), seven = rng.normal({2, 2, 7, 4});
  const auto check_refused = [&](const AttentionMechanism& m) {
    CAPTURE(m.name());
    const Tensor& k = m.capabilities().cross ? seven : q;
    const Index keys = k.dim(2);
    const std::vector<Tensor> inputs = test::inputs_for(m, q, k);
    const auto refuses = [&](bool has, AttentionCall call, const char* sentence) {
      if (!has) return;
      call.causal = m.capabilities().causal_only;
      CHECK(contains(error_of([&] { m.apply(q, k, k, call, inputs); }), sentence));
      if (m.capabilities().weights) CHECK(contains(error_of([&] { m.weights(q, k, call, inputs); }), sentence));
    };
    const AttentionCapabilities& can = m.capabilities();
    const bool is_square = !can.cross;  // q and k of five positions
    refuses(can.full_mask && !is_square, {.mask = Tensor::ones({5, 7})}, "mask is [5, 7] float32; it must be bool8");
    refuses(can.full_mask && !is_square, {.mask = Tensor::ones({5, 6}, DType::bool8)},
            "mask is [5, 6] bool8; it must broadcast to [batch, heads, queries, keys] [2, 2, 5, 7]");
    refuses(can.bias && !is_square, {.bias = Tensor::ones({5, 7}, DType::float64)}, "bias is [5, 7] float64");
    refuses(can.bias, {.bias = Tensor::ones({4, 7})}, "bias is [4, 7] float32; it must broadcast to");
    refuses(can.key_mask, {.key_lengths = Tensor::from<std::int32_t>({7})}, "key_lengths is [1] int32");
    refuses(can.key_mask, {.key_lengths = Tensor::from({7, 7})}, "key_lengths is [2] float32");
    refuses(can.key_mask, {.key_mask = Tensor::ones({2, 4}, DType::bool8)}, "key_mask is [2, 4] bool8");
    refuses(can.key_mask, {.key_mask = Tensor::ones({2, keys})}, "] float32");
  };
  for (const bool causal : {true, false})
    for (const std::string& name : mechanism_names(causal))
      check_refused(
          mechanism_by_name(name, {.causal = causal, .heads = 2, .head_size = 4, .context = 8, .window = 2})(0, rng));
  check_refused(GenericAttention(similarity_by_name("softplus")));
  for (const LuongAlignment alignment : {LuongAlignment::monotonic, LuongAlignment::predictive})
    check_refused(LuongLocalAttention(2, 4, rng, {.alignment = alignment, .radius = 2}));
}

TEST_CASE("for exponential scores, a bias of minus infinity masks a pair as a mask does, in whole rows too") {
  Rng rng(1);
  const Tensor q = rng.normal({2, 2, 5, 4}), k = rng.normal({2, 2, 7, 4}), v = rng.normal({2, 2, 7, 3});
  Tensor allowed = Tensor::ones({5, 7}, DType::bool8);
  allowed[2].fill_(0);
  for (Index n = 0; n < 7; n += 3) allowed[3].slice(0, n, n + 1).fill_(0);
  const Tensor bias = where(allowed, Tensor::zeros({5, 7}), -detail::kInfinity);
  const auto check_forbidden = [&](const AttentionMechanism& m) {
    if (!m.capabilities().bias || !m.capabilities().cross) return;
    CAPTURE(m.name());
    const auto run = [&](const AttentionCall& call) {
      Tape tape;
      const Tensor x = tape.watch(q), y = tape.watch(k), z = tape.watch(v),
                   out = m.apply(x, y, z, call, test::inputs_for(m, q, k));
      tape.backward(sum(square(out)));
      std::vector<Tensor> results = {out.detach()};
      for (const Tensor& input : {x, y, z})
        if (tape.grad(input).defined()) results.push_back(tape.grad(input));  // luong-location does not read keys
      return results;
    };
    const std::vector<Tensor> got = run({.bias = bias}), expected = run({.mask = allowed});
    REQUIRE(got.size() == expected.size());
    // LSH chooses keys by buckets and masks and ignores the bias, so its rows may have other keys.
    for (std::size_t i = 0; i < got.size() && m.name() != "lsh"; ++i) CHECK(close(got[i], expected[i], 1e-5, 1e-6));
    CHECK(max(abs(got[0].select(2, 2))).item() == 0);
  };
  for (const std::string& name : mechanism_names(false))
    check_forbidden(mechanism_by_name(
        name, {.causal = false, .heads = 2, .head_size = 4, .value_size = 3, .context = 8, .window = 8, .stride = 2})(
        0, rng));
  check_forbidden(GenericAttention(similarity_by_name("embedded-gaussian")));
  for (const LuongAlignment alignment : {LuongAlignment::monotonic, LuongAlignment::predictive})
    check_forbidden(LuongLocalAttention(2, 4, rng, {.alignment = alignment, .radius = 2}));
}

TEST_CASE("attention with keys mapped in advance equals attention: values and gradients, for each decoder mechanism") {
  for (const std::string& name : memory_mechanism_names()) {
    CAPTURE(name);
    Rng rng(2);
    const AttentionMechanism m = mechanism_by_name(
        name, {.memory = true, .heads = 2, .head_size = 4, .context = 8, .window = 8, .stride = 2, .radius = 2})(0,
                                                                                                                 rng);
    const bool padded = m.capabilities().key_mask;
    const Tensor lengths = padded ? Tensor::from<std::int32_t>({7, 3}) : Tensor();
    const AttentionCall call{.key_lengths = lengths, .first_query = Tensor::scalar(1, DType::int32)};
    const Tensor q = Rng(3).normal({2, 2, 3, 4}), k = Rng(4).normal({2, 2, 7, 4}), v = Rng(5).normal({2, 2, 7, 4});
    const auto gradients = [&](const auto& f) {
      Tape tape;
      const Tensor a = tape.watch(q), b = tape.watch(k), c = tape.watch(v), y = f(a, b, c);
      tape.backward(y, q);
      return std::vector<Tensor>{y.detach(), tape.grad(a), tape.grad(b), tape.grad(c)};
    };
    const std::vector<Tensor> whole = gradients([&](In a, In b, In c) { return m.apply(a, b, c, call); });
    const std::vector<Tensor> parts =
        gradients([&](In a, In b, In c) { return m.apply_mapped(a, m.map_keys(b, call), c, call); });
    for (std::size_t i = 0; i < whole.size(); ++i) {
      REQUIRE(parts[i].defined() == whole[i].defined());  // location does not read keys
      if (whole[i].defined()) CHECK(close(parts[i], whole[i], 1e-5, 1e-5));
    }
  }
}

namespace {

// All mechanisms with a score per pair of query and key, for heads of size 4, named and others.
std::vector<AttentionMechanism> mechanisms_with_scores(bool causal) {
  Rng rng(1);
  std::vector<AttentionMechanism> all;
  for (const std::string& name : mechanism_names(causal)) {
    MechanismOptions o{.causal = causal, .heads = 2, .head_size = 4, .value_size = 3, .context = 300};
    o.window = 300, o.stride = 2, o.top_k = 300;
    AttentionMechanism m = mechanism_by_name(name, o)(0, rng);
    if (m.capabilities().full_mask) all.push_back(std::move(m));
  }
  for (const char* name : {"embedded-gaussian", "softplus", "square"})
    all.push_back(GenericAttention(similarity_by_name(name)));
  if (causal) return all;
  for (const LuongAlignment alignment : {LuongAlignment::monotonic, LuongAlignment::predictive})
    for (const LuongScore score : {LuongScore::general, LuongScore::concat})
      all.push_back(LuongLocalAttention(2, 4, rng, {.score = score, .alignment = alignment, .radius = 300}));
  return all;
}

bool is_nan(const Tensor& x) { return std::isnan(sum(x).item()); }

}  // namespace

// The rule: masks, lengths, causality and a bias of -infinity hide a key whatever its value is. Any other key takes
// part, even with a weight that rounds to 0, so NaN in its value shows.
TEST_CASE("a NaN value reaches the queries whose key it may be, whatever its weight, and no others") {
  test::on_each_level([] {
    for (const bool causal : {false, true})
      for (const AttentionMechanism& m : mechanisms_with_scores(causal))
        for (const Index n : {5, 151}) {
          CAPTURE(m.name());
          CAPTURE(n);
          CAPTURE(causal);
          const Index bad = 2;  // in fixed, only the queries of its block see this key; in strided, the even queries
          const Tensor q = Rng(1).normal({1, 2, n, 4}), k = Rng(2).normal({1, 2, n, 4});
          const std::vector<Tensor> inputs = test::inputs_for(m, q, k);
          Tensor v = Rng(3).normal({1, 2, n, 3}), lost = v.slice(2, bad, bad + 1);
          lost.fill_(NAN);
          Tensor lower = Tensor::full({n, n}, 1000.0), hidden = Tensor::zeros({n, n});  // a weight of 0; a hidden key
          lower.slice(1, bad, bad + 1).fill_(0), hidden.slice(1, bad, bad + 1).fill_(-detail::kInfinity);
          for (const Tensor& bias : {Tensor(), lower}) {
            const Tensor y = m.apply(q, k, v, {.causal = causal, .bias = bias}, inputs);
            const auto row_is_nan = [&](Index i) { return is_nan(y.slice(2, i, i + 1)); };
            for (Index i = 0; causal && i < bad; ++i) CHECK(!row_is_nan(i));
            if (m.name() == "lsh") continue;  // its buckets may not contain the key
            CHECK(row_is_nan(bad + 1));
            if (m.name() != "fixed") CHECK(row_is_nan(n - 1));
          }
          const Tensor seen = hidden >= 0;
          CHECK(!is_nan(m.apply(q, k, v, {.causal = causal, .mask = seen}, inputs)));
          CHECK(!is_nan(m.apply(q, k, v, {.causal = causal, .key_mask = seen[0].unsqueeze(0)}, inputs)));
          CHECK(!is_nan(m.apply(q, k, v, {.causal = causal, .bias = hidden}, inputs)));
          if (!causal || !m.capabilities().state) continue;
          AttentionState state = m.make_state();  // token by token
          for (Index i = 0; i < 5; ++i) {
            const auto at = [&](const Tensor& x) { return x.slice(2, i, i + 1); };
            const Tensor bias = m.name() == "lsh" ? Tensor() : lower.slice(0, i, i + 1).slice(1, 0, i + 1);
            const Tensor y = state.apply(at(q), at(k), at(v), {.bias = bias}, test::inputs_at(inputs, i, i + 1));
            CHECK((i < bad || m.name() == "lsh" || is_nan(y) == (m.name() != "fixed" || i < 4)));
          }
        }
  });
}

TEST_CASE(
    "lengths beyond the keys and below 0, and scales that are no number, are refused with the row and the range") {
  const Tensor q = Rng(1).normal({2, 2, 5, 4}), k = Rng(2).normal({2, 2, 7, 4});
  const auto with = [](double a, double b) { return AttentionCall{.key_lengths = Tensor::from<std::int32_t>({a, b})}; };
  const auto check_lengths = [&](const AttentionMechanism& m) {
    if (!m.capabilities().key_mask || !m.capabilities().cross) return;
    CAPTURE(m.name());
    const std::vector<Tensor> inputs = test::inputs_for(m, q, k);
    CHECK(contains(error_of([&] { m.apply(q, k, k, with(7, 8), inputs); }),
                   "key_lengths[1] is 8; it must be from 0 to the number of keys, 7"));
    CHECK(contains(error_of([&] { m.apply(q, k, k, with(-1, 7), inputs); }),
                   "key_lengths[0] is -1; it must be from 0 to the number of keys, 7"));
    m.apply(q, k, k, with(0, 7), inputs);
  };
  Rng rng(1);
  for (const std::string& name : mechanism_names(false))
    check_lengths(mechanism_by_name(name, {.causal = false, .heads = 2, .head_size = 4, .context = 8})(0, rng));
  for (const AttentionMechanism& m : mechanisms_with_scores(false))
    if (m.capabilities().weights) check_lengths(m);  // the others have another size of values
  check_lengths(LinearAttention{{.feature_map = FeatureMap::poly2}});
  for (const double scale : {static_cast<double>(NAN), detail::kInfinity, -detail::kInfinity}) {
    const auto check_scale = [&](const AttentionMechanism& m) {
      CAPTURE(m.name());
      CHECK(contains(error_of([&] { m.apply(q, k, k, {}); }), "it must be a finite number"));
      CHECK(contains(error_of([&] { m.weights(q, k, {}); }), "it must be a finite number"));
    };
    check_scale(SoftmaxAttention{.scale = scale});
    check_scale(TopKAttention(2, scale));
    check_scale(LshAttention({.size = 4, .scale = scale}));
    check_scale(GenericAttention(similarity_by_name("softplus"), {.scale = scale}));
    CHECK(contains(error_of([&] { attention(q, k, k, {}, scale); }), "attention: scale is "));
  }
}

namespace {

// Returns y for any operands.
struct Gives {
  Tensor y;
  std::string name() const { return "gives"; }
  AttentionCapabilities capabilities() const { return {.causal = true, .cross = true}; }
  Tensor apply(In, In, In, const AttentionCall&) const { return y; }
  void members(auto&&) {}
};

}  // namespace

TEST_CASE("the output of a mechanism must have the shape and dtype of attention") {
  const NoTape guard;
  const Tensor q = Tensor::ones({2, 4, 4, 3}), k = Tensor::ones({2, 4, 6, 3}), v = Tensor::ones({2, 4, 6, 5});
  const auto given = [&](const Tensor& y) {
    return error_of([&] { AttentionMechanism(Gives{y}).apply(q, k, v, {}); });
  };
  CHECK(given(Tensor::ones({2, 4, 4, 5})).empty());
  CHECK(contains(given(Tensor::ones({2, 4, 6, 5})),
                 "gives attention: apply() returned [2, 4, 6, 5] float32 for q [2, 4, 4, 3] float32 and v [2, 4, 6, 5] "
                 "float32; it must return [batch, heads, queries, size of v] in the dtype of q (mechanism_test.cpp:"));
  CHECK(contains(given(Tensor::ones({2, 4, 4, 3})), "apply() returned [2, 4, 4, 3] float32"));
  CHECK(contains(given(Tensor::ones({2, 4, 4, 5}, DType::float64)), "apply() returned [2, 4, 4, 5] float64"));
  CHECK(contains(given(Tensor()), "apply() returned undefined"));
}

TEST_CASE("a mechanism without bfloat16 support gets float32, its output is rounded, and gradients pass") {
  const auto half = [](const Tensor& x) { return x.to(DType::bfloat16); };
  const Tensor q = half(Rng(1).normal({2, 2, 5, 4})), k = half(Rng(2).normal({2, 2, 5, 4})),
               v = half(Rng(3).normal({2, 2, 5, 3})), dy = Rng(4).normal({2, 2, 5, 3});
  const auto wide = [](const Tensor& x) { return x.to(DType::float32); };
  for (const std::string name : {"linear", "cosine", "window", "taylor", "softmax", "alibi"}) {
    CAPTURE(name);
    Rng rng(1);
    const AttentionMechanism mechanism = mechanism_by_name(name, {.heads = 2, .head_size = 4, .context = 16})(0, rng);
    const auto run = [&](const Tensor& q0, const Tensor& k0, const Tensor& v0, std::vector<Tensor>& gradients) {
      Tape tape;
      const Tensor a = tape.watch(q0), b = tape.watch(k0), c = tape.watch(v0);
      const Tensor y = mechanism.apply(a, b, c, {.causal = true});
      tape.backward(y, dy);
      gradients = {tape.grad(a), tape.grad(b), tape.grad(c)};
      return y.detach();
    };
    std::vector<Tensor> got, expected;
    const Tensor y = run(q, k, v, got), exact = run(wide(q), wide(k), wide(v), expected);
    CHECK(y.dtype() == DType::bfloat16);
    CHECK(close(wide(y), exact, 0x1p-7, 1e-2));
    const bool rounds_inside = name == "softmax" || name == "alibi" || name == "linear";
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(got[i].dtype() == DType::float32);
      CHECK(close(got[i], expected[i], rounds_inside ? 2e-2 : 1e-6, rounds_inside ? 3e-2 : 1e-6));
    }
    AttentionState state = mechanism.make_state();
    const NoTape guard;
    const Tensor step = state.apply(q, k, v);
    CHECK(step.dtype() == DType::bfloat16);
    CHECK(close(wide(step), wide(y), 0x1p-7, 1e-2));
    const Tensor weights = mechanism.weights(q, k, {.causal = true});
    CHECK(test::same_bits(weights, mechanism.weights(wide(q), wide(k), {.causal = true})));
  }
}

namespace {

// The number of results that are finite with infinity but NaN with NaN, or vice versa.
double differences(const Tensor& with_infinity, const Tensor& with_nan) {
  return sum(logical_xor(logical_not(isfinite(with_infinity)), isnan(with_nan))).item();
}
Tensor with_value(const Tensor& v, Index position, double value) {
  const Tensor changed = v.clone();
  changed.slice(2, position, position + 1).slice(3, 0, 1).fill_(value);
  return changed;
}
// Decodes one position at a time.
Tensor decoded(const AttentionMechanism& m, const Tensor& q, const Tensor& k, const Tensor& v) {
  const NoTape guard;
  AttentionState state = m.make_state();
  const std::vector<Tensor> inputs = inputs_for(m, q, k);
  std::vector<Tensor> rows;
  for (Index i = 0; i < q.dim(2); ++i)
    rows.push_back(state.apply(q.slice(2, i, i + 1), k.slice(2, i, i + 1), v.slice(2, i, i + 1), {.causal = true},
                               inputs_at(inputs, i, i + 1)));
  return concatenate(rows, 2);
}

void check_infinities(const AttentionMechanism& m, bool causal, Index length, DType dtype) {
  // Scores are so spread that most weights round to 0.
  const Tensor q = (normal({1, 2, length, 8}, 1) * 15).to(dtype), k = (normal({1, 2, length, 8}, 2) * 15).to(dtype),
               v = normal({1, 2, length, 8}, 3).to(dtype);
  const AttentionCall call{.causal = causal};
  const std::vector<Tensor> inputs = inputs_for(m, q, k);
  double noticed = 0;
  for (const Index j : {Index{0}, length / 3, length - 1})
    for (const double sign : {1.0, -1.0}) {
      const Tensor infinite = with_value(v, j, sign * kInf), nan = with_value(v, j, kNaN);
      const Tensor y = m.apply(q, k, infinite, call, inputs);
      CHECK(differences(y, m.apply(q, k, nan, call, inputs)) == 0);
      noticed += sum(logical_not(isfinite(y))).item();
      if (!test::is_state_rule(m.name())) CHECK(all(isfinite(y.slice(3, 1, 8))).item());  // a norm mixes columns
      if (causal && m.capabilities().state && length < 50)
        CHECK(differences(decoded(m, q, k, infinite), decoded(m, q, k, nan)) == 0);
    }
  CHECK(noticed > 0);
  if (!m.capabilities().key_mask) return;
  const Tensor lengths = Tensor::full({1}, static_cast<double>(length - 1), DType::int32);
  const AttentionCall padded{.causal = causal, .key_lengths = lengths};
  CHECK(same_bits(m.apply(q, k, with_value(v, length - 1, kInf), padded, inputs), m.apply(q, k, v, padded, inputs)));
}

}  // namespace

TEST_CASE("an infinite value shows wherever a NaN does, in all mechanisms, and never in padding") {
  for (const bool causal : {true, false})
    for (const std::string& name : mechanism_names(causal))
      for (const Index length : {7, 150})
        for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
          CAPTURE(name);
          CAPTURE(causal);
          CAPTURE(length);
          CAPTURE(static_cast<int>(dtype));
          Rng rng(1);
          AttentionMechanism m = mechanism_by_name(
              name, {.causal = causal, .heads = 2, .head_size = 8, .context = 160, .window = 5, .stride = 4})(0, rng);
          if (dtype == DType::bfloat16 && !m.capabilities().bfloat16) continue;
          if (name == "luna" && !causal) continue;  // a map mixes the columns of values
          if (dtype == DType::float64) to(m, dtype);
          check_infinities(m, causal, length, dtype);
        }
  for (const std::string& name : memory_mechanism_names()) {
    CAPTURE(name);
    Rng rng(1);
    AttentionMechanism m =
        mechanism_by_name(name, {.causal = false, .memory = true, .heads = 2, .head_size = 8, .context = 160})(0, rng);
    if (!m.capabilities().causal_only && name != "luna") check_infinities(m, false, 40, DType::float32);
  }
  for (const char* similarity : {"embedded-gaussian", "relu"})
    for (const bool causal : {true, false})
      check_infinities(GenericAttention(similarity_by_name(similarity)), causal, 90, DType::float32);
}
