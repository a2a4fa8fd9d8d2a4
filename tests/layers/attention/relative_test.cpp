// Vectors of relative positions, and Longformer: the conformance kit, for mechanisms with values of their own.
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

MechanismOptions relative_case() {
  return {.heads = 4, .head_size = 8, .context = 1000, .window = 20, .stride = 12, .top_k = 5};
}

}  // namespace

TEST_CASE("conformance: mechanisms with vectors of relative positions, or with values of global positions") {
  MechanismOptions o = relative_case();
  o.max_distance = 5, o.value_size = 6, o.window = 9, o.dilation = "3", o.globals = "0,7,40";
  std::vector<std::string> checks = conformance_checks();
  std::erase_if(checks, [](const std::string& name) {
    return name == "rows sum to one" || name == "dropout" || name == "batch" || name == "sizes" ||
           name == "combinations";  // of other sizes, which vectors of values do not fit
  });
  for (const std::string name : {"shaw", "nezha", "longformer"}) {
    ConformanceOptions kit{.reference = naive_mechanism(name, o), .save_and_load = through_file};
    kit = thinned(kit);
    if (kit.only.empty()) kit.only = checks;
    std::erase_if(kit.only, [](const std::string& check) { return check == "batch" || check == "combinations"; });
    const ConformanceReport report = check_conformance_in_test(mechanism_by_name(name, o), kit);
    CHECK(report.mechanism == name);
  }
  // Without vectors of values, every check applies.
  const auto of_keys = [](Index heads, Index size) {
    return [=](Index, Rng& rng) { return ShawAttention(size, rng, {.max_distance = heads + 1, .of_values = false}); };
  };
  check_conformance_in_test(of_keys(4, 8), thinned({.reference = naive_mechanism("shaw", o), .of_sizes = of_keys}));
  const auto nezha = [](Index, Index size) {
    return [=](Index, Rng&) { return NezhaAttention(size, {.max_distance = 5, .of_values = false}); };
  };
  check_conformance_in_test(nezha(4, 8), thinned({.reference = naive_by([](const NaiveRow& row) {
                                                    return naive_relative_weights(row, naive_sinusoids(5, row.size),
                                                                                  {});
                                                  }),
                                                  .of_sizes = nezha}));
}
