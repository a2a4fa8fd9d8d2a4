// WeightAverage, the moving average of weights: alone and in a run.
#include <cmath>
#include <fstream>
#include <heed/optim/optimizers/average.hpp>
#include <tuple>

#include "tests/core/levels.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/optim/optim_testing.hpp"
#include "tests/optim/plane_run.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE_TEMPLATE("average: follows the weights, is swapped in and out exactly", T, float, double) {
  const ThreadScope scope;
  std::vector<T> at_one_thread;
  for (const int n_threads : {1, 2, 3, 8}) {
    set_threads(n_threads);
    on_each_float_level([&] {
      for (const Index n : {0, 1, 7, 8, 9, 17, 16385, 50001}) {
        const std::vector<T> start = spread_values<T>(n, 1);
        Parameter p(Tensor::from(start, {n}));
        WeightAverage average(std::vector<NamedParameter>{{"p", &p}}, 0.9);
        std::vector<double> expected(start.begin(), start.end());
        std::vector<T> x = start;
        for (unsigned t = 0; t < 5; ++t) {
          x = spread_values<T>(n, 50 + t);
          p.copy_(Tensor::from(x, {n}));
          average.update();
          for (std::size_t i = 0; i < expected.size(); ++i)
            expected[i] = 0.9 * expected[i] + (1 - 0.9) * static_cast<double>(x[i]);
        }
        const auto version = p.version();
        {
          const AveragedWeights inside(average);
          CHECK(average.swapped());
          CHECK(p.version() > version);
          const std::vector<T> got = p.to_vector<T>();
          double off = 0;
          for (std::size_t i = 0; i < expected.size(); ++i) off = std::max(off, std::abs(got[i] - expected[i]));
          // 5 updates of values up to 10, each with two roundings
          CHECK(off <= 5 * 2 * 10 * (sizeof(T) == 4 ? std::exp2(-24) : std::exp2(-53)));
          if (kernels::level() == kernels::Level::baseline && n == 50001) {
            if (at_one_thread.empty()) at_one_thread = got;
            CHECK(got == at_one_thread);
          }
        }
        CHECK(!average.swapped());
        CHECK(p.to_vector<T>() == x);
      }
    });
  }
}

TEST_CASE("average: the end of an inner scope keeps the averages swapped in") {
  Parameter p(Tensor::from<double>({0}));
  WeightAverage average(std::vector<NamedParameter>{{"p", &p}}, 0.5);
  p.fill_(8);
  average.update();
  {
    const AveragedWeights outer(average);
    {
      const AveragedWeights inner(average);
      CHECK(p.item() == 4);
    }
    CHECK(p.item() == 4);
    CHECK(average.swapped());
  }
  CHECK(p.item() == 8);
  {
    const AveragedWeights scope(average);
    average.swap();  // swaps back before the scope ends
  }
  CHECK(p.item() == 8);
  CHECK(!average.swapped());
}

TEST_CASE("average: the ramp forgets the start") {
  Parameter p(Tensor::from<double>({0}));
  WeightAverage average(std::vector<NamedParameter>{{"p", &p}}, 0.5, true);
  p.fill_(11);
  average.update();  // decay 2 / 11
  average.swap();
  CHECK(p.item() == doctest::Approx(9).scale(0).epsilon(1e-12));
  average.swap();
  for (int i = 0; i < 20; ++i) average.update();
  average.swap();
  CHECK(std::abs(p.item() - 11) < 1e-3);
}

TEST_CASE("average: state continues with the same bits, and a state that does not fit is refused") {
  Parameter p(Tensor::from({1, 2, 3})), q(Tensor::from({9, 9, 9}));
  WeightAverage a(std::vector<NamedParameter>{{"p", &p}}, 0.9, true),
      b(std::vector<NamedParameter>{{"p", &q}}, 0.9, true);
  p.fill_(5);
  a.update();
  std::vector<NamedTensor> saved;
  for (const NamedTensor& part : a.state()) saved.push_back({part.name, part.tensor.clone()});
  CHECK(saved[0].name == "average.p");
  b.load_state(saved);
  CHECK(b.updates() == 1);
  q.copy_(p);
  a.update();
  b.update();
  CHECK(a.state()[0].tensor.to_vector<float>() == b.state()[0].tensor.to_vector<float>());
  saved[0].tensor = Tensor::zeros({4});
  CHECK(contains(error_of([&] { b.load_state(saved); }),
                 "WeightAverage: 'average.p' in the state is [4] float32; it must be [3] float32"));
  CHECK(b.updates() == 2);
}

TEST_CASE("average: wrong use is an Error") {
  Parameter p(Tensor::from({1, 2}));
  const std::vector<NamedParameter> list = {{"p", &p}};
  CHECK(contains(error_of([&] { WeightAverage(list, 1); }), "decay is 1; it must be at least 0 and below 1"));
  CHECK(contains(error_of([&] { WeightAverage(list, -0.1); }), "decay is -0.1"));
  CHECK(contains(error_of([&] { WeightAverage(std::vector<NamedParameter>{}, 0.9); }), "there are no parameters"));
  WeightAverage average(list, 0.9);
  average.swap();
  CHECK(contains(error_of([&] { average.update(); }), "update() while the averages are swapped in; swap back first"));
  CHECK(contains(error_of([&] { average.state(); }), "state() while the averages are swapped in"));
}

