// The start of a run whose checkpoint exists, and changes that a resumed run may make.
#include <heed/heed.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"
#include "tests/optim/thread_ranks.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::PlaneRun;
using test::progress_of;
using test::same_bits;
using test::ScriptedRun;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

// The learning rate of each step of a run.
std::vector<double> rates_of(PlaneRun& s, RunOptions options) {
  std::vector<double> rates;
  options.after_step = [&](RunStep& step) { rates.push_back(step.lr); };
  s.go(options);
  return rates;
}

}  // namespace

TEST_CASE("run start: `start` decides whether an existing checkpoint is replaced, resumed or refused") {
  const TemporaryFolder folder;
  RunOptions o{.steps = 2, .checkpoint = {.path = folder.path / "m.h5"}};
  const std::string file = o.checkpoint.path.string();
  o.checkpoint.start = RunStart::resume;
  CHECK(PlaneRun().refusal(o) ==
        "resume: there is no checkpoint " + file + "; RunStart::resume_or_start starts a new run if there is none");
  CHECK_FALSE(fs::exists(o.checkpoint.path));
  o.checkpoint.start = RunStart::start;
  PlaneRun().go(o);
  const std::string first = bytes_of(o.checkpoint.path);
  CHECK(PlaneRun().refusal(o) == "run: " + file +
                                     " exists already; RunStart::resume continues from it, RunStart::overwrite "
                                     "replaces it, CheckpointOptions::init starts a new run from its weights");
  CHECK((bytes_of(o.checkpoint.path) == first));
  CHECK_FALSE(fs::exists(file + ".lock"));
  for (const RunStart start : {RunStart::resume, RunStart::resume_or_start}) {
    o.checkpoint.start = start;
    CHECK(PlaneRun().go(o).resumed_from == 2);
  }
  o.checkpoint.start = RunStart::overwrite, o.steps = 1;
  CHECK(PlaneRun().go(o).resumed_from == 0);
  CHECK(load_checkpoint(o.checkpoint.path).counter("step") == 1);
  CHECK(PlaneRun().refusal({.steps = 1, .checkpoint = {.start = RunStart::resume}}) ==
        "run: checkpoint.start is resume, but checkpoint.path is empty");
  RunOptions best{.steps = 1, .checkpoint = {.path = folder.path / "n.h5", .best = o.checkpoint.path}};
  CHECK(PlaneRun().refusal(best) ==
        "run: " + file + ", for the best checkpoint, exists already; RunStart::overwrite replaces it");
}

TEST_CASE("run start: init starts a new run from the weights of a checkpoint") {
  const TemporaryFolder folder;
  PlaneRun first, second, by_hand;
  first.go({.steps = 3, .checkpoint = {.path = folder.path / "a.h5"}});
  RunOptions o{.steps = 4, .average = &second.average, .checkpoint = {.path = folder.path / "b.h5"}};
  o.checkpoint.init = folder.path / "a.h5";
  CHECK(second.go(o).resumed_from == 0);
  load_model(load_checkpoint(folder.path / "a.h5"), by_hand.model);
  WeightAverage average(named_parameters(by_hand.model), 0.9);
  by_hand.go({.steps = 4, .average = &average});
  CHECK(same_bits(second.model.up.weight, by_hand.model.up.weight));
  CHECK(same_bits(second.average.state()[0].tensor, average.state()[0].tensor));
  o.checkpoint.start = RunStart::resume;
  CHECK(contains(second.refusal(o), "run: checkpoint.init is " + o.checkpoint.init.string() +
                                        ", but checkpoint.start is resume, which takes"));
  // A launcher may repeat the run with the same options.
  o.checkpoint.start = RunStart::resume_or_start, o.steps = 5;
  PlaneRun third;
  o.average = &third.average;
  CHECK(third.go(o).resumed_from == 4);
  o.checkpoint.init = folder.path / "none.h5", o.checkpoint.path = folder.path / "c.h5";
  CHECK(contains(third.refusal(o), "none.h5"));
}

