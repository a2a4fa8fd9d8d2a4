// Parses tokenizer.json by the events of the JSON library, without recursion.
#include <algorithm>
#include <heed/io/tokenizer/json.hpp>
#include <nlohmann/json.hpp>

namespace heed::detail::tokenizer {
namespace {

using Kind = JsonValue::Kind;

constexpr std::size_t kMaxDepth = 32, kMaxKeys = 4096, kMaxValues = std::size_t{1} << 20, kMaxExpressions = 16;

// Receives the events of the parser and fills a TokenizerFile.
class Events {
 public:
  using Json = nlohmann::json;

  explicit Events(TokenizerFile& file) : file_(file) {}

  bool null() { return value({}); }
  bool boolean(bool flag) { return value({.kind = Kind::boolean, .flag = flag}); }
  bool number_integer(Json::number_integer_t n) { return number(Kind::integer, static_cast<double>(n)); }
  bool number_unsigned(Json::number_unsigned_t n) { return number(Kind::integer, static_cast<double>(n)); }
  bool number_float(Json::number_float_t x, const std::string&) { return number(Kind::number, x); }
  bool string(std::string& text) {
    if (section_ == Section::merges && !inner_) return joined_merge(text);
    JsonValue v{.kind = Kind::text};
    v.text.swap(text);
    return value(std::move(v));
  }
  bool binary(Json::binary_t&) { return false; }  // not in JSON
  bool start_object(std::size_t) { return open(Kind::object); }
  bool start_array(std::size_t) { return open(Kind::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    if (section_ != Section::none) {
      pending_ = stored(name);
      return true;
    }
    auto& keys = open_.back()->keys;
    require(std::ranges::find(keys, name) == keys.end(), "tokenizer.json: the key \"", name,
            "\" occurs twice in one object");
    require(keys.size() < kMaxKeys, "tokenizer.json: an object outside model.vocab has more than ", kMaxKeys, " keys");
    require(name != "Regex" || ++expressions_ <= kMaxExpressions, "tokenizer.json: there are more than ",
            kMaxExpressions, " regular expressions");
    keys.push_back(std::move(name));
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) {
    fail("tokenizer.json: the text is not JSON at byte ", position);
  }

 private:
  enum class Section { none, vocabulary, merges };

  TokenizerFile::Text stored(std::string_view text) {
    const TokenizerFile::Text t{static_cast<std::uint32_t>(file_.bytes.size()),
                                static_cast<std::uint32_t>(text.size())};
    file_.bytes += text;
    return t;
  }

  bool number(Kind kind, double x) { return value({.kind = kind, .number = x}); }

  bool value(JsonValue v) {
    if (section_ == Section::none) return add(std::move(v)), true;
    require(is_list_ == inner_, place(), " must be ", expected());
    section_ == Section::merges ? merge_part(v) : vocabulary_part(v);
    return true;
  }

  JsonValue& add(JsonValue v) {
    require(++values_ <= kMaxValues, "tokenizer.json: there are more than ", kMaxValues,
            " values outside model.vocab and model.merges");
    if (open_.empty()) return file_.root = std::move(v);
    return open_.back()->items.emplace_back(std::move(v));
  }

  // Whether the value that begins is model.`name`.
  bool in_model(std::string_view name) const {
    return open_.size() == 2 && open_[0]->kind == Kind::object && open_[1]->kind == Kind::object &&
           open_[0]->keys.back() == "model" && open_[1]->keys.back() == name;
  }

  bool open(Kind kind) {
    if (section_ != Section::none) {
      require(is_list_ && !inner_ && kind == Kind::array, place(), " must be ", expected());
      inner_ = true, part_ = 0;
      return true;
    }
    require(open_.size() < kMaxDepth, "tokenizer.json: values are nested deeper than ", kMaxDepth, " levels");
    JsonValue& made = add({.kind = kind});
    if (in_model("vocab")) {
      section_ = Section::vocabulary, is_list_ = kind == Kind::array;
      file_.scored = is_list_;
    } else if (in_model("merges") && kind == Kind::array) {
      section_ = Section::merges, is_list_ = true;
    } else {
      open_.push_back(&made);
    }
    return true;
  }

  bool close() {
    if (inner_) {
      require(part_ == 2, place(), " must be ", expected());
      inner_ = false;
      ++count_;
    } else if (section_ != Section::none) {
      section_ = Section::none, count_ = 0;
    } else {
      open_.pop_back();
    }
    return true;
  }

  std::string place() const {
    if (section_ == Section::merges) return "tokenizer.json: model.merges[" + std::to_string(count_) + "]";
    if (is_list_) return "tokenizer.json: model.vocab[" + std::to_string(count_) + "]";
    return "tokenizer.json: model.vocab[\"" + std::string(file_.text(pending_)) + "\"]";
  }
  const char* expected() const {
    if (section_ == Section::merges) return "two tokens, \"a b\" or [\"a\", \"b\"]";
    return is_list_ ? "a token and its score, [\"a\", -1.5]" : "an id from 0 to 4194303";
  }

  void vocabulary_part(const JsonValue& v) {
    if (!is_list_) {
      require(v.kind == Kind::integer && v.number >= 0 && v.number < kMaxVocabulary, place(), " must be ", expected());
      file_.vocabulary.push_back({pending_, v.number});
      return;
    }
    const bool fits = part_ == 0 ? v.kind == Kind::text : v.kind == Kind::number || v.kind == Kind::integer;
    require(fits && part_ < 2, place(), " must be ", expected());
    require(part_ == 0 || file_.vocabulary.size() < kMaxVocabulary, "tokenizer.json: model.vocab has more than ",
            kMaxVocabulary, " tokens");
    if (part_++ == 0) {
      pending_ = stored(v.text);
    } else {
      file_.vocabulary.push_back({pending_, v.number});
    }
  }

  void merge_part(const JsonValue& v) {
    require(v.kind == Kind::text && part_ < 2, place(), " must be ", expected());
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
    require(space != text.npos && text.find(' ', space + 1) == text.npos, place(), " is \"", text, "\"; it must be ",
            expected());
    const auto left = stored(text.substr(0, space));
    file_.merges.emplace_back(left, stored(text.substr(space + 1)));
    ++count_;
    return true;
  }

  TokenizerFile& file_;
  std::vector<JsonValue*> open_;  // arrays and objects that have not ended
  std::size_t values_ = 0, expressions_ = 0;
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
  TokenizerFile file;
  Events events(file);
  nlohmann::json::sax_parse(json.begin(), json.end(), &events);
  require(file.root.kind == Kind::object, "tokenizer.json: the text must be a JSON object");
  return file;
}

void JsonView::refuse(const std::string& reason) const { fail("tokenizer.json: ", path_, " ", reason); }

void JsonView::require_kind(Kind kind, const char* name) const {
  if (value_->kind != kind) refuse(std::string("must be ") + name);
}

const JsonValue* JsonView::find(std::string_view key) const {
  require_kind(Kind::object, "an object");
  const auto at = std::ranges::find(value_->keys, key);
  return at == value_->keys.end() ? nullptr : &value_->items[static_cast<std::size_t>(at - value_->keys.begin())];
}

bool JsonView::has(std::string_view key) const {
  const JsonValue* v = find(key);
  return v != nullptr && v->kind != Kind::null;
}

JsonView JsonView::at(std::string_view key) const {
  const JsonValue* v = find(key);
  std::string path = path_.empty() ? std::string(key) : path_ + "." + std::string(key);
  require(v != nullptr, "tokenizer.json: ", path, " is missing");
  return {*v, std::move(path)};
}

std::vector<JsonView> JsonView::items() const {
  require_kind(Kind::array, "an array");
  std::vector<JsonView> all;
  for (std::size_t i = 0; i < value_->items.size(); ++i)
    all.emplace_back(value_->items[i], path_ + "[" + std::to_string(i) + "]");
  return all;
}

std::vector<std::pair<std::string, JsonView>> JsonView::members() const {
  require_kind(Kind::object, "an object");
  std::vector<std::pair<std::string, JsonView>> all;
  for (const std::string& key : value_->keys) all.emplace_back(key, at(key));
  return all;
}

const std::string& JsonView::text() const {
  require_kind(Kind::text, "a text");
  return value_->text;
}

bool JsonView::boolean() const {
  require_kind(Kind::boolean, "true or false");
  return value_->flag;
}

std::int64_t JsonView::integer(std::int64_t min, std::int64_t max) const {
  const bool fits = value_->kind == Kind::integer && value_->number >= static_cast<double>(min) &&
                    value_->number <= static_cast<double>(max);
  if (!fits) refuse("must be an integer from " + std::to_string(min) + " to " + std::to_string(max));
  return static_cast<std::int64_t>(value_->number);
}

void JsonView::only(std::initializer_list<std::string_view> keys) const {
  require_kind(Kind::object, "an object");
  for (const std::string& key : value_->keys)
    if (std::ranges::find(keys, key) == keys.end()) at(key).refuse("is not a field that heed knows");
}

std::size_t JsonView::one_of(std::initializer_list<std::string_view> names) const {
  const auto found = std::ranges::find(names, text());
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  std::string list;
  for (const std::string_view name : names) (list += list.empty() ? "" : ", ") += name;
  refuse("is \"" + excerpt(text()) + "\"; it must be one of " + list);
}

}  // namespace heed::detail::tokenizer
