// Where the settings of a run come from, for messages: a flag is named only where it was given.
#pragma once
#include <functional>
#include <string>

#include "examples/support/command_line.hpp"

namespace heed::examples {

class SettingOrigins {
 public:
  // Settings are given by flags or have their defaults.
  SettingOrigins(const CommandLine& line) : line_(line) {}  // implicit
  // Others are stored in a checkpoint's file. `stored` tells which, by the name of the flag without dashes.
  SettingOrigins(const CommandLine& line, std::string file, std::function<bool(const std::string&)> stored);

  // "--steps is 5", "steps is 5 (stored in lm.h5)" or "steps is 5 (the default)", by the name of the flag, --steps.
  std::string says(const std::string& flag, const std::string& value) const;
  const CommandLine& line() const { return line_; }

 private:
  const CommandLine& line_;
  std::string file_ = {};
  std::function<bool(const std::string&)> stored_ = {};
};

// Whether a setting is among those of a checkpoint, which are JSON.
std::function<bool(const std::string&)> is_among(const std::string& stored_settings);

}  // namespace heed::examples
