// Luong's, Bahdanau's and cosine attention: against PyTorch, decoding in steps, and errors.
#include <algorithm>
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/layers/attention/luong.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/model.hpp>
#include <map>

#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

const StoredCases& additive_reference() { return stored_cases("additive_torch.json"); }

const char* const kTorchNames[] = {"luong-dot", "luong-general",       "luong-concat", "luong-location",
                                   "bahdanau",  "bahdanau normalized", "cosine"};

// The name of a parameter in PyTorch's cases.
std::string key_of(const std::string& mechanism, const std::string& parameter) {
  if (mechanism == "luong-general") return "general";
  if (mechanism == "luong-location") return "location";
  return parameter == "log_beta" ? "beta" : parameter;
}

// The named mechanism with the parameters that PyTorch's cases use.
AttentionMechanism additive_mechanism(const std::string& name, DType dtype = DType::float64) {
  Rng rng(1);
  AttentionMechanism m = [&]() -> AttentionMechanism {
    if (name == "luong-dot") return LuongDot{};
    if (name == "luong-general") return LuongGeneral(2, 3, rng);
    if (name == "luong-concat") return LuongConcat(2, 3, rng, {.units = 5});
    if (name == "luong-location") return LuongLocation(2, 3, rng, {.positions = 8});
    if (name == "cosine") return CosineAttention(2, 3, rng);
    return BahdanauAttention(2, 3, rng, {.units = 5, .normalized = name == "bahdanau normalized"});
  }();
  to(m, dtype);
  for (const NamedParameter& p : named_parameters(m)) {
    const Tensor value = additive_reference().inputs.at(key_of(name, p.name));
    p.parameter->copy_((p.name == "log_beta" ? log(value) : value).to(dtype));
  }
  return m;
}

}  // namespace

TEST_CASE("Luong, Bahdanau and cosine attention: values, weights and gradients are PyTorch's") {
  const Named& inputs = additive_reference().inputs;
  const Tensor &q = inputs.at("q"), &k = inputs.at("k"), &v = inputs.at("v");
  for (const std::string name : kTorchNames) {
    for (const bool masked : {false, true}) {
      CAPTURE(name);
      CAPTURE(masked);
      AttentionCall call;
      if (masked) call = {.causal = true, .key_lengths = Tensor::from<std::int32_t>({6, 4})};
      Named expected = additive_reference().cases.at(name + (masked ? ", causal, lengths" : ", plain"));
      AttentionMechanism m = additive_mechanism(name);
      Tape tape;
      Named watched = {{"q", tape.watch(q)}, {"k", tape.watch(k)}, {"v", tape.watch(v)}};
      const Tensor y = m.apply(watched["q"], watched["k"], watched["v"], call);
      tape.backward(y, inputs.at("dy"));
      CHECK(close(y.detach(), expected["y"], 1e-12, 1e-13));
      for (const auto& input : watched) {
        const std::string key = input.first;
        CAPTURE(key);
        const Tensor gradient = tape.grad(input.second);
        if (expected.count(key) == 0)
          CHECK(!gradient.defined());
        else
          CHECK(close(gradient, expected[key], 1e-11, 1e-13));
      }
      for (const NamedParameter& p : named_parameters(m)) {
        const std::string key = key_of(name, p.name);
        CAPTURE(key);
        REQUIRE(expected.count(key) == 1);
        const Tensor gradient = p.name == "log_beta" ? expected[key] * inputs.at(key) : expected[key];
        CHECK(close(p.parameter->grad(), gradient, 1e-11, 1e-13));
      }
      const NoTape guard;
      const AttentionMechanism floats = additive_mechanism(name, DType::float32);
      CHECK(close(floats.apply(q.to(DType::float32), k.to(DType::float32), v.to(DType::float32), call), expected["y"],
                  2e-6, 2e-6));
      if (!masked) continue;
      CHECK(close(m.weights(q, k, call), expected["weights"], 1e-12, 1e-13));
      CHECK(close(matmul(m.weights(q, k, call), v), y.detach(), 1e-12, 1e-13));
    }
  }
}

