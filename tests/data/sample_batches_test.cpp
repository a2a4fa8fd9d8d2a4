// Batches of samples: epochs, order, buckets by length, evaluation, changes of the batch size, and fingerprints.
#include <heed/data/samples.hpp>

#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/data/tasks.hpp>
#include <map>
#include <set>

#include "tests/support.hpp"

using namespace heed;
using test::error_of;
using test::ids_of;
using Ids = std::vector<std::int32_t>;

namespace {

// Sample i repeats the number i lengths[i] times.
struct Repeats {
  std::vector<Index> lengths;
  Index size() const { return static_cast<Index>(lengths.size()); }
  Sample sample(Index i) const {
    return {{"inputs", Tensor::full({lengths[static_cast<std::size_t>(i)]}, static_cast<double>(i), DType::int32)}};
  }
};

Repeats many(Index count = 500, Index longest = 40) {
  Repeats r;
  Rng rng(3);
  for (Index i = 0; i < count; ++i) r.lengths.push_back(1 + rng.integer(longest));
  return r;
}

const PaddingByName kPadded = {{"inputs", {.value = -1, .lengths = true}}};

Ids rows_of(const Batch& b) { return ids_of(b.inputs.select(1, 0).contiguous()); }

}  // namespace

TEST_CASE("batches of samples: every sample once per epoch, in another order each, of similar length") {
  const Repeats samples = many();
  const SampleBatches data(samples, {.tokens = 128, .padding = kPadded});
  std::set<Ids> seen_batches;
  Ids first_epoch;
  for (Index epoch = 0; epoch < 3; ++epoch) {
    Ids seen, lengths;
    Index padded = 0, tokens = 0;
    for (Index k = 0; k < data.size(); ++k) {
      const Batch b = data.batch(7, static_cast<std::uint64_t>(epoch * data.size() + k));
      REQUIRE(b.inputs.numel() <= 128);
      const Ids rows = rows_of(b), n = ids_of(b["inputs_lengths"]);
      for (std::size_t r = 0; r < rows.size(); ++r) REQUIRE(n[r] == samples.lengths[static_cast<std::size_t>(rows[r])]);
      REQUIRE(*std::max_element(n.begin(), n.end()) <= *std::min_element(n.begin(), n.end()) * 1.1);
      seen.insert(seen.end(), rows.begin(), rows.end());
      lengths.push_back(n[0]);
      padded += b.inputs.numel();
      tokens += b.tokens;
    }
    CHECK(padded < 1.05 * static_cast<double>(tokens));
    CHECK_FALSE(std::is_sorted(lengths.begin(), lengths.end()));
    if (epoch == 0) first_epoch = seen;
    CHECK((epoch == 0) == (seen == first_epoch));
    std::sort(seen.begin(), seen.end());
    CHECK(seen.size() == 500);
    CHECK(std::unique(seen.begin(), seen.end()) == seen.end());
  }
}

TEST_CASE("batches of samples: batch s is a pure function of seed and s, independent of earlier requests") {
  const SampleBatchOptions options{.tokens = 200, .padding = kPadded};
  const SampleBatches data(many(), options), again(many(), options);
  for (const std::uint64_t step : {900u, 3u, 100000u, 4u, 3u})
    for (const std::uint64_t seed : {1u, 2u})
      CHECK(ids_of(data.batch(seed, step).inputs) == ids_of(again.batch(seed, step).inputs));
  CHECK(ids_of(data.batch(1, 3).inputs) != ids_of(data.batch(2, 3).inputs));
}

