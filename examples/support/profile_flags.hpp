// --profile and --trace: the time that a run's steps spend in each part.
#pragma once
#include <heed/optim/profile/profile.hpp>
#include <optional>
#include <string>

#include "examples/support/command_line.hpp"

namespace heed::examples {

// The values of these flags.
struct ProfileFlags {
  Index steps = 0;  // to measure; 0: no profile
  std::string trace;
};

// Adds --profile and --trace.
void add_profile_flags(CommandLine& line, ProfileFlags& flags);

// The profile of a run: OutputOptions::profile. Throws Error if the trace cannot be written.
class RunProfile {
 public:
  explicit RunProfile(const ProfileFlags& flags);
  Profile* get() { return profile_ ? &*profile_ : nullptr; }  // null without --profile
  void report();  // after the run: prints the table to stderr and writes the trace

 private:
  const ProfileFlags& flags_;
  std::optional<Profile> profile_;
};

}  // namespace heed::examples
