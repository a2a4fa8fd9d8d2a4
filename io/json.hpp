// JSON files of other programs, as values with their paths, for messages.
#pragma once
#include <cstdint>
#include <heed/core/check.hpp>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed::detail {

// A JSON value.
struct JsonValue {
  enum class Kind { null, boolean, integer, number, text, array, object };
  Kind kind = Kind::null;
  bool flag = false;
  double number = 0;  // of a number or an integer
  std::string text = {};
  std::vector<JsonValue> items = {};   // of an array or an object
  std::vector<std::string> keys = {};  // of an object: one per item

  static JsonValue of(bool flag) { return {.kind = Kind::boolean, .flag = flag}; }
  static JsonValue of(double x) { return {.kind = Kind::number, .number = x}; }
  static JsonValue of_integer(std::int64_t n) { return {.kind = Kind::integer, .number = static_cast<double>(n)}; }
  static JsonValue of(std::string text) { return {.kind = Kind::text, .text = std::move(text)}; }
  static JsonValue object() { return {.kind = Kind::object}; }
  static JsonValue array(std::vector<JsonValue> items) { return {.kind = Kind::array, .items = std::move(items)}; }
  // Sets a member of an object, at its end if it is new.
  void set(std::string_view key, JsonValue value);
};

// A value and its path, "pre_tokenizer.pretokenizers[1]". The value must outlive the view. Functions throw Error, which
// begins with the file and the path, if the value is of another kind.
class JsonView {
 public:
  // `source`: the file, for messages.
  JsonView(const JsonValue& value, std::string source, std::string path = {})
      : value_(&value), source_(std::move(source)), path_(std::move(path)) {}

  const std::string& source() const { return source_; }
  const std::string& path() const { return path_; }
  const JsonValue& value() const { return *value_; }
  bool has(std::string_view key) const;     // whether the member exists and is not null
  JsonView at(std::string_view key) const;  // throws Error if it is missing
  std::vector<JsonView> items() const;      // of an array
  std::vector<std::pair<std::string, JsonView>> members() const;
  bool is(JsonValue::Kind kind) const { return value_->kind == kind; }
  bool is_text() const { return is(JsonValue::Kind::text); }
  const std::string& text() const;
  bool boolean() const;
  double number() const;  // an integer, too
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
  std::string path_of(std::string_view key) const;
  void require_kind(JsonValue::Kind kind, const char* name) const;

  const JsonValue* value_;
  std::string source_, path_;
};

// Builds a JsonValue from the events of a parser (nlohmann/json's interface for events), without recursion. Throws
// Error for a key that occurs twice in an object, and for too many levels, keys or values.
class JsonBuilder {
 public:
  JsonBuilder(JsonValue& root, std::string source) : root_(root), source_(std::move(source)) {}

  bool null() { return add({}), true; }
  bool boolean(bool flag) { return add(JsonValue::of(flag)), true; }
  bool number_integer(std::int64_t n) { return add(JsonValue::of_integer(n)), true; }
  bool number_unsigned(std::uint64_t n) {
    return add({.kind = JsonValue::Kind::integer, .number = static_cast<double>(n)}), true;
  }
  bool number_float(double x, const std::string&) { return add(JsonValue::of(x)), true; }
  bool string(std::string& text) { return add(JsonValue::of(std::move(text))), true; }
  template <class Bytes>
  bool binary(Bytes&) {
    return false;  // not in JSON
  }
  bool start_object(std::size_t) { return open(JsonValue::Kind::object), true; }
  bool start_array(std::size_t) { return open(JsonValue::Kind::array), true; }
  bool end_object() { return close(), true; }
  bool end_array() { return close(), true; }
  bool key(std::string& name);
  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception&) {
    fail(source_, ": the text is not JSON at byte ", position);
  }

 protected:
  JsonValue& add(JsonValue value);        // to the innermost open array or object
  JsonValue& open(JsonValue::Kind kind);  // adds an array or object, and opens it
  void close();                           // the innermost
  const std::vector<JsonValue*>& opened() const { return open_; }

 private:
  JsonValue& root_;
  std::string source_;
  std::vector<JsonValue*> open_;  // arrays and objects that have not ended
  std::size_t values_ = 0;
};

// Throws Error, which begins with the source, if the text has a zero byte, which the JSON library takes as its end.
void refuse_zero_byte(std::string_view json, const std::string& source);
// Parses a text of at most 16 MiB. Throws Error, which begins with the source, if it is no JSON object.
JsonValue parse_json_object(std::string_view text, const std::string& source);
// The text in quotation marks, with JSON's escapes.
std::string quoted_json(std::string_view text);
// The value as text, with line feeds and two spaces per level.
std::string json_text(const JsonValue& value);

}  // namespace heed::detail
