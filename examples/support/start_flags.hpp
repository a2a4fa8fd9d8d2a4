// How a training begins where its checkpoint exists: --resume, --resume-or-start, --overwrite, --init, --other-data.
#pragma once
#include <heed/optim/run_loop.hpp>
#include <memory>
#include <string>
#include <vector>

#include "examples/support/command_line.hpp"

namespace heed::examples {

struct StartFlags {
  bool resume = false, resume_or_start = false, overwrite = false, other_data = false;
  std::string init;

  RunStart start() const;
};

void add_start_flags(CommandLine& line, StartFlags& flags);

// What a training begins with.
struct Start {
  std::shared_ptr<Checkpoint> resumed, init;  // what was read; null: neither, or not that

  void apply(const StartFlags& flags, RunOptions& options) const;  // the run takes what is in the checkpoint
};
// Reads the checkpoint that the flags ask for. Throws UsageError where flags contradict each other, and, on the first
// rank, where `checkpoint` or `best` exists and no flag says what to do with it; Error where --resume finds no file.
Start open_start(const StartFlags& flags, const std::string& checkpoint, const std::string& best, bool first_rank);

// Throws Error where a file that a resumed checkpoint was trained on does not exist and no flag says where it is now.
void check_stored_file(const CommandLine& line, const std::string& flag, const std::string& file,
                       const std::string& checkpoint);

// A setting of a checkpoint that a flag gives another value.
struct ChangedSetting {
  std::string name, before, now;  // "dropout", "0", "0.1"
};
// Says on stderr which settings differ from the checkpoint's, but those that run() tells.
void say_changed(const std::vector<ChangedSetting>& changed);

// The message that refuses a setting which a resumed run cannot change. `of_model`: the weights depend on it.
std::string refusal_of(const ChangedSetting& changed, bool of_model);

}  // namespace heed::examples
