// The plan of the check "combinations": covering designs, and the problem that a row describes.
#include <algorithm>
#include <heed/layers/attention/detail/conformance_plan.hpp>
#include <heed/layers/attention/linear.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <set>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::detail::conformance;

namespace {

std::vector<Condition> conditions_of(const std::vector<std::size_t>& counts) {
  std::vector<Condition> all;
  for (const std::size_t n : counts) {
    all.push_back({"", {}});
    for (std::size_t i = 0; i < n; ++i) all.back().levels.push_back(std::to_string(i));
  }
  return all;
}

}  // namespace

TEST_CASE("conformance plan: every pair, or every triple, of levels occurs, in few rows, the same for the same seed") {
  const std::vector<std::size_t> counts = {3, 2, 5, 2, 4, 1, 3, 6};
  const std::vector<Condition> conditions = conditions_of(counts);
  for (const int strength : {2, 3}) {
    CAPTURE(strength);
    const std::vector<Levels> rows = covering(conditions, strength, 1);
    for (std::size_t a = 0; a < counts.size(); ++a)
      for (std::size_t b = a + 1; b < counts.size(); ++b)
        for (std::size_t c = strength == 3 ? b + 1 : b; c < (strength == 3 ? counts.size() : b + 1); ++c) {
          std::set<std::vector<std::size_t>> seen;
          for (const Levels& row : rows) {
            REQUIRE(row.size() == counts.size());
            seen.insert({row[a], row[b], row[c]});
          }
          CHECK(seen.size() == counts[a] * counts[b] * (c == b ? 1 : counts[c]));
        }
    CHECK(rows.size() < (strength == 2 ? 45 : 200));  // the minima are 6 * 5 and 6 * 5 * 4
    CHECK(covering(conditions, strength, 1) == rows);
    CHECK(covering(conditions, strength, 2) != rows);
  }
}

TEST_CASE("conformance plan: rows leave out what others have, and costly levels where they cover nothing") {
  std::vector<Condition> conditions = conditions_of({4, 3, 3, 2, 6});
  const std::vector<Levels> all = covering(conditions, 2, 1);
  CHECK(covering(conditions, 2, 1, all).empty());
  const std::vector<Levels> some(all.begin() + 3, all.end());
  const std::vector<Levels> rest = covering(conditions, 2, 1, some);
  CHECK(!rest.empty());
  CHECK(rest.size() <= 6);
  std::vector<Levels> both = some;
  both.insert(both.end(), rest.begin(), rest.end());
  CHECK(covering(conditions, 2, 1, both).empty());
  const auto costly = [](const std::vector<Levels>& rows) {
    return std::count_if(rows.begin(), rows.end(), [](const Levels& row) { return row[0] != 0; });
  };
  conditions = conditions_of({4, 3, 3, 2, 6, 6, 6});
  const auto before = costly(covering(conditions, 2, 1));
  conditions[0].costly = true;
  CHECK(costly(covering(conditions, 2, 1)) < before);
  CHECK(costly(covering(conditions, 2, 1)) >= 3 * 6);
}

TEST_CASE("conformance plan: conditions follow from what is declared, and a row names those that are not plain") {
  Subject softmax([](Index, Rng&) { return SoftmaxAttention(); }, {}),
      linear([](Index, Rng&) { return LinearAttention(); }, {});
  Plan all(softmax), few(linear);
  CHECK(all.conditions()[Plan::mask].levels.size() == 5);
  CHECK(few.conditions()[Plan::mask].levels.size() == 1);
  CHECK(few.conditions()[Plan::bias].levels.size() == 2);
  Levels levels(Plan::count, 0);
  CHECK(all.describe(levels) == "float64; not causal; keys: 17");
  levels[Plan::order] = 1, levels[Plan::mask] = 3, levels[Plan::queries] = 2, levels[Plan::shared] = 2;
  CHECK(all.describe(levels) ==
        "float64; causal; a mask [H, T, S]; keys: 17; queries: more than keys; query heads per key head: all");
  const Trial t = all.posed(levels);
  CHECK(t.q.shape() == Shape{2, 4, 26, 8});
  CHECK(t.k.shape() == Shape{2, 1, 17, 8});
  CHECK(t.call.mask.shape() == Shape{4, 26, 17});
  CHECK(t.call.causal);
}
