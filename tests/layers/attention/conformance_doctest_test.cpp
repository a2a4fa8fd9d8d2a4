// The conformance kit in a doctest suite.
//
#include <heed/layers/attention/conformance_doctest.hpp>

#include <heed/layers/attention/linear.hpp>
#include <sstream>

#include "tests/layers/attention/wrong_mechanisms.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("conformance: a failed check fails a doctest case" * doctest::should_fail()) {
  const Composed unmasked{
      {.causal = true},
      [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall&) { return softmax_of(q, k, v, {}); }};
  check_conformance_in_test(factory(unmasked), {.longest = 20});
}