TEST_CASE("run start: if the number of steps changes, the rate continues without a jump to the end of its schedule") {
  const TemporaryFolder folder;
  const auto run_with = [&](const char* name, Index steps, double lr, RunStart start, Index stop) {
    PlaneRun s;
    s.schedule = Schedule(name, {.lr = lr, .min_lr = 1e-4, .warmup = 4, .steps = steps});
    return rates_of(s,
                    {.steps = stop, .checkpoint = {.path = folder.path / (std::string(name) + ".h5"), .start = start}});
  };
  for (const char* name : {"linear", "cosine", "one-cycle"}) {
    CAPTURE(name);
    const std::vector<double> first = run_with(name, 20, 1e-2, RunStart::overwrite, 10),
                              rest = run_with(name, 40, 1e-2, RunStart::resume, 30);
    // Each step falls about half as fast as before: 10 remaining steps of the schedule became 30.
    CHECK(rest.front() < first.back());
    CHECK(rest.front() > first.back() - 1.5 * (first[8] - first[9]));
    for (std::size_t i = 1; i < rest.size(); ++i) CHECK(rest[i] < rest[i - 1]);
    const std::vector<double> last = run_with(name, 40, 1e-2, RunStart::resume, 40),
                              after = run_with(name, 60, 1e-2, RunStart::resume, 60);
    CHECK(last.front() < rest.back());
    CHECK(last.back() < 1e-3);
    for (const double rate : after) CHECK(rate == after[0]);  // the rate is constant at the end of its schedule
    CHECK(after[0] <= last.back());
    CHECK(after[0] > 0);
    // If the schedule has ended, it starts again with the new rate.
    const std::vector<double> again = run_with(name, 80, 5e-3, RunStart::resume, 80);
    CHECK(again.front() == 5e-3);
    CHECK(again.back() < 1e-3);
  }
}

TEST_CASE("run start: a schedule that was changed once is resumed to the same bits") {
  const TemporaryFolder folder;
  const auto go = [&](const std::string& file, double lr, RunStart start, Index stop) {
    PlaneRun s;
    s.schedule = Schedule("cosine", {.lr = lr, .warmup = 2, .steps = stop > 10 ? 40 : 10});
    RunOptions o{.steps = stop, .checkpoint = {.path = folder.path / file, .start = start}};
    s.go(o);
    return s.model.up.weight.to_vector<float>();
  };
  for (const double lr : {1e-2, 2e-2}) {
    go("whole.h5", 1e-2, RunStart::overwrite, 6), go("parts.h5", 1e-2, RunStart::overwrite, 6);
    const std::vector<float> whole = go("whole.h5", lr, RunStart::resume, 40);
    for (const Index stop : {11, 20, 31}) go("parts.h5", lr, RunStart::resume, stop);
    CHECK((go("parts.h5", lr, RunStart::resume, 40) == whole));
  }
}

TEST_CASE("run start: the line of a changed rate names the old and the new one") {
  const TemporaryFolder folder;
  RunOptions o{.steps = 4, .checkpoint = {.path = folder.path / "m.h5"}};
  const auto with = [&](double lr, Index steps) {
    PlaneRun s;
    s.schedule = Schedule("linear", {.lr = lr, .steps = steps});
    o.steps = steps;
    const std::string text = progress_of(s, o);
    o.checkpoint.start = RunStart::resume;
    return text;
  };
  with(0.25, 4);
  CHECK(contains(with(0.25, 5),
                 "changed: next learning rate 0.0, before: 0.0625; its schedule has ended; another lr restarts it\n"));
  CHECK(contains(with(0.125, 9), "changed: next learning rate 0.125, before: 0.0\n"));
  CHECK_FALSE(contains(with(0.125, 9), "learning rate"));
}

