// Declares and checks the flags of a training, and reads checkpoints.
#include "examples/support/run_flags.hpp"

#include <cstdio>
#include <filesystem>
#include <heed/core/check.hpp>
#include <heed/io/pretrained.hpp>

namespace heed::examples {

namespace fs = std::filesystem;

static bool exists(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored);
}

void RunFlags::add_to(CommandLine& line, const std::string& picture, const FlagRules& rules) {
  line.add("--checkpoint", checkpoint, "Checkpoint file, always written at the end [" + checkpoint + "]",
           file_name("FILE", FileRole::checkpoint), rules);
  line.add("--checkpoint-every", checkpoint_every, "Steps between checkpoints; 0: only at the end [0]", whole(0));
  line.add_switch("--resume", resume,
                  "Continue the training of the checkpoint with its settings; --steps, --lr, batches and "
                  "evaluations may change");
  line.add_switch("--resume-or-start", resume_or_start,
                  "As --resume, but start a new training if there is no checkpoint; for launchers");
  line.add_switch("--overwrite", overwrite, "Start a new training and replace the checkpoint");
  line.add("--init", init,
           std::string("Fine-tune: start a new training from the model and the tokenizer of a checkpoint") +
               (init_published ? ", a folder of transformers or a GGUF file" : ""),
           init_published ? model_name() : file_name("FILE", FileRole::input));
  line.add_switch("--other-data", other_data, "Resume on other data than the checkpoint was trained on");
  line.add("--log", log, "One JSON object per step", file_name("FILE.jsonl", FileRole::log));
  line.add("--plot", plot, "Picture of the " + picture + ", .svg or .png", file_name("FILE.svg|png", FileRole::output));
  line.add_threads(threads);
  line.add_find_nan(find_nan);
  add_profile_flags(line, profile);
}

RunOptions RunFlags::options(const Start& start) const {
  RunOptions o;
  o.find_nan = find_nan;
  o.checkpoint = {.path = checkpoint,
                  .every = checkpoint_every,
                  .start = resume            ? RunStart::resume
                           : resume_or_start ? RunStart::resume_or_start
                           : overwrite       ? RunStart::overwrite
                                             : RunStart::start,
                  .init = start.init && !start.converted ? init : "",
                  .loaded = start.converted ? nullptr
                            : start.resumed ? start.resumed
                                            : start.init,
                  .other_data = other_data};
  o.output = {.log = log, .progress = stderr};
  o.handle_interrupt = true;
  return o;
}

std::string RunFlags::resume_command(const CommandLine& line, const std::vector<std::string>& more) const {
  std::vector<std::string> flags = {"--threads", "--checkpoint-every", "--log", "--plot"};
  flags.insert(flags.end(), more.begin(), more.end());
  return line.resume_command(checkpoint, flags);
}

static void check_together(const RunFlags& f) {
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

// A model of any format as a checkpoint. The file of a checkpoint is read as it is.
static void open_init(const RunFlags& f, Start& start) {
  start.converted = f.init_published && !names_checkpoint(f.init);
  if (!start.converted) {
    start.init = std::make_shared<Checkpoint>(load_checkpoint(f.init));
    return;
  }
  Pretrained p = load_pretrained(f.init);
  require(p.config.options.causal, f.init,
          " is an encoder, which does not continue texts; --init must be a model that ",
          "does, or a checkpoint of train_lm");
  start.init = std::make_shared<Checkpoint>();
  store_model(*start.init, p.lm.model);
  start.init->texts = pretrained_texts(p);
  start.init->source = f.init;
}

Start open_start(const RunFlags& f, const std::string& best, bool first_rank) {
  check_together(f);
  const bool is_there = exists(f.checkpoint);
  if (f.resume && !is_there)
    fail("there is no checkpoint ", f.checkpoint, " to resume; --resume-or-start starts a new training if there is ",
         "none");
  Start start;
  if (is_there && (f.resume || f.resume_or_start)) {
    start.resumed = std::make_shared<Checkpoint>(load_checkpoint(f.checkpoint));
    return start;
  }
  for (const std::string& file : {f.checkpoint, best})
    if (!f.overwrite && first_rank && !file.empty() && exists(file))
      throw UsageError(file + " exists already; --resume continues its training, --overwrite replaces it, and --init " +
                       file + " with another --checkpoint starts a new training from its weights");
  if (!f.init.empty()) open_init(f, start);
  return start;
}

void check_stored_file(const CommandLine& line, const std::string& flag, const std::string& file,
                       const std::string& checkpoint) {
  if (!file.empty() && file != "-" && !line.given(flag) && !fs::exists(file))
    fail(file, " does not exist (", checkpoint, " was trained on it; give ", flag, " to say where it is now)");
}

}  // namespace heed::examples
