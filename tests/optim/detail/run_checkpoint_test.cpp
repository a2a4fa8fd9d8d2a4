// What a run saves and goes on from: to the same bits wherever it was stopped or killed; the best checkpoint.
#include <cmath>
#include <fstream>
#include <heed/optim/detail/run_checkpoint.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::error_of;
using test::Killed;
using test::killed_after;
using test::PlaneRun;
using test::same_bits;
using test::TemporaryFolder;
using test::Told;
namespace fs = std::filesystem;

TEST_CASE("run: stopped at any step and resumed, to the same bits") {
  const TemporaryFolder folder;
  const auto options = [&](const std::string& name, Index steps, bool resume) {
    return RunOptions{.steps = steps,
                      .seed = 5,
                      .eval_every = 7,
                      .checkpoint = folder.path / (name + ".h5"),
                      .start = resume ? RunStart::resume_or_start : RunStart::overwrite,
                      .log = folder.path / (name + ".jsonl")};
  };
  PlaneRun whole;
  const RunResult all = whole.go(options("whole", 20, true));  // resume without a file starts afresh
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
  // A finished run that is resumed does nothing and keeps its result.
  PlaneRun again;
  const RunResult nothing = again.go(options("whole", 20, true));
  CHECK(nothing.steps == 20);
  CHECK(nothing.validation_loss == all.validation_loss);
}

TEST_CASE("run: goes on from what was read of the checkpoint, unless the file is gone or another one by then") {
  const TemporaryFolder folder;
  RunOptions options{.steps = 6, .checkpoint = folder.path / "m.h5", .start = RunStart::resume_or_start};
  PlaneRun whole, first, read, gone, other;
  whole.go({.steps = 12});
  first.go(options);
  options.steps = 12;
  const auto loaded = [&] { return std::make_shared<Checkpoint>(load_checkpoint(options.checkpoint)); };
  const std::string bytes = bytes_of(options.checkpoint);

  options.loaded = loaded();
  std::filesystem::remove(options.checkpoint);
  const Tensor before = gone.model.up.weight.clone();
  CHECK(gone.refusal(options) == "resume: " + options.checkpoint.string() + " was read, and is not there any more");
  CHECK(same_bits(gone.model.up.weight, before));
  CHECK(!std::filesystem::exists(options.checkpoint));

  PlaneRun().go({.steps = 3, .checkpoint = options.checkpoint});
  CHECK(other.refusal(options) == "resume: " + options.checkpoint.string() +
                                      " is not what was read of it any more: something else has written to it");
  CHECK(same_bits(other.model.up.weight, before));

  std::ofstream(options.checkpoint, std::ios::binary) << bytes;
  CHECK(read.go(options).resumed_from == 6);
  CHECK(options.loaded->tensors.empty());  // the run took it
  CHECK(same_bits(read.model.up.weight, whole.model.up.weight));
}

TEST_CASE("run: what a step is divided into is in the checkpoint, and of an older one is not asked") {
  const TemporaryFolder folder;
  RunOptions options{
      .steps = 4, .accumulate = 2, .shards = 3, .checkpoint = folder.path / "m.h5", .start = RunStart::resume_or_start};
  PlaneRun whole, first, rest;
  whole.go({.steps = 6, .accumulate = 2, .shards = 3});
  first.go(options);
  Checkpoint c = load_checkpoint(options.checkpoint);
  CHECK(contains(c.text("run_options"), R"("accumulate":2,"shards":3)"));
  for (const char* text : {"run_options", "training_data", "validation_data"}) c.texts.erase(text);
  c.tensors.erase("history/batches");
  save_checkpoint(options.checkpoint, c);
  options.steps = 6;
  CHECK(rest.go(options).resumed_from == 4);
  CHECK(same_bits(rest.model.up.weight, whole.model.up.weight));
}

TEST_CASE("run: the best checkpoint is that of the best evaluation, whole") {
  const TemporaryFolder folder;
  RunOptions options{.steps = 6,
                     .eval_every = 1,
                     .checkpoint = folder.path / "m.h5",
                     .start = RunStart::overwrite,
                     .best = folder.path / "best.h5"};
  Told s{{5, 3, 4, 3, NAN, 3.5}, {.1, .2, .9, .9, .3, .4}};
  const RunResult r = s.go(options);
  CHECK(r.best_step == 2);  // the first of two that are as good
  CHECK_FALSE(r.stopped);
  const Checkpoint best = load_checkpoint(options.best);
  CHECK(best.counter("step") == 2);
  CHECK(best.tensor("history/loss").numel() == 2);
  Told until{{5, 3}};
  until.go({.steps = 2, .eval_every = 1});
  CHECK(same_bits(best.tensor("model/up.weight"), until.plane.model.up.weight));
  // Of a metric, of which more is better. The best goes on as any checkpoint does.
  options.monitor = "accuracy", options.monitor_highest = true;
  Told by_accuracy{s.losses, s.accuracies};
  CHECK(by_accuracy.go(options).best_step == 3);
  CHECK(load_checkpoint(options.best).counter("step") == 3);
  fs::copy_file(options.best, folder.path / "n.h5");
  Told from_best{s.losses, s.accuracies};
  const RunResult again = from_best.go({.steps = 6,
                                        .eval_every = 1,
                                        .monitor = "accuracy",
                                        .monitor_highest = true,
                                        .checkpoint = folder.path / "n.h5",
                                        .start = RunStart::resume},
                                       3);
  CHECK(again.resumed_from == 3);
  CHECK((bytes_of(folder.path / "n.h5") == bytes_of(options.checkpoint)));
}

