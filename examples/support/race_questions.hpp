// The questions of the built-in stories, for models that read a story a row: where its answers stand, how many of them
// a model gives, and stories whose answers are masked.
#pragma once
#include <heed/data/batches.hpp>
#include <heed/data/stories.hpp>
#include <heed/data/tokenizer.hpp>
#include <string>
#include <vector>

namespace heed::examples {

// An answer in a batch of rows: tokens [begin, end) of `row`.
struct AskedAnswer {
  Index row = 0, begin = 0, end = 0;
  Index distance = 0;  // characters from the fact that tells it to the answer
};

struct StoryRows {
  Tensor tokens;  // int32 [rows, kLongestStory]: a line feed, the story, and line feeds to the end
  std::vector<AskedAnswer> answers;
};

// Stories `first`, `first` + 1, ... of a seed. The tokenizer must make one token of each character.
StoryRows story_rows(const Stories& stories, const Tokenizer& tokenizer, std::uint64_t seed, std::uint64_t first,
                     Index rows);

// How many answers are right, by their distance: from 0, from kDistances[1], and so on.
inline constexpr Index kDistances[] = {0, 30, 40, 55, 70};
inline constexpr std::size_t kDistanceBins = std::size(kDistances);
double distance_centre(std::size_t bin);     // for pictures
std::string distance_name(std::size_t bin);  // "30-39", "70+"

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

// Rows whose answers are masked: their tokens are `mask` in the inputs, and the only targets that count.
Batch masked_answers(const StoryRows& rows, std::int32_t mask);

}  // namespace heed::examples
