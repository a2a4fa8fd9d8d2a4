// The conformance kit: correct mechanisms pass, and a wrong gradient fails its check.
#include <algorithm>
#include <heed/layers/attention/linear.hpp>

#include "tests/layers/attention/hooked_attention.hpp"
#include "tests/layers/attention/naive_mechanisms.hpp"
#include "tests/layers/attention/state_file.hpp"
#include "tests/layers/attention/wrong_mechanisms.hpp"
#include "tests/support.hpp"
//
#include <heed/layers/attention/conformance_doctest.hpp>

using namespace heed;
using namespace heed::test;

namespace {

Names names_of(const ConformanceReport& report) {
  Names names;
  for (const ConformanceCheck& c : report.checks) names.push_back(c.name);
  return names;
}

// Linear attention with relu features, whose gradient of k is too small in bfloat16.
struct SmallGradient {
  LinearAttention right{{.feature_map = FeatureMap::relu}};

  std::string name() const { return "small gradient"; }
  AttentionCapabilities capabilities() const {
    AttentionCapabilities can = right.capabilities();
    can.state = false;
    return can;
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const {
    if (k.dtype() != DType::bfloat16) return right.apply(q, k, v, call);
    return right.apply(q, regrad(k, [](const Tensor& d) { return d * 0.8; }), v, call);
  }
  void members(auto&&) {}
};

auto naive_linear(FeatureMap map) { return naive_mechanism("linear", {.feature_map = name_of(map)}); }

}  // namespace

TEST_CASE("conformance: softmax attention passes all that it declares, its state through a real file") {
  const ConformanceReport report = check_conformance_in_test(
      softmax_mechanism, {.reference = naive_mechanism("softmax", {}), .save_and_load = through_file});
  CHECK(report.mechanism == "softmax");
  Names all_but_mapped = conformance_checks();
  std::erase(all_but_mapped, "mapped keys");
  CHECK(names_of(report) == all_but_mapped);
  CHECK(report.left_out ==
        Names{"mapped keys: it declares no map_keys()", "cost: memory, as keys_per_query is all positions"});
}

RELEASE_TEST_CASE("conformance: linear attention passes all that it declares, with each feature map") {
  for (const FeatureMap map : {FeatureMap::elu, FeatureMap::relu, FeatureMap::softplus, FeatureMap::identity}) {
    CAPTURE(name_of(map));
    const ConformanceReport report = check_conformance_in_test(
        [map](Index, Rng&) { return LinearAttention{{.feature_map = map}}; },
        {.non_negative = map == FeatureMap::identity, .reference = naive_linear(map), .save_and_load = through_file});
    const bool narrow = LinearFeatures{.feature_map = map}.reads_bfloat16();
    Names declared = conformance_checks();
    std::erase_if(declared, [&](const std::string& name) {
      return name == "dropout" || name == "mapped keys" || name == "documents" || (name == "bfloat16" && !narrow);
    });
    CHECK(names_of(report) == declared);
    Names left_out = {"dropout: it declares no dropout", "bfloat16: it declares no bfloat16",
                      "mapped keys: it declares no map_keys()", "documents: it declares no documents"};
    if (narrow) std::erase(left_out, "bfloat16: it declares no bfloat16");
    CHECK(report.left_out == left_out);
  }
}

// The denominator of a query is near 0 if its features overlap with those of few keys.
RELEASE_TEST_CASE("conformance: what rounding does to sums that nearly cancel is no fault") {
  const auto linear = [](FeatureMap map) {
    return [map](Index, Rng&) { return LinearAttention{{.feature_map = map}}; };
  };
  for (const std::uint64_t seed : {1, 2, 3, 5, 6, 7, 8}) {
    CAPTURE(seed);
    check_conformance_in_test(linear(FeatureMap::relu),
                              {.seed = seed, .only = {"rows sum to one", "sizes", "float32", "bfloat16"}});
  }
  for (const std::uint64_t seed : {3, 5}) {
    CAPTURE(seed);
    check_conformance_in_test(linear(FeatureMap::poly2), {.seed = seed, .only = {"gradient", "float32", "borders"}});
  }
}

RELEASE_TEST_CASE("conformance: a wrong gradient is a fault where sums nearly cancel, too") {
  for (const std::uint64_t seed : {1, 3, 8}) {
    CAPTURE(seed);
    const ConformanceReport report =
        check_conformance([](Index, Rng&) { return SmallGradient(); }, {.seed = seed, .only = {"float32", "bfloat16"}});
    CHECK(report.failed() == Names{"bfloat16"});
  }
}

RELEASE_TEST_CASE("conformance: composed mechanisms that are right pass") {
  CHECK(failed({{.causal = true, .key_mask = true, .full_mask = true, .bias = true, .weights = true, .cross = true},
                softmax_of,
                {},
                softmax_weights}) == Names{});
  // Attends to the 4 largest scores and to scores equal to the fourth.
  CHECK(failed({{.causal = true, .key_mask = true, .full_mask = true, .cross = true, .discrete = true},
                [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                  const Tensor allowed = allowed_pairs(q, k, call);
                  const Tensor s = masked_fill(scores_of(q, k, call), logical_not(allowed), -1e30);
                  const Index count = std::min<Index>(4, k.dim(2));
                  const Tensor min_score = top_k(s.detach(), count).values.slice(-1, count - 1, count);
                  return matmul(masked_softmax(s, logical_and(allowed, ge(s, min_score))), without_padding(v, call));
                }}) == Names{});
}

TEST_CASE("conformance: the reference gets the values of the parameters, and zeros or ones are made uneven") {
  Tensor seen;
  const auto reference = [&](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                             const TensorsByName& values) {
    seen = values.at("scale");
    return matmul(masked_softmax(scores_of(q, k, call) * seen, allowed_pairs(q, k, call)), v);
  };
  CHECK(failed(learned_scale(false), {.longest = 50, .reference = reference}) == Names{});
  REQUIRE(seen.shape() == Shape{4, 1, 1});
  CHECK(seen.dtype() == DType::float64);
  CHECK(seen.at({0, 0, 0}) != seen.at({1, 0, 0}));
}
