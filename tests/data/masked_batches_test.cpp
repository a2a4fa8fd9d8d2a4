// Masks of a masked language model: shares, unchanged parts, and reproducibility.
#include <doctest/doctest.h>

#include <cmath>
#include <heed/core/check.hpp>
#include <heed/core/random.hpp>
#include <heed/data/batches.hpp>
#include <map>
#include <set>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::ids_of;
using Ids = std::vector<std::int32_t>;

namespace {

constexpr std::int32_t kMask = 50;

// Tokens from 0 to 49; the seed is for the texts only.
TokenSource text(Index n) { return TokenSource(Rng(3).integers({n}, 0, 50).to_vector<std::int32_t>(), 50); }
LanguageModelBatches windows(Index rows = 40, Index length = 100) {
  return LanguageModelBatches(text(4000), {.batch = rows, .context = length});
}

}  // namespace

TEST_CASE("masks: other tensors of a batch are kept, and the batch gives its number of tokens") {
  struct WithLengths {
    Batch batch(std::uint64_t, std::uint64_t) const {
      Batch b{Tensor::arange(20).reshape({2, 10}), Tensor(), 0, 17};
      b["lengths"] = Tensor::from<std::int32_t>({10, 7});
      return b;
    }
  };
  const Batch b = MaskedBatches(WithLengths(), {.vocabulary = 50, .mask = kMask}).batch(1, 2);
  CHECK(ids_of(b["lengths"]) == Ids{10, 7});
  CHECK(b.tokens == 17);
  CHECK(b.counted == 4);
}

TEST_CASE(
    "masks: 15 % are chosen, and of these 80 % are hidden, 10 % random, 10 % as they were, and nothing else changes") {
  const LanguageModelBatches texts = windows();
  const MaskedBatches data(texts, {.vocabulary = 50, .mask = kMask});
  double chosen = 0, masked = 0, other = 0, same = 0;
  std::set<std::int32_t> drawn;
  std::map<Index, int> places;
  for (std::uint64_t step = 0; step < 50; ++step) {
    const Batch b = data.batch(4, step);
    const Ids x = ids_of(b.inputs), y = ids_of(b.targets), was = ids_of(texts.batch(4, step).inputs);
    Index counted = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (y[i] == kIgnoreIndex) {
        REQUIRE(x[i] == was[i]);
        continue;
      }
      REQUIRE(y[i] == was[i]);
      ++counted;
      ++places[static_cast<Index>(i) % 100];
      if (x[i] == kMask)
        ++masked;
      else if (x[i] == was[i])
        ++same;
      else
        ++other, drawn.insert(x[i]);
    }
    REQUIRE(b.counted == counted);
    REQUIRE(counted == 40 * 15);  // exactly, in every row
    chosen += static_cast<double>(counted);
  }
  // With 30000 chosen tokens, the deviation of a share of 0.1 is 0.0017. A random token is the old one in 1 of 50
  // cases.
  CHECK(std::fabs(masked / chosen - 0.8) < 0.01);
  CHECK(std::fabs(other / chosen - 0.098) < 0.007);
  CHECK(std::fabs(same / chosen - 0.102) < 0.007);
  CHECK(drawn.size() == 50);
  CHECK(*drawn.rbegin() < kMask);
  double chi = 0;  // 99 degrees of freedom: mean 99, deviation 14
  for (Index t = 0; t < 100; ++t) chi += (places[t] - 300.0) * (places[t] - 300.0) / 300.0;
  CHECK(chi < 99 + 4 * 14);
}

TEST_CASE("masks are a pure function of seed, step and row") {
  const MaskedBatches data(windows(), {.vocabulary = 50, .mask = kMask}),
      fewer(windows(3), {.vocabulary = 50, .mask = kMask});
  const Batch b = data.batch(7, 3);
  CHECK(ids_of(data.batch(7, 3).inputs) == ids_of(b.inputs));
  CHECK(ids_of(data.batch(7, 3).targets) == ids_of(b.targets));
  CHECK(ids_of(data.batch(7, 4).targets) != ids_of(b.targets));
  CHECK(ids_of(data.batch(8, 3).targets) != ids_of(b.targets));
  CHECK(ids_of(b.targets[0]) != ids_of(b.targets[1]));
  CHECK(ids_of(fewer.batch(7, 3).inputs) == ids_of(b.inputs.slice(0, 0, 3)));
  // One text at different steps has different masks.
  struct Same {
    Batch batch(std::uint64_t, std::uint64_t) const { return windows(2).batch(1, 1); }
  };
  const MaskedBatches same(Same{}, {.vocabulary = 50, .mask = kMask});
  CHECK(ids_of(same.batch(1, 1).inputs) != ids_of(same.batch(1, 2).inputs));
  CHECK(ids_of(same.batch(1, 1).inputs) != ids_of(same.batch(2, 1).inputs));
}

