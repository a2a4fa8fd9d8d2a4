// Learning rate schedules: formulas, PyTorch's values, states, and user-defined schedules.
#include <algorithm>
#include <cmath>
#include <heed/optim/optimizers/schedule.hpp>

#include "tests/optim/optim_testing.hpp"

using namespace heed;
using namespace heed::test;
using nlohmann::json;

TEST_CASE("schedules: every one warms up from 0, and stays between min_lr and lr after that") {
  for (const std::string& name : Schedule::names()) {
    CAPTURE(name);
    const Schedule s(name, {.lr = 2, .min_lr = 0.5, .warmup = 10, .steps = 100, .every = 20, .gamma = 0.3});
    CHECK(s.name() == name);
    if (name != "one-cycle") {
      CHECK(s(0) == 0);
      CHECK(s(5) == 1);
      CHECK(s(10) == 2);
    }
    double last = s(10);
    bool falls = true, bounded = true;
    for (Index t = 11; t < 300; ++t) {
      falls &= s(t) <= last;
      bounded &= s(t) >= 0.5 && s(t) <= 2;
      last = s(t);
    }
    CHECK(falls);
    CHECK(bounded);
    CHECK(last == (name == "constant" || name == "plateau" ? 2 : 0.5));
  }
}

TEST_CASE("schedules: formulas") {
  CHECK(Schedule("constant", {.lr = 3})(1000000) == 3);
  const Schedule linear("linear", {.lr = 1, .min_lr = 0.5, .warmup = 10, .steps = 110});
  CHECK(linear(60) == 0.75);
  CHECK(linear(110) == 0.5);
  const Schedule cosine("cosine", {.lr = 1, .steps = 100});
  CHECK(cosine(0) == 1);
  CHECK(cosine(50) == doctest::Approx(0.5).scale(0).epsilon(1e-12));
  CHECK(cosine(100) == 0);
  const Schedule root("inverse-sqrt", {.lr = 1, .warmup = 100});
  CHECK(root(400) == 0.5);
  CHECK(Schedule("inverse-sqrt", {.lr = 1})(0) == 1);
  CHECK(Schedule("inverse-sqrt", {.lr = 1})(4) == 0.5);
  const Schedule steps("step", {.lr = 1, .warmup = 5, .every = 10, .gamma = 0.5});
  CHECK(steps(14) == 1);
  CHECK(steps(15) == 0.5);
  CHECK(steps(25) == 0.25);
  // The nano recipe: lr (0.1 + 0.9 cosine), to the bit.
  const Schedule nano("cosine", {.lr = 1e-3, .min_lr = 1e-4, .warmup = 100, .steps = 2000});
  int wrong = 0;
  for (Index t = 0; t < 2000; ++t) {
    const double c = 0.5 * (1 + std::cos(M_PI * static_cast<double>(t - 100) / (2000 - 100)));
    wrong += nano(t) != (t < 100 ? 1e-3 * static_cast<double>(t) / 100 : 1e-3 * (0.1 + 0.9 * c));
  }
  CHECK(wrong == 0);
}

TEST_CASE("schedules: the shortest trainings have finite rates") {
  for (const std::string& name : Schedule::names())
    for (const Index warmup : {0, 1, 2})
      for (const Index steps : {2, 3})
        for (Index t = 0; t < 5; ++t) {
          const double lr = Schedule(name, {.lr = 1, .warmup = warmup, .steps = steps})(t);
          CAPTURE(name);
          CHECK((lr >= 0 && lr <= 1));
        }
  CHECK(Schedule("one-cycle", {.lr = 1, .steps = 1})(0) <= 1);
  CHECK(Schedule("cosine", {.lr = 0, .steps = 1})(0) == 0);
}

TEST_CASE("schedules: plateau resumes from its state") {
  const ScheduleOptions options{.lr = 1, .gamma = 0.5, .patience = 1, .cooldown = 2};
  Schedule a("plateau", options);
  const std::vector<double> losses = {3, 2, 2, 2, 2, 1.5, 1.5, NAN, 1.5, 1.5, 1.5, 1, 2, 2, 2, 2, 2, 2};
  for (std::size_t cut = 0; cut < losses.size(); ++cut) {
    Schedule whole("plateau", options), first("plateau", options), second("plateau", options);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      whole.observe(losses[i]);
      if (i == cut) second.load_state(first.state());
      (i < cut ? first : second).observe(losses[i]);
    }
    CHECK(whole(0) == second(0));
    CHECK(whole(0) < 0.3);
  }
  for (const double loss : {1.0, 2.0, 2.0}) a.observe(loss);
  CHECK(a(7) == 0.5);
  Schedule copy = a;
  copy.observe(2), copy.observe(2), copy.observe(2), copy.observe(2);
  CHECK(copy(7) == 0.25);
  CHECK(a(7) == 0.5);
  copy = a;
  CHECK(copy(7) == 0.5);
  CHECK(a.state()[0].name == "plateau");
  CHECK(Schedule("constant", {}).state()[0].name == "course");
}

