// The questions of the built-in stories, for models that read a story a row: where its answers stand, how many of them
// a model gives, and stories whose answers are masked.
#pragma once
#include <heed/data/batches.hpp>
#include <heed/data/tasks.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heed::examples {

// An answer in a batch of rows: tokens [begin, end) of `row`.
struct AskedAnswer {
  Index row = 0, begin = 0, end = 0;
  Index distance = 0;  // tokens from the fact that tells it to the answer
};

struct StoryRows {
  Tensor tokens;               // int32 [rows, T]: a line feed, the story's words, and line feeds to the end
  std::vector<Index> lengths;  // of each row: tokens to the line feed that ends the story, which counts
  std::vector<AskedAnswer> answers;
  double nats = 0;  // -log p of all stories: no model's loss over their tokens is less, in the mean over many
};

// Stories as rows of tokens: words, full stops, question marks and line feeds. Spaces are left out: they follow from
// the words, so that tokens have the probability of their text.
class StoryReader {
 public:
  static constexpr Index kLength = 40;  // T

  StoryReader();
  // Stories `first`, `first` + 1, ... of a seed.
  StoryRows rows(std::uint64_t seed, std::uint64_t first, Index rows) const;
  Index vocabulary() const { return static_cast<Index>(words_.size()); }
  const std::string& word(std::int32_t id) const { return words_[static_cast<std::size_t>(id)]; }
  const Stories& stories() const { return stories_; }

 private:
  std::int32_t id(std::string_view word) const;

  Stories stories_;
  std::vector<std::string> words_;  // in order; a token is a place among them
};

// The words, marks and line feeds of a text, as parts of it.
std::vector<std::string_view> words_of(std::string_view text);

// How many answers are right, by their distance: from 0, from kDistances[1], and so on.
inline constexpr Index kDistances[] = {0, 10, 13, 18, 23};
inline constexpr std::size_t kDistanceBins = std::size(kDistances);
double distance_centre(std::size_t bin);     // for pictures
std::string distance_name(std::size_t bin);  // "10-12", "23+"

class AnswerCount {
 public:
  // predicted, int32 [rows, T]: the likeliest token at each place of rows.tokens, given what the model sees. An answer
  // is right where all its tokens are.
  void add(const StoryRows& rows, const Tensor& predicted);
  double share() const;                // of all that are right; NaN where none was asked
  std::vector<double> shares() const;  // by distance

 private:
  double right_[kDistanceBins] = {}, asked_[kDistanceBins] = {};
};

// What a language model reads: the next token of each is its target, to the end of each story.
Batch next_words(const StoryRows& rows);

// Rows whose answers are masked: their tokens are `mask` in the inputs, and the only targets that count.
Batch masked_answers(const StoryRows& rows, std::int32_t mask);

}  // namespace heed::examples
