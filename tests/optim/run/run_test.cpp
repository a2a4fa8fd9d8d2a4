// The training loop: order of events, and the same bits at any number of threads and batches.
#include <chrono>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using test::bytes_of;
using test::error_of;
using test::HeldOutPlane;
using test::Plane;
using test::PlaneRun;
using test::same_bits;
using test::TemporaryFolder;

TEST_CASE("run: trains a user-defined model and data, with log and history") {
  const TemporaryFolder folder;
  PlaneRun s;
  const RunResult r = s.go({.steps = 40,
                            .seed = 5,
                            .evaluation = {.every = 15, .batches = 1},
                            .output = {.log = folder.path / "log.jsonl"}});
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

TEST_CASE("run: the precision applies to evaluations as well as steps") {
  PlaneRun s;
  const RunResult r = s.go({.steps = 2, .precision = DType::bfloat16});
  const auto loss = [&](const Batch& b) { return s.model.loss(b.inputs, b.targets); };
  CHECK(*r.validation_loss != evaluate(loss, HeldOutPlane{}));
  const MatmulPrecision precision(DType::bfloat16);
  CHECK(*r.validation_loss == evaluate(loss, HeldOutPlane{}));
}

RELEASE_TEST_CASE("run: the same bits at 1, 2, 3 and 8 threads, which are all at work") {
  const TemporaryFolder folder;
  Rng data_rng(1);
  const TokenSource tokens(data_rng.integers({6000}, 0, 20).to_vector<std::int32_t>(), 20);
  const auto train = [&](const std::filesystem::path& file) {
    Rng rng(2);
    GPT model({.vocabulary = 20,
               .context = 64,
               .blocks = {.layers = 2, .attention = {.width = 96, .heads = 3}, .dropout = 0.1}},
              rng);
    AdamW optimizer(decay_groups(model, 0.1), {.lr = 1e-3});
    Schedule schedule("constant", {.lr = 1e-3});
    return run(model, optimizer, schedule, LanguageModelBatches(tokens, {.batch = 24, .context = 64}),
               WholeSplit(tokens, {.batch = 24, .context = 64}),
               {.steps = 4, .evaluation = {.every = 2}, .checkpoint = {.path = file, .start = RunStart::overwrite}});
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

TEST_CASE("run: callbacks see each step and evaluation, and may stop the run, which can be resumed") {
  const TemporaryFolder folder;
  RunOptions options{.steps = 10,
                     .evaluation = {.every = 4},
                     .checkpoint = {.path = folder.path / "m.h5", .start = RunStart::resume_or_start}};
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
  const RunResult all = whole.go({.steps = 10, .evaluation = {.every = 4}});
  CHECK(losses == all.history.losses);
  CHECK(same_bits(resumed.model.up.weight, whole.model.up.weight));
  // An exception of a callback ends the run, without a checkpoint of the step.
  options.steps = 12;
  options.after_step = [](RunStep& s) { require(s.step != 12, "enough"); };
  CHECK(error_of([&] { PlaneRun().go(options); }) == "enough");
  CHECK(load_checkpoint(options.checkpoint.path).counter("step") == 10);
}
