// What the programs of examples/articles have in common: flags, the start of a run, one training, and its report.
//
//   struct Settings : TrainingSettings {
//     Index width = 64;
//     void fields(SettingFields& f) {
//       f("width", width, Kind::model, "Size of a vector [64]", whole(1));
//       TrainingSettings::fields(f, "images");
//     }
//   };
//   int main(int argc, char** argv) {
//     return run_article<Settings>({"draw", "Draws digits", "new digits"}, argc, argv, [](Settings& s, Article& a) {
//       Model model(s);
//       if (!a.train(model, s, batches(s), held_out(s))) return;
//       if (!a.plot().empty()) draw(model, a.plot());
//     });
//   }
#pragma once
#include <functional>
#include <heed/core/check.hpp>
#include <heed/layers/model.hpp>
#include <heed/optim/optimizers/optimizers.hpp>
#include <heed/optim/run/run.hpp>
#include <heed/plot/plot.hpp>
#include <map>
#include <string>

#include "examples/support/program.hpp"
#include "examples/support/run_flags.hpp"
#include "examples/support/settings.hpp"

namespace heed::examples {

using heed::detail::formatted;

// Settings of every training. A program's own settings derive from these, and set other defaults in their constructor.
struct TrainingSettings {
  Index steps = 1500, batch = 32, examples = 20000, held_out = 200;
  double lr = 2e-3;
  std::uint64_t seed = 1;

  // Declares the settings. `examples_are` names what the model learns from: "images".
  void fields(SettingFields& f, const std::string& examples_are);
};

// A run of a program.
class Article {
 public:
  std::function<void(RunStep&)> after_step = {};  // called after each step of train()

  Article(std::string program, const CommandLine& line, RunFlags flags);

  const std::string& plot() const { return flags_.plot; }  // the file of --plot; empty: none

  // Replaces the settings that flags gave by those of the checkpoint: all of a run that is resumed, and of --init those
  // of the model. Flags that may change the run still do. Throws Error for a checkpoint of another program, and
  // UsageError for a flag that contradicts the checkpoint.
  template <class S>
  void settle(S& settings) {
    stored_ = {{"config", "{\"program\": \"" + program_ + "\"}"}};
    if (const std::shared_ptr<Checkpoint>& old = start_.resumed ? start_.resumed : start_.init) {
      S s;
      take(SettingFields(s), SettingFields(settings), *old);
      settings = s;
    }
    stored_["settings"] = SettingFields(settings).json();
  }

  // Trains by AdamW, with a rate that rises for a twentieth of the steps and then falls to a tenth by a cosine, and
  // evaluates ten times. Prints `what` before. Returns false if the run was stopped, after it printed how to continue.
  template <class M>
  bool train(M& model, const TrainingSettings& s, const std::string& what, Dataset training, EvaluationSet held_out,
             std::function<Metrics(const Batch&)> metrics = {}) {
    print_start(what, parameter_count(model));
    AdamW optimizer(decay_groups(model, 0.01), {.lr = s.lr});
    Schedule schedule = schedule_of(s);
    RunProfile profile(flags_.profile);
    RunOptions o = options(s);
    o.output.profile = profile.get();
    RunResult result =
        run(model, optimizer, schedule, std::move(training), std::move(held_out), o, {}, std::move(metrics));
    profile.report();
    return ended(std::move(result), s.steps);
  }
  const RunResult& result() const { return result_; }              // of train()
  int exit_code() const { return result_.interrupted ? 130 : 0; }  // of the program

 private:
  std::string program_;
  const CommandLine& line_;
  RunFlags flags_;
  Start start_;
  std::map<std::string, std::string> stored_;  // texts of the checkpoint
  RunResult result_ = {};

  void take(const SettingFields& fields, const SettingFields& given, const Checkpoint& old) const;
  void print_start(const std::string& what, Index parameters) const;
  static Schedule schedule_of(const TrainingSettings& s);
  RunOptions options(const TrainingSettings& s) const;
  bool ended(RunResult result, Index steps);
};

// The texts of a program: its name, what it does, and what --plot draws.
struct ArticleTexts {
  std::string name, does, picture;
};

// The main function of a program.
template <class S>
int run_article(const ArticleTexts& texts, int argc, char** argv, const std::function<void(S&, Article&)>& body) {
  CommandLine line(texts.does, texts.name);
  S settings;
  RunFlags flags{texts.name + ".h5"};
  SettingFields(settings).add_flags(line);
  flags.add_to(line, texts.picture);
  return run_program(line, argc, argv, [&] {
    Article article(texts.name, line, flags);
    article.settle(settings);
    body(settings, article);
    return article.exit_code();
  });
}

}  // namespace heed::examples
