// Rows of weights sum to 1: with values of 1 every mechanism that divides by the sum of its weights gives 1, whatever
// queries and keys are. In float32, against the definitions in float64, which hold what eps takes away.
#include <heed/heed.hpp>

#include "tests/layers/mechanism_inputs.hpp"
#include "tests/layers/naive_mechanisms.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

constexpr Index kHeads = 2, kSize = 16;

struct QueriesAndKeys {
  std::string kind;
  Tensor q, k;  // [1, heads, n, size]
};

// Those that take the digits of a score, or its range.
std::vector<QueriesAndKeys> hard_pairs(Index n) {
  Rng rng(7);
  const auto random = [&](double spread, Index size = kSize) { return rng.normal({1, kHeads, n, size}, 0, spread); };
  const Index half = kSize / 2;
  const Tensor q = random(30, half), k = random(30, half), e = random(3e-3, half), f = random(3e-3, half),
               direction = random(1);
  return {{"random", random(1), random(1)},
          {"nearly orthogonal", concatenate({q + e, q - e}, -1), concatenate({k + f, f - k}, -1)},
          {"opposite", direction, direction * -2 + random(0.1)},
          {"huge", random(1e4), random(1e4)},
          {"tiny", random(1e-18), random(1e-18)},
          {"huge and tiny", random(1e8), random(1e-8)}};
}

// In 1e-5 for every mechanism but taylor, whose weights are 1 + a cosine: that of opposite vectors loses digits.
void check_row_sums(const std::string& name, const MechanismOptions& options, Index n, bool causal) {
  Rng rng(1);
  AttentionMechanism mechanism = mechanism_by_name(name, options)(0, rng);
  const bool shows_features = options.feature_map == "identity";
  for (QueriesAndKeys x : hard_pairs(n)) {
    if (shows_features) x.q = abs(x.q), x.k = abs(x.k);
    const Tensor v = Tensor::ones({1, kHeads, n, 3});
    const AttentionCall call{.causal = causal};
    const auto doubles = [](const Tensor& t) { return t.to(DType::float64); };
    // Where there is no eps, plain exponentials of the reference would overflow, and every row sums to 1.
    const bool has_eps = name == "taylor" || (name == "linear" && options.feature_map != "exp");
    const Tensor wanted =
        has_eps ? naive_mechanism(name, options)(doubles(x.q), doubles(x.k), doubles(v), call, {}) : doubles(v);
    INFO(name, std::string(" "), options.feature_map, std::string(", "), x.kind, std::string(", "), n,
         std::string(causal ? " causal positions" : " positions"));
    const std::vector<Tensor> inputs = inputs_for(mechanism, x.q, x.k);
    CHECK(close(mechanism.apply(x.q, x.k, v, call, inputs), wanted, 0, name == "taylor" ? 1e-3 : 1e-5));
    if (!causal || !mechanism.capabilities().state) continue;
    AttentionState state = mechanism.make_state();
    for (Index i = 0; i < std::min<Index>(n, 3); ++i) {
      const auto at = [&](const Tensor& t) { return t.slice(2, i, i + 1); };
      CHECK(close(state.apply(at(x.q), at(x.k), at(v), {}, inputs_at(inputs, i, i + 1)), at(wanted), 0,
                  name == "taylor" ? 1e-3 : 1e-5));
    }
  }
}

}  // namespace

TEST_CASE("values of 1 give 1 through every mechanism that divides by a sum, for queries and keys that are hard") {
  for (const bool causal : {false, true})
    for (const std::string& name : mechanism_names(causal)) {
      if (name == "linformer") continue;  // its rows mix the values by weights of both signs, which sum to anything
      MechanismOptions options{.causal = causal, .heads = kHeads, .head_size = kSize, .context = 150};
      options.window = 8, options.stride = 6, options.top_k = 5;
      const std::vector<std::string> maps =
          name == "linear" ? std::vector<std::string>{"elu", "relu", "softplus", "exp", "poly2", "identity"}
                           : std::vector<std::string>{"elu"};
      for (const std::string& map : maps) {
        options.feature_map = map;
        for (const Index n : {1, 70, 150}) check_row_sums(name, options, n, causal);
      }
    }
}

TEST_CASE("values of 1 give 1 through similarities that are divided by their sum, and in a window of a decoder") {
  const Tensor v = Tensor::ones({1, kHeads, 40, 3});
  Rng rng(1);
  for (const QueriesAndKeys& x : hard_pairs(40)) {
    CAPTURE(x.kind);
    for (const std::string& name : similarity_names()) {
      Similarity f = similarity_by_name(name);
      if (f.by == SimilarityNorm::count) continue;
      f.eps = 0;
      CAPTURE(name);
      // A row whose weights are all 0, as those of relu may be, is zeros.
      const Tensor total = sum(AttentionMechanism(GenericAttention(f)).weights(x.q, x.k, {}), {3});
      CHECK(close(generic_attention(x.q, x.k, v, f), total.unsqueeze(3).expand(v.shape()), 0, 1e-5));
      for (const double s : total.to_vector<double>()) CHECK((std::fabs(s - 1) < 1e-5 || s == 0));
    }
    for (const LuongAlignment alignment : {LuongAlignment::monotonic, LuongAlignment::predictive}) {
      const LuongLocalAttention local(
          kHeads, kSize, rng, {.score = LuongScore::general, .alignment = alignment, .radius = 3, .renormalise = true});
      CHECK(close(local.apply(x.q, x.k, v, {}), v, 0, 1e-5));
    }
  }
}
