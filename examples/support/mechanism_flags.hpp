// The options of attention mechanisms as flags and in JSON: the rows of mechanism_options().
#pragma once
#include <heed/layers/attention/by_name.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/support/command_line.hpp"

namespace heed::examples {

// A flag for each option: --feature-map, --window and so on.
void add_mechanism_flags(CommandLine& line, MechanismOptions& options);

// Throws UsageError for a flag of add_mechanism_flags() that none of the mechanisms has. `flag` is the one that names
// them: --attention.
void check_mechanism_flags(const CommandLine& line, const std::string& flag,
                           const std::vector<std::string>& mechanisms);

// Throws UsageError where a mechanism cannot be made with its options, whose context is known.
void check_mechanism(const std::string& flag, const std::string& mechanism, const MechanismOptions& options);

// f(name, value) for each option, whose value is an Index or a std::string.
template <class Options, class F>
void for_each_option(Options& options, F&& f) {
  for (const MechanismOption& o : mechanism_options())
    std::visit([&](auto member) { f(o, options.*member); }, o.member);
}

// The options that a mechanism has, by their names, but for those that are 0, a default that follows the size of a
// head; `separator` stands between the words of a name.
void put_options(nlohmann::ordered_json& json, const std::string& mechanism, const MechanismOptions& options,
                 char separator);
// Takes from `json` what put_options() left there. What older files lack is what they were trained with: a window of an
// eighth and rows of a quarter of the context.
void get_options(const nlohmann::ordered_json& json, const std::string& mechanism, MechanismOptions& options,
                 char separator);

}  // namespace heed::examples
