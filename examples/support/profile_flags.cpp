// Declares --profile and --trace and reports the profile.
#include "examples/support/profile_flags.hpp"

#include <cstdio>
#include <heed/data/text.hpp>
#include <sstream>

namespace heed::examples {

constexpr Index kWarmup = 5;  // steps during which memory pools and caches are filled

void add_profile_flags(CommandLine& line, ProfileFlags& flags) {
  line.add("--profile", flags.steps,
           "Profile this many steps and print the report at the end; skips the first " + std::to_string(kWarmup),
           whole(1));
  line.add("--trace", flags.trace, "Trace of the steps of --profile, for chrome://tracing or Perfetto",
           file_name("FILE.json", FileRole::output), {.needs = "--profile"});
}

RunProfile::RunProfile(const ProfileFlags& flags) : flags_(flags) {
  if (!flags.trace.empty()) check_place("export_chrome_trace", flags.trace);
  if (flags.steps > 0) profile_.emplace(ProfileOptions{.warmup = kWarmup, .active = flags.steps});
}

void RunProfile::report() {
  if (!profile_) return;
  std::ostringstream text;
  profile_->print(text);
  std::fputs(text.str().c_str(), stderr);
  if (flags_.trace.empty()) return;
  profile_->export_chrome_trace(flags_.trace);
  std::fprintf(stderr, "trace: %s\n", printable(flags_.trace).c_str());
}

}  // namespace heed::examples
