// Pairs of texts from files, and as tokens.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/data/detail/content_hash.hpp>
#include <heed/data/samples.hpp>
#include <heed/data/text.hpp>

namespace heed {

std::vector<TextPair> read_text_pairs(const std::filesystem::path& source, const std::filesystem::path& target) {
  const std::string source_text = read_text(source), target_text = read_text(target);
  const auto sources = split_lines(source_text), targets = split_lines(target_text);
  const bool more = sources.size() > targets.size();
  const std::size_t both = std::min(sources.size(), targets.size());
  require(sources.size() == targets.size(), "text pairs: line ", both + 1, " of ", (more ? source : target).string(),
          " has no partner, as ", (more ? target : source).string(), " has ", both,
          " lines; the files must have the same number");
  std::vector<TextPair> pairs;
  for (std::size_t i = 0; i < both; ++i) pairs.push_back({std::string(sources[i]), std::string(targets[i])});
  return pairs;
}

std::vector<TextPair> read_text_pairs(const std::filesystem::path& tab_separated) {
  std::vector<TextPair> pairs;
  const std::string text = read_text(tab_separated);
  for (const std::string_view line : split_lines(text)) {
    const std::size_t tab = line.find('\t');
    require(tab != line.npos && line.find('\t', tab + 1) == line.npos, "text pairs: ", tab_separated.string(),
            ", line ", pairs.size() + 1, " has ", std::count(line.begin(), line.end(), '\t'),
            " tabs; it must have one, between source and target");
    pairs.push_back({std::string(line.substr(0, tab)), std::string(line.substr(tab + 1))});
  }
  return pairs;
}

TextMarks text_marks(const Tokenizer& tokenizer) {
  const auto begin = tokenizer.special("<s>"), end = tokenizer.special("</s>");
  if (begin && end) return {*begin, *end, tokenizer.vocabulary_size()};
  const auto behind = static_cast<std::int32_t>(tokenizer.vocabulary_size());
  return {behind, behind + 1, behind + 2};
}

TextPairs::TextPairs(const std::vector<TextPair>& pairs, const Tokenizer& source, const Tokenizer& target,
                     const TextPairOptions& options)
    : source_(text_marks(source)), target_(text_marks(target)) {
  require(options.longest >= 0, "text pairs: longest is ", options.longest, "; it must be 0 (any) or more");
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    Tokens from = source.encode(pairs[i].source), to = target.encode(pairs[i].target);
    const bool empty_source = from.empty();
    if (options.source_end) from.push_back(source_.end);
    to.insert(to.begin(), begin());
    to.push_back(end());
    const auto sources = static_cast<Index>(from.size()), targets = static_cast<Index>(to.size()) - 1;
    const bool empty = empty_source || targets == 1;
    const bool longer = options.longest > 0 && std::max(sources, targets) > options.longest;
    require(options.skip || !(empty || longer), "text pairs: pair ", i + 1, " has ", sources, " tokens of source and ",
            targets - 1, " of target; there must be one or more",
            longer ? ", and with one more of target at most " + std::to_string(options.longest) : "",
            "; or skip such pairs");
    if (empty || longer) {
      ++skipped_;
      continue;
    }
    sources_.push_back(std::move(from));
    targets_.push_back(std::move(to));
  }
  require(size() > 0, "text pairs: of ", pairs.size(), " pairs ", skipped_, " were skipped; one or more must be left");
}

Sample TextPairs::sample(Index i) const {
  require(i >= 0 && i < size(), "text pairs: sample ", i, " was asked for; there are ", size());
  const Tensor target = Tensor::from(targets_[static_cast<std::size_t>(i)]);
  return {{"source", Tensor::from(sources_[static_cast<std::size_t>(i)])},
          {"inputs", target.slice(0, 0, -1)},
          {"targets", target.slice(0, 1, target.numel())}};
}

std::string TextPairs::fingerprint() const {
  detail::ContentHash hash;
  for (const std::vector<Tokens>* side : {&sources_, &targets_})
    for (const Tokens& text : *side) {
      const std::uint64_t size = text.size();
      hash.add(&size, sizeof size);
      hash.add(text.data(), text.size() * sizeof text[0]);
    }
  return std::to_string(size()) + " pairs with the hash " + hash.hex();
}

PaddingByName TextPairs::padding() {
  return {{"source", {.lengths = true}}, {"inputs", {}}, {"targets", {.value = kIgnoreIndex}}};
}

}  // namespace heed
