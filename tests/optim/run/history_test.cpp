// The history of a run in its checkpoint: steps, losses, and the best evaluation.
#include <cmath>
#include <heed/optim/run/history.hpp>
#include <tuple>

#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"

using namespace heed;
using test::contains;
using test::PlaneRun;
using test::same_bits;
using test::TemporaryFolder;

TEST_CASE("run: a checkpoint with parts from different steps is refused before any part is loaded") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "x.h5";
  PlaneRun s;
  RunOptions options{.steps = 6, .evaluation = {.every = 3}, .checkpoint = {.path = file}};
  s.go(options);
  options.checkpoint.start = RunStart::resume_or_start;
  const Checkpoint good = load_checkpoint(file);
  const auto refused = [&](const std::string& sentence, auto&& change) {
    INFO(sentence);
    Checkpoint c = good;
    change(c);
    save_checkpoint(file, c);
    PlaneRun fresh;
    const Tensor before = fresh.model.up.weight.clone();
    CHECK(fresh.refusal(options) == sentence);
    CHECK(same_bits(fresh.model.up.weight, before));
    CHECK(fresh.optimizer.step_count() == 0);
  };
  const std::string name = file.string(), of = " of " + name, row = "; it must be a float64 vector";
  const auto numbers = [](std::vector<double> x) { return Tensor::from(x, {static_cast<Index>(x.size())}); };
  refused("resume: history/loss" + of + " has 6 numbers; it must have 5",
          [](Checkpoint& c) { c.counters["step"] = 5; });
  refused("resume: " + name + " is at step 7 but its optimizer made 6 steps; it must have made at least 7",
          [](Checkpoint& c) { c.counters["step"] = 7; });
  refused("resume: " + name + " is at step 9223372036854775808; it must be at most 1099511627776",
          [](Checkpoint& c) { c.counters["step"] = std::uint64_t{1} << 63; });
  refused("resume: " + name + " is at step 6 but its optimizer made 5 steps; it must have made at least 6",
          [](Checkpoint& c) { c.tensors["optimizer/step_count"] = Tensor::scalar(5, DType::int32); });
  refused(
      "resume: the optimizer in " + name + " made -1 steps with a parameter; this must be from 0 to all its steps, 6",
      [&](Checkpoint& c) {
        const Tensor steps = good.tensor("optimizer/steps").clone();
        steps.slice(0, 0, 1).fill_(-1);
        c.tensors["optimizer/steps"] = steps;
      });
  refused("resume: step_count and steps of optimizer in " + name +
              " are [1] int32 and [4] int32; they must be an int32 scalar and an int32 vector",
          [](Checkpoint& c) { c.tensors["optimizer/step_count"] = Tensor::zeros({1}, DType::int32); });
  refused("resume: history/loss" + of + " is [6] float32" + row,
          [](Checkpoint& c) { c.tensors["history/loss"] = Tensor::zeros({6}); });
  refused("resume: history/loss" + of + " is [2, 3] float64" + row, [](Checkpoint& c) {
    c.tensors["history/loss"] = Tensor::zeros({2, 3}, DType::float64);
  });
  refused("resume: history/validation_loss" + of + " has 1 numbers; it must have 2",
          [&](Checkpoint& c) { c.tensors["history/validation_loss"] = numbers({1}); });
  refused("resume: history/metric.accuracy" + of + " has 3 numbers; it must have 2", [&](Checkpoint& c) {
    c.tensors["history/metric.accuracy"] = numbers({1, 2, 3});
  });
  for (const auto& [first, second, message] :
       {std::tuple{3.0, 7.0, "7"}, {6.0, 3.0, "3"}, {2.5, 6.0, "2.5"}, {-1.0, 6.0, "-1"}, {3.0, std::nan(""), "nan"}})
    refused("resume: " + name + " has an evaluation after step " + message +
                "; evaluations must be after whole steps, in order, up to 6",
            [&, steps = numbers({first, second})](Checkpoint& c) { c.tensors["history/validation_step"] = steps; });
  save_checkpoint(file, good);
  PlaneRun again;
  CHECK(again.go(options).resumed_from == 6);
}

