// Checkpoints of a run: resuming gives the same bits after any stop or kill; the best checkpoint.
#include <cmath>
#include <fstream>
#include <heed/optim/run/checkpoint.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"
#include "tests/optim/thread_ranks.hpp"
#include "tests/support.hpp"
#include "tests/tools/size_limit.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::error_of;
using test::Killed;
using test::killed_after;
using test::PlaneRun;
using test::same_bits;
using test::ScriptedRun;
using test::TemporaryFolder;
namespace fs = std::filesystem;

TEST_CASE("run: stopped at any step and resumed, to the same bits") {
  const TemporaryFolder folder;
  const auto options = [&](const std::string& name, Index steps, bool resume) {
    return RunOptions{.steps = steps,
                      .seed = 5,
                      .evaluation = {.every = 7},
                      .checkpoint = {.path = folder.path / (name + ".h5"),
                                     .start = resume ? RunStart::resume_or_start : RunStart::overwrite},
                      .output = {.log = folder.path / (name + ".jsonl")}};
  };
  PlaneRun whole;
  const RunResult all = whole.go(options("whole", 20, true));  // resume_or_start without a file starts a new run
  CHECK(all.resumed_from == 0);
  for (const Index stop : {1, 7, 13, 19}) {
    const std::string name = "part" + std::to_string(stop);
    PlaneRun first, second;
    first.go(options(name, stop, false));
    const RunResult rest = second.go(options(name, 20, true));
    CHECK(rest.resumed_from == stop);
    CHECK(rest.history.losses == all.history.losses);
    CHECK((test::same_bits(second.model.up.weight, whole.model.up.weight)));
    CHECK((test::same_bits(second.model.down.weight, whole.model.down.weight)));
  }
  // Resuming a finished run does nothing and keeps its result.
  PlaneRun again;
  const RunResult nothing = again.go(options("whole", 20, true));
  CHECK(nothing.steps == 20);
  CHECK(nothing.validation_loss == all.validation_loss);
}

TEST_CASE("run: uses the loaded checkpoint to resume, unless the file has been deleted or replaced") {
  const TemporaryFolder folder;
  RunOptions options{.steps = 6, .checkpoint = {.path = folder.path / "m.h5", .start = RunStart::resume_or_start}};
  PlaneRun whole, first, read, gone, other;
  whole.go({.steps = 12});
  first.go(options);
  options.steps = 12;
  const auto loaded = [&] { return std::make_shared<Checkpoint>(load_checkpoint(options.checkpoint.path)); };
  const std::string bytes = bytes_of(options.checkpoint.path);

  options.checkpoint.loaded = loaded();
  std::filesystem::remove(options.checkpoint.path);
  const Tensor before = gone.model.up.weight.clone();
  CHECK(gone.refusal(options) == "resume: " + options.checkpoint.path.string() + " was read, but no longer exists");
  CHECK(same_bits(gone.model.up.weight, before));
  CHECK(!std::filesystem::exists(options.checkpoint.path));

  PlaneRun().go({.steps = 3, .checkpoint = {.path = options.checkpoint.path}});
  CHECK(other.refusal(options) == "resume: " + options.checkpoint.path.string() +
                                      " has changed since it was read; no other program may write to it");
  CHECK(same_bits(other.model.up.weight, before));

  std::ofstream(options.checkpoint.path, std::ios::binary) << bytes;
  CHECK(read.go(options).resumed_from == 6);
  CHECK(options.checkpoint.loaded->tensors.empty());  // the run has consumed it
  CHECK(same_bits(read.model.up.weight, whole.model.up.weight));
}