TEST_CASE("Luong, Bahdanau and cosine attention have the documented initial parameters") {
  Rng rng(1);
  BahdanauAttention b(2, 16, rng, {.units = 9, .normalized = true});
  CHECK(b.W.shape() == Shape{2, 9, 16});
  CHECK(b.gain.to_vector<double>()[1] == doctest::Approx(1 / 3.0));
  for (const double x : b.bias.to_vector<double>()) CHECK_UNARY(x == 0);
  double max_abs = 0;
  for (const double x : b.U.to_vector<double>()) max_abs = std::max(max_abs, std::fabs(x));
  CHECK((max_abs > 0.23 && max_abs <= 0.25));
  CHECK(named_parameters(b).size() == 5);
  BahdanauAttention plain(2, 16, rng);
  CHECK(named_parameters(plain).size() == 3);
  CHECK(plain.score.shape() == Shape{2, 16});
  // beta = 1: the weights are the softmax of plain cosines.
  const Tensor q = normal({1, 2, 3, 4}, 1).to(DType::float32), k = normal({1, 2, 5, 4}, 2).to(DType::float32);
  const AttentionMechanism cosine(CosineAttention(2, 4, rng));
  const Tensor scores = matmul(normalize(q), normalize(k).transpose(2, 3));
  CHECK(close(cosine.weights(q, k, {}), softmax(scores, 3), 0, 1e-6));
  // A key of zeros has the cosine 0 with any query.
  const Tensor even = cosine.weights(q, k * 0, {});
  for (const double w : even.to_vector<double>()) CHECK(w == doctest::Approx(0.2));
}

TEST_CASE("Luong, Bahdanau and cosine attention refuse unsupported calls, and shapes that do not fit") {
  Rng rng(1);
  const Tensor q = Tensor::ones({2, 4, 3, 5}), k = Tensor::ones({2, 4, 6, 5}), few = Tensor::ones({2, 2, 6, 5});
  const Tensor W = Tensor::ones({4, 7, 5}), score = Tensor::ones({4, 7});
  const Tensor three = Tensor::ones({2, 3, 6, 5});
  const auto apply = [&](AttentionMechanism m, const Tensor& keys) { m.apply(q, keys, keys, {}); };
  // A mechanism with a wrong parameter, called with keys and values that MultiHeadAttention would not pass.
  const auto with = [](auto mechanism, Parameter std::remove_cvref_t<decltype(mechanism)>::*member,
                       const Tensor& value) {
    mechanism.*member = Parameter(value.clone());
    return mechanism;
  };
  using Additive = BahdanauAttention;
  const auto additive = [&](const Tensor& w, const Tensor& u, const Tensor& s) {
    return with(with(with(Additive(4, 5, rng, {.units = 7}), &Additive::W, w), &Additive::U, u), &Additive::score, s);
  };
  check_errors({
      {"luong-location attention: k is [2, 4, 6, 5] float32 but W is [4, 5, 5] float32; it has rows for at most 5 keys",
       [&] { apply(LuongLocation(4, 5, rng, {.positions = 5}), k); }},
      {"luong-location attention: q is [2, 4, 3, 5] float32 and W is [1, 9, 5] float32",
       [&] {
         with(LuongLocation(4, 5, rng, {.positions = 9}), &LuongLocation::W, Tensor::ones({1, 9, 5}))
             .apply(q, k, k, {});
       }},
      {"luong-general attention: W is [4, 7, 5] float32; it must be [heads, size, size]",
       [&] { with(LuongGeneral(4, 5, rng), &LuongGeneral::W, W).apply(q, k, k, {}); }},
      {"luong-general attention: x is [2, 4, 3, 5] float32 and its projection is [1, 5, 5] float32",
       [&] {
         with(LuongGeneral(4, 5, rng), &LuongGeneral::W, Tensor::ones({1, 5, 5})).apply(q, k, k, {});
       }},
      {"additive attention: x is [2, 4, 3, 5] float32 and its projection is [4, 7, 6] float32",
       [&] {
         additive(Tensor::ones({4, 7, 6}), W, score).apply(q, k, k, {});
       }},
      {"additive attention: x is [2, 3, 6, 5] float32 and its projection is [4, 7, 5] float32",
       [&] { additive(W, W, score).apply(q, three, three, {}); }},
      {"additive attention: k is [2, 2, 6, 5] float32 and its projection is [4, 7, 6] float32; they must have one size "
       "and one dtype",
       [&] {
         additive(W, Tensor::ones({4, 7, 6}), score).apply(q, few, few, {});
       }},
      {"attention: there are 4 heads and x is [2, 3, 6, 5] float32; the heads of x must divide 4",
       [&] { additive(W, W, score).apply(q, k, three, {}); }},
      {"additive attention: W is [4, 7, 5] float32 but bias is [7] float32; it must be [heads, units] [4, 7] float32",
       [&] { with(additive(W, W, score), &Additive::bias, score[0]).apply(q, k, k, {}); }},
      {"additive attention: score is [4, 7] float32 and gain is [7] float32",
       [&] { with(additive(W, W, score), &Additive::gain, score[0]).apply(q, k, k, {}); }},
      {"additive attention: x is [4, 6, 5] float32; it must be [batch, heads, positions, size]",
       [&] { additive(W, W, score).apply(q, k[0], k, {}); }},
      {"additive_attention: q is [2, 4, 3, 7] float32 but u is [4, 8] float32",
       [&] {
         additive(W, W, Tensor::ones({4, 8})).apply(q, k, k, {});
       }},
      {"cosine attention: q is [2, 4, 3, 5] float32 and beta is [1] float32",
       [&] { with(CosineAttention(4, 5, rng), &CosineAttention::log_beta, Tensor::zeros({1})).apply(q, k, k, {}); }},
      {"BahdanauAttention: heads is 0, size is 5 and units is 0", [&] { BahdanauAttention(0, 5, rng); }},
      {"LuongGeneral: heads is 2 and size is 0", [&] { LuongGeneral(2, 0, rng); }},
      {"LuongConcat: heads is 2, size is 3 and units is -1", [&] { LuongConcat(2, 3, rng, {.units = -1}); }},
      {"LuongLocation: heads is 2, size is 3 and positions is 0; all must be 1 or more",
       [&] { LuongLocation(2, 3, rng, {}); }},
      {"CosineAttention: heads is 0", [&] { CosineAttention(0, 1, rng); }},
  });
  // The state of location attention is full if all rows of W are used. A refused step does not change its length.
  AttentionState state = LuongLocation(4, 5, rng, {.positions = 7}).make_state();
  state.apply(k, k, k);
  check_errors({{"it has rows for at most 7 keys", [&] { state.apply(k, k, k); }}});
  CHECK(state.length() == 6);
}

