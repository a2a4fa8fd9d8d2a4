// The questions of the built-in stories, for models that read one story per row: places of answers, the share of right
// answers, and batches whose answers are masked.
#pragma once
#include <heed/data/batches.hpp>
#include <heed/data/tasks.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heed::examples {

// An answer in a batch of rows: tokens [begin, end) of `row`.
struct QuestionAnswer {
  Index row = 0, begin = 0, end = 0;
  Index distance = 0;  // tokens from the start of the fact to the answer
};

// A batch of stories.
struct StoryRows {
  Tensor tokens;               // int32 [rows, T]: a line feed, the story's words, and line feeds to the end
  std::vector<Index> lengths;  // per row: tokens up to the line feed that ends the story, inclusive
  std::vector<QuestionAnswer> answers;
  double nats = 0;  // sum of -log p of the stories; in the mean over many, no model's loss is lower
};

// Reads stories as rows of tokens: words, full stops, question marks and line feeds. Spaces are left out. The words
// determine them, so the tokens of a text have the probability of the text.
class StoryReader {
 public:
  static constexpr Index kLength = 40;  // T

  StoryReader();  // collects the words from a million characters of stories
  // Stories `first`, `first` + 1, ... of a seed, one per row. Throws Error if a story is too long for a row.
  StoryRows rows(std::uint64_t seed, std::uint64_t first, Index rows) const;
  Index vocabulary() const { return static_cast<Index>(words_.size()); }
  const std::string& word(std::int32_t id) const { return words_[static_cast<std::size_t>(id)]; }
  const Stories& stories() const { return stories_; }

 private:
  std::int32_t id(std::string_view word) const;

  Stories stories_;
  std::vector<std::string> words_;  // sorted; a token is an index
};

// Cuts a text into words, marks and line feeds. The results are views of the text.
std::vector<std::string_view> words_of(std::string_view text);

// The first distance of each bin. Right answers are counted per bin.
inline constexpr Index kDistances[] = {0, 10, 13, 18, 23};
inline constexpr std::size_t kDistanceBins = std::size(kDistances);
double distance_centre(std::size_t bin);     // for pictures
std::string distance_name(std::size_t bin);  // "10-12", "23+"

// Counts right answers by their distance from the fact.
class AnswerCount {
 public:
  // Counts the answers of a batch. `predicted`, int32 [rows, T], has the most likely token at each place of
  // rows.tokens. An answer is right if all its tokens are. Throws Error for another shape or dtype.
  void add(const StoryRows& rows, const Tensor& predicted);
  double share() const;                // of right answers; NaN without answers
  std::vector<double> shares() const;  // the same per bin

 private:
  double right_[kDistanceBins] = {}, total_[kDistanceBins] = {};
};

// A batch for a language model: the target of each token is the next one, up to the end of the story.
Batch next_words(const StoryRows& rows);

// A batch with masked answers: the input tokens of answers are `mask`, and only these places have targets.
Batch masked_answers(const StoryRows& rows, std::int32_t mask);

}  // namespace heed::examples
