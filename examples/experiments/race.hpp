// The race of the attention mechanisms: all runs of all tasks, their table, log and pictures.
#pragma once
#include <cstdint>
#include <heed/core/dtype.hpp>
#include <string>
#include <vector>

#include "examples/experiments/race_tasks.hpp"

namespace heed::examples {

struct RaceSettings {
  std::vector<std::string> mechanisms;  // of copy and stories
  MechanismOptions options = {};        // theirs
  std::vector<std::string> tasks;
  Index steps = 0;  // of each run; 0: as many as its task has
  std::uint64_t seed = 1;
  int threads = 0;
  std::string plot, log;  // files; empty: none
};

// Trains the entries in turn. Shows progress on stderr and the tables on stdout. Returns the exit code: 0, 1 where a
// run failed (the others go on), 130 after Ctrl-C or SIGTERM, which end the race with the tables so far. Throws Error
// for files that cannot be written, FileError for pictures that are files of other flags.
int race(const RaceSettings& settings, const std::vector<RaceEntry>& entries);

}  // namespace heed::examples
