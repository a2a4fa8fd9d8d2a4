// The training loop: steps, resume, signals, threads; callbacks, the best checkpoint and patience; several updates. It
// is above 400 lines: each promise of run() is held by runs that are killed and resumed.
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <thread>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::error_of;
using test::HeldOutPlane;
using test::Killed;
using test::killed_after;
using test::Plane;
using test::PlaneRun;
using test::same_bits;
using test::TemporaryFolder;
namespace fs = std::filesystem;

TEST_CASE("run: trains a model and data of one's own, with log and history") {
  const TemporaryFolder folder;
  PlaneRun s;
  const RunResult r =
      s.go({.steps = 40, .seed = 5, .eval_every = 15, .eval_batches = 1, .log = folder.path / "log.jsonl"});
  CHECK(r.steps == 40);
  CHECK(r.resumed_from == 0);
  CHECK_FALSE(r.interrupted);
  REQUIRE(r.history.losses.size() == 40);
  CHECK(r.history.losses.back() < 0.3 * r.history.losses.front());
  // Evaluations after 15 and 30 steps, of one batch; and after the last step, of all, weighted by their targets.
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
    CHECK(log[i].at("tokens_per_second") > 0);
    CHECK(log[i].contains("val_loss") == (i == 14 || i == 29 || i == 39));
  }
}

TEST_CASE("run: accumulation averages over all targets, as one larger batch does") {
  struct Halves {  // the rows of Plane's batch, in two parts of different size
    Batch batch(std::uint64_t seed, std::uint64_t step) const {
      const Batch whole = Plane{}.batch(seed, step / 2);
      const Index from = step % 2 == 0 ? 0 : 40, to = step % 2 == 0 ? 40 : 64;
      return {whole.inputs.slice(0, from, to), whole.targets.slice(0, from, to), to - from};
    }
  };
  std::vector<Tensor> weights;
  for (const bool halves : {false, true}) {
    PlaneRun s;
    s.model.drop = Dropout{0.0};
    s.go({.steps = 10, .accumulate = halves ? 2 : 1}, halves ? Dataset(Halves{}) : Dataset(Plane{}));
    weights.push_back(s.model.up.weight.clone());
  }
  CHECK(test::close(weights[0], weights[1], 1e-4, 1e-5));
}

TEST_CASE("run: the precision is that of evaluations as of steps") {
  PlaneRun s;
  const RunResult r = s.go({.steps = 2, .precision = DType::bfloat16});
  const auto loss = [&](const Batch& b) { return s.model.loss(b.inputs, b.targets); };
  CHECK(*r.validation_loss != evaluate(loss, HeldOutPlane{}));
  const MatmulPrecision precision(DType::bfloat16);
  CHECK(*r.validation_loss == evaluate(loss, HeldOutPlane{}));
}

