// The race of attention mechanisms: trains all entries of all tasks and writes tables, a log and pictures.
#pragma once
#include <cstdint>
#include <heed/core/dtype.hpp>
#include <string>
#include <vector>

#include "examples/experiments/race_tasks.hpp"

namespace heed::examples {

// The settings of a race.
struct RaceSettings {
  std::vector<std::string> mechanisms;  // for the tasks that take mechanisms
  MechanismOptions options = {};        // of these mechanisms
  std::vector<std::string> tasks;
  Index steps = 0;  // per run; 0: the default of its task
  std::uint64_t seed = 1;
  int threads = 0;
  std::string plot, log;  // names of files; empty: none
};

// Trains the entries one after another. Shows progress on stderr and prints tables on stdout. Returns the exit code: 0,
// 1 if a run failed (the others continue), or 130 after Ctrl-C or SIGTERM, which end the race with the tables so far.
// Throws Error if a file cannot be written, FileError if a picture is also the file of another flag.
int race(const RaceSettings& settings, const std::vector<RaceEntry>& entries);

}  // namespace heed::examples
