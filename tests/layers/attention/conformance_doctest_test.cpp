// conformance_doctest.hpp: a failed check is a failed assertion.
#include <heed/layers/attention/conformance_doctest.hpp>

#include "tests/layers/attention/wrong_mechanisms.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

// Expects one failed assertion. doctest::should_fail would also accept an exception.
TEST_CASE("conformance: a failed check is one failed assertion of a doctest case" * doctest::expected_failures(1)) {
  const Composed unmasked{
      {.causal = true},
      [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall&) { return softmax_of(q, k, v, {}); }};
  check_conformance_in_test(factory(unmasked), {.longest = 20, .only = {"causal"}});
}
