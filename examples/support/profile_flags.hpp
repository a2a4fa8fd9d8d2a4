// --profile and --trace: what the steps of a program's run spend their time on.
#pragma once
#include <heed/optim/profile.hpp>
#include <optional>
#include <string>

#include "examples/support/command_line.hpp"

namespace heed::examples {

struct ProfileFlags {
  Index steps = 0;  // that are measured; 0: no profile
  std::string trace;
};

void add_profile_flags(CommandLine& line, ProfileFlags& flags);

// The profile of a run, where one was asked for: RunOptions::profile.
class RunProfile {
 public:
  explicit RunProfile(const ProfileFlags& flags);
  Profile* get() { return profile_ ? &*profile_ : nullptr; }
  void report();  // after the run: the table on stderr, and the trace

 private:
  const ProfileFlags& flags_;
  std::optional<Profile> profile_;
};

}  // namespace heed::examples
