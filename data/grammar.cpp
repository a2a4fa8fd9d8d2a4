// Grammars: sampling texts, and reading a given text.
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/data/tasks.hpp>

namespace heed {

std::size_t Chooser::choose(std::span<const Option> options) {
  double total = 0;
  for (const Option& o : options) total += o.weight;
  require(total > 0, "grammar: a choice of ", options.size(), " options has total weight ", total,
          "; it must be positive");
  const std::size_t taken = pick(options, total);
  const std::string_view text = options[taken].text;
  require(!text.empty(), "grammar: an option is empty; each must add a character");
  for (std::size_t i = 0; i < options.size(); ++i)
    require(i == taken || options[i].weight == 0 ||
                !(options[i].text.starts_with(text) || text.starts_with(options[i].text)),
            "grammar: the options \"", text, "\" and \"", options[i].text,
            "\" begin alike; no option may be a prefix of another");
  position_ += text.size();
  log_probability_ += std::log(options[taken].weight / total);
  return taken;
}

void Chooser::append(std::string_view text) {
  const Option only{text, 1};
  choose({&only, 1});
}

std::size_t Sampler::pick(std::span<const Option> options, double total) {
  double left = options.size() == 1 ? 0 : rng_.uniform() * total;
  std::size_t taken = 0;
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (options[i].weight <= 0) continue;
    taken = i;  // the last option is taken if rounding leaves a remainder
    if (left < options[i].weight) break;
    left -= options[i].weight;
  }
  text_ += options[taken].text;
  return taken;
}

std::size_t Reader::pick(std::span<const Option> options, double total) {
  const std::string_view rest = text_.substr(position());
  std::vector<std::size_t> alike;  // options that agree with the text so far
  for (std::size_t i = 0; i < options.size(); ++i)
    if (options[i].weight > 0) alike.push_back(i);
  double before = total;
  for (std::size_t n = 0; n < rest.size(); ++n) {
    double after = 0;
    std::erase_if(alike, [&](std::size_t i) { return n >= options[i].text.size() || options[i].text[n] != rest[n]; });
    for (std::size_t i : alike) after += options[i].weight;
    if (alike.empty()) throw Stuck{};
    if (nats_) nats_->push_back(std::log(before / after));
    before = after;
    for (std::size_t i : alike)
      if (options[i].text.size() == n + 1) return i;
  }
  throw CutShort{};
}

}  // namespace heed