TEST_CASE("masks of an evaluation are constant, and count where the text counts") {
  const WholeSplit split(text(1001), {.batch = 4, .context = 50});
  const MaskOptions options{.vocabulary = 50, .mask = kMask};
  const MaskedEvaluation set(split, options, 3), again(split, options, 3), other(split, options, 4);
  REQUIRE(set.size() == 5);
  for (Index i = 0; i < 5; ++i) {
    CHECK(ids_of(set.batch(i).inputs) == ids_of(again.batch(i).inputs));
    CHECK(ids_of(set.batch(i).targets) == ids_of(again.batch(i).targets));
    CHECK(ids_of(set.batch(i).targets) != ids_of(other.batch(i).targets));
    CHECK(set.batch(i).counted == 4 * 8);  // 7.5 is rounded up
  }
  // Windows that overlap: tokens that were counted before are masked like others, but do not count.
  Ids ids;
  for (int i = 0; i < 400; ++i) ids.push_back(i % 7 == 0 ? 0 : 1 + i % 40);
  const WholeSplit overlapping(TokenSource(ids, 50), {.batch = 2, .context = 20, .separator = 0});
  const MaskedEvaluation hidden(
      overlapping, {.vocabulary = 50, .mask = kMask, .separator = 0, .share = 0.5, .masked = 1, .random = 0});
  Index uncounted = 0;
  for (Index i = 0; i < hidden.size(); ++i) {
    const Batch b = hidden.batch(i), t = overlapping.batch(i);
    const Ids x = ids_of(b.inputs), y = ids_of(b.targets), was = ids_of(t.inputs), counts = ids_of(t.targets);
    Index counted = 0;
    for (std::size_t p = 0; p < x.size(); ++p) {
      REQUIRE((x[p] == kMask || x[p] == was[p]));
      if (was[p] == 0) CHECK(x[p] == 0);  // the separator is never masked
      const bool expected = x[p] == kMask && counts[p] != kIgnoreIndex;
      REQUIRE((y[p] != kIgnoreIndex) == expected);
      counted += expected ? 1 : 0;
      uncounted += x[p] == kMask && !expected ? 1 : 0;
    }
    CHECK(b.counted == counted);
  }
  CHECK(uncounted > 10);
}

TEST_CASE("masks of an evaluation read targets by their strides, and need one target per input") {
  struct One {
    Batch one;
    Index size() const { return 1; }
    Batch batch(Index) const { return one; }
  };
  const MaskOptions options{.vocabulary = 50, .mask = kMask, .share = 0.5, .masked = 1, .random = 0};
  Ids ids = Rng(5).integers({4 * 23}, 0, 50).to_vector<std::int32_t>();
  for (std::size_t i = 0; i < ids.size(); i += 4) ids[i] = kIgnoreIndex;
  const Tensor wide = Tensor::from(ids, {4, 23}), inputs = test::random_ids({4, 20}, 50, 6);
  const Tensor strided = wide.slice(1, 1, 21);
  const Batch b = MaskedEvaluation(One{{inputs, strided, 80}}, options).batch(0),
              packed = MaskedEvaluation(One{{inputs, strided.clone(), 80}}, options).batch(0);
  CHECK(ids_of(b.inputs) == ids_of(packed.inputs));
  CHECK(ids_of(b.targets) == ids_of(packed.targets));
  CHECK(b.counted == packed.counted);
  const Ids x = ids_of(b.inputs), y = ids_of(b.targets), counts = ids_of(strided);
  for (std::size_t i = 0; i < x.size(); ++i)
    CHECK((y[i] != kIgnoreIndex) == (x[i] == kMask && counts[i] != kIgnoreIndex));
  // In texts without targets, every masked token counts.
  CHECK(MaskedEvaluation(One{{inputs, Tensor(), 80}}, options).batch(0).counted == 40);

  const auto refused = [&](const Tensor& targets) {
    return error_of([&] { MaskedEvaluation(One{{inputs, targets, 4}}, options).batch(0); });
  };
  const std::string must = " and their inputs [4, 20] int32; targets must be int32 and have the shape of the inputs";
  CHECK(refused(Tensor::zeros({4}, DType::int32)) == "masks: the targets of the texts are [4] int32" + must);
  CHECK(refused(Tensor::zeros({4, 20})) == "masks: the targets of the texts are [4, 20] float32" + must);
  CHECK(refused(wide) == "masks: the targets of the texts are [4, 23] int32" + must);
}