TEST_CASE("run: stopped at any step and resumed, to the same bits") {
  const TemporaryFolder folder;
  const auto options = [&](const std::string& name, Index steps, bool resume) {
    return RunOptions{.steps = steps,
                      .seed = 5,
                      .eval_every = 7,
                      .checkpoint = folder.path / (name + ".h5"),
                      .resume = resume,
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
  RunOptions options{.steps = 6, .checkpoint = folder.path / "m.h5", .resume = true};
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
               WholeSplit(tokens, {.batch = 24, .context = 64}), {.steps = 4, .eval_every = 2, .checkpoint = file});
  };
  std::vector<double> losses;
  std::string checkpoint;
  for (const int n : {1, 2, 3, 8}) {
    set_threads(n);
    threads_seen();
    const RunResult r = train(folder.path / "model.h5");
    int seen = threads_seen();
    // Where cores are fewer than threads or busy, the last threads may come late.
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

TEST_CASE("run: a signal finishes the step, saves and returns, and the run goes on from there") {
  struct Signalling {  // Ctrl-C while the batch of step 6 is made
    Batch batch(std::uint64_t seed, std::uint64_t step) const {
      if (step == 5) std::raise(SIGINT);
      return Plane{}.batch(seed, step);
    }
  };
  const TemporaryFolder folder;
  const RunOptions options{.steps = 20, .checkpoint = folder.path / "m.h5", .resume = true, .handle_interrupt = true};
  PlaneRun stopped, resumed, whole;
  const RunResult r = stopped.go(options, Signalling{});
  CHECK(r.interrupted);
  CHECK(r.steps >= 5);  // the batch may be made while the step before runs
  CHECK(r.steps <= 6);
  CHECK(resumed.go(options).steps == 20);
  whole.go({.steps = 20});
  CHECK((test::same_bits(resumed.model.up.weight, whole.model.up.weight)));
}

TEST_CASE("run: time ends a run, evaluated and saved, and a resumed one goes on to the bits of a whole one") {
  const TemporaryFolder folder;
  const auto slowly = [](RunStep& s) {
    if (s.step == 3) std::this_thread::sleep_for(std::chrono::milliseconds(250));
  };
  RunOptions o{.steps = kUntilStopped, .seconds = 0.2, .eval_every = 0, .after_step = slowly};
  o.checkpoint = folder.path / "time.h5", o.resume = true;
  PlaneRun timed;
  RunResult result = timed.go(o);
  CHECK(result.stopped);
  const Index made = result.steps;
  CHECK(made >= 1);
  CHECK(made <= 4);  // step 3 takes longer than there is time for, and then one is made yet
  CHECK(result.history.validation_losses.back().first == made);
  o.steps = 6, o.seconds = 0, o.after_step = {};
  PlaneRun resumed, whole;
  result = resumed.go(o);
  CHECK(result.resumed_from == made);
  whole.go({.steps = 6});
  CHECK(same_bits(resumed.model.up.weight, whole.model.up.weight));
}

TEST_CASE("run: wrong options and states are named") {
  const TemporaryFolder folder;
  PlaneRun s;
  CHECK(s.refusal({.steps = -1}) == "run: steps is -1; it must be 0 or more");
  CHECK(s.refusal({.seconds = -1}) == "run: seconds is -1; it must be 0 (any number) or more");
  CHECK(s.refusal({.accumulate = 0}) == "run: accumulate is 0; it must be 1 or more");
  CHECK(s.refusal({.grad_clip = -1}) == "run: grad_clip is -1; it must be 0 (no clipping) or more");
  CHECK(s.refusal({.eval_every = -2}) ==
        "run: eval_every is -2, eval_batches 0 and checkpoint_every 0; they must be 0 or more");
  CHECK(s.refusal({.checkpoint_every = 3}) == "run: checkpoint_every is 3 but no checkpoint file is given");
  CHECK(contains(s.refusal({.steps = 2, .checkpoint = folder.path / "missing" / "m.h5"}), "missing"));

  const RunOptions options{.steps = 6, .checkpoint = folder.path / "m.h5", .resume = true};
  s.go(options);
  RunOptions other = options;
  other.seed = 2;
  CHECK(contains(s.refusal(other), "is 1 and of this run 2; they must be the same"));
  other = options;
  other.steps = 3;
  CHECK(s.refusal(other) == "resume: the checkpoint is of step 6 but the run has 3 steps; ask for as many or more");
  Lion lion(named_parameters(s.model), {.lr = 1e-3});
  CHECK(contains(error_of([&] { run(s.model, lion, s.schedule, Plane{}, HeldOutPlane{}, options); }), "optimizer"));

  // A loss that is not finite names the step; nothing was saved of it.
  struct Broken {
    Batch batch(std::uint64_t seed, std::uint64_t step) const {
      Batch b = Plane{}.batch(seed, step);
      if (step == 2) b.targets = Tensor::full(b.targets.shape(), INFINITY);
      return b;
    }
  };
  CHECK(contains(s.refusal({.steps = 6}, Broken{}), "run: the loss of step 3 is inf; it must be finite"));
  // What the data set throws comes through.
  struct Throwing {
    Batch batch(std::uint64_t, std::uint64_t) const { fail("no such batch"); }
  };
  CHECK(s.refusal({.steps = 6}, Throwing{}) == "no such batch");
  // An empty evaluation set has no loss, which is not NaN.
  CHECK_FALSE(s.go({.steps = 2}, Plane{}, EvaluationSet{}).validation_loss.has_value());
}

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

namespace {

// Points on a circle; batches of one tensor, which is neither inputs nor targets.
struct Circle {
  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    Rng rng(seed, 100 + step);
    const Tensor angle = rng.uniform({32, 1}, 0, 6.2831853);
    Batch b;
    b["points"] = concatenate({cos(angle), sin(angle)}, 1);
    b.counted = 32;
    return b;
  }
};

struct Gan {
  struct Net {
    Linear up, down;
    Net(Index in, Index out, Rng& rng) : up(in, 16, rng), down(16, out, rng) {}
    Tensor operator()(In x) const { return down(leaky_relu(up(x), 0.2)); }
    void members(auto&& visit) { visit("up", up), visit("down", down); }
  };
  Rng rng{3};
  Net generator{4, 2, rng}, discriminator{2, 1, rng};

  Tensor made(Index n) const { return generator(default_rng().normal({n, 4})); }
  Tensor judged(In points, double truth) const {
    return binary_cross_entropy_with_logits(discriminator(points), Tensor::full({points->dim(0), 1}, truth));
  }
  Tensor discriminator_loss(const Batch& b) const {
    const Tensor real = b["points"];
    return judged(real, 1) + judged(made(real.dim(0)).detach(), 0);
  }
  Tensor generator_loss(const Batch& b) const { return judged(made(b["points"].dim(0)), 1); }
  void members(auto&& visit) { visit("generator", generator), visit("discriminator", discriminator); }
};

struct GanRun {
  Gan gan;
  ParameterSplit parts = split_parameters(gan, {"generator"});
  AdamW d_optimizer{parts.others, {.lr = 2e-3}};
  RMSprop g_optimizer{parts.chosen, {.lr = 1e-3}};
  Schedule d_schedule{"constant", {.lr = 2e-3, .warmup = 5}};
  Schedule g_schedule{[](Index step) { return 1e-3 / (1 + 0.01 * static_cast<double>(step)); }};

  std::vector<Update> updates() {
    return {{d_optimizer, d_schedule, [this](const Batch& b) { return gan.discriminator_loss(b); }},
            {g_optimizer, g_schedule, [this](const Batch& b) { return gan.generator_loss(b); }, "generator"}};
  }
  RunResult go(const RunOptions& options) { return run(gan, updates(), Circle{}, {}, options); }
};

bool same_weights(Gan& a, Gan& b) {
  const auto x = named_parameters(a), y = named_parameters(b);
  return std::equal(x.begin(), x.end(), y.begin(), [](const NamedParameter& p, const NamedParameter& q) {
    return same_bits(p.parameter->detach(), q.parameter->detach());
  });
}

}  // namespace

TEST_CASE("run: a GAN's two losses are followed in turn, as in a loop by hand") {
  GanRun s, by_hand;
  const RunResult result = s.go({.steps = 6, .grad_clip = 0.5, .seed = 4});
  std::vector<double> d_losses, g_losses;
  for (Index step = 0; step < 6; ++step) {
    const Batch b = Circle{}.batch(4, static_cast<std::uint64_t>(step));
    default_rng() = Rng(4, 1);
    default_rng().set_position(static_cast<std::uint64_t>(step) << 40);
    for (const bool generator : {false, true}) {
      Optimizer& optimizer = generator ? static_cast<Optimizer&>(by_hand.g_optimizer) : by_hand.d_optimizer;
      zero_grad(by_hand.gan);
      Tape tape;
      const Tensor loss = generator ? by_hand.gan.generator_loss(b) : by_hand.gan.discriminator_loss(b);
      tape.backward(loss);
      (generator ? g_losses : d_losses).push_back(loss.item());
      optimizer.set_lr((generator ? by_hand.g_schedule : by_hand.d_schedule)(step));
      optimizer.clipped_step(0.5);
    }
  }
  CHECK(same_weights(s.gan, by_hand.gan));
  CHECK(s.d_optimizer.step_count() == 6);
  CHECK(result.history.losses == d_losses);
  CHECK(result.history.other_losses.at("generator") == g_losses);
}

TEST_CASE("run: a GAN that is killed after any step and resumed ends with the same bits") {
  const TemporaryFolder folder;
  const auto options = [&](const std::string& name) {
    return RunOptions{.steps = 12,
                      .checkpoint = folder.path / (name + ".h5"),
                      .checkpoint_every = 3,
                      .resume = true,
                      .log = folder.path / (name + ".jsonl")};
  };
  GanRun whole;
  const RunResult all = whole.go(options("whole"));
  for (const Index last : {2, 3, 7, 11}) {
    const std::string name = "killed" + std::to_string(last);
    GanRun killed, resumed;
    CHECK_THROWS_AS(killed.go(killed_after(options(name), last)), Killed);
    const RunResult rest = resumed.go(options(name));
    CHECK(rest.resumed_from == (last - 1) / 3 * 3);  // the checkpoint of a step comes after its callbacks
    CHECK(rest.history.other_losses == all.history.other_losses);
    CHECK(same_weights(resumed.gan, whole.gan));
    CHECK((bytes_of(options(name).checkpoint) == bytes_of(options("whole").checkpoint)));
    const auto log = test::json_lines(options(name).log), whole_log = test::json_lines(options("whole").log);
    REQUIRE(log.size() == 12);
    for (std::size_t i = 0; i < 12; ++i)
      for (const char* key :
           {"step", "loss", "lr", "grad_norm", "loss_generator", "lr_generator", "grad_norm_generator"})
        CHECK(log[i].at(key) == whole_log[i].at(key));
  }
  const Checkpoint c = load_checkpoint(options("whole").checkpoint);
  CHECK(c.text("optimizer_name") == "AdamW");
  CHECK(c.text("optimizer_name.generator") == "RMSprop");
  CHECK(c.tensors.count("optimizer.generator/square_avg.generator.up.weight") == 1);
  CHECK(c.tensor("history/loss.generator").numel() == 12);
}

namespace {

// A bag of tokens told by its class: data of three tensors, and a loss of the whole batch.
struct Bags {
  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    Rng rng(seed, 100 + step);
    Batch b;
    b.inputs = rng.integers({16, 5}, 0, 30);
    b["weights"] = rng.uniform({16, 5, 1});
    b.targets = (b.inputs.slice(1, 0, 1).reshape({16}).to(DType::float32) * (1.0 / 10)).to(DType::int32);
    b.counted = 16;
    return b;
  }
};

struct BagModel {
  Rng rng{5};
  Embedding tokens{30, 8, rng};
  Linear head{8, 3, rng};
  Tensor loss(const Batch& b) const {
    return cross_entropy(head(sum(tokens(b.inputs) * b["weights"], {1})), b.targets);
  }
  void members(auto&& visit) { visit("tokens", tokens), visit("head", head); }
};

struct BagRun {
  BagModel model;
  ParameterSplit parts = split_parameters(model, {"tokens"});
  AdamW weights{parts.others, {.lr = 0.01}};
  SGD embedding{parts.chosen, {.lr = 0.5}};
  Schedule cosine{"cosine", {.lr = 0.01, .steps = 10}}, constant{"constant", {.lr = 0.5}};

  RunResult go(const RunOptions& options) {
    return run(model, {{weights, cosine}, {embedding, constant, {}, "embedding"}}, Bags{}, {}, options);
  }
};

}  // namespace

