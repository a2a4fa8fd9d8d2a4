// Reads and writes JSON by the events of the JSON library.
#include <algorithm>
#include <heed/io/json.hpp>
#include <nlohmann/json.hpp>

namespace heed::detail {

using Kind = JsonValue::Kind;

void JsonValue::set(std::string_view key, JsonValue value) {
  const auto at = std::ranges::find(keys, key);
  if (at != keys.end()) {
    items[static_cast<std::size_t>(at - keys.begin())] = std::move(value);
  } else {
    keys.emplace_back(key);
    items.push_back(std::move(value));
  }
}

bool JsonBuilder::key(std::string& name) {
  constexpr std::size_t kMaxKeys = std::size_t{1} << 14;  // a tokenizer_config.json of Gemma 3 has 6,415
  auto& keys = open_.back()->keys;
  require(keys.size() < kMaxKeys, source_, ": an object has more than ", kMaxKeys, " keys");
  keys.push_back(std::move(name));
  return true;
}

void JsonBuilder::close() {
  std::vector<std::string_view> keys(open_.back()->keys.begin(), open_.back()->keys.end());
  std::ranges::sort(keys);
  const auto twice = std::ranges::adjacent_find(keys);
  require(twice == keys.end(), source_, ": the key \"", twice == keys.end() ? "" : excerpt(*twice),
          "\" occurs twice in one object");
  open_.pop_back();
}

JsonValue& JsonBuilder::add(JsonValue value) {
  constexpr std::size_t kMaxValues = std::size_t{1} << 20;
  require(++values_ <= kMaxValues, source_, ": there are more than ", kMaxValues, " values");
  if (open_.empty()) return root_ = std::move(value);
  return open_.back()->items.emplace_back(std::move(value));
}

JsonValue& JsonBuilder::open(Kind kind) {
  constexpr std::size_t kMaxDepth = 32;
  require(open_.size() < kMaxDepth, source_, ": values are nested deeper than ", kMaxDepth, " levels");
  JsonValue& made = add({.kind = kind});
  open_.push_back(&made);
  return made;
}

void refuse_zero_byte(std::string_view json, const std::string& source) {
  require(json.find('\0') == json.npos, source, " has a zero byte; it must be JSON");
}

JsonValue parse_json_object(std::string_view text, const std::string& source) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 24;
  require(text.size() <= kMaxBytes, source, ": the text has ", text.size(), " bytes; it must have at most ", kMaxBytes);
  refuse_zero_byte(text, source);
  JsonValue root;
  JsonBuilder events(root, source);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  require(root.kind == Kind::object, source, ": the text must be a JSON object");
  return root;
}

static nlohmann::ordered_json to_library(const JsonValue& v) {
  nlohmann::ordered_json json;
  switch (v.kind) {
    case Kind::null: break;
    case Kind::boolean: json = v.flag; break;
    case Kind::integer: json = static_cast<std::int64_t>(v.number); break;
    case Kind::number: json = v.number; break;
    case Kind::text: json = v.text; break;
    case Kind::array:
      json = nlohmann::ordered_json::array();
      for (const JsonValue& item : v.items) json.push_back(to_library(item));
      break;
    case Kind::object:
      json = nlohmann::ordered_json::object();
      for (std::size_t i = 0; i < v.items.size(); ++i) json[v.keys[i]] = to_library(v.items[i]);
      break;
  }
  return json;
}

std::string quoted_json(std::string_view text) { return nlohmann::json(text).dump(); }

std::string json_text(const JsonValue& value) { return to_library(value).dump(2) + "\n"; }

void JsonView::refuse(const std::string& reason) const { fail(source_, ": ", path_, " ", reason); }

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

std::string JsonView::path_of(std::string_view key) const {
  return path_.empty() ? excerpt(key) : path_ + "." + excerpt(key);
}

JsonView JsonView::at(std::string_view key) const {
  const JsonValue* v = find(key);
  std::string path = path_of(key);
  require(v != nullptr, source_, ": ", path, " is missing");
  return {*v, source_, std::move(path)};
}

std::vector<JsonView> JsonView::items() const {
  require_kind(Kind::array, "an array");
  std::vector<JsonView> all;
  for (std::size_t i = 0; i < value_->items.size(); ++i)
    all.emplace_back(value_->items[i], source_, path_ + "[" + std::to_string(i) + "]");
  return all;
}

std::vector<std::pair<std::string, JsonView>> JsonView::members() const {
  require_kind(Kind::object, "an object");
  std::vector<std::pair<std::string, JsonView>> all;
  for (std::size_t i = 0; i < value_->items.size(); ++i) {  // not at(), which searches for the key
    const std::string& key = value_->keys[i];
    all.emplace_back(key, JsonView(value_->items[i], source_, path_of(key)));
  }
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

double JsonView::number() const {
  if (value_->kind != Kind::integer) require_kind(Kind::number, "a number");
  return value_->number;
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

}  // namespace heed::detail
