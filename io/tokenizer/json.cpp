// Parses tokenizer.json by the events of the JSON library, without recursion.
#include <heed/io/tokenizer/json.hpp>
#include <nlohmann/json.hpp>

namespace heed::detail::tokenizer {
namespace {

using Kind = JsonValue::Kind;

constexpr std::size_t kMaxExpressions = 16;

// Receives the events of the parser and fills a TokenizerFile.
class Events : public JsonBuilder {
 public:
  explicit Events(TokenizerFile& file) : JsonBuilder(file.root, "tokenizer.json"), file_(file) {}

  bool null() { return value({}); }
  bool boolean(bool flag) { return value(JsonValue::of(flag)); }
  bool number_integer(std::int64_t n) { return value(JsonValue::of_integer(n)); }
  bool number_unsigned(std::uint64_t n) { return value({.kind = Kind::integer, .number = static_cast<double>(n)}); }
  bool number_float(double x, const std::string&) { return value(JsonValue::of(x)); }
  bool string(std::string& text) {
    return section_ == Section::merges && !inner_ ? joined_merge(text) : value(JsonValue::of(std::move(text)));
  }
  bool start_object(std::size_t) { return begin(Kind::object); }
  bool start_array(std::size_t) { return begin(Kind::array); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }

  bool key(std::string& name) {
    if (section_ != Section::none) {
      pending_ = stored(name);
      return true;
    }
    require(name != "Regex" || ++expressions_ <= kMaxExpressions, "tokenizer.json: there are more than ",
            kMaxExpressions, " regular expressions");
    return JsonBuilder::key(name);
  }

 private:
  enum class Section { none, vocabulary, merges };

  TokenizerFile::Text stored(std::string_view text) {
    const TokenizerFile::Text t{static_cast<std::uint32_t>(file_.bytes.size()),
                                static_cast<std::uint32_t>(text.size())};
    file_.bytes += text;
    return t;
  }

  bool value(JsonValue v) {
    if (section_ == Section::none) return add(std::move(v)), true;
    demand(is_list_ == inner_);
    section_ == Section::merges ? merge_part(v) : vocabulary_part(v);
    return true;
  }

  // Whether the value that begins is model.`name`.
  bool in_model(std::string_view name) const {
    const auto& levels = opened();
    return levels.size() == 2 && levels[0]->kind == Kind::object && levels[1]->kind == Kind::object &&
           levels[0]->keys.back() == "model" && levels[1]->keys.back() == name;
  }

  bool begin(Kind kind) {
    if (section_ != Section::none) {
      demand(is_list_ && !inner_ && kind == Kind::array);
      inner_ = true, part_ = 0;
    } else if (in_model("vocab")) {
      section_ = Section::vocabulary, file_.scored = is_list_ = kind == Kind::array;
      add({.kind = kind});
    } else if (in_model("merges") && kind == Kind::array) {
      section_ = Section::merges, is_list_ = true;
      add({.kind = kind});
    } else {
      open(kind);
    }
    return true;
  }

  bool end() {
    if (inner_) {
      demand(part_ == 2);
      inner_ = false;
      ++count_;
    } else if (section_ != Section::none) {
      section_ = Section::none, count_ = 0;
    } else {
      close();
    }
    return true;
  }

  std::string place() const {
    if (section_ == Section::merges) return "tokenizer.json: model.merges[" + std::to_string(count_) + "]";
    if (is_list_) return "tokenizer.json: model.vocab[" + std::to_string(count_) + "]";
    return "tokenizer.json: model.vocab[\"" + excerpt(file_.text(pending_)) + "\"]";
  }
  // Throws Error if a value of the section is not as it must be. The place is a long text, so it is made only then.
  void demand(bool fits) const {
    if (!fits) fail(place(), " must be ", expected());
  }
  const char* expected() const {
    if (section_ == Section::merges) return "two tokens, \"a b\" or [\"a\", \"b\"]";
    return is_list_ ? "a token and its score, [\"a\", -1.5]" : "an id from 0 to 4194303";
  }

  void vocabulary_part(const JsonValue& v) {
    if (!is_list_) {
      demand(v.kind == Kind::integer && v.number >= 0 && v.number < kMaxVocabulary);
      file_.vocabulary.push_back({pending_, v.number});
      return;
    }
    const bool fits = part_ == 0 ? v.kind == Kind::text : v.kind == Kind::number || v.kind == Kind::integer;
    demand(fits && part_ < 2);
    require(part_ == 0 || file_.vocabulary.size() < kMaxVocabulary, "tokenizer.json: model.vocab has more than ",
            kMaxVocabulary, " tokens");
    if (part_++ == 0) {
      pending_ = stored(v.text);
    } else {
      file_.vocabulary.push_back({pending_, v.number});
    }
  }

  void merge_part(const JsonValue& v) {
    demand(v.kind == Kind::text && part_ < 2);
    const auto text = stored(v.text);
    if (part_++ == 0) {
      pending_ = text;
    } else {
      file_.merges.emplace_back(pending_, text);
    }
  }

  bool joined_merge(std::string_view text) {
    if (text.starts_with("#version")) return true;  // the first line of a merges.txt
    const std::size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos)
      fail(place(), " is \"", excerpt(text), "\"; it must be ", expected());
    const auto left = stored(text.substr(0, space));
    file_.merges.emplace_back(left, stored(text.substr(space + 1)));
    ++count_;
    return true;
  }

  TokenizerFile& file_;
  std::size_t expressions_ = 0;
  Section section_ = Section::none;
  bool is_list_ = false, inner_ = false;  // the section is an array; an array inside it is open
  int part_ = 0;                          // items of that array
  std::size_t count_ = 0;                 // items of the section
  TokenizerFile::Text pending_;           // a text that waits for its value
};

}  // namespace

TokenizerFile parse_tokenizer_json(std::string_view json) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 28;
  require(json.size() <= kMaxBytes, "tokenizer.json: the text has ", json.size(), " bytes; it must have at most ",
          kMaxBytes);
  refuse_zero_byte(json, "tokenizer.json");
  TokenizerFile file;
  Events events(file);
  nlohmann::json::sax_parse(json.begin(), json.end(), &events);
  require(file.root.kind == Kind::object, "tokenizer.json: the text must be a JSON object");
  return file;
}

}  // namespace heed::detail::tokenizer
