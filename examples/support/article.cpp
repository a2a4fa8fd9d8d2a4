// The common parts of the programs of examples/articles.
#include "examples/support/article.hpp"

#include <algorithm>
#include <cstdio>
#include <heed/core/parallel.hpp>

#include "examples/support/run_report.hpp"

namespace heed::examples {

void TrainingSettings::fields(SettingFields& f, const std::string& examples_are) {
  f.counted("steps", steps, Kind::run, "Optimizer steps", whole(0));
  f.counted("batch", batch, Kind::run, examples_are + " per batch");
  f.counted("examples", examples, Kind::start, examples_are + " to train on");
  f.counted("held-out", held_out, Kind::start, examples_are + " to evaluate on");
  f("lr", lr, Kind::run, formatted("Peak learning rate [%g]", lr), number(0));
  f("seed", seed, Kind::start, "Seed of weights and " + examples_are + " [1]", seed_number());
}

Article::Article(std::string program, const CommandLine& line, RunFlags flags)
    : program_(std::move(program)), line_(line), flags_(std::move(flags)) {
  set_threads(flags_.threads);
  check_plot(flags_.plot);
  start_ = open_start(flags_, "", true);
}

void Article::take(const SettingFields& fields, const SettingFields& given, const Checkpoint& old) const {
  const auto config = old.texts.find("config");
  require(config != old.texts.end() && config->second == stored_.at("config"), old.source, " is not a checkpoint of ",
          program_);
  const bool resumes = start_.resumed != nullptr;
  fields.read(StoredSettings(old), resumes ? std::nullopt : std::optional(Kind::model));
  if (resumes)
    print_changed(fields.resume(line_, given, false));
  else
    fields.init(line_, given, old.source);
}

void Article::print_start(const std::string& what, Index parameters) const {
  std::fprintf(stderr, "%s: %.2fM parameters; %s, %d threads\n", what.c_str(), static_cast<double>(parameters) / 1e6,
               arch(), threads());
}

Schedule Article::schedule_of(const TrainingSettings& s) {
  return {"cosine", {.lr = s.lr, .min_lr = s.lr / 10, .warmup = s.steps / 20, .steps = std::max<Index>(s.steps, 1)}};
}

RunOptions Article::options(const TrainingSettings& s) const {
  RunOptions o = flags_.options(start_);
  o.steps = s.steps, o.seed = s.seed;
  o.evaluation.every = std::max<Index>(1, s.steps / 10);
  o.checkpoint.texts = stored_;
  o.after_step = after_step;
  return o;
}

bool Article::ended(RunResult result, Index steps) {
  result_ = std::move(result);
  if (result_.interrupted) print_stopped(result_, steps, flags_.resume_command(line_));
  return !result_.interrupted;
}

}  // namespace heed::examples
