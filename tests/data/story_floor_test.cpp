// The floor of the loss on stories: its value, its standard error, and predictors that cannot beat it.
#include <cmath>
#include <doctest/doctest.h>
#include <functional>
#include <heed/core/check.hpp>
#include <heed/data/tasks.hpp>
#include <map>
#include <numeric>

#include "tests/data/every_text.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

WholeSplit split_of(const std::string& text, const Tokenizer& t, Index context = kLongestStory) {
  return WholeSplit(TokenSource(t.encode(text), t.vocabulary_size()),
                    {.context = context, .separator = t.encode("\n")[0]});
}

// Held-out stories, their floor, and -log p of each of their tokens.
struct HeldOut {
  std::string text;  // of the counted tokens
  StoryFloor floor;
  std::vector<double> nats;

  HeldOut(std::uint64_t seed, std::size_t characters) {
    const std::string corpus = Stories().corpus(seed, characters);
    const WholeSplit split = split_of(corpus, ByteTokenizer());
    text = corpus.substr(1, static_cast<std::size_t>(split.counted_end() - 1));
    floor = story_floor(Stories(), split, ByteTokenizer());
    nats = *Stories().nats(text);
  }
  double bound() const { return floor.loss - 3 * floor.standard_error; }
};

double mean(const std::vector<double>& v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
}

// The loss of a mixture of the grammar's probabilities p and another predictor's q: (1 - share) p + share q.
double mixed(const std::vector<double>& nats, double share, const std::function<double(std::size_t)>& q) {
  std::vector<double> all;
  for (std::size_t i = 0; i < nats.size(); ++i)
    all.push_back(-std::log((1 - share) * std::exp(-nats[i]) + share * q(i)));
  return mean(all);
}

// A predictor that knows the grammar but misjudges the weight of each option by a factor of up to exp(error).
class ChooserWithError : public Chooser {
 public:
  ChooserWithError(std::string_view text, double error, std::uint64_t seed, std::vector<double>* nats)
      : reader_(text, nats), error_(error), seed_(seed) {}

 private:
  std::size_t pick(std::span<const Option> options, double) override {
    std::vector<Option> judged(options.begin(), options.end());
    for (std::size_t i = 0; i < judged.size(); ++i)
      judged[i].weight *= std::exp(error_ * (2 * Rng(seed_, position() * 100 + i).uniform() - 1));
    return reader_.choose(judged);
  }

  Reader reader_;
  double error_;
  std::uint64_t seed_;
};

double misjudged(std::string_view text, double error, std::uint64_t seed) {
  std::vector<double> nats;
  try {
    while (!text.empty()) {
      ChooserWithError chooser(text, error, seed, &nats);
      Stories().generate(chooser);
      text.remove_prefix(chooser.position());
    }
  } catch (Reader::CutShort) {
  }
  return mean(nats);
}

// The frequency of each next character after the same `order` characters in a training text.
class NGrams {
 public:
  NGrams(const std::string& text, std::size_t order) : order_(order) {
    for (std::size_t i = order; i < text.size(); ++i) {
      const std::string before = text.substr(i - order, order);
      ++counts_[before + text[i]], ++counts_[before];
    }
  }
  double operator()(const std::string& text, std::size_t i) const {
    if (i < order_) return 1.0 / kCharacters;
    const std::string before = text.substr(i - order_, order_);
    return (count(before + text[i]) + kUnseen / kCharacters) / (count(before) + kUnseen);
  }

 private:
  static constexpr double kCharacters = 64, kUnseen = 0.1;  // more characters than stories use
  double count(const std::string& s) const {
    const auto found = counts_.find(s);
    return found == counts_.end() ? 0 : found->second;
  }
  std::size_t order_;
  std::map<std::string, double> counts_;
};

}  // namespace

TEST_CASE("the floor is the mean -log p of the counted tokens") {
  const Stories stories;
  const std::string text = stories.corpus(5, 30000);
  CHECK(text[0] == '\n');
  const Tokenizer t = CharTokenizer(text);
  const WholeSplit split = split_of(text, t);
  const std::vector<double> nats = *stories.nats(text.substr(1));
  const Index n = split.counted_end() - 1;
  const double expected = std::accumulate(nats.begin(), nats.begin() + n, 0.0) / static_cast<double>(n);
  CHECK(story_floor(stories, split, t).loss == doctest::Approx(expected).scale(0).epsilon(1e-12));
  CHECK(story_floor(stories, split_of(text, ByteTokenizer()), ByteTokenizer()).loss ==
        doctest::Approx(expected).scale(0).epsilon(1e-12));
}

TEST_CASE("the floor of the first batches is that of their counted tokens") {
  const Stories stories;
  const std::string text = stories.corpus(5, test::thinned(20000, 4000));
  const Tokenizer t = CharTokenizer(text);
  const WholeSplit split(TokenSource(t.encode(text), t.vocabulary_size()),
                         {.batch = 3, .context = 50, .separator = t.encode("\n")[0]});
  const std::vector<double> nats = *stories.nats(text.substr(1));
  Index counted = 0;
  for (Index i = 0; i < split.size(); ++i) {
    counted += split.batch(i).counted;
    const double expected = std::accumulate(nats.begin(), nats.begin() + counted, 0.0) / static_cast<double>(counted);
    CHECK(story_floor(stories, split, t, i + 1).loss == doctest::Approx(expected).scale(0).epsilon(1e-12));
  }
}

