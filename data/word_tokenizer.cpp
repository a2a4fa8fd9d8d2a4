// A tokenizer for words between white space.
#include <algorithm>
#include <array>
#include <heed/core/check.hpp>
#include <heed/data/text.hpp>
#include <heed/data/tokenizer.hpp>

namespace heed {
namespace {

constexpr std::array<std::string_view, 4> kSpecial = {"<pad>", "<unk>", "<s>", "</s>"};
using Counts = std::unordered_map<std::string, Index>;

// The text "<s>" is not counted as the token <s>.
void count_words(std::string_view text, Counts& counts) {
  for (const std::string_view word : split_words(text))
    if (std::ranges::find(kSpecial, word) == kSpecial.end()) ++counts[std::string(word)];
}

std::vector<std::string> chosen(const Counts& counts, const WordOptions& o) {
  require(o.vocabulary >= 0 && o.min_frequency >= 1, "word tokenizer: vocabulary is ", o.vocabulary,
          " and min_frequency is ", o.min_frequency, "; they must be 0 (all) or more and 1 or more");
  std::vector<std::pair<Index, std::string>> all;
  for (const auto& [word, count] : counts)
    if (count >= o.min_frequency) all.emplace_back(-count, word);
  std::sort(all.begin(), all.end());
  if (o.vocabulary > 0) all.resize(std::min(all.size(), static_cast<std::size_t>(o.vocabulary)));
  require(!all.empty(), "word tokenizer: none of the ", counts.size(), " words of the text occurs ", o.min_frequency,
          " times; at least one must");
  std::vector<std::string> words;
  for (auto& [count, word] : all) words.push_back(std::move(word));
  return words;
}

}  // namespace

WordTokenizer::WordTokenizer(std::string_view text, const WordOptions& options) : WordTokenizer(options.unicode) {
  Counts counts;
  count_words(normalized(text, unicode_), counts);
  for (std::string& word : chosen(counts, options)) add(std::move(word));
}

WordTokenizer WordTokenizer::train(const std::vector<std::filesystem::path>& files_and_folders,
                                   const WordOptions& options, const ReadTextOptions& reading) {
  Counts counts;
  std::string rest;  // a word may continue in the next piece
  const auto use = [&](const TextPiece& piece) {
    rest += piece.text;
    const std::size_t end = rest.find_last_of(kWhiteSpace);
    if (end == rest.npos) return;
    count_words(normalized(std::string_view(rest).substr(0, end), options.unicode), counts);
    rest.erase(0, end);
  };
  read_text_pieces(files_and_folders, use, reading);
  count_words(normalized(rest, options.unicode), counts);
  WordTokenizer tokenizer(options.unicode);
  for (std::string& word : chosen(counts, options)) tokenizer.add(std::move(word));
  return tokenizer;
}

WordTokenizer WordTokenizer::from_state(std::string_view words, UnicodeForm unicode) {
  WordTokenizer tokenizer(unicode);
  for (const std::string_view word : split_lines(words)) {
    require(!word.empty() && word.find_first_of(kWhiteSpace) == word.npos,
            "word tokenizer: the stored words are damaged: «", excerpt(word), "» is not a word");
    tokenizer.add(std::string(word));
  }
  require(!tokenizer.words_.empty(), "word tokenizer: the stored words are damaged: there are none");
  return tokenizer;
}

void WordTokenizer::add(std::string word) {
  const auto id = static_cast<std::int32_t>(4 + words_.size());
  require(ids_.emplace(word, id).second, "word tokenizer: the stored words are damaged: «", excerpt(word),
          "» occurs twice");
  words_.push_back(std::move(word));
}

Tokens WordTokenizer::encode(std::string_view given) const {
  const std::string text = normalized(given, unicode_);
  Tokens ids;
  for (const std::string_view word : split_words(text)) {
    const auto found = ids_.find(std::string(word));
    ids.push_back(found == ids_.end() ? kUnknown : found->second);
  }
  return ids;
}

const std::string& WordTokenizer::word(std::int32_t id) const {
  detail::check_id("decode", id, vocabulary_size());
  static const std::vector<std::string> special(kSpecial.begin(), kSpecial.end());
  return id < 4 ? special[static_cast<std::size_t>(id)] : words_[static_cast<std::size_t>(id - 4)];
}

std::string WordTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string& one = word(id);
    if (id != kPad && id != kBegin && id != kEnd) text += (text.empty() ? "" : " ") + one;
  }
  return text;
}

std::string WordTokenizer::state() const {
  std::string all;
  for (const std::string& word : words_) all += word + "\n";
  return all;
}

std::optional<std::int32_t> WordTokenizer::special(std::string_view name) const {
  const auto found = std::ranges::find(kSpecial, name);
  if (found == kSpecial.end()) return {};
  return static_cast<std::int32_t>(found - kSpecial.begin());
}

}  // namespace heed
