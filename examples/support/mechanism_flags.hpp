// The options of attention mechanisms as flags: the rows of mechanism_options().
#pragma once
#include <heed/layers/model_config.hpp>
#include <string>
#include <vector>

#include "examples/support/command_line.hpp"
#include "examples/support/setting_origins.hpp"

namespace heed::examples {

// A flag for each option that one of the mechanisms has: --feature-map, --window and so on.
void add_mechanism_flags(CommandLine& line, MechanismOptions& options, const std::vector<std::string>& mechanisms);

// Throws UsageError for a flag of add_mechanism_flags() that none of the mechanisms has. `flag` is the one that names
// them: --attention.
void check_mechanism_flags(const SettingOrigins& origins, const std::string& flag,
                           const std::vector<std::string>& mechanisms);

// Throws UsageError where a mechanism cannot be made with its options, whose context is known.
void check_mechanism(const SettingOrigins& origins, const std::string& flag, const std::string& mechanism,
                     const MechanismOptions& options);

}  // namespace heed::examples
