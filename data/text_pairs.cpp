// Pairs of texts: reading them from files and encoding them as tokens.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/data/detail/content_hash.hpp>
#include <heed/data/detail/text_reader.hpp>
#include <heed/data/samples.hpp>

namespace heed {

namespace {

// Adds a pair if both sides are UTF-8. Counts any other pair as skipped: read_rows() returns invalid bytes only if rows
// with them are to be left out.
void add_pair(std::vector<TextPair>& pairs, std::string_view source, std::string_view target, std::size_t line,
              const std::string& files, const ReadTextOptions& o) {
  if (!find_invalid_utf8(source) && !find_invalid_utf8(target))
    pairs.push_back({std::string(source), std::string(target), static_cast<Index>(line)});
  else if (o.report != nullptr)
    o.report->count(o.report->skipped, "line " + std::to_string(line) + " of " + files);
}

}  // namespace

std::vector<TextPair> read_text_pairs(const std::filesystem::path& source, const std::filesystem::path& target,
                                      const ReadTextOptions& o) {
  const std::string source_text = detail::read_rows(source, o), target_text = detail::read_rows(target, o);
  const auto sources = split_lines(source_text), targets = split_lines(target_text);
  const bool more = sources.size() > targets.size();
  const std::size_t both = std::min(sources.size(), targets.size());
  require(sources.size() == targets.size(), "text pairs: line ", both + 1, " of ", shown_file(more ? source : target),
          " has no counterpart, because ", shown_file(more ? target : source), " has ", both,
          " lines; the files must have the same number of lines");
  std::vector<TextPair> pairs;
  const std::string files = shown_file(source) + " and " + shown_file(target);
  for (std::size_t i = 0; i < both; ++i) add_pair(pairs, sources[i], targets[i], i + 1, files, o);
  return pairs;
}

std::vector<TextPair> read_text_pairs(const std::filesystem::path& tab_separated, const ReadTextOptions& o) {
  std::vector<TextPair> pairs;
  const std::string text = detail::read_rows(tab_separated, o), file = shown_file(tab_separated);
  auto lines = split_lines(text);
  drop_blank_end(lines);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    const std::size_t tab = line.find('\t');
    require(tab != line.npos && line.find('\t', tab + 1) == line.npos, "text pairs: ", file, ", line ", i + 1, " has ",
            std::count(line.begin(), line.end(), '\t'),
            " tabs; it must have one, between source and target: ", excerpt(line));
    add_pair(pairs, line.substr(0, tab), line.substr(tab + 1), i + 1, file, o);
  }
  return pairs;
}

TextMarks text_marks(const Tokenizer& tokenizer) {
  const auto begin = tokenizer.special("<s>"), end = tokenizer.special("</s>");
  if (begin && end) return {*begin, *end, tokenizer.vocabulary_size()};
  const auto first = static_cast<std::int32_t>(tokenizer.vocabulary_size());
  return {first, first + 1, first + 2};
}

namespace {

// The tokens of one side. Errors name the side and its position.
Tokens encoded(const Tokenizer& tokenizer, const std::string& text, const char* side, const std::string& where) {
  try {
    return tokenizer.encode(text);
  } catch (const EncodeError& e) {
    throw e.at(e.offset(), std::string(side) + " of " + where);
  }
}

std::string shown_pair(Index number, const std::string& files) {
  if (number < 0) return "pair " + std::to_string(-number);
  return "line " + std::to_string(number) + (files.empty() ? "" : " of " + files);
}

}  // namespace

TextPairs::TextPairs(const std::vector<TextPair>& pairs, const Tokenizer& source, const Tokenizer& target,
                     const TextPairOptions& options)
    : source_(text_marks(source)), target_(text_marks(target)), files_(options.files) {
  require(options.longest >= 0, "text pairs: longest is ", options.longest, "; it must be 0 (no limit) or more");
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Index number = pairs[i].line > 0 ? pairs[i].line : -static_cast<Index>(i + 1);
    const std::string where = shown_pair(number, files_);
    Tokens from = encoded(source, pairs[i].source, "the source", where),
           to = encoded(target, pairs[i].target, "the target", where);
    const bool empty = from.empty() || to.empty();
    const Index sources = static_cast<Index>(from.size()) + (options.source_end ? 1 : 0),
                targets = static_cast<Index>(to.size()) + 1;
    const bool longer = options.longest > 0 && std::max(sources, targets) > options.longest;
    require(options.skip || !(empty || longer), "text pairs: ", where, " has ", sources, " source tokens and ",
            targets - 1, " target tokens; both must be at least 1",
            longer ? ", and at most " + std::to_string(options.longest) + " (the target with its end token)" : "",
            "; or skip such pairs");
    if (empty || longer) {
      ++skipped_;
      continue;
    }
    source_counts_.add(source, from), target_counts_.add(target, to);
    if (options.source_end) from.push_back(source_.end);
    to.insert(to.begin(), begin());
    to.push_back(end());
    numbers_.push_back(number);
    sources_.push_back(std::move(from));
    targets_.push_back(std::move(to));
  }
  require(size() > 0, "text pairs: ", skipped_, " of ", pairs.size(), " pairs were skipped; one or more must remain");
}

std::string TextPairs::where(Index i) const { return shown_pair(numbers_.at(static_cast<std::size_t>(i)), files_); }

Sample TextPairs::sample(Index i) const {
  detail::check_index("text pairs: sample", i, size());
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
