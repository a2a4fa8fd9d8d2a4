// Stories as rows of words, and the answers in them.
#include "examples/experiments/race_questions.hpp"

#include <algorithm>
#include <heed/core/check.hpp>
#include <numeric>
#include <set>

namespace heed::examples {

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin + 1;
    if (is_letter(text[begin]))
      while (end < text.size() && is_letter(text[end])) ++end;
    if (text[begin] != ' ') words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

StoryReader::StoryReader() {
  const std::string text = stories_.corpus(0, 1000000);
  const std::vector<std::string_view> list = words_of(text);
  const std::set<std::string_view> words(list.begin(), list.end());
  words_.assign(words.begin(), words.end());
}

std::int32_t StoryReader::id(std::string_view word) const {
  const auto place = std::lower_bound(words_.begin(), words_.end(), word);
  require(place != words_.end() && *place == word, "stories: the word '", word, "' is unknown");
  return static_cast<std::int32_t>(place - words_.begin());
}

StoryRows StoryReader::rows(std::uint64_t seed, std::uint64_t first, Index rows) const {
  const Index T = kLength;
  StoryRows out{Tensor::full({rows, T}, id("\n"), DType::int32), {}, {}};
  for (Index row = 0; row < rows; ++row) {
    const Story story = stories_.story(seed, first + static_cast<std::uint64_t>(row));
    const std::vector<std::string_view> words = words_of(story.text);
    const auto n = static_cast<Index>(words.size()) + 1;  // tokens, including the line feed before the story
    require(n <= T, "stories: story ", first + static_cast<std::uint64_t>(row), " of seed ", seed, " has ", n - 1,
            " words; a row holds ", T - 1);
    std::int32_t* tokens = out.tokens.ptr<std::int32_t>() + row * T + 1;
    for (const std::string_view word : words) *tokens++ = id(word);
    // The index of the first token that begins at or after a character.
    const auto token = [&](std::size_t character) {
      const auto before = [](std::string_view word, const char* place) { return word.data() < place; };
      return std::lower_bound(words.begin(), words.end(), story.text.data() + character, before) - words.begin() + 1;
    };
    for (const StoryQuestion& q : story.questions)
      out.answers.push_back({row, token(q.answer), token(q.answer_end), token(q.answer) - token(q.fact)});
    out.lengths.push_back(n);
    out.nats -= story.log_probability;
  }
  return out;
}

static std::size_t bin_of(Index distance) {
  return static_cast<std::size_t>(std::upper_bound(std::begin(kDistances), std::end(kDistances), distance) -
                                  std::begin(kDistances)) -
         1;
}

double distance_centre(std::size_t bin) {
  if (bin == 0) return static_cast<double>(kDistances[1]) - 2;
  const Index from = kDistances[bin], to = bin + 1 == kDistanceBins ? from + 8 : kDistances[bin + 1];
  return static_cast<double>(from + to) / 2;
}

std::string distance_name(std::size_t bin) {
  const std::string from = std::to_string(kDistances[bin]);
  return bin + 1 == kDistanceBins ? from + "+" : from + "-" + std::to_string(kDistances[bin + 1] - 1);
}

void AnswerCount::add(const StoryRows& rows, const Tensor& predicted) {
  require(predicted.shape() == rows.tokens.shape() && predicted.dtype() == DType::int32,
          "answers: the predictions are ", predicted, " and the tokens ", rows.tokens,
          "; both must be int32 of the same shape");
  const Tensor dense = predicted.contiguous();
  const Index T = rows.tokens.dim(1);
  const std::int32_t *predictions = dense.ptr<std::int32_t>(), *right = rows.tokens.ptr<std::int32_t>();
  for (const QuestionAnswer& a : rows.answers) {
    const std::size_t bin = bin_of(a.distance);
    total_[bin] += 1;
    right_[bin] +=
        std::equal(predictions + a.row * T + a.begin, predictions + a.row * T + a.end, right + a.row * T + a.begin) ? 1
                                                                                                                    : 0;
  }
}

double AnswerCount::share() const {
  double right = 0, total = 0;
  for (std::size_t i = 0; i < kDistanceBins; ++i) {
    right += right_[i];
    total += total_[i];
  }
  return right / total;
}

std::vector<double> AnswerCount::shares() const {
  std::vector<double> shares;
  for (std::size_t i = 0; i < kDistanceBins; ++i) shares.push_back(right_[i] / total_[i]);
  return shares;
}

Batch next_words(const StoryRows& rows) {
  Batch b{rows.tokens, Tensor::full(rows.tokens.shape(), kIgnoreIndex, DType::int32), 0};
  const Index T = rows.tokens.dim(1);
  for (std::size_t row = 0; row < rows.lengths.size(); ++row) {
    const std::int32_t* x = rows.tokens.ptr<std::int32_t>() + static_cast<Index>(row) * T;
    std::copy(x + 1, x + rows.lengths[row], b.targets.ptr<std::int32_t>() + static_cast<Index>(row) * T);
    b.counted += rows.lengths[row] - 1;
  }
  b.tokens = b.counted;  // the last token of a row is not an input
  return b;
}

Batch masked_answers(const StoryRows& rows, std::int32_t mask) {
  Batch b{rows.tokens.clone(), Tensor::full(rows.tokens.shape(), kIgnoreIndex, DType::int32), 0};
  const Index T = rows.tokens.dim(1);
  for (const QuestionAnswer& a : rows.answers) {
    for (Index i = a.row * T + a.begin; i < a.row * T + a.end; ++i) {
      b.targets.ptr<std::int32_t>()[i] = b.inputs.ptr<std::int32_t>()[i];
      b.inputs.ptr<std::int32_t>()[i] = mask;
    }
    b.counted += a.end - a.begin;
  }
  b.tokens = std::accumulate(rows.lengths.begin(), rows.lengths.end(), Index{0});
  return b;
}

}  // namespace heed::examples
