// Options of a run that are refused.
#include <cmath>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::HeldOutPlane;
using test::Plane;
using test::PlaneRun;
using test::TemporaryFolder;
namespace fs = std::filesystem;

TEST_CASE("run: invalid options and states are errors that name them") {
  const TemporaryFolder folder;
  PlaneRun s;
  CHECK(s.refusal({.steps = -1}) == "run: steps is -1; it must be 0 or more");
  CHECK(s.refusal({.seconds = -1}) == "run: seconds is -1; it must be 0 (no limit) or more");
  CHECK(s.refusal({.accumulate = 0}) == "run: accumulate is 0; it must be 1 or more");
  CHECK(s.refusal({.grad_clip = -1}) == "run: grad_clip is -1; it must be 0 (no clipping) or more");
  CHECK(s.refusal({.evaluation = {.every = -2}}) ==
        "run: evaluation.every is -2, evaluation.batches 0 and checkpoint.every 0; they must be 0 or more");
  CHECK(s.refusal({.checkpoint = {.every = 3}}) == "run: checkpoint.every is 3 but checkpoint.path is empty");
  CHECK(contains(s.refusal({.steps = 2, .checkpoint = {.path = folder.path / "missing" / "m.h5"}}), "missing"));

  const RunOptions options{.steps = 6,
                           .checkpoint = {.path = folder.path / "m.h5", .start = RunStart::resume_or_start}};
  s.go(options);
  RunOptions other = options;
  other.seed = 2;
  CHECK(contains(s.refusal(other), "is 1 but this run's is 2; they must be the same"));
  other = options;
  other.steps = 3;
  CHECK(contains(s.refusal(other), "m.h5 is at step 6 but the run has 3 steps; steps must be at least 6"));
  Lion lion(named_parameters(s.model), {.lr = 1e-3});
  CHECK(contains(error_of([&] { run(s.model, lion, s.schedule, Plane{}, HeldOutPlane{}, options); }), "optimizer"));

  // A loss that is not finite names the step, and the step is not saved.
  struct Broken {
    Batch batch(std::uint64_t seed, std::uint64_t step) const {
      Batch b = Plane{}.batch(seed, step);
      if (step == 2) b.targets = Tensor::full(b.targets.shape(), INFINITY);
      return b;
    }
  };
  CHECK(contains(s.refusal({.steps = 6}, Broken{}), "run: the loss of step 3 is inf; it must be finite"));
  // Exceptions of the data set are passed on.
  struct Throwing {
    Batch batch(std::uint64_t, std::uint64_t) const { fail("no such batch"); }
  };
  CHECK(s.refusal({.steps = 6}, Throwing{}) == "no such batch");
  // An empty evaluation set has no loss, instead of NaN.
  CHECK_FALSE(s.go({.steps = 2}, Plane{}, EvaluationSet{}).validation_loss.has_value());
}

TEST_CASE("run: invalid options for callbacks, best and patience are errors that name them") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "m.h5";
  PlaneRun s;
  CHECK(s.refusal({.evaluation = {.patience = -1}}) == "run: evaluation.patience is -1; it must be 0 (none) or more");
  CHECK(contains(s.refusal({.checkpoint = {.path = file, .best = file}}), "run: checkpoint is "));
  CHECK(contains(s.refusal({.checkpoint = {.best = file}, .output = {.log = file}}), "run: best is "));
  CHECK(contains(s.refusal({.checkpoint = {.best = folder.path / "missing" / "m.h5"}}), "missing"));
  CHECK(s.refusal({.steps = 2, .evaluation = {.every = 1, .monitor = "accuracy", .patience = 1}}) ==
        "run: evaluation.monitor is \"accuracy\", but the only metric is \"loss\"");
  for (const RunOptions& o : {RunOptions{.checkpoint = {.best = file}}, RunOptions{.evaluation = {.patience = 1}}})
    CHECK(error_of([&] { s.go(o, Plane{}, EvaluationSet{}); }) ==
          "run: checkpoint.best or evaluation.patience is given but there is nothing to evaluate on; give a "
          "validation set");
  for (const RunOptions& o : {RunOptions{.evaluation = {.batches = 2}, .checkpoint = {.best = file}},
                              RunOptions{.evaluation = {.batches = 2, .patience = 1}}})
    CHECK(s.refusal(o) ==
          "run: evaluation.batches is 2 of 3, but checkpoint.best and evaluation.patience compare all evaluations, "
          "and the last one reads the whole set; give a smaller set or set evaluation.batches to 0");
  CHECK(s.refusal({.steps = 1, .evaluation = {.batches = 3, .patience = 1}}).empty());
  // Two runs cannot write one best checkpoint.
  RunOptions outer{.steps = 1, .checkpoint = {.best = file}};
  std::string inner;
  outer.after_step = [&](RunStep&) { inner = PlaneRun().refusal({.steps = 1, .checkpoint = {.best = file}}); };
  s.go(outer);
  CHECK(contains(inner, file.string()));
}
