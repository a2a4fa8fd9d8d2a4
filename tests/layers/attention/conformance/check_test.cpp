// Correct mechanisms of unusual kinds pass the kit: other scores, and dependence on positions.
#include <heed/heed.hpp>

#include "tests/layers/attention/right_mechanisms.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

// ---- By scores ----

using Score = std::function<Tensor(const Tensor& q, const Tensor& k)>;  // [B, H, T, S]

Apply by_score(const Score& score) {
  return [score](const Tensor& q, const Tensor& k, const Tensor& v, const Call& call) {
    Tensor s = score(q, without_padding(k, call));
    if (call.bias.defined()) s = s + call.bias;
    return matmul(masked_softmax(s, allowed_pairs(q, k, call)), without_padding(v, call));
  };
}
Tensor dots(const Tensor& q, const Tensor& k) { return matmul(q, k.t()); }
Tensor squares(const Tensor& x) { return sum(x * x, {-1}, true); }

Tensor slopes(const Tensor& q) {
  std::vector<double> all;
  for (Index h = 0; h < q.dim(1); ++h)
    all.push_back(std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(q.dim(1))));
  return Tensor::from(all, {q.dim(1), 1, 1}).to(q.dtype());
}

std::vector<Right> by_scores() {
  return {
      decoded("a scale of 2", kAll, by_score([](auto& q, auto& k) { return dots(q, k) * 2.0; })),
      decoded("a scale of 1 / D", kAll,
              by_score([](auto& q, auto& k) { return dots(q, k) / static_cast<double>(q.dim(3)); })),
      decoded("a scale of 0", kAll, by_score([](auto& q, auto& k) { return dots(q, k) * 0.0; })),
      decoded("a negative scale", kAll, by_score([](auto& q, auto& k) { return dots(q, k) * -0.5; })),
      decoded("distances of points", kAll,
              by_score([](auto& q, auto& k) { return dots(q, k) - squares(q) * 0.5 - squares(k).t() * 0.5; })),
      decoded("a soft cap", kAll, by_score([](auto& q, auto& k) { return tanh(dots(q, k) / 30.0) * 30.0; })),
      decoded("cosines", kAll, by_score([](auto& q, auto& k) { return dots(normalize(q), normalize(k)) * 4.0; })),
      decoded("squares of scores", kAll, by_score([](auto& q, auto& k) { return dots(q, k) * dots(q, k) * 0.05; })),
      decoded("a different scale for each head", kAll,
              by_score([](auto& q, auto& k) { return dots(q, k) * slopes(q); })),
      decoded("elu features of queries alone", kAll,
              by_score([](auto& q, auto& k) { return dots(elu_feature(q), k); })),
      decoded("what is computed in float64", kAll,
              [](auto& q, auto& k, auto& v, auto& call) {
                const auto wide = [](const Tensor& x) { return x.to(DType::float64); };
                Call c = call;
                if (c.bias.defined()) c.bias = wide(c.bias);
                return softmax_of(wide(q), wide(k), wide(v), c).to(q.dtype());
              }),
      decoded("copies of what comes in", kAll,
              [](auto& q, auto& k, auto& v, auto& call) { return softmax_of(q.clone(), k.clone(), v.clone(), call); }),
      composed(
          "values that are squashed", kAll,
          [](auto& q, auto& k, auto& v, auto& call) { return softmax_of(q, k, tanh(without_padding(v, call)), call); },
          {.normalised = false}),
      composed("a sigmoid of scores, not normalised",
               {.causal = true, .key_mask = true, .full_mask = true, .cross = true},
               [](auto& q, auto& k, auto& v, auto& call) {
                 const Tensor w = sigmoid(scores_of(q, k, call) - 2.0);
                 return matmul(where(allowed_pairs(q, k, call).expand(w.shape()), w, 0.0), without_padding(v, call));
               },
               {.normalised = false}),
      composed("the mean of what is seen",
               {.causal = true, .key_mask = true, .full_mask = true, .bias = true, .cross = true},
               [](auto& q, auto& k, auto& v, auto& call) { return softmax_of(q * 0.0, k, v, call); }),
      composed("plain alone, with no capability", {},
               [](auto& q, auto& k, auto& v, auto&) { return softmax_of(q, k, v, {}); }),
      composed("causal alone", {.causal = true},
               [](auto& q, auto& k, auto& v, auto& c) { return softmax_of(q, k, v, c); }),
      composed("key masks alone", {.key_mask = true},
               [](auto& q, auto& k, auto& v, auto& c) { return softmax_of(q, k, v, c); }),
      composed("a bias of keys alone", {.key_mask = true, .key_bias = true, .cross = true},
               [](auto& q, auto& k, auto& v, auto& c) { return softmax_of(q, k, v, c); }),
      composed("scores recomputed in backward", {.causal = true, .key_mask = true, .full_mask = true, .cross = true},
               [](auto& q, auto& k, auto& v, auto& call) {
                 return recompute([call](const std::vector<Tensor>& x) { return softmax_of(x[0], x[1], x[2], call); },
                                  {q, k, v});
               }),
  };
}

