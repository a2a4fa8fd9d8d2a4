// A tokenizer.json as values with their paths, for messages. The vocabulary and the merges, which are most of the file,
// are kept in flat arrays.
#pragma once
#include <cstdint>
#include <heed/core/check.hpp>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed::detail::tokenizer {

// A JSON value outside the vocabulary and the merges.
struct JsonValue {
  enum class Kind { null, boolean, integer, number, text, array, object };
  Kind kind = Kind::null;
  bool flag = false;
  double number = 0;  // of a number or an integer
  std::string text = {};
  std::vector<JsonValue> items = {};   // of an array or an object
  std::vector<std::string> keys = {};  // of an object: one per item
};

// A value and its path, "pre_tokenizer.pretokenizers[1]". The value must outlive the view. Functions throw Error, which
// begins with "tokenizer.json: " and the path, if the value is of another kind.
class JsonView {
 public:
  JsonView(const JsonValue& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  bool has(std::string_view key) const;     // whether the member exists and is not null
  JsonView at(std::string_view key) const;  // throws Error if it is missing
  std::vector<JsonView> items() const;      // of an array
  std::vector<std::pair<std::string, JsonView>> members() const;
  bool is_text() const { return value_->kind == JsonValue::Kind::text; }
  const std::string& text() const;
  bool boolean() const;
  std::int64_t integer(std::int64_t min, std::int64_t max) const;
  // The member, or a default if it is missing or null.
  bool boolean_or(std::string_view key, bool otherwise) const { return has(key) ? at(key).boolean() : otherwise; }
  std::string text_or(std::string_view key, std::string_view otherwise) const {
    return has(key) ? at(key).text() : std::string(otherwise);
  }
  // Throws Error if the object has a member that is not listed.
  void only(std::initializer_list<std::string_view> keys) const;
  // The position of a text in a list. Throws Error, which lists the names, for another text.
  std::size_t one_of(std::initializer_list<std::string_view> names) const;
  [[noreturn]] void refuse(const std::string& reason) const;  // throws Error: "tokenizer.json: PATH REASON"

 private:
  const JsonValue* find(std::string_view key) const;
  void require_kind(JsonValue::Kind kind, const char* name) const;

  const JsonValue* value_;
  std::string path_;
};

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
