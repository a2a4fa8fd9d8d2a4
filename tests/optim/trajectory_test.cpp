// Steps equal PyTorch's: trajectories that tests/reference/optim_torch.py made.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <heed/optim/schedule.hpp>
#include <map>

#include "tests/core/levels.hpp"
#include "tests/optim/optim_testing.hpp"
#include "tests/tools/json.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using namespace heed::testing;
using nlohmann::json;

namespace {

const json& reference() {
  static const json data = test::json_file(test::in_source("tests/reference/optim_torch.json"));
  return data;
}

using Make = std::function<std::unique_ptr<Optimizer>(const ParameterGroups&)>;
template <class O, class Options>
Make make(Options options) {
  return [options](const ParameterGroups& p) { return std::make_unique<O>(p, options); };
}

// As in the script.
const std::map<std::string, Make> kTrajectories = {
    {"sgd", make<SGD>(SGDOptions{.lr = 0.05})},
    {"sgd momentum", make<SGD>(SGDOptions{.lr = 0.05, .momentum = 0.9})},
    {"sgd dampening", make<SGD>(SGDOptions{.lr = 0.05, .momentum = 0.9, .dampening = 0.4, .weight_decay = 0.02})},
    {"sgd nesterov", make<SGD>(SGDOptions{.lr = 0.05, .momentum = 0.8, .weight_decay = 0.1, .nesterov = true})},
    {"adam", make<Adam>(AdamOptions{.lr = 0.01})},
    {"adam decay", make<Adam>(AdamOptions{.lr = 0.01, .betas = {0.8, 0.95}, .eps = 1e-3, .weight_decay = 0.1})},
    {"adam amsgrad", make<Adam>(AdamOptions{.lr = 0.01, .betas = {0.9, 0.8}, .amsgrad = true})},
    {"adamw", make<AdamW>(AdamWOptions{.lr = 0.01})},
    {"adamw decay", make<AdamW>(AdamWOptions{.lr = 0.02, .betas = {0.9, 0.99}, .eps = 1e-5, .weight_decay = 0.3})},
    {"adamw amsgrad", make<AdamW>(AdamWOptions{.lr = 0.01, .betas = {0.9, 0.8}, .weight_decay = 0.1, .amsgrad = true})},
    {"rmsprop", make<RMSprop>(RMSpropOptions{.lr = 0.01})},
    {"rmsprop momentum",
     make<RMSprop>(RMSpropOptions{.lr = 0.01, .alpha = 0.9, .weight_decay = 0.05, .momentum = 0.8})},
    {"rmsprop centered", make<RMSprop>(RMSpropOptions{.lr = 0.01, .alpha = 0.9, .eps = 1e-3, .centered = true})},
    {"rmsprop all",
     make<RMSprop>(RMSpropOptions{
         .lr = 0.01, .alpha = 0.9, .eps = 1e-4, .weight_decay = 0.05, .momentum = 0.7, .centered = true})},
    {"adagrad", make<Adagrad>(AdagradOptions{.lr = 0.1})},
    {"adagrad decay",
     make<Adagrad>(AdagradOptions{
         .lr = 0.1, .lr_decay = 0.05, .weight_decay = 0.1, .initial_accumulator_value = 0.2, .eps = 1e-4})},
    {"lion", make<Lion>(LionOptions{.lr = 0.01})},
    {"lion decay", make<Lion>(LionOptions{.lr = 0.02, .betas = {0.8, 0.95}, .weight_decay = 0.3})},
};

template <class T>
std::vector<T> values(const json& nested) {
  std::vector<T> out;
  for (const json& v : nested.flatten()) out.push_back(v.get<T>());
  return out;
}

// json::flatten sorts by path as text, which is not the order of rows of 10 or more; ours have 5.
template <class T>
struct Problem {
  Parameter w{Tensor::from(values<T>(reference()["start"][0]), {2, 5})};
  Parameter b{Tensor::from(values<T>(reference()["start"][1]), {3})};
  std::vector<T> goals[2] = {values<T>(reference()["target"][0]), values<T>(reference()["target"][1])};

  std::vector<NamedParameter> named() { return {{"w", &w}, {"b", &b}}; }

