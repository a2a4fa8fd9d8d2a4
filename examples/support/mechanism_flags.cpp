#include "examples/support/mechanism_flags.hpp"

#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/core/random.hpp>

namespace heed::examples {
namespace {

std::string key_of(const MechanismOption& o, char separator) {
  std::string key = o.name;
  std::replace(key.begin(), key.end(), '-', separator);
  return key;
}

// What a flag cannot say: 0, which follows the size of a head.
bool is_default(Index value) { return value == 0; }
bool is_default(const std::string&) { return false; }

}  // namespace

void add_mechanism_flags(CommandLine& line, MechanismOptions& options) {
  for_each_option(options, [&](const MechanismOption& o, auto& value) {
    std::string text = "Of " + choice(o.mechanisms, " and ") + ": " + o.text;
    line.add("--" + o.name, value, text, o.words.empty() ? whole(1) : one_of(o.words));
  });
}

void check_mechanism_flags(const CommandLine& line, const std::string& flag,
                           const std::vector<std::string>& mechanisms) {
  for (const MechanismOption& o : mechanism_options()) {
    const auto has = [&](const std::string& mechanism) { return o.of(mechanism); };
    if (!line.given("--" + o.name) || std::any_of(mechanisms.begin(), mechanisms.end(), has)) continue;
    throw UsageError("--" + o.name + " is " + line.word("--" + o.name) + " and " + flag + " " +
                     choice(mechanisms, ",") + "; " + flag + " must be " + choice(o.mechanisms, " or ") +
                     ", or leave --" + o.name + " out");
  }
}

void check_mechanism(const std::string& flag, const std::string& mechanism, const MechanismOptions& options) {
  try {
    Rng rng;
    mechanism_by_name(mechanism, options)(0, rng);
  } catch (const Error& e) {
    throw UsageError(flag + " is " + mechanism + ": " + e.what());
  }
}

void put_options(nlohmann::ordered_json& json, const std::string& mechanism, const MechanismOptions& options,
                 char separator) {
  for_each_option(options, [&](const MechanismOption& o, const auto& value) {
    if (o.of(mechanism) && !is_default(value)) json[key_of(o, separator)] = value;
  });
}

void get_options(const nlohmann::ordered_json& json, const std::string& mechanism, MechanismOptions& options,
                 char separator) {
  for_each_option(options, [&](const MechanismOption& o, auto& value) {
    if (o.of(mechanism) && json.contains(key_of(o, separator))) json.at(key_of(o, separator)).get_to(value);
  });
  const bool old_window = (mechanism == "window" || mechanism == "lsh") && !json.contains("window");
  if (old_window) options.window = std::max<Index>(4, options.context / 8);
  if (mechanism == "linformer" && !json.contains(separator == '-' ? "linformer-rows" : "linformer_rows"))
    options.rows = std::max<Index>(4, options.context / 4);
}

}  // namespace heed::examples
