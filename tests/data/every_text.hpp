// All texts of a grammar, the probability of a text of stories, and words that give stories a small grammar.
#pragma once
#include <functional>
#include <heed/data/tasks.hpp>
#include <optional>
#include <utility>

namespace heed::test {

// Follows a path of choices, then takes the first option at each further choice.
class Explorer : public Chooser {
 public:
  explicit Explorer(std::vector<std::pair<std::size_t, std::size_t>>& path) : path_(path) {}
  std::string text;

 private:
  std::size_t pick(std::span<const Option> options, double) override {
    if (depth_ == path_.size()) path_.emplace_back(next_possible(options, 0), 0);
    auto& [taken, next] = path_[depth_++];
    next = next_possible(options, taken + 1);
    if (next == options.size()) next = 0;  // 0: no option is left
    text += options[taken].text;
    return taken;
  }
  static std::size_t next_possible(std::span<const Option> options, std::size_t i) {
    while (i < options.size() && options[i].weight <= 0) ++i;
    return i;
  }

  std::vector<std::pair<std::size_t, std::size_t>>& path_;  // (taken, next possible option)
  std::size_t depth_ = 0;
};

// Calls visit(text, log p) for every text of `grammar`, in the order of the choices. There must be finitely many texts.
inline void enumerate(const std::function<void(Chooser&)>& grammar,
                      const std::function<void(const std::string&, double)>& visit) {
  std::vector<std::pair<std::size_t, std::size_t>> path;
  do {
    Explorer explorer(path);
    grammar(explorer);
    visit(explorer.text, explorer.log_probability());
    while (!path.empty() && path.back().second == 0) path.pop_back();
    if (!path.empty()) path.back().first = path.back().second;
  } while (!path.empty());
}

// log p of a text of whole stories, in an endless sequence of stories; nullopt if the grammar cannot produce the text.
inline std::optional<double> log_probability(const Stories& stories, std::string_view text) {
  double sum = 0;
  try {
    while (!text.empty()) {
      Reader reader(text);
      stories.generate(reader);
      sum += reader.log_probability();
      text.remove_prefix(reader.position());
    }
  } catch (Reader::Stuck) {
    return std::nullopt;
  } catch (Reader::CutShort) {
    return std::nullopt;
  }
  return sum;
}

// One or two words of each kind: a few thousand stories.
inline StoryWords few_words() {
  return {.girls = {"Mia"},
          .boys = {"Tom"},
          .things = {"key", "kite"},
          .colours = {"red"},
          .prepositions = {"in"},
          .spots = {"box", "boat"},
          .lands = {"lake"},
          .asides = {"It rained."}};
}

}  // namespace heed::test
