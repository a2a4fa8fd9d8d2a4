#include "examples/support/race_questions.hpp"

#include <algorithm>
#include <heed/core/check.hpp>

namespace heed::examples {

StoryRows story_rows(const Stories& stories, const Tokenizer& tokenizer, std::uint64_t seed, std::uint64_t first,
                     Index rows) {
  const Index T = kLongestStory;
  const std::int32_t line_feed = tokenizer.encode("\n").front();
  StoryRows out{Tensor::full({rows, T}, line_feed, DType::int32), {}};
  for (Index row = 0; row < rows; ++row) {
    const Story story = stories.story(seed, first + static_cast<std::uint64_t>(row));
    const std::string text = "\n" + story.text.substr(0, story.text.size() - 1);
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    require(ids.size() == text.size() && static_cast<Index>(ids.size()) <= T, "stories: the tokenizer makes ",
            ids.size(), " tokens of ", text.size(), " characters; it must be char or byte, and a row holds ", T);
    std::copy(ids.begin(), ids.end(), out.tokens.ptr<std::int32_t>() + row * T);
    for (const StoryQuestion& q : story.questions)
      out.answers.push_back({row, static_cast<Index>(q.answer) + 1, static_cast<Index>(q.answer_end) + 1,
                             static_cast<Index>(q.distance())});
  }
  return out;
}

static std::size_t bin_of(Index distance) {
  return static_cast<std::size_t>(std::upper_bound(std::begin(kDistances), std::end(kDistances), distance) -
                                  std::begin(kDistances)) -
         1;
}

double distance_centre(std::size_t bin) {
  if (bin == 0) return static_cast<double>(kDistances[1]) - 5;  // few are shorter than 20
  const Index from = kDistances[bin], to = bin + 1 == kDistanceBins ? from + 20 : kDistances[bin + 1];
  return static_cast<double>(from + to) / 2;
}

std::string distance_name(std::size_t bin) {
  const std::string from = std::to_string(kDistances[bin]);
  return bin + 1 == kDistanceBins ? from + "+" : from + "-" + std::to_string(kDistances[bin + 1] - 1);
}

void AnswerCount::add(const StoryRows& rows, const Tensor& predicted) {
  require(predicted.shape() == rows.tokens.shape() && predicted.dtype() == DType::int32,
          "answers: the predictions are ", predicted, " and the tokens ", rows.tokens, "; they must be alike");
  const Tensor dense = predicted.contiguous();
  const Index T = rows.tokens.dim(1);
  const std::int32_t *said = dense.ptr<std::int32_t>(), *right = rows.tokens.ptr<std::int32_t>();
  for (const AskedAnswer& a : rows.answers) {
    const std::size_t bin = bin_of(a.distance);
    asked_[bin] += 1;
    right_[bin] +=
        std::equal(said + a.row * T + a.begin, said + a.row * T + a.end, right + a.row * T + a.begin) ? 1 : 0;
  }
}

double AnswerCount::share() const {
  double right = 0, asked = 0;
  for (std::size_t i = 0; i < kDistanceBins; ++i) {
    right += right_[i];
    asked += asked_[i];
  }
  return right / asked;
}

std::vector<double> AnswerCount::shares() const {
  std::vector<double> shares;
  for (std::size_t i = 0; i < kDistanceBins; ++i) shares.push_back(right_[i] / asked_[i]);
  return shares;
}

Batch masked_answers(const StoryRows& rows, std::int32_t mask) {
  Batch b{rows.tokens.clone(), Tensor::full(rows.tokens.shape(), kIgnoreIndex, DType::int32), 0};
  const Index T = rows.tokens.dim(1);
  for (const AskedAnswer& a : rows.answers) {
    for (Index i = a.row * T + a.begin; i < a.row * T + a.end; ++i) {
      b.targets.ptr<std::int32_t>()[i] = b.inputs.ptr<std::int32_t>()[i];
      b.inputs.ptr<std::int32_t>()[i] = mask;
    }
    b.counted += a.end - a.begin;
  }
  return b;
}

}  // namespace heed::examples
