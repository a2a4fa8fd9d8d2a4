// Flags, JSON and checks of settings, all from their list.
#include "examples/support/settings.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <heed/core/check.hpp>
#include <heed/data/text.hpp>

namespace heed::examples {
namespace {

using Json = Setting::Json;

Json json_of(const std::string& text) {
  if (!find_invalid_utf8(text)) return text;
  std::string digits;
  for (const char c : text) digits += detail::hex(static_cast<unsigned char>(c), 2);
  return Json{{"hex", digits}};
}
bool is_hex(const Json& json) { return json.is_object() && json.contains("hex") && json["hex"].is_string(); }
bool is_text(const Json& json) { return json.is_string() || is_hex(json); }
std::string text_of(const Json& json) {
  if (!is_hex(json)) return json.get<std::string>();
  const std::string digits = json.at("hex");
  std::string text;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    text += static_cast<char>(std::strtol(digits.substr(i, 2).c_str(), nullptr, 16));
  return text;
}

// Moves a member of a struct to and from JSON.
struct ToJson {
  Json operator()(const std::string* text) const { return json_of(*text); }
  Json operator()(const OptionField::Word& word) const { return word.get(); }
  Json operator()(const std::vector<std::string>* texts) const {
    Json list = Json::array();
    for (const std::string& text : *texts) list.push_back(json_of(text));
    return list;
  }
  Json operator()(const auto* value) const { return *value; }
};
struct FromJson {
  const Json& json;
  void operator()(std::string* text) const { *text = text_of(json); }
  void operator()(const OptionField::Word& word) const { word.set(json.get<std::string>()); }
  void operator()(std::vector<std::string>* texts) const {
    texts->clear();
    for (const Json& text : json) texts->push_back(text_of(text));
  }
  void operator()(auto* value) const { json.get_to(*value); }
};

bool same_type(const Json& a, const Json& b) {
  if (is_text(a)) return b.is_string() || is_hex(b);
  if (a.is_array()) return b.is_array();
  return !a.is_structured() && (a.type() == b.type() || (b.is_number_float() && a.is_number()) ||
                                (b.is_number_integer() && a.is_number_integer()));
}

// Whether a value names files.
bool names_files(const Setting& setting, const Json& value) {
  const std::function<bool(const std::string&)>& is_file = setting.takes.is_file;
  const auto names = [&](const Json& text) {
    return !is_file || text == "-" || is_hex(text) || is_file(text.get<std::string>());
  };
  if (!setting.takes.role || value.empty() || value == "") return false;
  return value.is_array() ? std::all_of(value.begin(), value.end(), names) : names(value);
}

std::string refusal_of(const ChangedSetting& c) {
  const std::string text = "--" + c.name + " is " + c.now + " but the checkpoint was made with " + c.before;
  if (c.kind == Kind::model)
    return text + "; leave it out, or start a new training with --overwrite or another --checkpoint";
  return text + "; leave it out, or start a new training from its weights with --init" +
         (c.kind == Kind::data ? ", or allow other data with --other-data" : "");
}

}  // namespace

// ---- A setting ----

Json Setting::json() const { return std::visit(ToJson(), value.pointer); }

void Setting::set(const Json& json) const { std::visit(FromJson{json}, value.pointer); }

std::string Setting::error(const Json& given) const {
  const Json now = json();
  if (given == now) return "";
  // A list may be nested so deeply that printing it overflows the stack.
  const std::string word = is_text(given) ? text_of(given) : given.is_structured() ? "a list" : given.dump();
  const bool holds_numbers = std::holds_alternative<std::vector<std::int64_t>*>(value.pointer);
  const auto fits = [&](const Json& item) { return holds_numbers ? item.is_number_integer() : is_text(item); };
  if (!same_type(given, now) || (given.is_array() && !std::all_of(given.begin(), given.end(), fits)))
    return "it is " + word + ", which has the wrong type";
  return takes.error && !given.is_array() ? takes.error(word) : "";
}

void print_changed(const std::vector<ChangedSetting>& changed) {
  for (const ChangedSetting& c : changed)
    if (c.kind != Kind::run)
      std::fprintf(stderr, "changed: %s %s, before: %s\n", c.name.c_str(), printable(c.now).c_str(),
                   printable(c.before).c_str());
}

StoredSettings::StoredSettings(const std::string& json, const std::string& file)
    : json_(Json::parse(json, nullptr, false)), file_(file) {
  require(json_.is_object(), file, ": the settings are damaged; they must be a JSON object");
}

std::set<std::string> StoredSettings::names() const {
  std::set<std::string> names;
  for (const auto& [name, value] : json_.items()) names.insert(name);
  return names;
}

// ---- All settings ----

Setting& SettingFields::operator()(const std::string& name, FlagValue value, Kind kind, const std::string& text,
                                   const Takes& takes, const FlagRules& rules) {
  return list_.emplace_back(Setting{name, value, kind, text, group_, takes, rules});
}

static Takes takes_of(const OptionField& field) {
  switch (field.type) {
    case OptionField::whole: return whole(field.min);
    case OptionField::share: return number(0, 0.99);
    case OptionField::positive: return positive_number();
    case OptionField::boolean: return one_of({"true", "false"});
    default: return field.words.empty() ? anything("TEXT") : one_of(field.words);
  }
}

void SettingFields::option(const OptionField& field, const OptionNote& note) {
  std::string name = field.name;
  std::ranges::replace(name, '_', '-');
  Setting& s = (*this)(name, field, note.kind, field.text, note.takes.value_or(takes_of(field)));
  s.text += " [" + (!note.defaults.empty() ? note.defaults : field.omitted ? "none" : s.json().dump()) + "]";
  s.stored = !field.omitted || note.always_stored;
}

void SettingFields::add_flags(CommandLine& line) const {
  for (const Setting& s : list_) {
    line.group(s.group);
    if (s.takes.shown.empty())
      line.add_switch("--" + s.name, *std::get<bool*>(s.value.pointer), s.text);
    else
      line.add("--" + s.name, s.value, s.text, s.takes, s.rules);
  }
}

std::string SettingFields::json() const {
  Json all, stored;
  for (const std::string& name : order_) all[name] = nullptr;
  for (const Setting& s : list_) all[s.name] = s.stored ? s.json() : Json();
  for (const auto& [name, value] : all.items())
    if (!value.is_null()) stored[name] = value;
  return stored.dump();
}

std::set<std::string> SettingFields::names(Kind kind) const {
  std::set<std::string> names;
  for (const Setting& s : list_)
    if (s.kind == kind) names.insert(s.name);
  return names;
}

void SettingFields::read(const StoredSettings& stored, std::optional<Kind> kind) const {
  for (const Setting& s : list_) {
    if (!stored.has(s.name) || (kind && s.kind != *kind)) continue;
    const Json& value = stored.json_.at(s.name);
    const std::string error = s.error(value);
    require(error.empty(), stored.file_, ": the setting ", s.name, " is wrong: ", printable(error));
    s.set(value);
  }
}

// Calls check(setting, change) before a flag changes a setting.
template <class Check>
void SettingFields::take_each(const CommandLine& line, const SettingFields& given, const Check& check) const {
  for (std::size_t i = 0; i < list_.size(); ++i) {
    const Setting& s = list_[i];
    if (!line.given("--" + s.name)) continue;
    const Json was = s.json(), now = given.list_.at(i).json();
    const bool moved = names_files(s, was) && names_files(s, now);
    if (was != now && !moved) check(s, ChangedSetting{s.name, was.dump(), now.dump(), s.kind});
    s.set(now);
  }
}

void SettingFields::take(const CommandLine& line, const SettingFields& given) const {
  take_each(line, given, [](const Setting&, const ChangedSetting&) {});
}

std::vector<ChangedSetting> SettingFields::resume(const CommandLine& line, const SettingFields& given,
                                                  bool other_data) const {
  std::vector<ChangedSetting> changed;
  take_each(line, given, [&](const Setting& s, const ChangedSetting& change) {
    if (s.kind == Kind::start || s.kind == Kind::model || (s.kind == Kind::data && !other_data))
      throw UsageError(refusal_of(change));
    changed.push_back(change);
  });
  return changed;
}

void SettingFields::init(const CommandLine& line, const SettingFields& given, const std::string& file) const {
  take_each(line, given, [&](const Setting& s, const ChangedSetting& change) {
    if (s.kind == Kind::model && !s.takes.role)  // the content of a file is compared later
      throw UsageError("--" + s.name + " is " + change.now + " but the model of " + file + " has " + change.before +
                       "; leave it out");
  });
}

std::string SettingOrigins::describe(const std::string& flag, const std::string& value) const {
  if (line_.given(flag)) return flag + " is " + value;
  const std::string name = flag.substr(2);
  return name + " is " + value + (stored_.contains(name) ? " (stored in " + file_ + ")" : " (the default)");
}

}  // namespace heed::examples
