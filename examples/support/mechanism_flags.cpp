// Declares and checks the flags of mechanisms' options.
#include "examples/support/mechanism_flags.hpp"

#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/core/random.hpp>

namespace heed::examples {

// Whole numbers separated by commas, as one text.
static Takes whole_numbers() {
  return {"N,N...", [](const std::string& given) {
            try {
              numbers_of("it", given);
            } catch (const Error&) {
              return "it is '" + excerpt(given) + "'; it must be whole numbers separated by commas, as 0,7";
            }
            return std::string();
          }};
}

void mechanism_fields(SettingFields& f, MechanismOptions& options, const std::vector<std::string>& mechanisms,
                      const StoresOption& stored) {
  for_each_option(options, [&](const MechanismOption& o, auto& value) {
    const auto has = [&](const std::string& mechanism) { return o.of(mechanism); };
    if (std::none_of(mechanisms.begin(), mechanisms.end(), has)) return;
    using Value = std::decay_t<decltype(value)>;
    const Takes number = std::is_same_v<Value, double>        ? positive_number()
                         : std::is_same_v<Value, std::string> ? whole_numbers()
                                                              : whole(1);
    f(o.name, value, Kind::model, choice(o.mechanisms, ", ") + ": " + o.text,
      o.words.empty() ? number : one_of(o.words))
        .stored = !stored || stored(o, value != Value());
  });
}

void check_mechanism_flags(const SettingOrigins& origins, const std::string& flag,
                           const std::vector<std::string>& mechanisms) {
  for (const MechanismOption& o : mechanism_options()) {
    const auto has = [&](const std::string& mechanism) { return o.of(mechanism); };
    const std::string name = "--" + o.name;
    const CommandLine& line = origins.line();
    if (!line.given(name) || std::any_of(mechanisms.begin(), mechanisms.end(), has)) continue;
    throw UsageError(name + " is " + line.word(name) + " and " + origins.describe(flag, choice(mechanisms, ",")) +
                     "; " + flag + " must be " + choice(o.mechanisms, " or ") + ", or leave --" + o.name + " out");
  }
}

void check_mechanism(const SettingOrigins& origins, const std::string& flag, const std::string& mechanism,
                     const MechanismOptions& options) {
  try {
    Rng rng;
    mechanism_by_name(mechanism, options)(0, rng);
  } catch (const Error& e) {
    throw UsageError(origins.describe(flag, mechanism) + ": " + e.what());
  }
}

}  // namespace heed::examples