TEST_CASE("run: one that is killed after any step and resumed ends at the same step with the same best and last bits") {
  const TemporaryFolder folder;
  const std::vector<double> losses = {9, 8, 5, 6, 4, 7, 6, 5, 1, 1};
  const auto options = [&](const std::string& name) {
    return RunOptions{.steps = 10,
                      .eval_every = 1,
                      .patience = 3,
                      .checkpoint = folder.path / (name + ".h5"),
                      .checkpoint_every = 2,
                      .start = RunStart::resume_or_start,
                      .best = folder.path / (name + ".best.h5"),
                      .log = folder.path / (name + ".jsonl")};
  };
  Told whole{losses};
  const RunResult all = whole.go(options("whole"));
  CHECK(all.steps == 8);
  CHECK(all.best_step == 5);
  for (Index last = 1; last < 8; ++last) {
    const std::string name = "killed" + std::to_string(last);
    const RunOptions o = options(name);
    Told killed{losses}, resumed{losses};
    CHECK_THROWS_AS(killed.go(killed_after(o, last)), Killed);
    const RunResult rest = resumed.go(options(name), (last - 1) / 2 * 2);
    CHECK(rest.resumed_from == (last - 1) / 2 * 2);
    CHECK(rest.steps == 8);
    CHECK(rest.stopped);
    CHECK((bytes_of(o.best) == bytes_of(options("whole").best)));
    CHECK((bytes_of(o.checkpoint) == bytes_of(options("whole").checkpoint)));
  }
  // One that ended so does nothing when it is resumed, until it is given more patience.
  Told again{losses}, patient{losses};
  CHECK(again.go(options("whole"), 8).steps == 8);
  CHECK(again.evaluations == 0);
  RunOptions more = options("whole");
  more.patience = 4;
  const RunResult r = patient.go(more, 8);
  CHECK(r.steps == 10);
  CHECK(r.best_step == 9);
  CHECK(load_checkpoint(more.best).counter("step") == 9);
}

TEST_CASE("run: the best checkpoint of a step is written before the last") {
  const TemporaryFolder folder;
  const fs::path inner = folder.path / "inner";
  RunOptions options{.steps = 4,
                     .eval_every = 1,
                     .checkpoint = folder.path / "m.h5",
                     .checkpoint_every = 1,
                     .best = inner / "best.h5"};
  fs::create_directory(inner);
  options.after_step = [&](RunStep& s) {
    if (s.step == 3) fs::remove_all(inner);  // so that the best cannot be written
  };
  Told s{{4, 3, 2, 1}};
  CHECK(contains(error_of([&] { s.go(options); }), "best.h5"));
  CHECK(load_checkpoint(options.checkpoint).counter("step") == 2);
}

TEST_CASE("run: a schedule of one's own, with a state, is saved and resumed") {
  struct Halves {  // where the loss rises
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
  RunOptions options{
      .steps = 6, .eval_every = 1, .checkpoint = folder.path / "m.h5", .start = RunStart::resume_or_start};
  const std::vector<double> losses = {3, 4, 2, 3, 4, 1, 1};
  Told whole{losses}, first{losses}, rest{losses};
  for (Told* t : {&whole, &first, &rest}) t->plane.schedule = Halves{};
  whole.go({.steps = 6, .eval_every = 1});
  options.after_step = [](RunStep& s) { s.stop = s.step == 4; };
  first.go(options);
  rest.go(options, 4);
  CHECK(rest.plane.schedule(0) == 0.0025);
  CHECK(same_bits(rest.plane.model.up.weight, whole.plane.model.up.weight));
  CHECK(load_checkpoint(options.checkpoint).tensor("schedule/own").numel() == 2);
  // In place of one with a name, the rate goes on from the last one.
  Told named{losses};
  const Schedule cosine = named.plane.schedule;
  options.steps = 7, options.after_step = [](RunStep& s) { CHECK(s.lr == 0.0025); };
  named.go(options, 6);
}