TEST_CASE("masks: a short window has one mask, and a window of separators has none") {
  for (const Index length : {1, 2, 3, 6, 10, 11}) {
    const MaskedBatches data(windows(8, length), {.vocabulary = 50, .mask = kMask});
    const Batch b = data.batch(1, 1);
    CHECK(b.counted == 8 * (length < 10 ? 1 : 2));
    for (Index r = 0; r < 8; ++r) {
      const Ids y = ids_of(b.targets[r]);
      CHECK(std::count(y.begin(), y.end(), kIgnoreIndex) == length - (length < 10 ? 1 : 2));
    }
  }
  const Ids zeros(20, 0);
  const LanguageModelBatches texts(TokenSource(zeros, 1), {.batch = 2, .context = 5});
  const Batch b = MaskedBatches(texts, {.vocabulary = 50, .mask = kMask, .separator = 0}).batch(1, 1);
  CHECK(b.counted == 0);
  CHECK(ids_of(b.inputs) == Ids(10, 0));
}

TEST_CASE("masks: special tokens are neither hidden nor drawn") {
  Ids text;
  for (int i = 0; i < 400; ++i) text.push_back(i % 4 < 2 ? i % 2 : 3 + i % 10);  // half of them special
  const LanguageModelBatches texts(TokenSource(text, 50), {.batch = 20, .context = 100});
  const Batch was = texts.batch(3, 0);
  const Batch b =
      MaskedBatches(texts, {.vocabulary = 50, .mask = 2, .special = 3, .share = 0.5, .masked = 0, .random = 1})
          .batch(3, 0);
  const Ids before = ids_of(was.inputs), after = ids_of(b.inputs), targets = ids_of(b.targets);
  Index counted = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] < 3) REQUIRE(targets[i] == kIgnoreIndex);
    if (targets[i] == kIgnoreIndex) {
      REQUIRE(after[i] == before[i]);
      continue;
    }
    REQUIRE(after[i] >= 3);
    ++counted;
  }
  CHECK(counted == b.counted);
  CHECK(counted == 20 * 25);  // half of the others
}

TEST_CASE("masks: invalid options are errors") {
  const auto error = [](const MaskOptions& o) { return error_of([&] { MaskedBatches(windows(), o); }); };
  CHECK(error({.vocabulary = 0}) == "masks: the vocabulary is 0; it must be 1 or more");
  for (const std::int32_t special : {-1, 5})
    CHECK(error({.vocabulary = 5, .special = special}) ==
          "masks: special is " + std::to_string(special) +
              " and the vocabulary 5; special must be 0 or more, and below the vocabulary");
  CHECK(error({.vocabulary = 5, .mask = -1}) == "masks: the mask token is -1; it must be 0 or more");
  CHECK(error({.vocabulary = 5, .share = 0}) ==
        "masks: the share of chosen positions is 0; it must be above 0 and at most 1");
  CHECK(error({.vocabulary = 5, .masked = 0.8, .random = 0.3}) ==
        "masks: masked is 0.8 and random is 0.3; both must be 0 or more, and their sum at most 1");
  CHECK(contains(error_of([] { MaskedEvaluation(EvaluationSet{}, {}); }), "the vocabulary is 0"));
  struct Flat {
    Batch batch(std::uint64_t, std::uint64_t) const { return {Tensor::zeros({3}), Tensor::zeros({3}), 3}; }
  };
  CHECK(error_of([] { MaskedBatches(Flat{}, {.vocabulary = 5}).batch(1, 1); }) ==
        "masks: the texts are [3] float32; they must be int32 [batch, positions]");
}