TEST_CASE("schedules: an invalid name, option or state is an Error that names it") {
  const auto error = [](const char* name, const ScheduleOptions& o) { return error_of([&] { Schedule(name, o); }); };
  CHECK(error("cosin", {}) ==
        "schedule: the name is 'cosin'; it must be one of constant, linear, cosine, inverse-sqrt, step, one-cycle, "
        "plateau");
  CHECK(error("cosine", {}) == "schedule cosine: steps is 0; it must be 1 or more");
  CHECK(contains(error("linear", {.warmup = 11, .steps = 10}), "warmup is 11; it must be at most steps"));
  CHECK(contains(error("constant", {.lr = -1}), "lr is -1; it must be 0 or more"));
  CHECK(contains(error("constant", {.lr = NAN}), "lr is nan"));
  CHECK(contains(error("constant", {.lr = INFINITY}), "lr is inf; it must be 0 or more and finite"));
  CHECK(contains(error("constant", {.lr = 1, .min_lr = 2}), "min_lr is 2; it must be 0 or more and at most lr"));
  CHECK(contains(error("constant", {.warmup = -1}), "warmup is -1"));
  CHECK(contains(error("step", {.every = 0}), "every is 0; it must be 1 or more"));
  CHECK(contains(error("step", {.gamma = 0}), "gamma is 0"));
  CHECK(contains(error("plateau", {.gamma = 1.5}), "gamma is 1.5"));
  CHECK(contains(error("plateau", {.patience = -1}), "patience is -1"));
  CHECK(contains(error("plateau", {.threshold = 1}), "threshold is 1"));
  CHECK(contains(error("plateau", {.cooldown = -1}), "cooldown is -1"));
  CHECK(contains(error("plateau", {.eps = -1}), "eps is -1; it must be 0 or more"));
  CHECK(contains(error("one-cycle", {.steps = 10, .div_factor = 0.5}), "div_factor is 0.5"));
  CHECK(contains(error("one-cycle", {.steps = 10, .final_div_factor = 0}), "final_div_factor is 0"));
  const Schedule s("constant", {});
  CHECK(contains(error_of([&] { s(-1); }), "the step is -1; it must be 0 or more"));
  Schedule p("plateau", {}), c("constant", {});
  CHECK(contains(error_of([&] { p.load_state({}); }), "schedule plateau: the state has no 'plateau'"));
  CHECK(contains(error_of([&] { c.load_state(p.state()); }), "schedule constant: the state has an unknown 'plateau'"));
}

namespace {

struct HalvesWhereItRises {
  double lr = 1, last = INFINITY;
  double operator()(Index) const { return lr; }
  void observe(double loss) {
    if (loss > last) lr /= 2;
    last = loss;
  }
  std::vector<double> state() const { return {lr, last}; }
  void load_state(const std::vector<double>& state) { lr = state[0], last = state[1]; }
};

}  // namespace

TEST_CASE("schedules: a user-defined schedule, with and without a state") {
  Schedule inverse([](Index step) { return 1.0 / static_cast<double>(1 + step); });
  inverse.observe(3);
  CHECK(inverse(3) == 0.25);
  CHECK(inverse.name() == "own");
  CHECK(inverse.state().empty());
  inverse.load_state({});
  CHECK(error_of([&] { inverse(-1); }) == "schedule own: the step is -1; it must be 0 or more");

  Schedule a{HalvesWhereItRises{}}, b{HalvesWhereItRises{}};
  for (const double loss : {3.0, 4.0, 5.0}) a.observe(loss);
  CHECK(a(0) == 0.25);
  Schedule copy = a;
  copy.observe(6);
  CHECK(copy(0) == 0.125);
  CHECK(a(0) == 0.25);
  b.load_state(a.state());
  b.observe(4.5);
  CHECK(b(9) == 0.25);
  b.observe(5);
  CHECK(b(9) == 0.125);
  const Schedule plateau("plateau", {});
  CHECK(contains(error_of([&] { b.load_state(plateau.state()); }), "schedule own: the state has no 'own'"));
  CHECK(contains(error_of([&] {
                   b.load_state({{"own", Tensor::zeros({3}, DType::float64)}});
                 }),
                 "schedule own: 'own' in the state is [3] float64; it must be [2] float64"));
}

TEST_CASE("schedules: one-cycle, step, plateau and the nano recipe equal PyTorch's") {
  const json& stored = reference()["schedules"];
  const auto compare = [&](const char* name, const Schedule& schedule, Index every, double tolerance) {
    double off = 0;
    Index step = 0;
    for (const json& expected : stored[name]) {
      off = std::max(off, std::abs(schedule(step) - expected.get<double>()) / std::max(1e-12, expected.get<double>()));
      step += every;
    }
    CAPTURE(name);
    CHECK(off <= tolerance);
  };
  compare("one_cycle", Schedule("one-cycle", {.lr = 0.5, .steps = 40}), 1, 1e-12);
  compare("one_cycle_options",
          Schedule("one-cycle", {.lr = 0.5, .warmup = 10, .steps = 50, .div_factor = 10, .final_div_factor = 100}), 1,
          1e-12);
  compare("step", Schedule("step", {.lr = 1, .every = 7, .gamma = 0.3}), 1, 1e-12);
  compare("nano", Schedule("cosine", {.lr = 1e-3, .min_lr = 1e-4, .warmup = 100, .steps = 2000}), 20, 0);

  const auto compare_plateau = [&](const char* name, Schedule schedule, const char* losses = "losses") {
    double off = 0;
    for (std::size_t i = 0; i < stored[losses].size(); ++i) {
      schedule.observe(stored[losses][i].get<double>());
      off = std::max(off, std::abs(schedule(static_cast<Index>(i)) - stored[name][i].get<double>()));
    }
    CAPTURE(name);
    CHECK(off < 1e-15);
  };
  compare_plateau("plateau", Schedule("plateau", {.lr = 1, .gamma = 0.5, .patience = 2}));
  compare_plateau(
      "plateau_options",
      Schedule("plateau", {.lr = 1, .min_lr = 1e-3, .gamma = 0.1, .patience = 1, .threshold = 1e-2, .cooldown = 3}));
  compare_plateau("plateau_eps", Schedule("plateau", {.lr = 1, .gamma = 0.1, .patience = 0, .eps = 1e-2}));
  compare_plateau("plateau_negative", Schedule("plateau", {.lr = 1, .gamma = 0.5, .patience = 1, .threshold = 0.1}),
                  "negative_losses");
}
