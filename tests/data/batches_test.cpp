// Batches of language models, the whole split, prefetching, user-defined data sets, and changes of the batch size.
#include <atomic>
#include <chrono>
#include <doctest/doctest.h>
#include <heed/core/check.hpp>
#include <heed/data/batches.hpp>
#include <heed/data/tasks.hpp>
#include <map>
#include <numeric>
#include <set>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::ids_of;
using Ids = std::vector<std::int32_t>;

namespace {

TokenSource counting(std::int32_t n) {
  Ids ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return TokenSource(ids, n);
}

struct Slow {  // each element of a batch is the step; step 3 throws
  std::shared_ptr<std::atomic<int>> made = std::make_shared<std::atomic<int>>(0);
  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    require(step != 3, "step 3 is broken");
    ++*made;
    const Tensor x = Tensor::full({2, 2}, static_cast<double>(seed * 100 + step), DType::int32);
    return {x, x, 4};
  }
};

}  // namespace

TEST_CASE("batch: whether its targets are of tokens, and how many samples it has") {
  const auto ids = [](const Shape& shape) { return Tensor::zeros(shape, DType::int32); };
  CHECK(Batch{ids({3, 5}), ids({3, 5}), 15}.has_token_targets());
  CHECK_FALSE(Batch{ids({3, 5}), ids({3}), 3}.has_token_targets());     // one class per text
  CHECK_FALSE(Batch{ids({3, 5}), ids({3, 2}), 6}.has_token_targets());  // two classes per text
  CHECK_FALSE(Batch{Tensor::zeros({3, 5}), ids({3, 5}), 15}.has_token_targets());
  CHECK_FALSE(Batch{ids({3, 5}), Tensor::zeros({3, 5}), 3}.has_token_targets());
  CHECK_FALSE(Batch{ids({4}), ids({4}), 4}.has_token_targets());
  Batch pairs{Tensor(), ids({2, 7}), 14};
  pairs["source"] = ids({2, 6});
  CHECK_FALSE(pairs.has_token_targets());
  pairs.tokens = 26;
  CHECK(pairs.has_token_targets());
  CHECK(pairs.samples() == 2);
  CHECK(Batch{Tensor::zeros({3, 5}), ids({3}), 2}.samples() == 3);
  Batch points;
  points["points"] = Tensor::zeros({9, 2}), points.counted = 8;
  CHECK(points.samples() == 8);
}

TEST_CASE("windows are a pure function of seed, step and row, with uniform starts") {
  const LanguageModelBatches data(counting(20), {.batch = 5, .context = 8});
  const Batch b = data.batch(7, 3);
  CHECK(b.inputs.shape() == Shape{5, 8});
  CHECK(b.counted == 40);
  for (Index r = 0; r < 5; ++r)
    for (Index t = 0; t < 8; ++t) {
      REQUIRE(b.inputs.at({r, t}) == b.inputs.at({r, 0}) + static_cast<double>(t));
      REQUIRE(b.targets.at({r, t}) == b.inputs.at({r, t}) + 1);
    }
  CHECK(ids_of(data.batch(7, 3).inputs) == ids_of(b.inputs));
  CHECK(ids_of(data.batch(7, 4).inputs) != ids_of(b.inputs));
  CHECK(ids_of(data.batch(8, 3).inputs) != ids_of(b.inputs));
  const LanguageModelBatches fewer(counting(20), {.batch = 2, .context = 8});
  CHECK(ids_of(fewer.batch(7, 3).inputs) == ids_of(b.inputs.slice(0, 0, 2)));
  CHECK(data.windows() == 12);
  std::map<double, int> starts;
  const int n = 2400;
  for (int s = 0; s < n / 5; ++s)
    for (Index r = 0; r < 5; ++r) starts[data.batch(1, static_cast<std::uint64_t>(s)).inputs.at({r, 0})]++;
  double chi = 0;  // 11 degrees of freedom: mean 11, deviation 4.7
  for (int s = 0; s < 12; ++s) chi += (starts[s] - n / 12.0) * (starts[s] - n / 12.0) / (n / 12.0);
  CHECK(starts.size() == 12);
  CHECK(chi < 11 + 4 * 4.7);
}

