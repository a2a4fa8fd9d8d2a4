// A tokenizer.json. The vocabulary and the merges, which are most of the file, are kept in flat arrays.
#pragma once
#include <cstdint>
#include <heed/io/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed::detail::tokenizer {

// The content of a tokenizer.json.
struct TokenizerFile {
  struct Text {
    std::uint32_t begin = 0, size = 0;  // in `bytes`
  };
  struct Entry {
    Text text;
    double value = 0;  // an id, or the score of a vocabulary that is a list
  };

  JsonValue root;                             // without the items of model.vocab and model.merges
  std::string bytes;                          // all texts of the vocabulary and the merges
  std::vector<Entry> vocabulary;              // model.vocab, in the order of the file
  bool scored = false;                        // model.vocab is a list of texts and scores
  std::vector<std::pair<Text, Text>> merges;  // model.merges

  std::string_view text(Text t) const { return std::string_view(bytes).substr(t.begin, t.size); }
};

// Ids are below this. The largest published vocabularies have 2^18 tokens.
inline constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 22;

// Parses the text of a tokenizer.json. Throws Error if it is not JSON, has a key twice in an object, is nested deeper
// than 32 levels, or has another vocabulary or other merges than a model can have.
TokenizerFile parse_tokenizer_json(std::string_view json);

}  // namespace heed::detail::tokenizer
