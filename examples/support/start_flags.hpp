// How a training starts if its checkpoint exists: --resume, --resume-or-start, --overwrite, --init, --other-data.
#pragma once
#include <heed/optim/run/options.hpp>
#include <memory>
#include <string>
#include <vector>

#include "examples/support/command_line.hpp"

namespace heed::examples {

// The values of these flags.
struct StartFlags {
  bool resume = false, resume_or_start = false, overwrite = false, other_data = false;
  std::string init;

  RunStart start() const;
};

// Adds these flags.
void add_start_flags(CommandLine& line, StartFlags& flags);

// The checkpoints that a training starts from.
struct Start {
  std::shared_ptr<Checkpoint> resumed, init;  // at most one is not null

  void apply(const StartFlags& flags, CheckpointOptions& options) const;  // sets the options for this start
};
// Reads the checkpoint that the flags select. Throws UsageError if flags contradict each other, and on the first rank
// if `checkpoint` or `best` exists and no flag permits to continue or replace it. Throws Error if --resume finds no
// file.
Start open_start(const StartFlags& flags, const std::string& checkpoint, const std::string& best, bool first_rank);

// Throws Error if a file that a resumed checkpoint was trained on does not exist and `flag` does not give its new name.
void check_stored_file(const CommandLine& line, const std::string& flag, const std::string& file,
                       const std::string& checkpoint);

}  // namespace heed::examples