TEST_CASE("windows may start at separators only") {
  Ids ids = {1, 2, 0, 3, 4, 5, 0, 6, 0, 7, 8, 9, 1, 2};
  const LanguageModelBatches data(TokenSource(ids, 10), {.batch = 50, .context = 4, .separator = 0});
  CHECK(data.windows() == 3);
  std::set<Ids> rows;
  const Batch b = data.batch(1, 0);
  for (Index r = 0; r < 50; ++r) rows.insert(ids_of(b.targets[r]));
  CHECK(rows == std::set<Ids>{{3, 4, 5, 0}, {6, 0, 7, 8}, {7, 8, 9, 1}});
  CHECK(contains(error_of([&] { LanguageModelBatches(TokenSource(ids, 10), {.context = 4, .separator = 9}); }),
                 "no separator (token 9) is followed by 4 tokens"));
}

TEST_CASE("the whole split is read in order, each token counted once") {
  const WholeSplit split(counting(30), {.batch = 2, .context = 8});
  CHECK(split.windows() == 3);  // (30 - 1) / 8
  CHECK(split.size() == 2);
  CHECK(split.batch(0).inputs.shape() == Shape{2, 8});
  const Batch last = split.batch(1);
  CHECK(ids_of(last.inputs) == Ids{16, 17, 18, 19, 20, 21, 22, 23});
  CHECK(ids_of(last.targets) == Ids{17, 18, 19, 20, 21, 22, 23, 24});
  CHECK(last.counted == 8);
  CHECK(split.counted_end() == 25);
  CHECK(split.counted_end(1) == 17);
  CHECK(split.counted_end(2) == 25);
  CHECK(error_of([&] { split.counted_end(3); }) == "batches: the first 3 batches are out of range; there are 2");
  CHECK(WholeSplit(counting(9), {.context = 8}).windows() == 1);
  CHECK_THROWS_AS(split.batch(2), Error);
  CHECK_THROWS_AS(split.batch(-1), Error);
}

TEST_CASE("with a separator the whole split reads each story from its start") {
  const std::string text = "\n" + Stories().text(4, 20000);
  const CharTokenizer t(text);
  const std::int32_t line_feed = t.encode("\n")[0];
  for (Index context : {Index{192}, Index{50}}) {  // longer than any story, and shorter than most
    const TokenSource source(t.encode(text), t.vocabulary_size());
    const WholeSplit split(source, {.batch = 7, .context = context, .separator = line_feed});
    Index counted = 0, next = 1, cut = 0;
    for (Index i = 0; i < split.size(); ++i) {
      const Batch b = split.batch(i);
      counted += b.counted;
      for (Index r = 0; r < b.inputs.dim(0); ++r) {
        const Ids x = ids_of(b.inputs[r]), y = ids_of(b.targets[r]);
        cut += x[0] != line_feed;
        for (std::size_t k = 0; k < y.size(); ++k) {
          if (y[k] == kIgnoreIndex) continue;
          REQUIRE(y[k] == source[next++]);
          REQUIRE(x[k] == source[next - 2]);
        }
      }
      CHECK(next == split.counted_end(i + 1));
    }
    CHECK(next == split.counted_end());
    CHECK(counted == split.counted_end() - split.counted_begin());
    CHECK(source.size() - next <= context);
    CHECK((cut == 0) == (context == 192));
  }
}

TEST_CASE("too little text and invalid sizes are refused") {
  CHECK(contains(error_of([] { LanguageModelBatches(counting(64), {.context = 64}); }),
                 "the text has 64 tokens; a context of 64 needs at least 65"));
  CHECK(contains(error_of([] { WholeSplit(counting(8), {.context = 8}); }), "needs at least 9"));
  CHECK_THROWS_AS(LanguageModelBatches(counting(64), {.batch = 0}), Error);
  CHECK_THROWS_AS(WholeSplit(counting(64), {.context = 0}), Error);
}

TEST_CASE("prefetching gives the same batches, for any order of steps") {
  const Dataset plain = LanguageModelBatches(counting(500), {.batch = 3, .context = 16});
  Prefetch prefetch(plain);
  const std::pair<int, int> order[] = {{1, 0}, {1, 1}, {1, 2}, {1, 9}, {1, 9}, {2, 10}, {1, 10}, {1, 11}};
  for (const auto& [seed, step] : order) {
    const auto s = static_cast<std::uint64_t>(seed), n = static_cast<std::uint64_t>(step);
    CHECK(ids_of(prefetch.batch(s, n).inputs) == ids_of(plain.batch(s, n).inputs));
  }
}