TEST_CASE("run: a checkpoint has the division of a step into batches and shards, unlike older ones") {
  const TemporaryFolder folder;
  RunOptions options{.steps = 4,
                     .accumulate = 2,
                     .shards = 3,
                     .checkpoint = {.path = folder.path / "m.h5", .start = RunStart::resume_or_start}};
  PlaneRun whole, first, rest;
  whole.go({.steps = 6, .accumulate = 2, .shards = 3});
  first.go(options);
  Checkpoint c = load_checkpoint(options.checkpoint.path);
  CHECK(contains(c.text("run_options"), R"("accumulate":2,"shards":3)"));
  for (const char* text : {"run_options", "training_data", "validation_data"}) c.texts.erase(text);
  c.tensors.erase("history/batches");
  save_checkpoint(options.checkpoint.path, c);
  options.steps = 6;
  CHECK(rest.go(options).resumed_from == 4);
  CHECK(same_bits(rest.model.up.weight, whole.model.up.weight));
}

TEST_CASE("run: the best checkpoint is the complete state after the best evaluation") {
  const TemporaryFolder folder;
  RunOptions options{
      .steps = 6,
      .evaluation = {.every = 1},
      .checkpoint = {.path = folder.path / "m.h5", .best = folder.path / "best.h5", .start = RunStart::overwrite}};
  ScriptedRun s{{5, 3, 4, 3, NAN, 3.5}, {.1, .2, .9, .9, .3, .4}};
  const RunResult r = s.go(options);
  CHECK(r.best_step == 2);  // the first of two equal losses
  CHECK_FALSE(r.stopped);
  const Checkpoint best = load_checkpoint(options.checkpoint.best);
  CHECK(best.counter("step") == 2);
  CHECK(best.tensor("history/loss").numel() == 2);
  ScriptedRun until{{5, 3}};
  until.go({.steps = 2, .evaluation = {.every = 1}});
  CHECK(same_bits(best.tensor("model/up.weight"), until.plane.model.up.weight));
  // Monitors a metric whose highest value is best. The best checkpoint can be resumed like any other.
  options.evaluation.monitor = "accuracy", options.evaluation.maximize = true;
  ScriptedRun by_accuracy{s.losses, s.accuracies};
  CHECK(by_accuracy.go(options).best_step == 3);
  CHECK(load_checkpoint(options.checkpoint.best).counter("step") == 3);
  fs::copy_file(options.checkpoint.best, folder.path / "n.h5");
  ScriptedRun from_best{s.losses, s.accuracies};
  const RunResult again = from_best.go({.steps = 6,
                                        .evaluation = {.every = 1, .monitor = "accuracy", .maximize = true},
                                        .checkpoint = {.path = folder.path / "n.h5", .start = RunStart::resume}},
                                       3);
  CHECK(again.resumed_from == 3);
  CHECK((bytes_of(folder.path / "n.h5") == bytes_of(options.checkpoint.path)));
}

RELEASE_TEST_CASE(
    "run: one that is killed after any step and resumed ends at the same step with the same best and last bits") {
  const TemporaryFolder folder;
  const std::vector<double> losses = {9, 8, 5, 6, 4, 7, 6, 5, 1, 1};
  const auto options = [&](const std::string& name) {
    return RunOptions{.steps = 10,
                      .evaluation = {.every = 1, .patience = 3},
                      .checkpoint = {.path = folder.path / (name + ".h5"),
                                     .every = 2,
                                     .best = folder.path / (name + ".best.h5"),
                                     .start = RunStart::resume_or_start},
                      .output = {.log = folder.path / (name + ".jsonl")}};
  };
  ScriptedRun whole{losses};
  const RunResult all = whole.go(options("whole"));
  CHECK(all.steps == 8);
  CHECK(all.best_step == 5);
  for (Index last = 1; last < 8; ++last) {
    const std::string name = "killed" + std::to_string(last);
    const RunOptions o = options(name);
    ScriptedRun killed{losses}, resumed{losses};
    CHECK_THROWS_AS(killed.go(killed_after(o, last)), Killed);
    const RunResult rest = resumed.go(options(name), (last - 1) / 2 * 2);
    CHECK(rest.resumed_from == (last - 1) / 2 * 2);
    CHECK(rest.steps == 8);
    CHECK(rest.stopped);
    CHECK((bytes_of(o.checkpoint.best) == bytes_of(options("whole").checkpoint.best)));
    CHECK((bytes_of(o.checkpoint.path) == bytes_of(options("whole").checkpoint.path)));
  }
  // Resuming a run that patience ended does nothing, unless patience is increased.
  ScriptedRun again{losses}, patient{losses};
  CHECK(again.go(options("whole"), 8).steps == 8);
  CHECK(again.evaluations == 0);
  RunOptions more = options("whole");
  more.evaluation.patience = 4;
  const RunResult r = patient.go(more, 8);
  CHECK(r.steps == 10);
  CHECK(r.best_step == 9);
  CHECK(load_checkpoint(more.checkpoint.best).counter("step") == 9);
}