TEST_CASE("run history: is restored from a checkpoint, with partly missing metrics and losses by name") {
  RunHistory history;
  history.losses = {4, 3.5, test::kInf, 0.1};
  history.validation_losses = {{2, 3.25}, {3, test::kNaN}, {4, -0.5}};
  history.validation_metrics = {{{"accuracy", 0.25}}, {}, {{"accuracy", 0.5}, {"f1", 0.75}}};
  history.other_losses = {{"generator", {1, 2, 3, 4}}};
  Checkpoint c;
  detail::store_history(history, c);
  const RunHistory back = detail::load_history(c, 4);
  CHECK(back.losses == history.losses);
  REQUIRE(back.validation_losses.size() == 3);
  CHECK(back.validation_losses[0] == history.validation_losses[0]);
  CHECK(back.validation_losses[1].first == 3);
  CHECK(std::isnan(back.validation_losses[1].second));
  CHECK(back.validation_losses[2] == history.validation_losses[2]);
  CHECK(back.validation_metrics == history.validation_metrics);
  CHECK(back.other_losses == history.other_losses);
  // A run that has not started.
  Checkpoint none;
  detail::store_history({}, none);
  CHECK(detail::load_history(none, 0).losses.empty());
  CHECK(test::error_of([&] { detail::load_history(none, 1); }) ==
        "resume: history/loss of the checkpoint has 0 numbers; it must have 1");
  c.tensors["history/loss.generator"] = Tensor::zeros({3}, DType::float64);
  CHECK(test::error_of([&] { detail::load_history(c, 4); }) ==
        "resume: history/loss.generator of the checkpoint has 3 numbers; it must have 4");
  CHECK(contains(test::error_of([] { detail::load_history({}, 0); }), "history/loss"));
}

TEST_CASE("run history: the best evaluation is the first of the lowest or highest, and never NaN") {
  const auto best = [](const std::vector<double>& losses, bool highest, const std::string& name = "loss",
                       const std::vector<Metrics>& metrics = {}, Index from = 0) {
    RunHistory history;
    for (const double x : losses) history.validation_losses.emplace_back(history.validation_losses.size() + 1, x);
    history.validation_metrics = metrics.empty() ? std::vector<Metrics>(losses.size()) : metrics;
    return detail::best_evaluation(history, {.monitor = name, .maximize = highest}, from);
  };
  CHECK(best({}, false) == -1);
  CHECK(best({3}, false) == 0);
  CHECK(best({3, 1, 2, 1}, false) == 1);
  CHECK(best({3, 1, 2, 3}, true) == 0);
  CHECK(best({test::kNaN, 5, test::kNaN, 4}, false) == 3);
  CHECK(best({test::kNaN, 5, test::kNaN, 4}, true) == 1);
  CHECK(best({test::kNaN}, false) == -1);
  CHECK(best({test::kInf, -test::kInf}, false) == 1);
  CHECK(best({1, 3, 2, 4}, false, "loss", {}, 1) == 2);  // after step 1
  CHECK(best({1, 3, 2, 4}, false, "loss", {}, 4) == -1);
  CHECK(best({test::kInf}, false) == 0);  // an infinite loss counts
  // A metric that evaluations of an older run may lack.
  const std::vector<Metrics> metrics = {{}, {{"accuracy", 0.5}}, {{"other", 9}}, {{"accuracy", 0.75}}};
  CHECK(best({1, 2, 3, 4}, true, "accuracy", metrics) == 3);
  CHECK(best({1, 2, 3, 4}, false, "accuracy", metrics) == 1);
  CHECK(best({1, 2, 3, 4}, false, "other", metrics) == 2);
  CHECK(best({1, 2, 3, 4}, false, "f1", metrics) == -1);
}

TEST_CASE("run history: a checkpoint's step is that of its optimizers, which may have stepped before the run") {
  Checkpoint c;
  c.counters["step"] = 3;
  const auto counted = [&](const std::string& section, std::int32_t all, const std::vector<std::int32_t>& each) {
    c.tensors[section + "/step_count"] = Tensor::scalar(all, DType::int32);
    c.tensors[section + "/steps"] = Tensor::from(each, {static_cast<Index>(each.size())});
  };
  counted("optimizer", 3, {3, 0, 3});
  counted("optimizer.generator", 5, {5});  // two steps before the run
  CHECK(detail::step_of(c, {}) == 3);
  CHECK(detail::step_of(c, {"optimizer", "optimizer.generator"}) == 3);
  counted("optimizer", 2, {2, 0, 2});
  CHECK(test::error_of([&] {
          detail::step_of(c, {"optimizer.generator", "optimizer"});
        }) == "resume: the checkpoint is at step 3 but its optimizer made 2 steps; it must have made at least 3");
  counted("optimizer", 3, {3, 4});
  CHECK(test::error_of([&] { detail::step_of(c, {"optimizer"}); }) ==
        "resume: the optimizer in the checkpoint made 4 steps with a parameter; this must be from 0 to all its steps, "
        "3");
}
