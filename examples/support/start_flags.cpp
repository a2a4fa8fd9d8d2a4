// Checks the flags for the start of a training and reads checkpoints.
#include "examples/support/start_flags.hpp"

#include <filesystem>
#include <heed/core/check.hpp>

namespace heed::examples {

namespace fs = std::filesystem;

static bool exists(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored);
}

RunStart StartFlags::start() const {
  return resume            ? RunStart::resume
         : resume_or_start ? RunStart::resume_or_start
         : overwrite       ? RunStart::overwrite
                           : RunStart::start;
}

void add_start_flags(CommandLine& line, StartFlags& flags) {
  line.add_switch("--resume", flags.resume,
                  "Continue the training of the checkpoint with its settings; --steps, --lr, batches and "
                  "evaluations may change");
  line.add_switch("--resume-or-start", flags.resume_or_start,
                  "As --resume, but start a new training if there is no checkpoint; for launchers");
  line.add_switch("--overwrite", flags.overwrite, "Start a new training and replace the checkpoint");
  line.add("--init", flags.init, "Fine-tune: start a new training from the model and the tokenizer of a checkpoint",
           file_name("FILE", FileRole::input));
  line.add_switch("--other-data", flags.other_data, "Resume on other data than the checkpoint was trained on");
}

static void check_together(const StartFlags& f) {
  std::vector<std::string> given;
  if (f.resume) given.emplace_back("--resume");
  if (f.resume_or_start) given.emplace_back("--resume-or-start");
  if (f.overwrite) given.emplace_back("--overwrite");
  if (given.size() > 1) throw UsageError(given[0] + " and " + given[1] + " contradict each other; give one of them");
  if (f.resume && !f.init.empty())
    throw UsageError("--resume takes the weights of the checkpoint, and --init those of " + f.init +
                     "; give one of them");
  if (f.other_data && !f.resume && !f.resume_or_start)
    throw UsageError("--other-data requires --resume; give --resume, or leave --other-data out");
}

Start open_start(const StartFlags& f, const std::string& checkpoint, const std::string& best, bool first_rank) {
  check_together(f);
  const bool is_there = exists(checkpoint);
  if (f.resume && !is_there)
    fail("there is no checkpoint ", checkpoint, " to resume; --resume-or-start starts a new training if there is ",
         "none");
  Start start;
  if (is_there && (f.resume || f.resume_or_start)) {
    start.resumed = std::make_shared<Checkpoint>(load_checkpoint(checkpoint));
    return start;
  }
  for (const std::string& file : {checkpoint, best})
    if (!f.overwrite && first_rank && !file.empty() && exists(file))
      throw UsageError(file + " exists already; --resume continues its training, --overwrite replaces it, and --init " +
                       file + " with another --checkpoint starts a new training from its weights");
  if (!f.init.empty()) start.init = std::make_shared<Checkpoint>(load_checkpoint(f.init));
  return start;
}

void Start::apply(const StartFlags& flags, CheckpointOptions& o) const {
  o.start = flags.start();
  o.other_data = flags.other_data;
  if (init) o.init = flags.init;
  o.loaded = resumed ? resumed : init;
}

void check_stored_file(const CommandLine& line, const std::string& flag, const std::string& file,
                       const std::string& checkpoint) {
  if (!file.empty() && file != "-" && !line.given(flag) && !fs::exists(file))
    fail(file, " does not exist (", checkpoint, " was trained on it; give ", flag, " to say where it is now)");
}

}  // namespace heed::examples
