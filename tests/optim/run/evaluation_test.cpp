// Metrics of evaluations: in the history, the log and the checkpoint, and exact after a resume.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <heed/heed.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using test::bytes_of;
using test::TemporaryFolder;

namespace {

// Two blobs that a line separates.
struct Blobs {
  Index rows = 32;
  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    Rng rng(seed, 100 + step);
    const Tensor y = rng.integers({rows}, 0, 2);
    return {(rng.normal({rows, 2}) + y.to(DType::float32).unsqueeze(1)).detach(), y, rows};
  }
};
struct HeldOutBlobs {
  Index size() const { return 3; }
  Batch batch(Index i) const { return Blobs{.rows = 10 + 20 * i}.batch(99, static_cast<std::uint64_t>(i)); }
};

struct Classifier {
  Linear layer;

  Tensor operator()(In x) const { return layer(x); }
  Tensor loss(In x, In y) const { return cross_entropy(layer(x), y); }
  void members(auto&& visit) { visit("layer", layer); }
};

struct BlobRun {
  Rng rng{3};
  Classifier model{Linear(2, 2, rng)};
  AdamW optimizer{named_parameters(model), {.lr = 3e-2}};
  Schedule schedule{"constant", {.lr = 3e-2}};

  RunResult go(const RunOptions& options, bool metrics = true) {
    std::function<Metrics(const Batch&)> measure;
    if (metrics) measure = [this](const Batch& b) { return classification_metrics(model(b.inputs), b.targets); };
    return go_on(options, Blobs{}, HeldOutBlobs{}, measure);
  }
  RunResult go_on(const RunOptions& options, Dataset data, EvaluationSet held_out,
                  std::function<Metrics(const Batch&)> measure = {}) {
    return run(model, optimizer, schedule, std::move(data), std::move(held_out), options, {}, std::move(measure));
  }
};

Batch ignored(Batch b) { return {b.inputs, Tensor::full(b.targets.shape(), kIgnoreIndex, DType::int32), 0}; }

// Blobs, and in between batches whose targets are all ignored: those with number % 2 == rest.
struct HalfIgnored {
  std::uint64_t rest;
  Batch batch(std::uint64_t seed, std::uint64_t step) const {
    const Batch b = Blobs{}.batch(seed, step / 2);
    return step % 2 == rest ? ignored(b) : b;
  }
};
struct AllIgnored {
  Index size() const { return 3; }
  Batch batch(Index i) const { return ignored(HeldOutBlobs{}.batch(i)); }
  Batch batch(std::uint64_t seed, std::uint64_t step) const { return ignored(Blobs{}.batch(seed, step)); }
};
struct LastIgnored {
  Index size() const { return 4; }
  Batch batch(Index i) const { return i < 3 ? HeldOutBlobs{}.batch(i) : ignored(HeldOutBlobs{}.batch(0)); }
};

}  // namespace

TEST_CASE("accuracy is the share of counted targets whose logit is the first maximum") {
  const Tensor logits = Tensor::from({3, 1, 2, 0, 5, 5, 1, 2, 3, 9, 0, 0}, {4, 3});
  CHECK(classification_accuracy(logits, Tensor::from<std::int32_t>({0, 1, 2, 1})) == 0.75);
  CHECK(classification_accuracy(logits, Tensor::from<std::int32_t>({0, 2, -100, -100})) == 0.5);
  CHECK(std::isnan(classification_accuracy(logits, Tensor::from<std::int32_t>({-100, -100, -100, -100}))));
  CHECK(classification_accuracy(logits.view({2, 2, 3}), Tensor::from<std::int32_t>({0, 1, 2, 0}, {2, 2})) == 1);
  CHECK(test::contains(test::error_of([&] { classification_accuracy(logits, Tensor::zeros({3}, DType::int32)); }),
                       "classification_accuracy: logits are [4, 3] float32 and targets are [3] int32"));
  const Metrics m = classification_metrics(logits, Tensor::from<std::int32_t>({0, 1, 2, 1}));
  CHECK(m.size() == 2);
  CHECK(m.at("accuracy") == 0.75);
  CHECK(m.at("loss") == doctest::Approx(cross_entropy(logits, Tensor::from<std::int32_t>({0, 1, 2, 1})).item()));
}