RELEASE_TEST_CASE("run: the best checkpoint of a step is written before the last") {
  const TemporaryFolder folder;
  std::vector<double> losses(40);
  for (std::size_t i = 0; i < losses.size(); ++i) losses[i] = 40 - static_cast<double>(i);
  RunOptions options{.steps = 40,
                     .evaluation = {.every = 1},
                     .checkpoint = {.path = folder.path / "m.h5", .every = 1, .best = folder.path / "best.h5"}};
  int later = 0;
  options.after_step = [&](RunStep& s) {
    if (s.step == 1) return;
    CHECK(fs::last_write_time(options.checkpoint.best) <= fs::last_write_time(options.checkpoint.path));
    later += fs::last_write_time(options.checkpoint.best) < fs::last_write_time(options.checkpoint.path) ? 1 : 0;
  };
  ScriptedRun{losses}.go(options);
  CHECK(later > 0);  // file times may be coarse
}

TEST_CASE("run: a user-defined schedule with a state is saved and resumed") {
  struct Halves {  // halves the rate if the loss rises
    double lr = 0.02, last = INFINITY;
    double operator()(Index) const { return lr; }
    void observe(double loss) {
      lr *= loss > last ? 0.5 : 1;
      last = loss;
    }
    std::vector<double> state() const { return {lr, last}; }
    void load_state(const std::vector<double>& s) { lr = s[0], last = s[1]; }
  };
  const TemporaryFolder folder;
  RunOptions options{.steps = 6,
                     .evaluation = {.every = 1},
                     .checkpoint = {.path = folder.path / "m.h5", .start = RunStart::resume_or_start}};
  const std::vector<double> losses = {3, 4, 2, 3, 4, 1, 1};
  ScriptedRun whole{losses}, first{losses}, rest{losses};
  for (ScriptedRun* t : {&whole, &first, &rest}) t->plane.schedule = Halves{};
  whole.go({.steps = 6, .evaluation = {.every = 1}});
  options.after_step = [](RunStep& s) { s.stop = s.step == 4; };
  first.go(options);
  rest.go(options, 4);
  CHECK(rest.plane.schedule(0) == 0.0025);
  CHECK(same_bits(rest.plane.model.up.weight, whole.plane.model.up.weight));
  CHECK(load_checkpoint(options.checkpoint.path).tensor("schedule/own").numel() == 2);
  // If the schedule replaces a named one, the rate continues from the last value.
  ScriptedRun named{losses};
  const Schedule cosine = named.plane.schedule;
  options.steps = 7, options.after_step = [](RunStep& s) { CHECK(s.lr == 0.0025); };
  named.go(options, 6);
}

namespace {

// A run of 6 steps on `ranks` processes, saved every second step, that cannot write files between steps `from` and
// `to`.
struct FullDisk {
  TemporaryFolder folder;
  RunOptions options{
      .steps = 6, .shards = 2, .evaluation = {.every = 2}, .checkpoint = {.path = folder.path / "m.h5", .every = 2}};
  std::vector<std::string> warnings = {};  // of rank 0