namespace {

using List = std::vector<Tensor>;

const char* const kNames[] = {"luong-dot", "luong-general",       "luong-concat", "luong-location",
                              "bahdanau",  "bahdanau normalized", "cosine"};

// The named mechanism in float64, with parameters that are neither 0 nor equal.
AttentionMechanism mechanism(const std::string& name, Index heads, Index size) {
  Rng rng(3);
  AttentionMechanism m = [&]() -> AttentionMechanism {
    if (name == "luong-dot") return LuongDot{};
    if (name == "luong-general") return LuongGeneral(heads, size, rng);
    if (name == "luong-concat") return LuongConcat(heads, size, rng, {.units = 6});
    if (name == "luong-location") return LuongLocation(heads, size, rng, {.positions = 30});
    if (name == "cosine") return CosineAttention(heads, size, rng);
    return BahdanauAttention(heads, size, rng, {.units = 7, .normalized = name == "bahdanau normalized"});
  }();
  for (const NamedParameter& p : named_parameters(m))
    p.parameter->copy_(*p.parameter + rng.normal(p.parameter->shape(), 0, 0.3));
  to(m, DType::float64);
  return m;
}

}  // namespace

TEST_CASE("Luong, Bahdanau and cosine attention: one call equals chunks and single tokens") {
  const Tensor q = normal({2, 4, 21, 5}, 1);
  for (const std::string name : kNames) {
    CAPTURE(name);
    const AttentionMechanism m = mechanism(name, 4, 5);
    const Index groups = m.capabilities().grouped ? 2 : 4;
    const Tensor k = normal({2, groups, 21, 5}, 2), v = normal({2, groups, 21, 3}, 4);
    const Tensor whole = m.apply(q, k, v, {.causal = true});
    for (const Index step : {1, 4, 20, 21}) {
      CAPTURE(step);
      AttentionState state = m.make_state();
      List parts;
      for (Index i = 0; i < 21; i += step) {
        const Index end = std::min<Index>(21, i + step);
        parts.push_back(state.apply(q.slice(2, i, end), k.slice(2, i, end), v.slice(2, i, end)));
        CHECK(state.length() == end);
      }
      CHECK(close(concatenate(parts, 2), whole, 1e-12, 1e-13));
    }
    // Save and resume.
    AttentionState first = m.make_state(), second = m.make_state();
    first.apply(q.slice(2, 0, 8), k.slice(2, 0, 8), v.slice(2, 0, 8));
    std::map<std::string, Tensor> saved;
    for (const NamedBuffer& b : named_buffers(first)) saved[b.name] = b.buffer->clone();
    for (const NamedBuffer& b : named_buffers(second)) *b.buffer = saved.at(b.name);
    CHECK(close(second.apply(q.slice(2, 8, 21), k.slice(2, 8, 21), v.slice(2, 8, 21)), whole.slice(2, 8, 21), 1e-12,
                1e-13));
  }
}

