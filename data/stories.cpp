// The built-in stories: generating texts, and computing their probabilities and questions.
#include <heed/core/check.hpp>
#include <heed/data/tasks.hpp>

namespace heed {

Stories::Stories(StoryWords words, StoryOptions options) : words_(std::move(words)), options_(options) {
  const auto& w = words_;
  require(options_.max_events > 0, "stories: the number of events is ", options_.max_events, "; it must be 1 or more");
  for (const auto* list : {&w.girls, &w.boys, &w.colours, &w.prepositions, &w.lands, &w.asides})
    require(!list->empty(), "stories: a list of words is empty; each must have one or more");
  require(w.spots.size() > 1, "stories: there is ", w.spots.size(),
          " spot; things move, so there must be 2 or more spots in the words");
  require(w.things.size() >= static_cast<std::size_t>(options_.max_events), "stories: ", w.things.size(),
          " things in the words are too few for ", options_.max_events, " events");
}

Story Stories::story(std::uint64_t seed, std::uint64_t index) const {
  Sampler sampler(seed, index);
  Story story;
  generate(sampler, &story.questions);
  story.text = sampler.text();
  story.log_probability = sampler.log_probability();
  return story;
}

std::string Stories::text(std::uint64_t seed, std::size_t characters, std::uint64_t first) const {
  std::string all;
  for (std::uint64_t i = first;; ++i) {
    const std::string next = story(seed, i).text;
    if (all.size() + next.size() > characters) return all;
    all += next;
  }
}

std::optional<std::vector<double>> Stories::nats(std::string_view text) const {
  std::vector<double> nats;
  nats.reserve(text.size());
  try {
    while (!text.empty()) {
      Reader reader(text, &nats);
      generate(reader);
      text.remove_prefix(reader.position());
    }
  } catch (Reader::Stuck) {
    return std::nullopt;
  } catch (Reader::CutShort) {
  }
  return nats;
}

std::vector<StoryQuestion> Stories::questions(std::string_view text) const {
  std::vector<StoryQuestion> all;
  std::size_t begin = 0;
  try {
    while (begin < text.size()) {
      Reader reader(text.substr(begin));
      std::vector<StoryQuestion> questions;
      generate(reader, &questions);
      for (const StoryQuestion& q : questions)
        all.push_back({q.question + begin, q.answer + begin, q.answer_end + begin, q.fact + begin});
      begin += reader.position();
    }
  } catch (Reader::Stuck) {
    fail("stories: the text does not follow this grammar (story at offset ", begin, ")");
  } catch (Reader::CutShort) {
    fail("stories: the story at offset ", begin, " is cut short");
  }
  return all;
}

}  // namespace heed
