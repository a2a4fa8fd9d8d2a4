// The kinds of Synthesizer.
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

MechanismOptions synthesizer_case() {
  return {.heads = 4, .head_size = 8, .context = 1000, .window = 20, .stride = 12, .top_k = 5};
}

}  // namespace

TEST_CASE("conformance: the kinds of Synthesizer") {
  for (const std::string kind : {"random", "factorized-dense", "factorized-random"}) {
    MechanismOptions o = synthesizer_case();
    o.context = 260, o.synthesizer = kind;
    const auto of_sizes = [o](Index heads, Index size) {
      MechanismOptions other = o;
      other.heads = heads, other.head_size = size;
      return mechanism_by_name("synthesizer", other);
    };
    ConformanceOptions kit = thinned({.reference = naive_mechanism("synthesizer", o), .of_sizes = of_sizes});
    kit.longest = std::min<Index>(kit.longest, 260);
    check_conformance_in_test(mechanism_by_name("synthesizer", o), kit);
  }
  CHECK(
      contains(error_of([] { synthesizer_kind("wide"); }), "synthesizer: the kind is 'wide'; it must be one of dense"));
  Rng rng(1);
  const SynthesizerAttention few(1, 4, rng, {.positions = 3});
  const Tensor x = rng.normal({1, 1, 4, 4});
  CHECK(contains(error_of([&] { few.apply(x, x, x, {}); }), "there may be at most 3 keys"));
  CHECK(contains(error_of([&] { SynthesizerAttention(1, 4, rng, {}); }), "positions is 0"));
}
