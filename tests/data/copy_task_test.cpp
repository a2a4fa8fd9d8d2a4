// The copy task: rows, targets, distribution of symbols, and options.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/data/tasks.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::ids_of;

TEST_CASE("copy task: separator, symbols, separator, the same symbols") {
  const CopyTask task({.batch = 5, .length = 12, .symbols = 3});
  CHECK(task.vocabulary() == 4);
  CHECK(task.copied() == 5);
  const Batch b = task.batch(1, 0);
  REQUIRE(b.inputs.shape() == Shape{5, 12});
  REQUIRE(b.targets.shape() == Shape{5, 12});
  CHECK(b.inputs.dtype() == DType::int32);
  for (Index r = 0; r < 5; ++r) {
    const std::vector<std::int32_t> row = ids_of(b.inputs[r]);
    CHECK(row[0] == CopyTask::kSeparator);
    CHECK(row[6] == CopyTask::kSeparator);
    for (std::size_t i = 1; i <= 5; ++i) {
      CHECK(row[i] >= 1);
      CHECK(row[i] <= 3);
      CHECK(row[6 + i] == row[i]);
    }
  }
}

TEST_CASE("copy task: the targets are the next tokens, and only those of the second half are counted") {
  const CopyTask task({.batch = 3, .length = 10, .symbols = 10});
  const Batch b = task.batch(4, 7);
  CHECK(b.counted == 3 * 4);
  Index counted = 0;
  for (Index r = 0; r < 3; ++r) {
    const std::vector<std::int32_t> x = ids_of(b.inputs[r]), y = ids_of(b.targets[r]);
    for (std::size_t i = 0; i < 10; ++i) {
      const bool counts = i >= 5 && i < 9;  // from the second separator on, without the last token
      CHECK(y[i] == (counts ? x[i + 1] : kIgnoreIndex));
      counted += y[i] != kIgnoreIndex ? 1 : 0;
    }
  }
  CHECK(counted == b.counted);
}

TEST_CASE("copy task: rows are a pure function of seed, step and row, and held-out ones differ") {
  const CopyTask task({.batch = 4}), fewer({.batch = 2}), held_out({.batch = 4, .held_out = true});
  const std::vector<std::int32_t> tokens = ids_of(task.batch(3, 9).inputs);
  CHECK(ids_of(task.batch(3, 9).inputs) == tokens);
  CHECK(ids_of(task.batch(3, 10).inputs) != tokens);
  CHECK(ids_of(task.batch(4, 9).inputs) != tokens);
  CHECK(ids_of(held_out.batch(3, 9).inputs) != tokens);
  const std::vector<std::int32_t> two = ids_of(fewer.batch(3, 9).inputs);
  CHECK(std::equal(two.begin(), two.end(), tokens.begin()));
  const std::vector<std::int32_t> first(tokens.begin(), tokens.begin() + 128),
      second(tokens.begin() + 128, tokens.begin() + 256);
  CHECK(first != second);
}

TEST_CASE("copy task: all symbols are equally frequent") {
  const CopyTask task({.batch = 200, .length = 128, .symbols = 10});
  std::vector<double> count(11);
  for (const std::int32_t token : ids_of(task.batch(1, 1).inputs)) count[static_cast<std::size_t>(token)] += 1;
  CHECK(count[0] == 400);
  const double expected = 200 * 126 / 10.0;
  double chi = 0;  // each symbol occurs twice: twice a chi-square with 9 degrees of freedom, mean 18, deviation 8.5
  for (std::size_t s = 1; s <= 10; ++s) chi += (count[s] - expected) * (count[s] - expected) / expected;
  CHECK(chi < 60);
}

TEST_CASE("copy task: options out of range") {
  CHECK_THROWS_WITH_AS(CopyTask({.length = 127}), doctest::Contains("the length is 127; it must be even and 4 or more"),
                       Error);
  CHECK_THROWS_WITH_AS(CopyTask({.length = 2}), doctest::Contains("the length is 2"), Error);
  CHECK_THROWS_WITH_AS(CopyTask({.batch = 0}),
                       doctest::Contains("batch is 0 and symbols is 10; both must be 1 or more"), Error);
  CHECK_THROWS_WITH_AS(CopyTask({.symbols = 0}),
                       doctest::Contains("batch is 32 and symbols is 0; both must be 1 or more"), Error);
}
