// Added tokens of a tokenizer.json.
#include <algorithm>
#include <heed/io/tokenizer/added_tokens.hpp>
#include <numeric>

namespace heed::detail::tokenizer {
namespace {

AddedToken read_token(const JsonView& json) {
  constexpr std::size_t kLongest = 1024;  // bytes
  json.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken t;
  t.content = t.pattern = json.at("content").text();
  if (t.content.empty() || t.content.size() > kLongest)
    json.at("content").refuse("has " + std::to_string(t.content.size()) + " bytes; it must have 1 to " +
                              std::to_string(kLongest));
  t.id = static_cast<std::int32_t>(json.at("id").integer(0, kMaxVocabulary - 1));
  t.single_word = json.at("single_word").boolean();
  t.lstrip = json.at("lstrip").boolean();
  t.rstrip = json.at("rstrip").boolean();
  t.normalized = json.at("normalized").boolean();
  t.special = json.at("special").boolean();
  return t;
}

}  // namespace

AddedTokens::AddedTokens(const JsonView& json, const Vocabulary& model, const Stages<Normalizer>& normalizers,
                         EncodeScratch& scratch) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 22;  // a ByteTrie can have 2^24
  std::size_t bytes = 0;
  auto next = static_cast<std::int32_t>(model.count());
  const std::vector<JsonView> items = json.items();
  scratch.allow(std::accumulate(items.begin(), items.end(), std::size_t{0}, [](std::size_t sum, const JsonView& item) {
    return sum + item.at("content").text().size();
  }));
  for (const JsonView& item : items) {
    AddedToken t = read_token(item);
    const std::int32_t in_model = model.id_of(t.content), expected = in_model >= 0 ? in_model : next;
    if (t.id != expected)
      item.at("id").refuse("is " + std::to_string(t.id) + "; it must be " + std::to_string(expected) +
                           (in_model >= 0 ? ", the id of the token in model.vocab" : ", the next free id"));
    if (in_model < 0) ++next;
    if (by_content_.contains(t.content)) item.at("content").refuse("occurs twice");
    if (t.normalized) normalize_all(normalizers, t.pattern, false, scratch);
    if (t.pattern.empty()) item.at("content").refuse("is empty after normalization");
    if ((bytes += t.pattern.size()) > kMaxBytes)
      item.at("content").refuse("and the contents before it have more than " + std::to_string(kMaxBytes) + " bytes");
    by_id_[t.id] = by_content_[t.content] = tokens_.size();
    tries_[t.normalized ? 1 : 0].add(t.pattern, static_cast<std::int32_t>(tokens_.size()));
    tokens_.push_back(std::move(t));
  }
}

const AddedToken* AddedTokens::with_id(std::int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

std::int32_t AddedTokens::id_of(std::string_view content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? -1 : tokens_[found->second].id;
}

std::pair<std::size_t, std::int32_t> AddedTokens::longest(const ByteTrie& trie, std::string_view text, std::size_t at,
                                                          MatchState& state) {
  std::pair<std::size_t, std::int32_t> found{at, -1};
  if (!trie.begins(static_cast<unsigned char>(text[at]))) return found;
  std::int32_t node = ByteTrie::kRoot;
  std::size_t i = at;
  while (i < text.size()) {
    node = trie.step(node, static_cast<unsigned char>(text[i++]));
    if (node == ByteTrie::kNone) break;
    if (trie.value(node) >= 0) found = {i, trie.value(node)};
  }
  state.spend(i - at);
  return found;
}

bool AddedTokens::is_in_word(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0) {
    std::size_t i = previous(text, begin);
    if (is_word(next_code_point(text, i))) return true;
  }
  return end < text.size() && is_word(next_code_point(text, end));
}

std::size_t AddedTokens::begin_of_space(std::string_view text, std::size_t from, std::size_t end) {
  while (end > from) {
    const std::size_t at = previous(text, end);
    std::size_t i = at;
    if (!is_white_space(next_code_point(text, i))) break;
    end = at;
  }
  return end;
}

std::size_t AddedTokens::end_of_space(std::string_view text, std::size_t begin) {
  for (std::size_t i = begin; i < text.size();) {
    if (!is_white_space(next_code_point(text, i))) break;
    begin = i;
  }
  return begin;
}

}  // namespace heed::detail::tokenizer