  void run(PlaneRun& plane, Index from, Index to, Ranks* ranks) {
    const test::SizeLimit limit;
    RunOptions o = options;
    o.ranks.communicator = ranks;
    const bool first = ranks == nullptr || ranks->rank() == 0;
    o.after_step = [&, from, to](RunStep& s) {
      if (first && s.step == from) limit.set(2048);
      if (first && s.step == to) limit.lift();
    };
    const RunResult result = plane.go(o);
    if (first) warnings = result.warnings;
  }
  // The errors of rank 0 and of the last rank; empty without an error.
  std::pair<std::string, std::string> go(Index from, Index to, int ranks) {
    if (ranks == 1) {
      PlaneRun plane;
      const std::string error = error_of([&] { run(plane, from, to, nullptr); });
      return {error, error};
    }
    const auto reasons = test::on_ranks(ranks, [&](Ranks& r) {
      PlaneRun plane;
      run(plane, from, to, &r);
    });
    const auto reason = [&](int rank) { return reasons.contains(rank) ? reasons.at(rank) : std::string(); };
    return {reason(0), reason(ranks - 1)};
  }
};

}  // namespace

TEST_CASE("run: a save that fails is a warning, keeps the old file, and the next save is tried, on ranks as well") {
  for (const int ranks : {1, 2}) {
    FullDisk good, once, twice;
    const std::string begin = "save_checkpoint: ", end = "; the previous file is unchanged";
    const auto failed = [&](const FullDisk& d) {
      return begin + d.options.checkpoint.path.string() + " could not be written: File too large after ";
    };
    CHECK(good.go(0, 0, ranks).first == "");
    CHECK(good.warnings.empty());
    CHECK(once.go(4, 5, ranks).first == "");
    REQUIRE(once.warnings.size() == 1);
    CHECK(once.warnings[0].starts_with("step 4 could not be saved: " + failed(once)));
    CHECK(once.warnings[0].ends_with(end + "; the run continues"));
    CHECK((bytes_of(once.options.checkpoint.path) == bytes_of(good.options.checkpoint.path)));
    const auto [error, other] = twice.go(4, 0, ranks);
    CHECK(error.starts_with("run: the last step could not be saved: " + failed(twice)));
    CHECK(error.ends_with(end));
    if (ranks > 1) CHECK(other == "run: the last step could not be saved: rank 0 could not write it");
    CHECK(load_checkpoint(twice.options.checkpoint.path).counter("step") == 2);
    CHECK(test::files_in(twice.folder.path) == 1);
    twice.options.checkpoint.start = RunStart::resume_or_start;
    CHECK(twice.go(0, 0, ranks).first == "");
    CHECK((bytes_of(twice.options.checkpoint.path) == bytes_of(good.options.checkpoint.path)));
  }
}

TEST_CASE("run: the best evaluation that cannot be saved is a warning, and an error in the end") {
  const TemporaryFolder folder;
  const fs::path best = folder.path / "best.h5";
  const auto run_with = [&](const std::vector<double>& losses) {
    const test::SizeLimit limit;
    RunOptions o{.steps = 3, .evaluation = {.every = 1}, .checkpoint = {.best = best}};
    o.after_step = [&](RunStep& s) { s.step == 2 ? limit.set(2048) : limit.lift(); };
    return ScriptedRun{losses}.go(o);
  };
  CHECK(run_with({3, 2, 1}).warnings.at(0).starts_with("step 2 could not be saved: save_checkpoint: " + best.string()));
  CHECK(load_checkpoint(best).counter("step") == 3);
  fs::remove(best);
  CHECK(error_of([&] {
          run_with({3, 2, 4});
        }).starts_with("run: the best evaluation could not be saved: save_checkpoint: " + best.string()));
  CHECK(load_checkpoint(best).counter("step") == 1);
}