TEST_CASE("run: an embedding with an optimizer of its own follows the same loss, clipped with the other weights") {
  BagRun s, by_hand;
  const RunResult result = s.go({.steps = 10, .grad_clip = 0.3});
  for (Index step = 0; step < 10; ++step) {
    zero_grad(by_hand.model);
    Tape tape;
    tape.backward(by_hand.model.loss(Bags{}.batch(1, static_cast<std::uint64_t>(step))));
    by_hand.weights.set_lr(by_hand.cosine(step));
    by_hand.embedding.set_lr(0.5);
    const double norm = std::hypot(by_hand.weights.grad_norm(), by_hand.embedding.grad_norm());
    CHECK(norm > 0.3);
    by_hand.weights.step(clip_coefficient(norm, 0.3));
    by_hand.embedding.step(clip_coefficient(norm, 0.3));
  }
  CHECK(test::close(s.model.tokens.weight, by_hand.model.tokens.weight, 1e-6, 1e-7));
  CHECK(test::close(s.model.head.weight, by_hand.model.head.weight, 1e-6, 1e-7));
  CHECK(result.history.losses.size() == 10);
  CHECK(result.history.other_losses.empty());
  // Resumed in the middle, it goes on to the same bits.
  const TemporaryFolder folder;
  const RunOptions options{.steps = 10,
                           .grad_clip = 0.3,
                           .checkpoint = folder.path / "m.h5",
                           .checkpoint_every = 2,
                           .resume = true,
                           .log = folder.path / "log"};
  BagRun killed, resumed;
  CHECK_THROWS_AS(killed.go(killed_after(options, 5)), Killed);
  CHECK(resumed.go(options).resumed_from == 4);
  CHECK(same_bits(resumed.model.tokens.weight, s.model.tokens.weight));
  CHECK(same_bits(resumed.model.head.weight, s.model.head.weight));
  const auto log = test::json_lines(options.log);
  CHECK(log[3].at("lr_embedding") == 0.5);
  CHECK_FALSE(log[3].contains("loss_embedding"));
}