namespace {

std::vector<Tensor> averages_of(PlaneRun& s) {
  const AveragedWeights inside(s.average);
  return {s.model.up.weight.clone(), s.model.up.bias.clone(), s.model.down.weight.clone(), s.model.down.bias.clone()};
}

bool same_averages(PlaneRun& a, PlaneRun& b) {
  const std::vector<Tensor> x = averages_of(a), y = averages_of(b);
  return std::equal(x.begin(), x.end(), y.begin(), [](const Tensor& s, const Tensor& t) { return same_bits(s, t); });
}

}  // namespace

TEST_CASE("run: the moving average equals that of a manual loop, and evaluations use it") {
  PlaneRun s, plain, by_hand;
  for (PlaneRun* r : {&s, &plain, &by_hand}) r->model.drop = Dropout{0.0};
  RunOptions options{.steps = 12, .seed = 5, .average = &s.average, .evaluation = {.every = 4}};
  const RunResult r = s.go(options);
  options.average = nullptr;
  const RunResult without = plain.go(options);

  std::vector<double> losses;
  for (Index step = 0; step < 12; ++step) {
    const Batch b = Plane{}.batch(5, static_cast<std::uint64_t>(step));
    by_hand.optimizer.zero_grad();
    Tape tape;
    tape.backward(by_hand.model.loss(b.inputs, b.targets));
    by_hand.optimizer.set_lr(by_hand.schedule(step));
    by_hand.optimizer.clipped_step(1);
    by_hand.average.update();
    if ((step + 1) % 4 != 0) continue;
    const AveragedWeights inside(by_hand.average);
    losses.push_back(evaluate([&](const Batch& e) { return by_hand.model.loss(e.inputs, e.targets); }, HeldOutPlane{}));
  }
  REQUIRE(r.history.validation_losses.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(r.history.validation_losses[i].second == losses[i]);
    CHECK(r.history.validation_losses[i].second != without.history.validation_losses[i].second);
  }
  CHECK(*r.validation_loss == losses[2]);
  CHECK(s.average.updates() == 12);
  CHECK(same_averages(s, by_hand));
  // Training equals training without an average, and the model ends with its own weights.
  CHECK(r.history.losses == without.history.losses);
  CHECK(same_bits(s.model.up.weight, plain.model.up.weight));
  CHECK_FALSE(same_bits(s.model.up.weight, averages_of(s)[0]));
}

TEST_CASE("run: a moving average is kept over a resume, to the same bits") {
  const TemporaryFolder folder;
  const auto options = [&](const std::string& name, Index steps, PlaneRun& s) {
    return RunOptions{.steps = steps,
                      .average = &s.average,
                      .evaluation = {.every = 4},
                      .checkpoint = {.path = folder.path / (name + ".h5"), .start = RunStart::resume_or_start}};
  };
  PlaneRun whole;
  const RunResult all = whole.go(options("whole", 12, whole));
  const Checkpoint c = load_checkpoint(folder.path / "whole.h5");
  CHECK(c.tensor("average/updates").item<Index>() == 12);
  CHECK(same_bits(c.tensor("average/average.up.weight"), averages_of(whole)[0]));
  CHECK(same_bits(c.tensor("model/up.weight"), whole.model.up.weight));
  for (const Index stop : {1, 4, 8}) {
    PlaneRun first, second;
    const std::string name = "part" + std::to_string(stop);
    first.go(options(name, stop, first));
    const RunResult rest = second.go(options(name, 12, second));
    CHECK(rest.resumed_from == stop);
    CHECK(rest.validation_loss == all.validation_loss);
    CHECK(same_averages(second, whole));
    // A part that stops at step 1 ends with an evaluation that the whole run does not make.
    if (stop > 1) CHECK((bytes_of(folder.path / (name + ".h5")) == bytes_of(folder.path / "whole.h5")));
  }
}

TEST_CASE("run: a checkpoint with an average needs a run with an average, and vice versa") {
  const TemporaryFolder folder;
  const std::filesystem::path with = folder.path / "with.h5", without = folder.path / "without.h5";
  PlaneRun s;
  s.go({.steps = 2, .average = &s.average, .checkpoint = {.path = with}});
  s.go({.steps = 2, .checkpoint = {.path = without}});
  const Tensor before = s.model.up.weight.clone();
  CHECK(s.refusal({.steps = 4, .checkpoint = {.path = with, .start = RunStart::resume_or_start}}) ==
        "resume: " + with.string() +
            " has an average of the weights but this run has none; both must have one, or neither");
  CHECK(s.refusal(
            {.steps = 4, .average = &s.average, .checkpoint = {.path = without, .start = RunStart::resume_or_start}}) ==
        "resume: " + without.string() +
            " has no average of the weights but this run has one; both must have one, or neither");
  CHECK(same_bits(s.model.up.weight, before));
  WeightAverage other(std::vector<NamedParameter>{{"up.weight", &s.model.up.weight}}, 0.9);
  CHECK(contains(
      s.refusal({.steps = 4, .average = &other, .checkpoint = {.path = with, .start = RunStart::resume_or_start}}),
      "WeightAverage: the state has an unknown 'average.down.bias'"));
  const AveragedWeights inside(s.average);
  CHECK(s.refusal({.steps = 4, .average = &s.average}) ==
        "run: the averages are swapped into the model; swap back before the run");
}