TEST_CASE("the last part of a corpus, cut at a line feed, has a floor") {
  const Stories stories;
  const std::string text = stories.corpus(5, 30000);
  const Tokenizer t = CharTokenizer(text);
  const std::int32_t line_feed = t.encode("\n")[0];
  const auto [train, val] = TokenSource(t.encode(text), t.vocabulary_size()).split(0.3, line_feed);
  CHECK(val[0] == line_feed);
  const WholeSplit split(val, {.context = kLongestStory, .separator = line_feed});
  CHECK(story_floor(stories, split, t).loss > 0.15);
  const WholeSplit middle(val.part(30, val.size()), {.context = 64});
  CHECK(contains(error_of([&] { story_floor(stories, middle, t); }), "not a corpus of these stories"));
}

TEST_CASE("a floor with subword tokens counts the same text") {
  const Stories stories;
  const std::string text = stories.corpus(5, 60000);
  const Tokenizer t = SentencePieceTokenizer::train_on_text(text, {.vocabulary = 500});
  const WholeSplit split = split_of(text, t, 64);
  const StoryFloor floor = story_floor(stories, split, t);
  const auto counted = static_cast<double>(split.counted_end() - 1);
  const double whole = -*test::log_probability(stories, text.substr(1));
  CHECK(floor.loss * counted == doctest::Approx(whole).epsilon(0.01));  // except for the rest at the end
  CHECK(floor.loss * counted < whole * (1 + 1e-12));
}

RELEASE_TEST_CASE("the standard error predicts the spread of floors of other held-out stories") {
  const Stories stories;
  const std::string many = stories.text(1, 2000000);
  const double mean = -*test::log_probability(stories, many) / static_cast<double>(many.size());
  double squares = 0;
  const int n = 100;
  for (int i = 0; i < n; ++i) {
    const std::string text = stories.corpus(100 + static_cast<std::uint64_t>(i), 10000);
    const StoryFloor floor = story_floor(stories, split_of(text, ByteTokenizer()), ByteTokenizer());
    squares += std::pow((floor.loss - mean) / floor.standard_error, 2) / n;
  }
  CHECK(squares > 0.6);
  CHECK(squares < 1.5);
}

TEST_CASE("the grammar, evaluated as models are, has exactly the floor as its loss") {
  const Stories stories;
  const Tokenizer t = ByteTokenizer();
  const WholeSplit split = split_of(stories.corpus(7, 20000), t);
  double sum = 0;
  Index counted = 0;
  for (Index b = 0; b < split.size(); ++b) {
    const Batch batch = split.batch(b);
    const Index length = batch.inputs.dim(1);
    for (Index r = 0; r < batch.inputs.dim(0); ++r) {
      std::vector<std::int32_t> row = test::ids_of(batch.inputs.slice(0, r, r + 1));
      const std::vector<std::int32_t> targets = test::ids_of(batch.targets.slice(0, r, r + 1));
      row.push_back(targets.back());
      const std::vector<double> nats = *stories.nats(t.decode(row).substr(1));  // given the visible part of the row
      for (Index i = 0; i < length; ++i)
        if (targets[static_cast<std::size_t>(i)] != kIgnoreIndex) sum += nats[static_cast<std::size_t>(i)], ++counted;
    }
  }
  CHECK(counted == split.counted_end() - split.counted_begin());
  CHECK(sum / static_cast<double>(counted) ==
        doctest::Approx(story_floor(stories, split, t).loss).scale(0).epsilon(1e-12));
}

RELEASE_TEST_CASE("no legitimate loss is below the floor by more than 3 standard errors") {
  int below = 0, sets = 0;
  for (std::uint64_t seed = 20; seed < 30; ++seed) {
    const HeldOut held_out(seed, 10000);
    CHECK(mean(held_out.nats) == doctest::Approx(held_out.floor.loss).scale(0).epsilon(1e-12));
    for (const double error : {0.002, 0.02, 0.2, 2.0}) {
      const double loss = misjudged(held_out.text, error, seed);
      CAPTURE(error);
      CHECK(loss != held_out.floor.loss);
      CHECK(loss >= held_out.bound());
      // By Markov's inequality, the probability that a legitimate predictor gains 20 nats in total is below exp(-20).
      CHECK((held_out.floor.loss - loss) * static_cast<double>(held_out.nats.size()) < 20);
      below += loss < held_out.floor.loss ? 1 : 0, ++sets;
    }
  }
  CHECK(below > 0);  // some sets are below by chance
  CHECK(below < sets / 2);
}

RELEASE_TEST_CASE("n-grams, and mixtures of them with the grammar, do not beat the floor") {
  const HeldOut held_out(9, 50000);
  const std::string train = Stories().text(8, 200000);
  double last = 10;
  for (const std::size_t order : {1, 3, 6}) {
    const NGrams grams(train, order);
    const auto q = [&](std::size_t i) { return grams(held_out.text, i); };
    for (const double share : {0.001, 0.1}) CHECK(mixed(held_out.nats, share, q) >= held_out.bound());
    const double alone = mixed(held_out.nats, 1, q);
    CHECK(alone > held_out.floor.loss);
    CHECK(alone < last);  // longer n-grams are better
    last = alone;
  }
  CHECK(last < 3 * held_out.floor.loss);
}

RELEASE_TEST_CASE("a predictor that sees a little of its target is below the floor by more than 3 standard errors") {
  const HeldOut held_out(9, 50000);
  for (const double share : {0.02, 0.2, 0.9})
    CHECK(mixed(held_out.nats, share, [](std::size_t) { return 1; }) < held_out.bound());
  // An n-gram model that was trained on the test text.
  const NGrams grams(held_out.text, 30);
  CHECK(mixed(held_out.nats, 0.5, [&](std::size_t i) { return grams(held_out.text, i); }) < held_out.bound());
}
