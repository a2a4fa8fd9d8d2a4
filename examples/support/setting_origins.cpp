// Describes settings by the place where they were set.
#include "examples/support/setting_origins.hpp"

#include <memory>
#include <nlohmann/json.hpp>

namespace heed::examples {

SettingOrigins::SettingOrigins(const CommandLine& line, std::string file,
                               std::function<bool(const std::string&)> stored)
    : line_(line), file_(std::move(file)), stored_(std::move(stored)) {}

std::string SettingOrigins::describe(const std::string& flag, const std::string& value) const {
  if (line_.given(flag)) return flag + " is " + value;
  const std::string name = flag.substr(2);
  return name + " is " + value + (stored_ && stored_(name) ? " (stored in " + file_ + ")" : " (the default)");
}

std::function<bool(const std::string&)> is_among(const std::string& stored_settings) {
  const auto json = std::make_shared<nlohmann::json>(nlohmann::json::parse(stored_settings, nullptr, false));
  return [json](const std::string& name) { return json->contains(name); };
}

}  // namespace heed::examples