TEST_CASE("prefetching builds ahead, hands errors over and stops cleanly") {
  const Slow slow;
  {
    Prefetch prefetch{Dataset(slow)};
    CHECK(prefetch.batch(1, 1).inputs.at({0, 0}) == 101);
    for (int i = 0; i < 500 && *slow.made < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(*slow.made == 2);  // step 2, which was not requested yet
    CHECK(prefetch.batch(1, 2).inputs.at({0, 0}) == 102);
    CHECK(contains(error_of([&] { prefetch.batch(1, 3); }), "step 3 is broken"));
    CHECK(prefetch.batch(1, 4).inputs.at({0, 0}) == 104);
    CHECK(contains(error_of([&] { prefetch.batch(2, 3); }), "step 3 is broken"));
    CHECK(prefetch.batch(1, 2).inputs.at({0, 0}) == 102);
  }  // while step 3 is built
  Prefetch unused{Dataset(slow)};
}

TEST_CASE("prefetching learns which batches a rank requests") {
  struct Noted {
    std::shared_ptr<std::vector<std::uint64_t>> made = std::make_shared<std::vector<std::uint64_t>>();
    Batch batch(std::uint64_t, std::uint64_t step) const {
      made->push_back(step);
      return {Tensor::full({1}, static_cast<double>(step)), Tensor(), 1};
    }
  } noted;
  {
    Prefetch prefetch{Dataset(noted)};
    for (const int step : {2, 3, 10, 11, 18, 19, 26}) CHECK(prefetch.batch(1, step).inputs.item() == step);
  }
  noted.made->resize(8);  // 27 may have been built
  CHECK(*noted.made == std::vector<std::uint64_t>{2, 3, 4, 10, 11, 18, 19, 26});
}

TEST_CASE("user-defined data sets work") {
  struct Own {
    Index size() const { return 2; }
    Batch batch(Index i) const { return {Tensor::full({1}, static_cast<double>(i)), Tensor(), 1}; }
  };
  const EvaluationSet own = Own();
  CHECK(own.size() == 2);
  CHECK(own.batch(1).inputs.item() == 1);
  CHECK(EvaluationSet().size() == 0);
}

// ---- Batches of another size ----

namespace {

// The rows of some batches in order.
template <class Data>
std::vector<std::vector<float>> rows_in(const Data& data, std::uint64_t begin, std::uint64_t end) {
  std::vector<std::vector<float>> rows;
  for (std::uint64_t i = begin; i < end; ++i) {
    const Batch b = data.batch(7, i);
    for (Index r = 0; r < b.inputs.dim(0); ++r) rows.push_back(b.inputs[r].to_vector<float>());
  }
  return rows;
}

template <class Make>
void check_continued(const Make& make) {
  // 10 batches of 6 rows, then 5 of 4, then batches of 12 give the rows of batches of 6.
  const auto all = rows_in(make(6), 0, 40);
  auto parts = rows_in(make(6), 0, 10);
  const auto add = [&](const auto& rows) { parts.insert(parts.end(), rows.begin(), rows.end()); };
  add(rows_in(make(4).continued({{{.rows = 6}, 10}}), 0, 5));
  add(rows_in(make(12).continued({{{.rows = 6}, 10}, {{.rows = 4}, 5}}), 0, 10));
  REQUIRE(parts.size() == 200);
  CHECK(std::equal(parts.begin(), parts.end(), all.begin()));
  CHECK(make(6).fingerprint() == make(4).fingerprint());
  CHECK(make(4).batching() == Batching{.rows = 4});
}

}  // namespace

TEST_CASE("continued: data sets whose samples are functions of their position") {
  const TokenSource tokens(Rng(1).integers({500}, 0, 9).to_vector<std::int32_t>(), 9);
  check_continued([&](Index rows) { return LanguageModelBatches(tokens, {.batch = rows, .context = 8}); });
  check_continued([&](Index rows) {
    return MaskedBatches(LanguageModelBatches(tokens, {.batch = rows, .context = 8}), {.vocabulary = 9, .mask = 9});
  });
  check_continued([](Index rows) { return CopyTask({.batch = rows, .length = 8}); });
  check_continued([](Index rows) { return ListOpsBatches(ListOps({.min_tokens = 6, .max_tokens = 6}), rows); });
}

TEST_CASE("continued: a data set without continued() cannot continue with another batch size") {
  struct Own {
    Batch batch(std::uint64_t, std::uint64_t) const { return {}; }
  };
  const Dataset own = Own{};
  CHECK(own.batching() == Batching{});
  CHECK_FALSE(own.fingerprint());
  CHECK(test::error_of([&] {
          own.continued({{{.rows = 3}, 1}});
        }) == "batches: the data set has no continued(), so it cannot continue with batches of another size");
}