// ---- By positions ----

std::vector<Right> by_positions() {
  const auto alibi = [](auto& q, auto& k, auto& v, Call call) {
    const Tensor far = abs(distances(q, k)) * slopes(q) * -1.0;
    call.bias = call.bias.defined() ? call.bias + far : far;
    return softmax_of(q, k, v, call);
  };
  const auto within = [](Index width) {
    return [width](auto& q, auto& k, auto& v, Call call) {
      const Tensor near = abs(distances(q, k)) < static_cast<double>(width);
      call.mask = call.mask.defined() ? logical_and(call.mask, near) : near;
      return softmax_of(q, k, v, call);
    };
  };
  std::vector<Right> all = {
      decoded("ALiBi without members", kPlaced, alibi),
      composed("ALiBi, causal and nothing else", {.causal = true, .aligned = true, .why = "positions count"}, alibi),
      decoded("a penalty of squared distances", kPlaced,
              [](auto& q, auto& k, auto& v, Call call) {
                const Tensor far = distances(q, k) * distances(q, k) * -0.01;
                call.bias = call.bias.defined() ? call.bias + far : far;
                return softmax_of(q, k, v, call);
              }),
      decoded("waves of distances", kPlaced,
              [](auto& q, auto& k, auto& v, Call call) {
                const Tensor wave = cos(distances(q, k) * 0.3);
                call.bias = call.bias.defined() ? call.bias + wave : wave;
                return softmax_of(q, k, v, call);
              }),
      decoded("the first key besides a window", kPlaced,
              [](auto& q, auto& k, auto& v, Call call) {
                const Tensor d = distances(q, k);
                const Tensor near = logical_or(abs(d) < 6.0, (Tensor::arange(k.dim(2)) < 1).view({1, k.dim(2)}));
                call.mask = call.mask.defined() ? logical_and(call.mask, near) : near;
                return softmax_of(q, k, v, call);
              }),
      decoded("every third position", kPlaced,
              [](auto& q, auto& k, auto& v, Call call) {
                std::vector<double> left = distances(q, k).template to_vector<double>();
                for (double& x : left) x = std::fmod(x, 3);
                const Tensor third = eq(Tensor::from(left, {q.dim(2), k.dim(2)}), 0);
                call.mask = call.mask.defined() ? logical_and(call.mask, third) : third;
                return softmax_of(q, k, v, call);
              }),
      composed("the future alone is nearer", {.key_mask = true, .aligned = true, .why = "positions count"},
               [](auto& q, auto& k, auto& v, Call call) {
                 call.bias = minimum(distances(q, k), 0.0) * 0.1;
                 return softmax_of(q, k, v, call);
               }),
      composed(
          "the value of one's own position", {.causal = true, .aligned = true, .why = "positions count"},
          [](auto& q, auto& k, auto& v, auto&) { return v.clone() + 0.0 * (sum(q, {-1}, true) + sum(k, {-1}, true)); }),
      composed("the mean of the values so far", {.causal = true, .causal_only = true, .why = "a running mean"},
               [](auto& q, auto& k, auto& v, auto&) {
                 const Index n = q.dim(2);
                 const Tensor counts = Tensor::arange(n).view({n, 1}).to(q.dtype()) + 1.0;
                 return cumsum(v, 2) / counts + 0.0 * (sum(q, {-1}, true) + sum(k, {-1}, true));
               }),
      composed("keys before values' positions, causal alone",
               {.causal = true, .causal_only = true, .why = "a recurrence"},
               [](auto& q, auto& k, auto& v, auto& call) { return softmax_of(q, k, v, call); }),
  };
  for (const Index width : {1, 2, 5, 17, 64, 65}) {
    all.push_back(decoded("a window without members", kPlaced, within(width)));
  }
  return all;
}

}  // namespace

RELEASE_TEST_CASE("conformance: what is right passes, by scores") { check_pass(by_scores()); }
RELEASE_TEST_CASE("conformance: what is right passes, by positions") { check_pass(by_positions()); }