TEST_CASE("batches of samples: a fixed number of rows, independent of length, from the whole data set") {
  const TensorDataset points({{"inputs", Tensor::arange(10)}});
  const SampleBatches data(points, {.rows = 4});
  CHECK(data.size() == 3);
  std::map<std::int32_t, int> at_first;
  for (std::uint64_t epoch = 0; epoch < 400; ++epoch) {
    Ids seen;
    for (std::uint64_t k = 0; k < 3; ++k)
      for (const std::int32_t i : ids_of(data.batch(1, 3 * epoch + k).inputs)) seen.push_back(i);
    ++at_first[seen[0]];
    std::sort(seen.begin(), seen.end());
    REQUIRE(seen == ids_of(Tensor::arange(10)));
  }
  double chi = 0;  // 9 degrees of freedom: mean 9, deviation 4.2
  for (std::int32_t i = 0; i < 10; ++i) chi += (at_first[i] - 40) * (at_first[i] - 40) / 40.0;
  CHECK(chi < 9 + 4 * 4.2);
  // Both limits hold.
  const SampleBatches both(many(), {.rows = 3, .tokens = 50, .padding = kPadded});
  bool three = false;
  for (std::uint64_t k = 0; k < static_cast<std::uint64_t>(both.size()); ++k) {
    const Batch b = both.batch(1, k);
    REQUIRE((b.inputs.dim(0) <= 3 && b.inputs.numel() <= 50));
    three |= b.inputs.dim(0) == 3;
  }
  CHECK(three);
}

TEST_CASE("evaluation of samples: every sample once, in order") {
  const Repeats samples{{3, 3, 2, 9, 1, 1, 1}};
  const SampleEvaluation by_tokens(samples, {.tokens = 9, .padding = kPadded});
  std::vector<Ids> batches;
  for (Index i = 0; i < by_tokens.size(); ++i) batches.push_back(rows_of(by_tokens.batch(i)));
  CHECK(batches == std::vector<Ids>{{0, 1, 2}, {3}, {4, 5, 6}});
  const SampleEvaluation by_rows(TensorDataset({{"inputs", Tensor::arange(5)}}), {.rows = 2});
  CHECK(by_rows.size() == 3);
  CHECK(ids_of(by_rows.batch(2).inputs) == Ids{4});
  const EvaluationSet erased = by_rows;
  CHECK(erased.batch(1).counted == 2);
  CHECK(error_of([&] { by_rows.batch(3); }) == "batches: batch 3 is out of range; there are 3");
}

TEST_CASE("batches of samples: errors") {
  test::check_errors({
      {"batches: rows is 0 and tokens is 0; both must be 0 or more, and one of them above 0",
       [] { SampleBatches(many(), {}); }},
      {"batches: rows is 4 and tokens is -1", [] { SampleEvaluation(many(), {.rows = 4, .tokens = -1}); }},
      {"batches: there are no samples; there must be one or more", [] { SampleBatches(Repeats{}, {.rows = 1}); }},
      {"batches: tokens is 9 but padding is empty; without padding all samples have one length, so give rows instead",
       [] { SampleBatches(many(), {.tokens = 9}); }},
      {"batches: sample 1 has length 12, but a batch has at most 9 tokens; remove the sample or increase tokens",
       [] {
         SampleBatches(Repeats{{3, 12}}, {.tokens = 9, .padding = kPadded});
       }},
      {"batches: sample 0 has no source with an axis, but padding is given for it",
       [] {
         SampleBatches(many(), {.tokens = 9, .padding = {{"source", {}}}});
       }},
  });
}

// ---- Batches of another size ----

namespace {

TensorDataset numbers(Index n) {
  return TensorDataset({{"inputs", Tensor::arange(n).to(DType::float32).view({n, 1})}});
}

std::multiset<float> numbers_in(const SampleBatches& data, std::uint64_t begin, std::uint64_t end) {
  std::multiset<float> found;
  for (std::uint64_t i = begin; i < end; ++i)
    for (const float x : data.batch(7, i).inputs.to_vector<float>()) found.insert(x);
  return found;
}

}  // namespace

