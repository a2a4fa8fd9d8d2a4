// Attention by the Gaussian and by a polynomial kernel.
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>

#include "tests/layers/attention/naive_mechanisms.hpp"
#include "tests/layers/attention/state_file.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
//
#include <heed/layers/attention/conformance_doctest.hpp>

using namespace heed;
using namespace heed::test;

namespace {

MechanismOptions kernel_case() {
  return {.heads = 4, .head_size = 8, .context = 1000, .window = 20, .stride = 12, .top_k = 5};
}

}  // namespace

TEST_CASE("conformance: kernels with other options") {
  MechanismOptions o = kernel_case();
  o.rbf_width = 0.7, o.degree = 4;
  for (const std::string name : {"rbf", "polynomial"})
    check_conformance_in_test(mechanism_by_name(name, o), thinned({.reference = naive_mechanism(name, o)}));
}

TEST_CASE("polynomial: a power that is not even is refused") {
  for (const Index degree : {1, 3, 0, -2})
    CHECK(contains(
        error_of([&] { PolynomialAttention(Index{degree}); }),
        "polynomial similarity: the degree is " + std::to_string(degree) + "; it must be even, and 2 or more"));
  CHECK(contains(error_of([] { mechanism_by_name("polynomial", {.degree = 3})(0, *std::make_unique<Rng>(1)); }),
                 "the degree is 3; it must be even"));
  CHECK(
      contains(error_of([] { polynomial_similarity(2, INFINITY); }), "the offset is inf; it must be a finite number"));
  CHECK(contains(error_of([] { RbfAttention(-1); }), "RbfAttention: width is -1; it must be above 0"));
}

TEST_CASE("polynomial of degree 2 without an offset is linear attention with poly2, and rbf falls with the distance") {
  const Tensor q = normal({1, 2, 9, 4}, 1), k = normal({1, 2, 9, 4}, 2), v = normal({1, 2, 9, 3}, 3);
  CHECK(close(PolynomialAttention(2, 0).apply(q, k, v, {.causal = true}),
              linear_attention(q * 0.5, k * 0.5, v, {.causal = true}, {.feature_map = FeatureMap::poly2}), 1e-6, 1e-9));
  // A query on a key, with another key at the distance `width`.
  const Tensor one = Tensor::from({0, 0, 1, 0, 0, 1}).view({1, 1, 3, 2}), at = one.slice(2, 0, 1);
  const Tensor w = AttentionMechanism(RbfAttention(1.0)).weights(at, one.slice(2, 0, 2), {});
  CHECK(w.at({0, 0, 0, 1}) / w.at({0, 0, 0, 0}) == doctest::Approx(std::exp(-0.5)));
}