namespace {

// Reads a word and tells it backwards: an encoder, and a decoder that attends to it.
struct Reverser {
  static constexpr Index kWidth = 32;
  Rng rng{2};
  Embedding source, target, places{12, kWidth, rng};
  Transformer encoder{{.width = kWidth, .heads = 4, .layers = 1, .dropout = 0, .norm_first = true}, rng};
  Transformer decoder{{.width = kWidth,
                       .heads = 4,
                       .layers = 1,
                       .memory_width = kWidth,
                       .dropout = 0,
                       .norm_first = true,
                       .causal = true},
                      rng};
  Linear head;

  explicit Reverser(Index vocabulary)
      : source(256, kWidth, rng), target(vocabulary, kWidth, rng), head(kWidth, vocabulary, rng) {}
  Tensor embedded(const Embedding& table, In ids) const { return table(ids) + places(Tensor::arange(ids->dim(1))); }
  Tensor loss(const Batch& b) const {
    const AttentionCall padding{.key_lengths = b["source_lengths"]};
    const Tensor memory = encoder(embedded(source, b["source"]), padding);
    return cross_entropy(head(decoder(embedded(target, b.inputs), memory, {}, padding)), b.targets);
  }
  void members(auto&& visit) {
    visit("source", source), visit("target", target), visit("places", places);
    visit("encoder", encoder), visit("decoder", decoder), visit("head", head);
  }
};

std::vector<TextPair> words(Index count, std::uint64_t seed) {
  std::vector<TextPair> pairs;
  Rng rng(seed);
  for (Index i = 0; i < count; ++i) {
    std::string word;
    for (Index n = 1 + rng.integer(9); n > 0; --n) word += static_cast<char>('a' + rng.integer(4));
    pairs.push_back({word, std::string(word.rbegin(), word.rend())});
  }
  return pairs;
}

}  // namespace

