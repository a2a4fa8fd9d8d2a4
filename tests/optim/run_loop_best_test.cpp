// What a run does after a step and after an evaluation: callbacks, the best checkpoint, patience.
#include <cmath>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::error_of;
using test::Killed;
using test::killed_after;
using test::Plane;
using test::PlaneRun;
using test::same_bits;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

// A run whose evaluations tell these losses and accuracies, whatever the weights are.
struct Told {
  std::vector<double> losses, accuracies = std::vector<double>(losses.size());
  PlaneRun plane = {};
  Index evaluations = 0;  // made in this process

  // At every step; `from`: evaluations that were made before the run was resumed.
  RunResult go(const RunOptions& options, Index from = 0) {
    return run(plane.model, plane.optimizer, plane.schedule, Plane{}, OneBatch{}, options, {}, [&, from](const Batch&) {
      const auto i = static_cast<std::size_t>(from + evaluations++);
      return Metrics{{"loss", losses.at(i)}, {"accuracy", accuracies.at(i)}};
    });
  }
  struct OneBatch {
    Index size() const { return 1; }
    Batch batch(Index) const { return Plane{}.batch(99, 0); }
  };
};

}  // namespace

TEST_CASE("run: callbacks see each step and evaluation, and may stop the run, which goes on when resumed") {
  const TemporaryFolder folder;
  RunOptions options{.steps = 10, .eval_every = 4, .checkpoint = folder.path / "m.h5", .resume = true};
  std::vector<double> losses;
  std::vector<Index> evaluated;
  options.after_step = [&](RunStep& s) {
    losses.push_back(s.loss);
    CHECK(s.lr > 0 - (s.step == 1));
    CHECK(s.grad_norm > 0);
    CHECK(s.step == static_cast<Index>(losses.size()));
    CHECK(s.validation_loss.has_value() == (s.step % 4 == 0 || s.step == 10));
    s.stop = s.step == 6;
    default_rng().next();  // changes nothing
  };
  options.after_evaluation = [&](RunStep& s) { evaluated.push_back(s.step); };
  PlaneRun whole, stopped, resumed;
  const RunResult first = stopped.go(options);
  CHECK(first.steps == 6);
  CHECK(first.stopped);
  CHECK_FALSE(first.interrupted);
  CHECK(evaluated == std::vector<Index>{4});
  const RunResult rest = resumed.go(options);
  CHECK(rest.resumed_from == 6);
  CHECK_FALSE(rest.stopped);
  CHECK(evaluated == std::vector<Index>{4, 8, 10});
  const RunResult all = whole.go({.steps = 10, .eval_every = 4});
  CHECK(losses == all.history.losses);
  CHECK(same_bits(resumed.model.up.weight, whole.model.up.weight));
  // What a callback throws ends the run, without a checkpoint of the step.
  options.steps = 12;
  options.after_step = [](RunStep& s) { require(s.step != 12, "enough"); };
  CHECK(error_of([&] { PlaneRun().go(options); }) == "enough");
  CHECK(load_checkpoint(options.checkpoint).counter("step") == 10);
}

TEST_CASE("run: the best checkpoint is that of the best evaluation, whole") {
  const TemporaryFolder folder;
  RunOptions options{.steps = 6, .eval_every = 1, .checkpoint = folder.path / "m.h5", .best = folder.path / "best.h5"};
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
  const RunResult again =
      from_best.go({.steps = 6, .eval_every = 1, .checkpoint = folder.path / "n.h5", .resume = true}, 3);
  CHECK(again.resumed_from == 3);
  CHECK((bytes_of(folder.path / "n.h5") == bytes_of(options.checkpoint)));
}

TEST_CASE("run: patience ends a run after so many evaluations without a better one") {
  const auto steps = [](std::vector<double> losses, RunOptions o) {
    o.steps = static_cast<Index>(losses.size()), o.eval_every = 1;
    Told s{losses, losses};
    const RunResult r = s.go(o);
    CHECK(r.stopped == (r.steps < o.steps));
    CHECK_FALSE(r.interrupted);
    return r.steps;
  };
  CHECK(steps({5, 4, 3, 2, 1}, {.patience = 1}) == 5);
  CHECK(steps({5, 4, 4, 2, 1}, {.patience = 1}) == 3);
  CHECK(steps({5, 4, 6, 4, 3, 5, 5, 5, 1}, {.patience = 3}) == 8);
  CHECK(steps({NAN, NAN, 1, 1}, {.patience = 2}) == 2);
  CHECK(steps({NAN, 2, 1, 1}, {.patience = 2}) == 4);
  CHECK(steps({1, 2, 3, 2, 2}, {.monitor = "accuracy", .monitor_highest = true, .patience = 2}) == 5);
  CHECK(steps({3, 4, 5}, {}) == 3);
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
                      .resume = true,
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
  RunOptions options{.steps = 6, .eval_every = 1, .checkpoint = folder.path / "m.h5", .resume = true};
  const std::vector<double> losses = {3, 4, 2, 3, 4, 1};
  Told whole{losses}, first{losses}, rest{losses};
  for (Told* t : {&whole, &first, &rest}) t->plane.schedule = Halves{};
  whole.go({.steps = 6, .eval_every = 1});
  options.after_step = [](RunStep& s) { s.stop = s.step == 4; };
  first.go(options);
  rest.go(options, 4);
  CHECK(rest.plane.schedule(0) == 0.0025);
  CHECK(same_bits(rest.plane.model.up.weight, whole.plane.model.up.weight));
  CHECK(load_checkpoint(options.checkpoint).tensor("schedule/own").numel() == 2);
  Told named{losses};
  CHECK(contains(error_of([&] { named.go(options); }), "schedule cosine: the state has 'own', which is unknown here"));
}

TEST_CASE("run: options of callbacks, best and patience that do not fit are named") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "m.h5";
  PlaneRun s;
  CHECK(s.refusal({.patience = -1}) == "run: patience is -1; it must be 0 (none) or more");
  CHECK(contains(s.refusal({.checkpoint = file, .best = file}), "run: checkpoint and best are both "));
  CHECK(contains(s.refusal({.best = file, .log = file}), "run: best and log are both "));
  CHECK(contains(s.refusal({.best = folder.path / "missing" / "m.h5"}), "missing"));
  CHECK(s.refusal({.steps = 2, .eval_every = 1, .monitor = "accuracy", .patience = 1}) ==
        "run: monitor is accuracy, which the evaluation does not tell; it must be loss or one of the metrics");
  for (const RunOptions& o : {RunOptions{.best = file}, RunOptions{.patience = 1}})
    CHECK(error_of([&] { s.go(o, Plane{}, EvaluationSet{}); }) ==
          "run: best or patience is given but there is nothing to evaluate on; give a validation set");
  for (const RunOptions& o :
       {RunOptions{.eval_batches = 2, .best = file}, RunOptions{.eval_batches = 2, .patience = 1}})
    CHECK(s.refusal(o) ==
          "run: eval_batches is 2 of 3, but best and patience compare all evaluations, and the last is of the whole "
          "set; evaluate on a smaller set");
  CHECK(s.refusal({.steps = 1, .eval_batches = 3, .patience = 1}).empty());
  // Two runs do not write one best.
  RunOptions outer{.steps = 1, .best = file};
  std::string inner;
  outer.after_step = [&](RunStep&) { inner = PlaneRun().refusal({.steps = 1, .best = file}); };
  s.go(outer);
  CHECK(contains(inner, file.string()));
}