TEST_CASE("run: metrics of evaluations are weighted, logged, and continue after a resume with the same bits") {
  const TemporaryFolder folder;
  const auto options = [&](const std::string& name, Index steps) {
    return RunOptions{.steps = steps,
                      .evaluation = {.every = 7},
                      .checkpoint = {.path = folder.path / (name + ".h5"), .start = RunStart::resume_or_start},
                      .output = {.log = folder.path / (name + ".jsonl")}};
  };
  BlobRun whole;
  const RunResult all = whole.go(options("whole", 20));
  REQUIRE(all.history.validation_losses.size() == 3);
  REQUIRE(all.history.validation_metrics.size() == 3);
  double right = 0, counted = 0;
  for (Index i = 0; i < 3; ++i) {
    const Batch b = HeldOutBlobs{}.batch(i);
    const NoTape no_tape;
    const Tensor logits = whole.model(b.inputs);
    for (Index r = 0; r < b.targets.dim(0); ++r, ++counted)
      right += (logits.at({r, 1}) > logits.at({r, 0})) == (b.targets.at({r}) == 1) ? 1 : 0;
  }
  CHECK(all.validation_metrics == Metrics{{"accuracy", all.validation_metrics.at("accuracy")}});
  CHECK(all.validation_metrics.at("accuracy") == doctest::Approx(right / counted).epsilon(1e-12));
  int line_number = 0, found = 0;
  for (const nlohmann::json& entry : test::json_lines(folder.path / "whole.jsonl")) {
    ++line_number;
    const bool evaluated = line_number % 7 == 0 || line_number == 20;
    CHECK(entry.contains("val_loss") == evaluated);
    CHECK(entry.contains("val_accuracy") == evaluated);
    CHECK_FALSE(entry.contains("val_val_loss"));
    if (evaluated)
      CHECK(entry.at("val_accuracy") ==
            all.history.validation_metrics[static_cast<std::size_t>(found++)].at("accuracy"));
  }
  CHECK(found == 3);

  for (const Index stop : {3, 7, 15}) {
    BlobRun first, second;
    const std::string name = "part" + std::to_string(stop);
    first.go(options(name, stop));
    const RunResult rest = second.go(options(name, 20));
    CHECK(rest.resumed_from == stop);
    // The first part ends with an additional evaluation, unless one was due.
    const std::size_t extra = stop % 7 == 0 ? 0 : 1;
    REQUIRE(rest.history.validation_metrics.size() == 3 + extra);
    CHECK(rest.history.validation_metrics.back() == all.history.validation_metrics.back());
    CHECK(rest.history.validation_metrics.front().count("accuracy") == 1);
    if (extra == 0) CHECK((bytes_of(folder.path / (name + ".h5")) == bytes_of(folder.path / "whole.h5")));
  }
}

TEST_CASE("run: a run without metrics stores none, and one with metrics can resume it") {
  const TemporaryFolder folder;
  RunOptions options{.steps = 6,
                     .evaluation = {.every = 3},
                     .checkpoint = {.path = folder.path / "m.h5", .start = RunStart::resume_or_start}};
  BlobRun first, second;
  const RunResult without = first.go(options, false);
  CHECK(without.validation_metrics.empty());
  CHECK(without.history.validation_metrics == std::vector<Metrics>(2));
  options.steps = 9;
  const RunResult with = second.go(options);
  REQUIRE(with.history.validation_metrics.size() == 3);
  CHECK(with.history.validation_metrics[1].empty());
  CHECK(with.history.validation_metrics[2].count("accuracy") == 1);
  BlobRun third;  // metrics that were read are written again
  options.steps = 10;
  CHECK(third.go(options).history.validation_metrics[2] == with.history.validation_metrics[2]);
}

