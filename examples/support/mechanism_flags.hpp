// Flags for the options of attention mechanisms, one per row of mechanism_options().
#pragma once
#include <heed/layers/model_config.hpp>
#include <string>
#include <vector>

#include "examples/support/settings.hpp"

namespace heed::examples {

// Declares a setting for each option that one of the mechanisms has: feature-map, window and so on. Those for which
// stored(option, whether it has a value) is false are left out of checkpoints; empty: none.
using StoresOption = std::function<bool(const MechanismOption&, bool has_value)>;
void mechanism_fields(SettingFields& f, MechanismOptions& options, const std::vector<std::string>& mechanisms,
                      const StoresOption& stored = {});

// Throws UsageError if a flag of mechanism_fields() was given that none of the mechanisms has. `flag` is the flag
// that names the mechanisms: --attention.
void check_mechanism_flags(const SettingOrigins& origins, const std::string& flag,
                           const std::vector<std::string>& mechanisms);

// Throws UsageError if a mechanism cannot be made with these options, which include the context.
void check_mechanism(const SettingOrigins& origins, const std::string& flag, const std::string& mechanism,
                     const MechanismOptions& options);

}  // namespace heed::examples
