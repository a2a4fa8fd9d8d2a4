#include <doctest/doctest.h>
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/data/story_floor.hpp>
#include <numeric>

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

}  // namespace

TEST_CASE("the floor is the mean -log p of the tokens that are counted") {
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

TEST_CASE("the floor of the first batches is that of the tokens that they count") {
  const Stories stories;
  const std::string text = stories.corpus(5, 20000);
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

TEST_CASE("a floor in pieces of words counts the same text") {
  const Stories stories;
  const std::string text = stories.corpus(5, 60000);
  const Tokenizer t = SentencePieceTokenizer::train_on_text(text, {.vocabulary = 500});
  const WholeSplit split = split_of(text, t, 64);
  const StoryFloor floor = story_floor(stories, split, t);
  const auto counted = static_cast<double>(split.counted_end() - 1);
  const double whole = -*stories.log_probability(text.substr(1));
  CHECK(floor.loss * counted == doctest::Approx(whole).epsilon(0.01));  // but for the rest at the end
  CHECK(floor.loss * counted < whole * (1 + 1e-12));
}

TEST_CASE("the standard error tells how far floors of other held-out stories lie") {
  const Stories stories;
  const std::string many = stories.text(1, 2000000);
  const double mean = -*stories.log_probability(many) / static_cast<double>(many.size());
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