TEST_CASE("run: all evaluation batches must return the same metrics, including the loss") {
  const auto error = [](const std::function<Metrics(const Batch&)>& f) {
    return test::error_of([&] { evaluate_metrics(f, HeldOutBlobs{}); });
  };
  CHECK(error([](const Batch&) {
          return Metrics{{"accuracy", 1}};
        }) == "evaluate: batch 0 has the metrics \"accuracy\", but no \"loss\"; metrics must include it");
  CHECK(error([](const Batch&) { return Metrics(); }) ==
        "evaluate: batch 0 has the metrics none, but no \"loss\"; metrics must include it");
  CHECK(error([](const Batch& b) {
          return b.counted < 20 ? Metrics{{"loss", 1}, {"x", 1}} : Metrics{{"loss", 1}};
        }) ==
        "evaluate: batch 1 has the metrics \"loss\", but batch 0 has \"loss\" and \"x\"; all batches must have the "
        "same metrics");
  // The same number of metrics, but other names.
  CHECK(error([](const Batch& b) {
          return b.counted < 20 ? Metrics{{"a", 1}, {"loss", 1}, {"x", 1}} : Metrics{{"a", 1}, {"loss", 1}, {"y", 1}};
        }) ==
        "evaluate: batch 1 has the metrics \"a\", \"loss\" and \"y\", but batch 0 has \"a\", \"loss\" and \"x\"; "
        "all batches must have the same metrics");
  CHECK(evaluate_metrics([](const Batch&) { return Metrics{{"loss", 1}}; }, EvaluationSet{}).empty());
}

TEST_CASE("run: batches whose targets are all ignored do not count, in steps and in evaluations") {
  BlobRun plain;
  const RunResult expected = plain.go_on({.steps = 6}, Blobs{}, HeldOutBlobs{});
  for (const std::uint64_t rest : {0, 1}) {
    BlobRun s;
    const RunResult r = s.go_on({.steps = 6, .accumulate = 2}, HalfIgnored{rest}, LastIgnored{});
    CHECK(r.history.losses == expected.history.losses);
    CHECK(r.validation_loss == expected.validation_loss);
    CHECK(test::same_bits(s.model.layer.weight, plain.model.layer.weight));
  }
}

TEST_CASE("run: a step or an evaluation without counted targets is an Error, as is an unset Batch::counted") {
  const auto error = [](const RunOptions& options, Dataset data, EvaluationSet held_out) {
    BlobRun s;
    return test::error_of([&] { s.go_on(options, data, held_out); });
  };
  CHECK(
      error({.steps = 2, .accumulate = 3}, AllIgnored{}, HeldOutBlobs{}) ==
      "run: all targets of step 1 are ignored: Batch::counted, the number of other targets, is 0 in all 3 batches; it "
      "must be above 0 in at least one");
  CHECK(test::contains(error({.steps = 2}, HalfIgnored{1}, HeldOutBlobs{}), "run: all targets of step 2 are ignored"));
  const std::string message =
      "evaluate: all targets are ignored: Batch::counted, the number of other targets, is 0 in all ";
  CHECK(error({.steps = 2}, Blobs{}, AllIgnored{}) == message + "3 batches; it must be above 0 in at least one");
  CHECK(test::contains(error({.steps = 2, .evaluation = {.every = 1, .batches = 2}}, Blobs{}, AllIgnored{}),
                       message + "2 batches"));
  CHECK(test::contains(test::error_of([] { evaluate([](const Batch& b) { return sum(b.inputs); }, AllIgnored{}); }),
                       message + "3 batches"));
}

TEST_CASE("run: metric names that a checkpoint cannot store are refused at the first evaluation") {
  const TemporaryFolder folder;
  RunOptions options{.steps = 6,
                     .evaluation = {.every = 2},
                     .checkpoint = {.path = folder.path / "m.h5", .start = RunStart::resume_or_start},
                     .output = {.log = folder.path / "log"}};
  const auto go = [&](const Metrics& m) {
    BlobRun s;
    return s.go_on(options, Blobs{}, HeldOutBlobs{}, [m](const Batch&) { return m; });
  };
  const auto error = [&](const Metrics& m) { return test::error_of([&] { go(m); }); };
  CHECK(error({{"loss", 1}, {"a/", 2}}) ==
        "run: «history/metric.a/» is not a valid name; its parts must not be empty, . or ..");
  CHECK(test::json_lines(options.output.log).size() == 1);  // the evaluation is after step 2
  CHECK(error({{"loss", 1}, {"a", 2}, {"a/b", 3}}) ==
        "run: history/metric.a is the name of a tensor and of the section of the tensor history/metric.a/b; names must "
        "differ");
  CHECK(test::json_lines(options.output.log).size() == 1);
  CHECK_FALSE(std::filesystem::exists(options.checkpoint.path));
  // A name may have several parts, and is restored.
  CHECK(error({{"loss", 1}, {"top/5", 2}}).empty());
  options.steps = 8;
  const RunResult resumed = go({{"loss", 1}, {"top/5", 3}});
  CHECK(resumed.resumed_from == 6);
  REQUIRE(resumed.history.validation_metrics.size() == 4);
  CHECK(resumed.history.validation_metrics[0] == Metrics{{"top/5", 2}});
  CHECK(resumed.history.validation_metrics[3] == Metrics{{"top/5", 3}});
  options.checkpoint.path.clear();  // without a checkpoint any name is valid
  CHECK(error({{"loss", 1}, {"a/", 2}}).empty());
}