  // gradient = curvature * (x - target) + noise, in T
  void set_gradients(std::size_t t) {
    const T curvature = reference()["curvature"].get<T>();
    Parameter* both[] = {&w, &b};
    for (int k = 0; k < 2; ++k) {
      const std::vector<T> noise = values<T>(reference()["noise"][t][k]), x = both[k]->template to_vector<T>();
      std::vector<T> g(x.size());
      for (std::size_t i = 0; i < g.size(); ++i) g[i] = curvature * (x[i] - goals[k][i]) + noise[i];
      set_gradient(*both[k], Tensor::from(g, both[k]->shape()));
    }
  }

  std::vector<double> flat() const {
    std::vector<double> x = w.template to_vector<double>();
    for (const double v : b.template to_vector<double>()) x.push_back(v);
    return x;
  }
};

// The largest difference over the kept steps, each divided by what rounding explains: a step rounds every value once
// here and once there (half a unit of the largest value each), and its movement, some hundredth of that, a few times
// more.
template <class T>
double worst(const std::string& name, const json& kept, Problem<T>& problem,
             const std::function<void(std::size_t)>& step) {
  double result = 0;
  std::size_t k = 0;
  for (std::size_t t = 0; t < reference()["steps"].get<std::size_t>(); ++t) {
    problem.set_gradients(t);
    step(t);
    if (k >= kept.size() || reference()["kept"][k].get<std::size_t>() != t + 1) continue;
    const std::vector<double> x = problem.flat();
    double largest = 0, off = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = kept[k][i].get<double>();
      largest = std::max(largest, std::abs(want));
      off = std::max(off, std::abs(x[i] - want));
    }
    const double bound = sizeof(T) == 4 ? static_cast<double>(t + 1) * std::exp2(-24) * largest : 1e-12;
    result = std::max(result, off / bound);
    ++k;
  }
  CAPTURE(name);
  CHECK(k == kept.size());
  return result;
}

template <class T>
void check_all_cases(const char* dtype) {
  for (const auto& entry : kTrajectories) {
    const auto& name = entry.first;
    const auto& make_one = entry.second;
    const json& stored = reference()["cases"][name];
    Problem<T> problem;
    const auto optimizer = make_one(problem.named());
    const json& kept = stored.contains(dtype) ? stored[dtype] : stored["float64"];  // Lion's reference is float64 alone
    const double off = worst<T>(name, kept, problem, [&](std::size_t) { optimizer->step(); });
    CAPTURE(name);
    CHECK(off <= 1);
  }
}

}  // namespace

TEST_CASE("optimizers: 24 steps in float32 equal PyTorch's to rounding, every option") {
  CHECK(kTrajectories.size() == reference()["cases"].size());
  on_each_level([] { check_all_cases<float>("float32"); });
}

TEST_CASE("optimizers: 24 steps in float64 equal PyTorch's to 1e-12, every option") {
  on_each_level([] { check_all_cases<double>("float64"); });
}

// The recipe of most language models: decay on matrices only, warm-up and cosine, clipping.
TEST_CASE_TEMPLATE("optimizers: AdamW with groups, schedule and clipping equals PyTorch's", T, float, double) {
  const json& stored = reference()["clipped"];
  Problem<T> problem;
  AdamW optimizer(decay_groups(problem.named(), 0.1), {.lr = 0.02, .betas = {0.9, 0.99}});
  const Schedule schedule("cosine", {.lr = 0.02, .min_lr = 0.002, .warmup = 4, .steps = 24});
  double norms_off = 0;
  const double off = worst<T>("clipped", stored[sizeof(T) == 4 ? "float32" : "float64"], problem, [&](std::size_t t) {
    optimizer.set_lr(schedule(static_cast<Index>(t)));
    const double norm = optimizer.clipped_step(1.0), want = stored["norms"][t].template get<double>();
    norms_off = std::max(norms_off, std::abs(norm - want) / want);
  });
  CHECK(off <= 1);
  CHECK(norms_off < (sizeof(T) == 4 ? 2e-6 : 1e-12));
}

TEST_CASE("schedules: one-cycle, step, plateau and the nano recipe equal PyTorch's") {
  const json& stored = reference()["schedules"];
  const auto compare = [&](const char* name, const Schedule& schedule, Index every, double tolerance) {
    double off = 0;
    Index step = 0;
    for (const json& want : stored[name]) {
      off = std::max(off, std::abs(schedule(step) - want.get<double>()) / std::max(1e-12, want.get<double>()));
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