TEST_CASE("Luong, Bahdanau and cosine attention: NaN in padding reaches neither values nor any gradient") {
  const Index heads = 2, T = 5, S = 9;
  const Tensor q = normal({2, heads, T, 4}, 1), k = normal({2, heads, S, 4}, 2), v = normal({2, heads, S, 3}, 3),
               dy = normal({2, heads, T, 3}, 4);
  Tensor mask = Tensor::ones({2, S}, DType::bool8);
  mask[0].slice(0, 2, 4).fill_(0);
  mask[1].fill_(0);  // the second sequence has no keys
  const AttentionCall calls[] = {{.key_lengths = Tensor::from<std::int32_t>({6, 0})},
                                 {.key_mask = mask},
                                 {.causal = true, .key_lengths = Tensor::from<std::int32_t>({6, 0}), .key_mask = mask}};
  for (const std::string name : kNames) {
    CAPTURE(name);
    AttentionMechanism m = mechanism(name, heads, 4);
    for (const AttentionCall& call : calls) {
      const auto run = [&](const Tensor& keys, const Tensor& values) {
        for (const NamedParameter& p : named_parameters(m)) p.parameter->zero_grad();
        Tape tape;
        const Tensor wq = tape.watch(q), wk = tape.watch(keys), wv = tape.watch(values);
        const Tensor y = m.apply(wq, wk, wv, call);
        tape.backward(y, dy);
        List all = {y.detach(), tape.grad(wq), tape.grad(wk), tape.grad(wv)};
        for (const NamedParameter& p : named_parameters(m)) all.push_back(p.parameter->grad().clone());
        return all;
      };
      Tensor bad_k = k.clone(), bad_v = v.clone();
      for (Index b = 0; b < 2; ++b)
        for (Index j = 0; j < S; ++j) {
          if ((!call.key_mask.defined() || call.key_mask.at({b, j}) != 0) &&
              (!call.key_lengths.defined() || j < static_cast<Index>(call.key_lengths.at({b}))))
            continue;
          bad_k[b].slice(1, j, j + 1).fill_(kNaN);
          bad_v[b].slice(1, j, j + 1).fill_(kNaN);
        }
      const List clean = run(k, v), dirty = run(bad_k, bad_v);
      for (std::size_t i = 0; i < clean.size(); ++i) {
        CAPTURE(i);
        REQUIRE(clean[i].defined() == dirty[i].defined());
        if (clean[i].defined()) CHECK(same_bits(clean[i], dirty[i]));
        if (i < 4 && clean[i].defined())
          for (const double x : dirty[i][1].to_vector<double>()) CHECK_UNARY(x == 0);
      }
    }
  }
}

TEST_CASE("Luong, Bahdanau and cosine attention: gradients of inputs and parameters, with a mask, a bias and dropout") {
  const Tensor q = normal({2, 2, 3, 4}, 1), k = normal({2, 2, 5, 4}, 2), v = normal({2, 2, 5, 3}, 3);
  Tensor mask = Tensor::ones({3, 5}, DType::bool8);
  mask[1].slice(0, 0, 4).fill_(0);
  for (const std::string name : kNames) {
    CAPTURE(name);
    AttentionMechanism m = mechanism(name, 2, 4);
    const auto f = [&](const List& x) {
      manual_seed(3);
      return m.apply(x[0], x[1], x[2], {.causal = true, .mask = mask, .bias = x[3], .dropout = 0.2});
    };
    const List inputs = {q, k, v, normal({2, 3, 5}, 5)};
    gradcheck(f, inputs);
    if (name != "luong-dot") gradcheck([&] { return f(inputs); }, named_parameters(m));
  }
}
