// Softmax attention and related mechanisms against PyTorch, and the forget gate against its definition.
#include <cmath>
#include <heed/heed.hpp>

#include "tests/reference/stored.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;
using test::close;

namespace {

const StoredCases& reference() { return stored_cases("attention_torch.json"); }

// The op for the name of a case of PyTorch: a mechanism or a feature map.
Tensor attend(const std::string& name, Named& x, const AttentionCall& call) {
  const In q = x["q"], k = x["k"], v = x["v"];
  if (name == "softmax") return attention(q, k, v, {.causal = call.causal, .key_lengths = call.key_lengths});
  if (name == "efficient") return efficient_attention(q, k, v, call);
  if (name == "taylor") return TaylorAttention{}.apply(q, k, v, call);
  return linear_attention(q, k, v, call, {.feature_map = feature_map(name)});
}

}  // namespace

TEST_CASE("softmax, linear, Efficient and Taylor attention: values and gradients are PyTorch's") {
  const Named& inputs = reference().inputs;
  int compared = 0;
  for (const auto& item : reference().cases) {
    const std::string &title = item.first, name = title.substr(0, title.find(','));
    CAPTURE(title);
    const Named& expected = item.second;
    AttentionCall call{.causal = contains(title, "causal")};
    if (contains(title, "lengths")) call.key_lengths = Tensor::from<std::int32_t>({7, 4});
    Tape tape;
    Named watched;
    for (const auto& [key, x] : inputs) watched[key] = tape.watch(x);
    const Tensor y = attend(name, watched, call);
    tape.backward(y, inputs.at("dy"));
    CHECK(close(y.detach(), expected.at("y"), 1e-12, 1e-13));
    for (const std::string key : {"q", "k", "v"}) {
      CAPTURE(key);
      CHECK(close(tape.grad(watched[key]), expected.at(key), 1e-11, 1e-13));
    }
    Named floats;
    for (const auto& [key, x] : inputs) floats[key] = x.to(DType::float32);
    CHECK(close(attend(name, floats, call), expected.at("y"), 1e-5, 2e-6));
    ++compared;
  }
  CHECK(compared == 24);
}

namespace {

struct Case {
  Tensor q, k, v, forget;  // [1, 1, n, ..], float32
};

Case draw(Index n, Index size, double bias) {
  Rng rng(3);
  return {rng.normal({1, 1, n, size}), rng.normal({1, 1, n, size}), rng.normal({1, 1, n, 4}),
          rng.normal({1, 1, n, 1}, bias, 1)};
}

// y_i by the definition, in float64.
std::vector<double> naive_row(const Case& c, Index i) {
  const Index size = c.q.dim(3), values = c.v.dim(3);
  std::vector<double> scores(static_cast<std::size_t>(i + 1)), y(static_cast<std::size_t>(values), 0.0);
  double forgotten = 0, max_score = -1e300, sum = 0;
  for (Index j = i; j >= 0; --j) {
    double s = 0;
    for (Index d = 0; d < size; ++d)
      s += static_cast<double>(c.q.ptr<float>()[i * size + d]) * static_cast<double>(c.k.ptr<float>()[j * size + d]);
    s = s / std::sqrt(static_cast<double>(size)) + forgotten;
    scores[static_cast<std::size_t>(j)] = s;
    max_score = std::max(max_score, s);
    forgotten -= std::log1p(std::exp(-static_cast<double>(c.forget.ptr<float>()[j])));
  }
  for (double& s : scores) sum += s = std::exp(s - max_score);
  for (Index j = 0; j <= i; ++j)
    for (Index d = 0; d < values; ++d)
      y[static_cast<std::size_t>(d)] +=
          scores[static_cast<std::size_t>(j)] / sum * static_cast<double>(c.v.ptr<float>()[j * values + d]);
  return y;
}

Tensor forgetting(const Case& c, const AttentionCall& call = {.causal = true}) {
  return ForgettingAttention().apply(c.q, c.k, c.v, call, std::vector{c.forget});
}

}  // namespace

RELEASE_TEST_CASE(
    "forgetting: float32 stays close to the definition at 4096 positions, for weak and strong forgetting") {
  for (const double bias : {-4.0, 0.0, 4.0}) {  // keeps the last few, half per step, most
    const Case c = draw(4096, 32, bias);
    const Tensor y = forgetting(c);
    double worst = 0;
    for (Index i = 0; i < 4096; i += 31) {
      const std::vector<double> expected = naive_row(c, i);
      for (Index d = 0; d < 4; ++d)
        worst = std::max(worst, std::fabs(y.at({0, 0, i, d}) - expected[static_cast<std::size_t>(d)]));
    }
    CAPTURE(bias);
    CHECK(worst < 5e-5);
  }
}

TEST_CASE("forgetting: with open gates it equals softmax attention, and with closed gates it returns the last value") {
  Case c = draw(600, 8, 0);
  c.forget.fill_(60);
  CHECK(close(forgetting(c), attention(c.q, c.k, c.v, {.causal = true})));
  c.forget.fill_(-200);
  CHECK(close(forgetting(c), c.v));
}

TEST_CASE("forgetting: padding before or after a row changes nothing") {
  Case c = draw(300, 8, 1);
  for (Tensor* x : {&c.q, &c.k, &c.v, &c.forget}) *x = x->to(DType::float64);
  const auto padded = [&](Index before, Index after) {
    const auto with = [&](const Tensor& x, double padding) {
      const auto rest = [&](Index n) { return Tensor::full({1, 1, n, x.dim(3)}, padding, DType::float64); };
      return concatenate({rest(before), x, rest(after)}, 2);
    };
    const Case all{with(c.q, 0), with(c.k, NAN), with(c.v, NAN), with(c.forget, NAN)};
    Tensor seen = Tensor::zeros({1, before + 300 + after}, DType::bool8);
    seen.slice(1, before, before + 300).fill_(1);
    return forgetting(all, {.causal = true, .key_mask = seen}).slice(2, before, before + 300);
  };
  const Tensor plain = forgetting(c);
  CHECK(close(padded(0, 40), plain, 1e-12, 1e-12));
  CHECK(close(padded(37, 0), plain, 1e-12, 1e-12));
  CHECK(close(padded(3, 300), plain, 1e-12, 1e-12));
}