TEST_CASE("continued: an epoch of samples is read to its end, each sample once, and then whole epochs") {
  const auto make = [](Index rows) { return SampleBatches(numbers(50), {.rows = rows}); };
  for (const std::uint64_t first : {1, 5, 7, 8, 13}) {
    CAPTURE(first);
    const std::uint64_t whole = first / 8, in_epoch = first % 8;  // 8 batches of 7 or fewer
    std::multiset<float> seen = numbers_in(make(7), 8 * whole, first);
    // Then 2 batches of 3, and then batches of 11 to the end of the epoch.
    const SampleBatches threes = make(3).continued({{{.rows = 7}, first}});
    const SampleBatches elevens = make(11).continued({{{.rows = 7}, first}, {{.rows = 3}, 2}});
    seen.merge(numbers_in(threes, 0, 2));
    const std::uint64_t left = elevens.batches_until(7, whole + 1);
    if (in_epoch > 0) {
      seen.merge(numbers_in(elevens, 0, left));
      CHECK(seen.size() == 50);
      CHECK(std::set<float>(seen.begin(), seen.end()).size() == 50);
    }
    std::multiset<float> next = numbers_in(elevens, left, left + 5);
    if (in_epoch == 0) next.merge(numbers_in(threes, 0, 2));
    CHECK(std::set<float>(next.begin(), next.end()).size() == 50);
    CHECK(elevens.batches_until(7, whole + 3) == left + 10);
  }
}

TEST_CASE("continued: batches by tokens, too, and from tokens to rows") {
  std::vector<TextPair> pairs;
  for (int i = 0; i < 60; ++i)
    pairs.push_back({std::string(static_cast<std::size_t>(1 + i % 13), 'a'), "b" + std::to_string(i)});
  const Tokenizer bytes = ByteTokenizer();
  const TextPairs samples(pairs, bytes, bytes, {});
  const auto make = [&](Index rows, Index tokens) {
    return SampleBatches(samples, {.rows = rows, .tokens = tokens, .padding = TextPairs::padding()});
  };
  const auto targets_in = [](const SampleBatches& data, std::uint64_t begin, std::uint64_t end) {
    std::vector<std::vector<std::int32_t>> found;
    for (std::uint64_t i = begin; i < end; ++i) {
      const Batch b = data.batch(7, i);
      for (Index r = 0; r < b.targets.dim(0); ++r) {
        auto row = b.targets[r].to_vector<std::int32_t>();
        std::erase(row, kIgnoreIndex);
        found.push_back(row);
      }
    }
    return found;
  };
  for (const auto& [rows, tokens] : std::vector<std::pair<Index, Index>>{{0, 20}, {0, 90}, {5, 0}, {3, 40}}) {
    auto seen = targets_in(make(0, 40), 0, 6);
    const SampleBatches rest = make(rows, tokens).continued({{{.tokens = 40}, 6}});
    const auto more = targets_in(rest, 0, rest.batches_until(7, 1));
    seen.insert(seen.end(), more.begin(), more.end());
    CHECK(seen.size() == 60);
    CHECK(std::set(seen.begin(), seen.end()).size() == 60);
  }
}

TEST_CASE("fingerprints: parts and changed values differ, and the batch size does not matter") {
  const auto of = [](const Dataset& d) { return *d.fingerprint(); };
  const Samples all = numbers(20);
  const auto [many, few] = split(all, 0.25, 1);
  CHECK(of(SampleBatches(all, {.rows = 3})) == of(SampleBatches(numbers(20), {.rows = 5})));
  CHECK(of(SampleBatches(many, {.rows = 3})) != of(SampleBatches(few, {.rows = 3})));
  CHECK(of(SampleBatches(numbers(21), {.rows = 3})) != of(SampleBatches(all, {.rows = 3})));
  CHECK(of(CopyTask({.length = 8})) != of(CopyTask({.length = 8, .held_out = true})));
  CHECK(of(ListOpsBatches(ListOps({.depth = 3}), 2)) != of(ListOpsBatches(ListOps({.depth = 4}), 2)));
  const TokenSource tokens({1, 2, 3, 4, 5, 6}, 9), others({1, 2, 3, 4, 5, 7}, 9);
  CHECK(WholeSplit(tokens, {.context = 2}).fingerprint() != WholeSplit(others, {.context = 2}).fingerprint());
  CHECK(tokens.fingerprint().starts_with("6 tokens with the hash "));
}
