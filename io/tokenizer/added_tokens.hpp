// Added tokens of a tokenizer.json: texts that are one token wherever they occur, such as "<|im_start|>".
#pragma once
#include <heed/io/tokenizer/byte_trie.hpp>
#include <heed/io/tokenizer/stages.hpp>
#include <heed/io/tokenizer/unicode.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail::tokenizer {

struct AddedToken {
  std::string content;  // its text in the file
  std::string pattern;  // the text that is searched for: normalized, if `normalized` is set
  std::int32_t id = -1;
  bool single_word = false;             // not next to a word character
  bool lstrip = false, rstrip = false;  // takes the white space before or after it
  bool normalized = true;               // is searched for in the normalized text
  bool special = false;                 // is left out of decoded texts
};

class AddedTokens {
 public:
  // The member added_tokens of a file. Throws Error if an id is not the one that `tokenizers` would give to the token:
  // its id in the model, or the next free one.
  AddedTokens(const JsonView& json, const Vocabulary& model, const Stages<Normalizer>& normalizers,
              EncodeScratch& scratch);
  AddedTokens() = default;

  const AddedToken* with_id(std::int32_t id) const;    // null: none
  std::int32_t id_of(std::string_view content) const;  // -1: none
  std::int32_t largest_id() const { return by_id_.empty() ? -1 : by_id_.rbegin()->first; }

  // Calls section(range) for the parts between the tokens of one group (normalized or not), and token(id, at) for the
  // tokens and their places, in order. If is_text(range) is true for a special token, it is a part of the text.
  // Steps are counted by `state`.
  template <class IsText, class Section, class Token>
  void split(std::string_view text, bool normalized, const IsText& is_text, MatchState& state, const Section& section,
             const Token& token) const {
    const ByteTrie& trie = tries_[normalized ? 1 : 0];
    std::size_t done = 0;
    for (std::size_t at = 0; !trie.empty() && at < text.size();) {
      const auto [end, index] = longest(trie, text, at, state);
      if (index < 0) {
        ++at;
        continue;
      }
      const AddedToken& t = tokens_[static_cast<std::size_t>(index)];
      std::size_t begin = at;
      at = end;
      if ((t.single_word && is_in_word(text, begin, end)) || (t.special && is_text(range(begin, end)))) continue;
      if (t.lstrip) begin = begin_of_space(text, done, begin);
      if (done < begin) section(range(done, begin));
      token(t.id, at - t.pattern.size());
      done = t.rstrip ? end_of_space(text, std::max(end, done)) : end;  // all space between end and done
    }
    if (done < text.size()) section(range(done, text.size()));
  }

 private:
  // The end and the index of the longest token that begins at `at`. Index -1: none.
  static std::pair<std::size_t, std::int32_t> longest(const ByteTrie& trie, std::string_view text, std::size_t at,
                                                      MatchState& state);
  static bool is_in_word(std::string_view text, std::size_t begin, std::size_t end);
  // The begin of the white space before `end`, but not before `from`; the end of the white space after `begin`.
  static std::size_t begin_of_space(std::string_view text, std::size_t from, std::size_t end);
  static std::size_t end_of_space(std::string_view text, std::size_t begin);

  std::vector<AddedToken> tokens_;
  std::map<std::int32_t, std::size_t> by_id_;
  std::map<std::string, std::size_t, std::less<>> by_content_;
  ByteTrie tries_[2];  // indices of tokens that are searched for in the text, and in the normalized text
};

}  // namespace heed::detail::tokenizer
