// Talking heads.
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>

#include "tests/autograd/attention_reference.hpp"
#include "tests/layers/attention/naive_mechanisms.hpp"
#include "tests/layers/attention/state_file.hpp"
#include "tests/support.hpp"
#include "tests/tools/paths.hpp"
//
#include <heed/layers/attention/conformance_doctest.hpp>

using namespace heed;
using namespace heed::test;

TEST_CASE("conformance: talking heads that mix scores and weights") {
  // "masks" compares a head with the same head alone. Masks are in the variants of "reference".
  ConformanceOptions kit =
      thinned({.normalised = false, .reference = naive_talking_heads, .save_and_load = through_file});
  if (kit.only.empty()) kit.only = conformance_checks();
  std::erase(kit.only, "masks");
  check_conformance_in_test(
      [](Index, Rng& rng) {
        TalkingHeadsAttention talking(4);
        for (Parameter* mix : {&talking.before_softmax, &talking.after_softmax}) init::normal_(*mix, rng, 0, 0.6);
        return talking;
      },
      kit);
}

TEST_CASE("talking heads: initially softmax attention, also where a key is masked for one head alone") {
  const Tensor q = normal({2, 3, 5, 4}, 1), k = normal({2, 3, 7, 4}, 2), v = normal({2, 3, 7, 2}, 3);
  TalkingHeadsAttention talking(3);
  to(talking, DType::float64);
  const AttentionCall call{.causal = true, .mask = random_mask({2, 3, 5, 7}, 0.6, 4)};
  CHECK(close(talking.apply(q, k, v, call), attention(q, k, v, call), 1e-13, 1e-13));
  CHECK(contains(error_of([] { TalkingHeadsAttention(0); }), "heads is 0; it must be 1 or more"));
  CHECK(contains(error_of([&] { talking.apply(q[0].unsqueeze(0).slice(1, 0, 2), k, v, {}); }), "attention: "));
}
