// The origins of a run's settings, for messages: a flag is named only if it was given.
#pragma once
#include <functional>
#include <string>

#include "examples/support/command_line.hpp"

namespace heed::examples {

// Where each setting of a run was set: by a flag, in a checkpoint, or by default.
class SettingOrigins {
 public:
  // All settings are given by flags or have their defaults.
  SettingOrigins(const CommandLine& line) : line_(line) {}  // implicit
  // Other settings are stored in a checkpoint's file. stored(name) is true for these; names are those of flags without
  // dashes.
  SettingOrigins(const CommandLine& line, std::string file, std::function<bool(const std::string&)> stored);

  // Describes the setting of a flag (--steps): "--steps is 5", "steps is 5 (stored in lm.h5)" or "steps is 5 (the
  // default)".
  std::string describe(const std::string& flag, const std::string& value) const;
  const CommandLine& line() const { return line_; }

 private:
  const CommandLine& line_;
  std::string file_ = {};
  std::function<bool(const std::string&)> stored_ = {};
};

// Returns a function that says whether a name is among a checkpoint's settings, which are JSON.
std::function<bool(const std::string&)> is_among(const std::string& stored_settings);

}  // namespace heed::examples