TEST_CASE("run: pairs of texts, with a source, its lengths, inputs and targets in a batch") {
  const TextPairs training(words(200, 1), ByteTokenizer(), CharTokenizer("abcd"));
  const TextPairs held_out(words(40, 2), ByteTokenizer(), CharTokenizer("abcd"));
  const SampleBatchOptions shape{.tokens = 200, .padding = TextPairs::padding()};
  const auto train = [&](Reverser& model, const RunOptions& options) {
    AdamW optimizer(named_parameters(model), {.lr = 3e-3});
    Schedule schedule("constant", {.lr = 3e-3});
    return run(model, optimizer, schedule, SampleBatches(training, shape), SampleEvaluation(held_out, shape), options);
  };
  Reverser whole(training.target_vocabulary());
  const RunResult all = train(whole, {.steps = 60});
  CHECK(all.history.losses.front() > 1.5);
  CHECK(*all.validation_loss < 1.1);
  // An epoch is 11 batches or so: the resumed run is in the midst of its third.
  const TemporaryFolder folder;
  const RunOptions options{.steps = 60, .checkpoint = folder.path / "m.h5", .checkpoint_every = 25, .resume = true};
  Reverser killed(training.target_vocabulary()), resumed(training.target_vocabulary());
  CHECK_THROWS_AS(train(killed, killed_after(options, 27)), Killed);
  const RunResult rest = train(resumed, options);
  CHECK(rest.resumed_from == 25);
  CHECK(rest.history.losses == all.history.losses);
  CHECK(rest.validation_loss == all.validation_loss);
  CHECK(same_bits(resumed.head.weight, whole.head.weight));
}

