// Every mechanism passes the conformance kit in all that it declares.
#include <heed/heed.hpp>

#include "tests/layers/naive_mechanisms.hpp"
#include "tests/layers/state_file.hpp"
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
    const auto of_sizes = [&](Index heads, Index size) {
      MechanismOptions o = options();
      o.heads = heads, o.head_size = size;
      return mechanism_by_name(name, o);
    };
    const ConformanceReport report =
        check_conformance_in_test(mechanism_by_name(name, options()),
                                  {.reference = naive_mechanism(name, options()), .of_sizes = of_sizes});
    CHECK(report.mechanism == name);
    Rng rng(1);
    const AttentionMechanism m = mechanism_by_name(name, options())(0, rng);
    CHECK(m.capabilities().shared_maximum == (name == "efficient" || name == "favor"));
    CHECK(report.checks.size() >= 24);
  }
}

TEST_CASE("conformance: linear attention with features that are not element by element") {
  for (const std::string map : {"exp", "poly2"}) {
    CAPTURE(map);
    MechanismOptions o = options();
    o.feature_map = map;
    check_conformance_in_test(mechanism_by_name("linear", o), {.reference = naive_mechanism("linear", o)});
  }
}

TEST_CASE("conformance: mechanisms that cannot be causal, and variants") {
  MechanismOptions o = options();
  o.causal = false, o.rows = 16;
  check_conformance_in_test(mechanism_by_name("efficient", o), {.reference = naive_mechanism("efficient", o)});
  // E and F mix positions: the weights of single ones do not add up to 1.
  check_conformance_in_test(mechanism_by_name("linformer", o),
                            {.normalised = false, .reference = naive_mechanism("linformer", o)});
  check_conformance_in_test(
      [](Index, Rng& rng) { return BahdanauAttention(4, 8, rng, {.units = 5, .normalized = true}); },
      {.reference = naive_mechanism("bahdanau", o), .save_and_load = through_file});
  check_conformance_in_test(
      [](Index, Rng&) {
        return WindowAttention({.window = 9, .dilation = 3, .globals = {0, 7}});
      },
      {.reference = naive_by([](const NaiveRow& row) {
         return pattern_of(row, [p = row.position, causal = row.causal](Index j) {
           const bool near = (p - j) % 3 == 0 && (causal ? p - j < 9 * 3 : std::abs(p - j) <= 4 * 3);
           return near || j == 0 || j == 7 || p == 0 || p == 7;
         });
       }),
       .save_and_load = through_file});
}

TEST_CASE("conformance: LSH with shared queries and keys, whose keys are the queries' directions") {
  const auto make = [](Index, Rng&) {
    return LshAttention({.size = 8, .buckets = 8, .window = 20, .shared = true, .seed = 1});
  };
  const auto naive = naive_mechanism("lsh", options());
  check_conformance_in_test(
      make, {.shared = true,
             .reference = [naive](const Tensor& q, const Tensor&, const Tensor& v, const AttentionCall& call,
                                  const NamedTensors& values) { return naive(q, normalize(q), v, call, values); },
             .save_and_load = through_file});
}
