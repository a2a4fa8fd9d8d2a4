// The training loop: order of events, and ends of a run.
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::error_of;
using test::HeldOutPlane;
using test::Plane;
using test::PlaneRun;
using test::same_bits;
using test::TemporaryFolder;
using test::Told;
namespace fs = std::filesystem;

TEST_CASE("run: trains a user-defined model and data, with log and history") {
  const TemporaryFolder folder;
  PlaneRun s;
  const RunResult r =
      s.go({.steps = 40, .seed = 5, .eval_every = 15, .eval_batches = 1, .log = folder.path / "log.jsonl"});
  CHECK(r.steps == 40);
  CHECK(r.resumed_from == 0);
  CHECK_FALSE(r.interrupted);
  REQUIRE(r.history.losses.size() == 40);
  CHECK(r.history.losses.back() < 0.3 * r.history.losses.front());
  // Evaluations of one batch after 15 and 30 steps, and of all batches after the last step, weighted by their targets.
  REQUIRE(r.history.validation_losses.size() == 3);
  CHECK(r.history.validation_losses[0].first == 15);
  CHECK(r.history.validation_losses[2].first == 40);
  double sum = 0, counted = 0;
  for (Index i = 0; i < 3; ++i) {
    const Batch b = HeldOutPlane{}.batch(i);
    const Evaluation evaluation;
    sum += s.model.loss(b.inputs, b.targets).item() * static_cast<double>(b.counted);
    counted += static_cast<double>(b.counted);
  }
  CHECK(*r.validation_loss == doctest::Approx(sum / counted).epsilon(1e-6));

  const std::vector<nlohmann::json> log = test::json_lines(folder.path / "log.jsonl");
  REQUIRE(log.size() == 40);
  for (std::size_t i = 0; i < log.size(); ++i) {
    CHECK(log[i].at("step") == i + 1);
    CHECK(log[i].at("loss") == r.history.losses[i]);
    CHECK(log[i].at("lr") == doctest::Approx(Schedule("cosine", {.lr = 3e-2, .min_lr = 1e-3, .warmup = 5, .steps = 40})(
                                 static_cast<Index>(i))));
    CHECK(log[i].at("grad_norm") > 0);
    CHECK(log[i].at("samples_per_second") > 0);
    CHECK_FALSE(log[i].contains("tokens_per_second"));
    CHECK(log[i].contains("val_loss") == (i == 14 || i == 29 || i == 39));
  }
}

TEST_CASE("run: the precision applies to evaluations as well as steps") {
  PlaneRun s;
  const RunResult r = s.go({.steps = 2, .precision = DType::bfloat16});
  const auto loss = [&](const Batch& b) { return s.model.loss(b.inputs, b.targets); };
  CHECK(*r.validation_loss != evaluate(loss, HeldOutPlane{}));
  const MatmulPrecision precision(DType::bfloat16);
  CHECK(*r.validation_loss == evaluate(loss, HeldOutPlane{}));
}

TEST_CASE("run: the same bits at 1, 2, 3 and 8 threads, which are all at work") {
  const TemporaryFolder folder;
  Rng data_rng(1);
  const TokenSource tokens(data_rng.integers({6000}, 0, 20).to_vector<std::int32_t>(), 20);
  const auto train = [&](const std::filesystem::path& file) {
    Rng rng(2);
    GPT model({.vocabulary = 20, .context = 64, .layers = 2, .heads = 3, .width = 96, .dropout = 0.1}, rng);
    AdamW optimizer(decay_groups(model, 0.1), {.lr = 1e-3});
    Schedule schedule("constant", {.lr = 1e-3});
    return run(model, optimizer, schedule, LanguageModelBatches(tokens, {.batch = 24, .context = 64}),
               WholeSplit(tokens, {.batch = 24, .context = 64}),
               {.steps = 4, .eval_every = 2, .checkpoint = file, .start = RunStart::overwrite});
  };
  std::vector<double> losses;
  std::string checkpoint;
  for (const int n : {1, 2, 3, 8}) {
    set_threads(n);
    threads_seen();
    const RunResult r = train(folder.path / "model.h5");
    int seen = threads_seen();
    // If cores are busy or fewer than threads, the last threads may start late.
    const auto start = std::chrono::steady_clock::now();
    while (seen < n && std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
      train(folder.path / "other.h5");
      seen = std::max(seen, threads_seen());
    }
    CHECK(seen == n);
    const std::string bytes = bytes_of(folder.path / "model.h5");
    if (n == 1) losses = r.history.losses, checkpoint = bytes;
    CHECK(r.history.losses == losses);
    CHECK((bytes == checkpoint));
  }
  set_threads(0);
}

TEST_CASE("run: after a signal it finishes the step, saves and returns, and a resumed run continues") {
  struct Signalling {  // Ctrl-C while the batch of step 6 is prepared
    Batch batch(std::uint64_t seed, std::uint64_t step) const {
      if (step == 5) std::raise(SIGINT);
      return Plane{}.batch(seed, step);
    }
  };
  const TemporaryFolder folder;
  const RunOptions options{
      .steps = 20, .checkpoint = folder.path / "m.h5", .start = RunStart::resume_or_start, .handle_interrupt = true};
  PlaneRun stopped, resumed, whole;
  const RunResult r = stopped.go(options, Signalling{});
  CHECK(r.interrupted);
  CHECK(r.steps >= 5);  // the batch may be prepared during the previous step
  CHECK(r.steps <= 6);
  CHECK(resumed.go(options).steps == 20);
  whole.go({.steps = 20});
  CHECK((test::same_bits(resumed.model.up.weight, whole.model.up.weight)));
}