TEST_CASE("run: updates and checkpoints that do not fit are named") {
  const TemporaryFolder folder;
  const fs::path file = folder.path / "m.h5";
  GanRun s;
  const RunOptions options{.steps = 2, .checkpoint = file, .resume = true};
  s.go(options);
  const std::string name = file.string();
  const auto with = [&](std::vector<Update> updates, RunOptions o) {
    return [&s, updates, o] { run(s.gan, updates, Circle{}, {}, o); };
  };
  RunOptions more = options, texts = options;
  more.steps = 3;
  texts.texts = {{"optimizer_name.generator", "x"}};
  std::vector<Update> both = s.updates(), renamed = both, without = both, swapped = {both[1], both[0]};
  renamed.pop_back(), without.pop_back();
  renamed.push_back({both[1].optimizer, both[1].schedule, both[1].loss, "painter"});
  std::vector<Update> sharing = without;
  sharing.push_back({both[1].optimizer, both[1].schedule, {}, "generator"});
  test::check_errors({
      {"run: there are no updates; there must be one or more",
       [] {
         test::PlaneRun plane;
         run(plane.model, {}, test::Plane{}, {}, {.steps = 1});
       }},
      {"run: two updates are named 2; names must differ",
       with({both[0], {both[1].optimizer, both[1].schedule, {}, ""}, {both[1].optimizer, both[1].schedule, {}, "2"}},
            {.steps = 1})},
      {"resume: " + name + " has the optimizer generator, which this run has not; they must have the same",
       with(without, more)},
      {"optimizer_name.painter", with(renamed, more)},
      {"resume: the optimizer of " + name + " is AdamW and of this run RMSprop; they must be the same",
       with({both[1]}, more)},
      {"resume: update generator of " + name +
           " has a loss of its own but this run's is otherwise; they must be the same",
       with(sharing, more)},
      {"run: one of the texts is named optimizer_name.generator, as one that the run itself puts into the checkpoint",
       with(both, texts)},
      {"split_parameters: no parameter is gen or lies in it; each part must have one or more",
       [&] { split_parameters(s.gan, {"gen"}); }},
  });
  BagRun twice;
  AdamW all(named_parameters(twice.model), {.lr = 0.01});
  CHECK(error_of([&] {
          run(twice.model, {{all, twice.cosine}, {twice.embedding, twice.constant}}, Bags{}, {}, {.steps = 1});
        }) == "run: two optimizers train tokens.weight; take the parameters apart, by split_parameters() for one");
  CHECK(all.step_count() == 0);
  // A gradient that is not finite names its parameter, and nothing was updated.
  BagRun bags;
  const Tensor before = bags.model.head.weight.clone();
  CHECK(
      contains(error_of([&] {
                 run(bags.model,
                     {{bags.weights, bags.cosine,
                       [&](const Batch& b) { return bags.model.loss(b) + sum(sqrt(bags.model.tokens.weight * 0.0)); }},
                      {bags.embedding, bags.constant}},
                     Bags{}, {}, {.steps = 1});
               }),
               "tokens.weight"));
  CHECK(same_bits(bags.model.head.weight, before));
}
