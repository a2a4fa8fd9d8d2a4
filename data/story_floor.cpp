// The minimal loss on the built-in stories.
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/data/tasks.hpp>

namespace heed {

StoryFloor story_floor(const Stories& stories, const WholeSplit& split, const Tokenizer& tokenizer, Index batches) {
  const Index tokens = split.counted_end(batches) - split.counted_begin();
  Tokens ids(static_cast<std::size_t>(tokens));
  split.tokens().read(split.counted_begin(), ids);
  const std::string text = tokenizer.decode(ids);
  const auto nats = stories.nats(text);
  require(nats.has_value(), "story_floor: the text is not a corpus of these stories that begins with a line feed");

  // The loss is a ratio of sums over stories. Its error is that of story - loss * length (Cochran 1977, section 2.11).
  std::vector<std::pair<double, double>> per_story(1);  // (nats, characters)
  double sum = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    per_story.back().first += (*nats)[i];
    per_story.back().second += 1;
    sum += (*nats)[i];
    if (text[i] == '\n' && i + 1 < text.size()) per_story.emplace_back();
  }
  const auto characters = static_cast<double>(text.size()), n = static_cast<double>(per_story.size());
  double squares = 0;
  for (const auto& [story, length] : per_story) squares += std::pow(story - sum / characters * length, 2);
  const double tokens_per_character = static_cast<double>(tokens) / characters;
  return {sum / static_cast<double>(tokens),
          std::sqrt(squares * n / std::max(n - 1, 1.0)) / characters / tokens_per_character};
}

}  // namespace heed