TEST_CASE("run: batches without a tensor or without elements are errors that name them") {
  struct Made {
    Batch of;
    Batch batch(std::uint64_t, std::uint64_t) const { return of; }
    Index size() const { return 2; }
    Batch batch(Index) const { return of; }
  };
  const Batch no_rows{Tensor::zeros({0, 2}), Tensor::zeros({0}, DType::int32), 3};
  const auto of_step = [](const Batch& b, const RunOptions& o = {.steps = 1}) {
    BlobRun s;
    return test::error_of([&] { s.go_on(o, Made{b}, {}); });
  };
  const auto of_evaluation = [](const Batch& b) {
    BlobRun s;
    return test::error_of([&] { s.go_on({.steps = 1}, Blobs{}, Made{b}); });
  };
  CHECK(of_step(Batch{}) ==
        "run: the batches of step 1 are empty: they have no tensors, and Batch::counted is 0; the data set must fill "
        "them");
  CHECK(of_step(Batch{}, {.steps = 1, .accumulate = 2, .shards = 2}) ==
        "run: the batches of step 1 are empty: they have no tensors, and Batch::counted is 0; the data set must fill "
        "them");
  CHECK(of_evaluation(Batch{}) ==
        "evaluate: all 2 batches are empty: they have no tensors, and Batch::counted is 0; the evaluation set must "
        "fill them");
  // cross_entropy detects that no target counts; a mean over elements does not.
  CHECK(of_step(no_rows) == "run: the target weights of step 1 add up to 0; at least one must be above 0");
  const auto squares = [](const Batch& b) { return mean(square(b.inputs)); };
  CHECK(
      test::error_of([&] {
        BlobRun s;
        run(s.model, s.optimizer, s.schedule, Made{no_rows}, {}, {.steps = 1}, squares);
      }) ==
      "run: the loss of step 1 is nan; it must be finite: the inputs of its batch have shape [0, 2], without elements");
  CHECK(test::error_of([&] { evaluate(squares, Made{no_rows}); }) ==
        "evaluate: the loss of batch 0 is nan: the inputs of its batch have shape [0, 2], without elements");
}

TEST_CASE("run: a monitor that is no metric is refused at the start, or at the first evaluation") {
  Index steps = 0;
  const auto error = [&](const std::string& monitor, const std::function<Metrics(const Batch&)>& measure) {
    BlobRun s;
    RunOptions o{.steps = 4, .evaluation = {.every = 2, .monitor = monitor}};
    o.after_step = [&](RunStep&) { ++steps; };
    steps = 0;
    return test::error_of([&] { s.go_on(o, Blobs{}, HeldOutBlobs{}, measure); });
  };
  CHECK(error("f1", {}) == "run: evaluation.monitor is \"f1\", but the only metric is \"loss\"");
  CHECK(steps == 0);
  CHECK(error("f1", [](const Batch&) {
          return Metrics{{"loss", 1}, {"accuracy", 0.5}};
        }) == "run: evaluation.monitor is \"f1\", but the metrics are \"accuracy\" and \"loss\"");
  CHECK(steps == 1);  // the evaluation is after step 2
  CHECK(error("accuracy", [](const Batch&) { return Metrics{{"loss", 1}, {"accuracy", 0.5}}; }).empty());
}
