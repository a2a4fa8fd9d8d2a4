// The run loop as a library: a model and data of one's own, threads, resume, interruption, errors.
#include <chrono>
#include <csignal>
#include <fstream>

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
using test::TemporaryFolder;

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

TEST_CASE("run: wrong options and states are named") {
  const TemporaryFolder folder;
  PlaneRun s;
  CHECK(s.refusal({.steps = -1}) == "run: steps is -1; it must be 0 or more");
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