TEST_CASE("run: no output file may be another output file, or a file of the data") {
  const TemporaryFolder folder;
  const fs::path data = folder.write("text", "mine"), file = folder.path / "m.h5";
  fs::create_hard_link(data, folder.path / "hard");
  const std::string hard = folder.path / "hard", different = ", the same file; they must be different files";
  const auto refused = [&](RunOptions o, const std::string& what) {
    o.inputs = {data};
    CHECK(PlaneRun().refusal(o) == what + different);
    CHECK(bytes_of(data) == "mine");
    CHECK(test::files_in(folder.path) == 2);
  };
  const std::string input = " is " + hard + " and an input " + data.string();
  refused({.checkpoint = {.path = hard}}, "run: checkpoint" + input);
  refused({.output = {.log = hard}}, "run: log" + input);
  refused({.checkpoint = {.best = hard}}, "run: best" + input);
  refused({.checkpoint = {.path = file, .best = file}},
          "run: checkpoint is " + file.string() + " and best " + file.string());
  CHECK(PlaneRun().refusal({.checkpoint = {.path = file}, .output = {.log = file.string() + ".tmp"}}) ==
        "run: checkpoint is " + file.string() + " and log " + file.string() + ".tmp, both of which need " +
            file.string() + ".tmp; they must be different files");
}

namespace {

// A run that trains adapters of a network.
struct AdapterRun {
  test::Regression model;
  std::unique_ptr<AdamW> optimizer;
  Schedule schedule{"constant", {.lr = 3e-2}};

  explicit AdapterRun(std::uint64_t base = 3) : model(base_of(base)) {
    Rng rng(4);
    add_lora(model, {.rank = 2}, rng);
    optimizer = std::make_unique<AdamW>(trainable_parameters(model), AdamWOptions{.lr = 3e-2});
  }
  static test::Regression base_of(std::uint64_t seed) {
    Rng rng(seed);
    return test::Regression(rng);
  }
  RunResult go(const RunOptions& o) { return run(model, *optimizer, schedule, test::Plane{}, {}, o); }
};

}  // namespace

TEST_CASE("run: a checkpoint of adapters has no frozen weights, and resumes on the same base only") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "lora.h5";
  const auto options = [&](Index steps, RunStart start = RunStart::resume_or_start) {
    return RunOptions{.steps = steps, .checkpoint = {.path = file, .start = start, .trainable_only = true}};
  };
  AdapterRun whole, first, second, other(5);
  const RunResult all = whole.go({.steps = 12});
  first.go(options(7));
  const Checkpoint c = load_checkpoint(file);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : c.tensors)
    if (name.starts_with("model/") || name.starts_with("optimizer/exp_avg.")) names.push_back(name);
  CHECK(names == std::vector<std::string>{"model/down.lora.a", "model/down.lora.b", "model/up.lora.a",
                                          "model/up.lora.b", "optimizer/exp_avg.down.lora.a",
                                          "optimizer/exp_avg.down.lora.b", "optimizer/exp_avg.up.lora.a",
                                          "optimizer/exp_avg.up.lora.b"});
  CHECK(c.text("base_hash").size() == 16);
  const std::string before = bytes_of(file);
  CHECK(contains(error_of([&] { other.go(options(12)); }),
                 "load_trainable: the hash of the base of " + file.string() + " is " + c.text("base_hash")));
  CHECK(bytes_of(file) == before);
  RunOptions complete = options(12);
  complete.checkpoint.trainable_only = false;
  CHECK(contains(error_of([&] { second.go(complete); }), file.string() + " has only the trained part of a model"));
  CHECK(second.go(options(12)).history.losses == all.history.losses);
  for (const auto& [mine, theirs] : {std::pair(&second.model.up, &whole.model.up)}) {
    CHECK(same_bits(mine->lora->a, theirs->lora->a));
    CHECK(same_bits(mine->lora->b, theirs->lora->b));
    CHECK(same_bits(mine->weight, theirs->weight));
  }
  AdapterRun whole_file;
  RunOptions stored = options(3, RunStart::overwrite);
  stored.checkpoint.trainable_only = false;
  whole_file.go(stored);
  CHECK(contains(error_of([&] { whole_file.go(options(5)); }), "has a whole model, not only the trained part of one"));
  RunOptions named = options(3, RunStart::overwrite);
  named.checkpoint.texts["base_hash"] = "x";
  CHECK(
      contains(error_of([&] { whole_file.go(named); }), "run: a text is named base_hash, which the run itself stores"));
}
