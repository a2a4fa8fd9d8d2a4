// Flags for the options of attention mechanisms, one per row of mechanism_options().
#pragma once
#include <heed/layers/model_config.hpp>
#include <string>
#include <vector>

#include "examples/support/command_line.hpp"
#include "examples/support/setting_origins.hpp"

namespace heed::examples {

// Adds a flag for each option that one of the mechanisms has: --feature-map, --window and so on.
void add_mechanism_flags(CommandLine& line, MechanismOptions& options, const std::vector<std::string>& mechanisms);

// Throws UsageError if a flag of add_mechanism_flags() was given that none of the mechanisms has. `flag` is the flag
// that names the mechanisms: --attention.
void check_mechanism_flags(const SettingOrigins& origins, const std::string& flag,
                           const std::vector<std::string>& mechanisms);

// Throws UsageError if a mechanism cannot be made with these options, which include the context.
void check_mechanism(const SettingOrigins& origins, const std::string& flag, const std::string& mechanism,
                     const MechanismOptions& options);

}  // namespace heed::examples
