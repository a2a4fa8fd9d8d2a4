// The flags of programs that train: how a run starts if its checkpoint exists (--resume, --resume-or-start,
// --overwrite, --init, --other-data), its files, threads and profile.
#pragma once
#include <heed/optim/run/options.hpp>
#include <memory>
#include <string>
#include <vector>

#include "examples/support/command_line.hpp"
#include "examples/support/profile_flags.hpp"

namespace heed::examples {

// The checkpoints that a training starts from.
struct Start {
  std::shared_ptr<Checkpoint> resumed, init;  // at most one is not null
  bool converted = false;                     // `init` is a model of another format, which run() cannot read
};

// The values of these flags.
struct RunFlags {
  std::string checkpoint, log = {}, plot = {};
  Index checkpoint_every = 0;
  bool resume = false, resume_or_start = false, overwrite = false, other_data = false;
  std::string init = {};
  bool init_published = false;  // --init takes published models, too
  int threads = 0;
  bool find_nan = false;
  ProfileFlags profile = {};

  // Adds the flags. `picture` is what --plot draws, and `rules` are those of --checkpoint.
  void add_to(CommandLine& line, const std::string& picture, const FlagRules& rules = {});
  // The options that these flags set.
  RunOptions options(const Start& start) const;
  // The command that continues this run, quoted for a shell. It repeats those of these flags, and of `more`, that were
  // given.
  std::string resume_command(const CommandLine& line, const std::vector<std::string>& more = {}) const;
};

// Reads the checkpoint that the flags select. Throws UsageError if flags contradict each other, and on the first rank
// if the checkpoint or `best` exists and no flag permits to continue or replace it. Throws Error if --resume finds no
// file.
Start open_start(const RunFlags& flags, const std::string& best, bool first_rank);

// Throws Error if a file that a resumed checkpoint was trained on does not exist and `flag` does not give its new name.
void check_stored_file(const CommandLine& line, const std::string& flag, const std::string& file,
                       const std::string& checkpoint);

}  // namespace heed::examples