TEST_CASE("run start: the best checkpoint must belong to the run's history") {
  const TemporaryFolder folder;
  const std::vector<double> losses = {5, 3, 4, 6, 7, 2.5, 9, 9};
  RunOptions o{.steps = 4,
               .evaluation = {.every = 1},
               .checkpoint = {.path = folder.path / "m.h5", .best = folder.path / "best.h5"}};
  const auto go = [&](Index from) { return ScriptedRun{losses}.go(o, from); };
  const auto refusal = [&] { return test::error_of([&] { go(4); }); };
  CHECK(go(0).best_step == 2);
  const std::string ours = bytes_of(o.checkpoint.best), at_four = bytes_of(o.checkpoint.path);
  o.checkpoint.start = RunStart::resume, o.steps = 5;
  CHECK(go(4).best_step == 2);
  CHECK((bytes_of(o.checkpoint.best) == ours));
  const std::string best = o.checkpoint.best.string();
  const auto begin_with = [&](const std::string& checkpoint) { folder.write("m.h5", checkpoint); };

  // A best file of another run, of another step of this run, or not a checkpoint.
  begin_with(at_four);
  PlaneRun other;
  other.schedule = Schedule("constant", {.lr = 1e-3});
  other.go({.steps = 2, .seed = 3, .checkpoint = {.path = folder.path / "other.h5"}});
  folder.write("best.h5", bytes_of(folder.path / "other.h5"));
  CHECK(refusal() == "resume: " + best + " is not the best checkpoint of " + o.checkpoint.path.string() +
                         " but belongs to another run; give another file as best");
  CHECK((bytes_of(o.checkpoint.best) == bytes_of(folder.path / "other.h5")));
  folder.write("best.h5", at_four);
  CHECK(contains(refusal(), best + " is at step 4 and is not the best checkpoint of"));
  CHECK(contains(refusal(), "whose best evaluation was after step 2; give another file as best"));
  folder.write("best.h5", "no checkpoint");
  CHECK(contains(refusal(), "best.h5"));

  // Without a file, the best checkpoint is that of later evaluations.
  fs::remove(o.checkpoint.best);
  CHECK(go(4).best_step == 5);
  CHECK(load_checkpoint(o.checkpoint.best).counter("step") == 5);
  o.steps = 7;
  CHECK(go(5).best_step == 6);
  CHECK(load_checkpoint(o.checkpoint.best).counter("step") == 6);
}

TEST_CASE("run start: a best checkpoint ahead of the last one is from a killed run, and is written again") {
  const TemporaryFolder folder;
  const std::vector<double> losses = {5, 4, 3, 2, 6, 6};
  RunOptions o{.steps = 6,
               .evaluation = {.every = 1},
               .checkpoint = {.path = folder.path / "m.h5",
                              .every = 3,
                              .best = folder.path / "best.h5",
                              .start = RunStart::resume_or_start}};
  CHECK_THROWS_AS(ScriptedRun{losses}.go(test::killed_after(o, 5)), test::Killed);
  CHECK(load_checkpoint(o.checkpoint.best).counter("step") == 4);
  CHECK(load_checkpoint(o.checkpoint.path).counter("step") == 3);
  RunOptions longer = o;
  longer.steps = 8;
  CHECK(contains(test::error_of([&] { ScriptedRun{losses}.go(longer, 3); }),
                 "is at step 4, which " + o.checkpoint.path.string() +
                     " has not reached, and the options have changed (steps 8, "));
  CHECK(ScriptedRun{losses}.go(o, 3).best_step == 4);
  // Killed before the first checkpoint: only the best exists.
  fs::remove(o.checkpoint.path);
  CHECK(ScriptedRun{losses}.go(o).best_step == 4);
  fs::remove(o.checkpoint.path);
  CHECK(contains(test::error_of([&] { ScriptedRun{losses}.go(longer); }), "exists already"));
}

TEST_CASE("run start: ranks agree on the first rank's decision about the best checkpoint") {
  const TemporaryFolder folder;
  RunOptions o{.steps = 2, .shards = 2, .evaluation = {.every = 1}, .checkpoint = {.path = folder.path / "m.h5"}};
  PlaneRun().go(o);
  o.checkpoint.start = RunStart::resume, o.steps = 4, o.checkpoint.best = folder.path / "best.h5";
  CHECK(test::on_ranks(2, [&](Ranks& ranks) {
          RunOptions mine = o;
          mine.ranks.communicator = &ranks;
          require(PlaneRun().go(mine).best_step > 2, "the best is of before");
        }).empty());
  CHECK(load_checkpoint(o.checkpoint.best).counter("best_from") == 2);
}
