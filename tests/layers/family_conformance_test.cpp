// Every mechanism passes the conformance kit in all that it declares.
#include <heed/heed.hpp>

#include "tests/support.hpp"
//
#include <heed/layers/attention/conformance_doctest.hpp>

using namespace heed;
using namespace heed::test;

namespace {

MechanismOptions options() {
  return {.heads = 4, .head_size = 8, .context = 1000, .window = 20, .stride = 12, .top_k = 5};
}

}  // namespace

TEST_CASE("conformance: every mechanism that has a name passes all that it declares") {
  for (const std::string& name : mechanism_names()) {
    CAPTURE(name);
    const ConformanceReport report = check_conformance_in_test(mechanism_by_name(name, options()));
    CHECK(report.mechanism == name);
    CHECK(report.checks.size() >= 14);
  }
}

TEST_CASE("conformance: linear attention with features that are not element by element") {
  for (const FeatureMap map : {FeatureMap::exp, FeatureMap::poly2}) {
    CAPTURE(name_of(map));
    check_conformance_in_test([map](Index, Rng&) { return LinearAttention{.feature_map = map}; });
  }
}

TEST_CASE("conformance: mechanisms that cannot be causal, and variants") {
  check_conformance_in_test([](Index, Rng&) { return EfficientAttention(); });
  // E and F mix positions: the weights of single ones do not add up to 1.
  check_conformance_in_test([](Index, Rng& rng) { return LinformerAttention(1000, 16, rng); }, {.normalised = false});
  check_conformance_in_test(
      [](Index, Rng& rng) { return BahdanauAttention(4, 8, rng, {.units = 5, .normalized = true}); });
  check_conformance_in_test([](Index, Rng&) {
    return WindowAttention({.window = 9, .dilation = 3, .globals = {0, 7}});
  });
}