TEST_CASE("run: the time limit ends a run with an evaluation and a save, and resuming gives the bits of a whole run") {
  const TemporaryFolder folder;
  const auto slowly = [](RunStep& s) {
    if (s.step == 3) std::this_thread::sleep_for(std::chrono::milliseconds(250));
  };
  RunOptions o{.steps = kUntilStopped, .seconds = 0.2, .eval_every = 0, .after_step = slowly};
  o.checkpoint = folder.path / "time.h5", o.start = RunStart::resume_or_start;
  PlaneRun timed;
  RunResult result = timed.go(o);
  CHECK(result.stopped);
  const Index made = result.steps;
  CHECK(made >= 1);
  CHECK(made <= 4);  // step 3 exceeds the time limit, and at most one more step follows
  CHECK(result.history.validation_losses.back().first == made);
  o.steps = 6, o.seconds = 0, o.after_step = {};
  PlaneRun resumed, whole;
  result = resumed.go(o);
  CHECK(result.resumed_from == made);
  whole.go({.steps = 6});
  CHECK(same_bits(resumed.model.up.weight, whole.model.up.weight));
}

TEST_CASE("run: invalid options and states are errors that name them") {
  const TemporaryFolder folder;
  PlaneRun s;
  CHECK(s.refusal({.steps = -1}) == "run: steps is -1; it must be 0 or more");
  CHECK(s.refusal({.seconds = -1}) == "run: seconds is -1; it must be 0 (no limit) or more");
  CHECK(s.refusal({.accumulate = 0}) == "run: accumulate is 0; it must be 1 or more");
  CHECK(s.refusal({.grad_clip = -1}) == "run: grad_clip is -1; it must be 0 (no clipping) or more");
  CHECK(s.refusal({.eval_every = -2}) ==
        "run: eval_every is -2, eval_batches 0 and checkpoint_every 0; they must be 0 or more");
  CHECK(s.refusal({.checkpoint_every = 3}) == "run: checkpoint_every is 3 but no checkpoint file is given");
  CHECK(contains(s.refusal({.steps = 2, .checkpoint = folder.path / "missing" / "m.h5"}), "missing"));

  const RunOptions options{.steps = 6, .checkpoint = folder.path / "m.h5", .start = RunStart::resume_or_start};
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

TEST_CASE("run: callbacks see each step and evaluation, and may stop the run, which can be resumed") {
  const TemporaryFolder folder;
  RunOptions options{
      .steps = 10, .eval_every = 4, .checkpoint = folder.path / "m.h5", .start = RunStart::resume_or_start};
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
  // An exception of a callback ends the run, without a checkpoint of the step.
  options.steps = 12;
  options.after_step = [](RunStep& s) { require(s.step != 12, "enough"); };
  CHECK(error_of([&] { PlaneRun().go(options); }) == "enough");
  CHECK(load_checkpoint(options.checkpoint).counter("step") == 10);
}

TEST_CASE("run: patience ends a run after this number of evaluations without improvement") {
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

TEST_CASE("run: invalid options for callbacks, best and patience are errors that name them") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "m.h5";
  PlaneRun s;
  CHECK(s.refusal({.patience = -1}) == "run: patience is -1; it must be 0 (none) or more");
  CHECK(contains(s.refusal({.checkpoint = file, .best = file}), "run: checkpoint is "));
  CHECK(contains(s.refusal({.best = file, .log = file}), "run: best is "));
  CHECK(contains(s.refusal({.best = folder.path / "missing" / "m.h5"}), "missing"));
  CHECK(s.refusal({.steps = 2, .eval_every = 1, .monitor = "accuracy", .patience = 1}) ==
        "run: monitor is \"accuracy\", but the only metric is \"loss\"");
  for (const RunOptions& o : {RunOptions{.best = file}, RunOptions{.patience = 1}})
    CHECK(error_of([&] { s.go(o, Plane{}, EvaluationSet{}); }) ==
          "run: best or patience is given but there is nothing to evaluate on; give a validation set");
  for (const RunOptions& o :
       {RunOptions{.eval_batches = 2, .best = file}, RunOptions{.eval_batches = 2, .patience = 1}})
    CHECK(s.refusal(o) ==
          "run: eval_batches is 2 of 3, but best and patience compare all evaluations, and the last one reads the "
          "whole set; give a smaller set or set eval_batches to 0");
  CHECK(s.refusal({.steps = 1, .eval_batches = 3, .patience = 1}).empty());
  // Two runs cannot write one best checkpoint.
  RunOptions outer{.steps = 1, .best = file};
  std::string inner;
  outer.after_step = [&](RunStep&) { inner = PlaneRun().refusal({.steps = 1, .best = file}); };
  s.go(outer);
  CHECK(contains(inner, file.string()));
}
