// Every optimizer against PyTorch's, and its update against plain loops at every size and level.
// Above 400 lines: options of seven optimizers.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <heed/optim/optimizers/schedule.hpp>
#include <map>
#include <sstream>

#include "tests/core/levels.hpp"
#include "tests/optim/optim_testing.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;
using nlohmann::json;

namespace {

using Make = std::function<std::unique_ptr<Optimizer>(const ParameterGroups&)>;
template <class O, class Options>
Make make(Options options) {
  return [options](const ParameterGroups& p) { return std::make_unique<O>(p, options); };
}

// The options of tests/reference/optim_torch.py for each case.
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

// json::flatten sorts paths as text, which breaks the order of rows with 10 or more elements. These rows have 5.
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

// The largest difference over the stored steps, in units of the expected rounding error. Each step rounds every value
// once here and once in PyTorch, by half a unit of the largest value each. A step's change is about a hundredth of that
// value and is rounded a few times more.
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
      const double expected = kept[k][i].get<double>();
      largest = std::max(largest, std::abs(expected));
      off = std::max(off, std::abs(x[i] - expected));
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
    const json& kept = stored.contains(dtype) ? stored[dtype] : stored["float64"];  // Lion has a float64 reference only
    const double off = worst<T>(name, kept, problem, [&](std::size_t) { optimizer->step(); });
    CAPTURE(name);
    CHECK(off <= 1);
  }
}

}  // namespace

TEST_CASE("optimizers: 24 steps in float32 equal PyTorch's to rounding, every option") {
  CHECK(kTrajectories.size() == reference()["cases"].size());
  on_each_float_level([] { check_all_cases<float>("float32"); });
}

TEST_CASE("optimizers: 24 steps in float64 equal PyTorch's to 1e-12, every option") {
  on_each_float_level([] { check_all_cases<double>("float64"); });
}

// The recipe of most language models: decay for matrices only, warm-up and cosine, clipping.
TEST_CASE_TEMPLATE("optimizers: AdamW with groups, schedule and clipping equals PyTorch's", T, float, double) {
  const json& stored = reference()["clipped"];
  Problem<T> problem;
  AdamW optimizer(decay_groups(problem.named(), 0.1), {.lr = 0.02, .betas = {0.9, 0.99}});
  const Schedule schedule("cosine", {.lr = 0.02, .min_lr = 0.002, .warmup = 4, .steps = 24});
  double norms_off = 0;
  const double off = worst<T>("clipped", stored[sizeof(T) == 4 ? "float32" : "float64"], problem, [&](std::size_t t) {
    optimizer.set_lr(schedule(static_cast<Index>(t)));
    const double norm = optimizer.clipped_step(1.0), expected = stored["norms"][t].template get<double>();
    norms_off = std::max(norms_off, std::abs(norm - expected) / expected);
  });
  CHECK(off <= 1);
  CHECK(norms_off < (sizeof(T) == 4 ? 2e-6 : 1e-12));
}

namespace {

struct State {
  double a = 0, b = 0, c = 0;
};
using Naive = std::function<void(double& p, double g, State& s, int t)>;  // one element, one step
using Make = std::function<std::unique_ptr<Optimizer>(const ParameterGroups&)>;

struct NaiveUpdate {
  Make make;
  Naive naive;
};

const std::map<std::string, NaiveUpdate> kUpdates = {
    {"sgd",
     {[](const ParameterGroups& p) { return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .weight_decay = 0.05}); },
      [](double& p, double g, State&, int) { p -= 0.1 * (g + 0.05 * p); }}},
    {"sgd momentum",
     {[](const ParameterGroups& p) {
        return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.25});
      },
      [](double& p, double g, State& s, int t) {
        s.a = t == 1 ? g : 0.9 * s.a + 0.75 * g;
        p -= 0.1 * s.a;
      }}},
    {"sgd nesterov",
     {[](const ParameterGroups& p) {
        return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true});
      },
      [](double& p, double g, State& s, int) {
        s.a = 0.9 * s.a + g;
        p -= 0.1 * (g + 0.9 * s.a);
      }}},
    {"adam",
     {[](const ParameterGroups& p) {
        return std::make_unique<Adam>(p, AdamOptions{.lr = 0.01, .weight_decay = 0.1, .amsgrad = true});
      },
      [](double& p, double g, State& s, int t) {
        g += 0.1 * p;
        s.a = 0.9 * s.a + 0.1 * g;
        s.b = 0.999 * s.b + 0.001 * g * g;
        s.c = std::max(s.c, s.b);
        p -= 0.01 / (1 - std::pow(0.9, t)) * s.a / (std::sqrt(s.c) / std::sqrt(1 - std::pow(0.999, t)) + 1e-8);
      }}},
    {"adamw",
     {[](const ParameterGroups& p) {
        return std::make_unique<AdamW>(
            p, AdamWOptions{.lr = 0.01, .betas = {0.9, 0.99}, .eps = 1e-4, .weight_decay = 0.5});
      },
      [](double& p, double g, State& s, int t) {
        s.a = 0.9 * s.a + 0.1 * g;
        s.b = 0.99 * s.b + 0.01 * g * g;
        const double mean = s.a / (1 - std::pow(0.9, t)), square = s.b / (1 - std::pow(0.99, t));
        p = p * (1 - 0.01 * 0.5) - 0.01 * mean / (std::sqrt(square) + 1e-4);
      }}},
    {"rmsprop",
     {[](const ParameterGroups& p) { return std::make_unique<RMSprop>(p, RMSpropOptions{.lr = 0.01, .alpha = 0.9}); },
      [](double& p, double g, State& s, int) {
        s.a = 0.9 * s.a + 0.1 * g * g;
        p -= 0.01 * g / (std::sqrt(s.a) + 1e-8);
      }}},
    {"rmsprop all",
     {[](const ParameterGroups& p) {
        return std::make_unique<RMSprop>(p,
                                         RMSpropOptions{.alpha = 0.5, .eps = 1e-2, .momentum = 0.9, .centered = true});
      },
      [](double& p, double g, State& s, int) {
        s.a = 0.5 * s.a + 0.5 * g * g;
        s.b = 0.5 * s.b + 0.5 * g;
        s.c = 0.9 * s.c + g / (std::sqrt(std::max(0.0, s.a - s.b * s.b)) + 1e-2);
        p -= 0.01 * s.c;
      }}},
    {"adagrad",
     {[](const ParameterGroups& p) {
        return std::make_unique<Adagrad>(p,
                                         AdagradOptions{.lr = 0.1, .lr_decay = 0.5, .initial_accumulator_value = 0.1});
      },
      [](double& p, double g, State& s, int t) {
        s.a = (t == 1 ? 0.1 : s.a) + g * g;
        p -= 0.1 / (1 + (t - 1) * 0.5) * g / (std::sqrt(s.a) + 1e-10);
      }}},
    {"lion",
     {[](const ParameterGroups& p) { return std::make_unique<Lion>(p, LionOptions{.lr = 0.01, .weight_decay = 0.5}); },
      [](double& p, double g, State& s, int) {
        const double c = 0.9 * s.a + 0.1 * g;
        p = p * (1 - 0.01 * 0.5) - 0.01 * ((c > 0) - (c < 0));
        s.a = 0.99 * s.a + 0.01 * g;
      }}},
};

constexpr int kSteps = 4;
double scale_of_step(int t) { return 1.0 / (1 << t); }  // exact; with a constant scale, Lion would not change

template <class T>
void check_sizes(const NaiveUpdate& c, const std::vector<Index>& sizes) {
  std::vector<Parameter> parameters;
  std::vector<std::vector<double>> expected;
  std::vector<std::vector<State>> states;
  for (const Index n : sizes) {
    const std::vector<T> start = spread_values<T>(n, static_cast<unsigned>(n));
    parameters.emplace_back(Tensor::from(start, {n}));
    expected.emplace_back(start.begin(), start.end());
    states.emplace_back(static_cast<std::size_t>(n));
  }
  std::vector<Parameter*> list;
  for (Parameter& p : parameters) list.push_back(&p);
  const auto optimizer = c.make(list);
  for (int t = 1; t <= kSteps; ++t) {
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      const std::vector<T> g = spread_values<T>(sizes[k], static_cast<unsigned>(1000 * t + sizes[k]));
      set_gradient(parameters[k], Tensor::from(g, {sizes[k]}));
      for (std::size_t i = 0; i < g.size(); ++i)
        c.naive(expected[k][i], scale_of_step(t) * static_cast<double>(g[i]), states[k][i], t);
    }
    optimizer->step(scale_of_step(t));
  }
  // Each step rounds about ten times; values and changes are at most about 10.
  const double bound = kSteps * 10 * 10 * (sizeof(T) == 4 ? std::exp2(-24) : std::exp2(-53));
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const std::vector<double> x = parameters[k].template to_vector<double>();
    double off = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      off = std::max(off, std::abs(x[i] - expected[k][i]) / std::max(1.0, std::abs(expected[k][i])));
    CAPTURE(sizes[k]);
    CHECK(off <= bound);
  }
}

// All parameters after some steps, for comparison of bits.
template <class T>
std::vector<T> run_all(int thread_count, int* seen) {
  set_threads(thread_count);
  threads_seen();
  std::vector<T> bits;
  for (const auto& entry : kUpdates) {
    const auto& c = entry.second;
    std::vector<Parameter> parameters;
    for (const Index n :
         {Index{70001}, Index{3}, Index{0}, Index{16384}, Index{129}, Index{1}, thinned<Index>(300000, 40000)})
      parameters.emplace_back(Tensor::from(spread_values<T>(n, 5), {n}));
    std::vector<Parameter*> list;
    for (Parameter& p : parameters) list.push_back(&p);
    const auto optimizer = c.make(list);
    for (unsigned t = 0; t < 3; ++t) {
      for (Parameter& p : parameters) set_gradient(p, Tensor::from(spread_values<T>(p.numel(), 99 + t), p.shape()));
      bits.push_back(static_cast<T>(optimizer->clipped_step(0.7)));
    }
    for (const Parameter& p : parameters)
      for (const T v : p.template to_vector<T>()) bits.push_back(v);
  }
  *seen = threads_seen();
  return bits;
}

}  // namespace

TEST_CASE_TEMPLATE("optimizers: updates agree with naive loops at every size and level", T, float, double) {
  on_each_float_level([] {
    for (const auto& entry : kUpdates) {
      const auto& name = entry.first;
      const auto& c = entry.second;
      CAPTURE(name);
      check_sizes<T>(c, {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 16383, 16384, 16385, 40001});
    }
  });
}

TEST_CASE_TEMPLATE("optimizers: the same bits at 1, 2, 3 and 8 threads, which are used", T, float, double) {
  const ThreadScope scope;
  int seen = 0;
  const std::vector<T> alone = run_all<T>(1, &seen);
  CHECK(seen == 1);
  for (const int n : {2, 3, 8}) {
    if (!is_taken(n, 8)) continue;
    int tries = 0;  // on a busy machine the workers may start too late
    do CHECK(run_all<T>(n, &seen) == alone);
    while (seen < 2 && ++tries < 100);
    CHECK(seen > 1);
  }
}

TEST_CASE("optimizers: maximize ascends the gradient, with the usual weight decay") {
  const std::map<std::string, std::function<std::unique_ptr<Optimizer>(const ParameterGroups&, bool)>> all = {
      {"sgd",
       [](const ParameterGroups& p, bool up) {
         return std::make_unique<SGD>(p, SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .maximize = up});
       }},
      {"adam",
       [](const ParameterGroups& p, bool up) {
         return std::make_unique<Adam>(p, AdamOptions{.weight_decay = 0.1, .amsgrad = true, .maximize = up});
       }},
      {"adamw",
       [](const ParameterGroups& p, bool up) { return std::make_unique<AdamW>(p, AdamWOptions{.maximize = up}); }},
      {"rmsprop",
       [](const ParameterGroups& p, bool up) {
         return std::make_unique<RMSprop>(p, RMSpropOptions{.weight_decay = 0.1, .centered = true, .maximize = up});
       }},
      {"adagrad",
       [](const ParameterGroups& p, bool up) {
         return std::make_unique<Adagrad>(p, AdagradOptions{.weight_decay = 0.1, .maximize = up});
       }},
      {"lion", [](const ParameterGroups& p, bool up) {
         return std::make_unique<Lion>(p, LionOptions{.weight_decay = 0.1, .maximize = up});
       }}};
  for (const auto& [label, make] : all) {
    const std::string name = label;  // no structured binding, which lambdas of CAPTURE cannot capture in clang 14
    CAPTURE(name);
    std::vector<Tensor> ends;
    for (const bool up : {false, true}) {
      Parameter p(Tensor::from(spread_values<double>(21, 1), {21}));
      const auto optimizer = make(std::vector<Parameter*>{&p}, up);
      for (unsigned t = 2; t < 6; ++t) {
        const Tensor g = Tensor::from(spread_values<double>(21, t), {21});
        set_gradient(p, up ? Tensor::zeros({21}, DType::float64) : g);
        if (up)
          for (Index i = 0; i < 21; ++i) p.grad().ptr<double>()[i] = -g.ptr<double>()[i];
        optimizer->clipped_step(0.5);
      }
      ends.push_back(p.clone());
    }
    CHECK(test::same_bits(ends[0], ends[1]));
  }
}

TEST_CASE("optimizers: a parameter of rank 0 and one of no items") {
  Parameter scale(Tensor::scalar(2)), nothing(Tensor::empty({0, 3}));
  SGD sgd({{"scale", &scale}, {"nothing", &nothing}}, {.lr = 0.5});
  set_gradient(scale, Tensor::scalar(3));
  set_gradient(nothing, Tensor::empty({0, 3}));
  sgd.step();
  CHECK(scale.item() == 0.5);
  CHECK(sgd.grad_norm() == 3);
}

TEST_CASE("optimizers: non-finite gradients affect only their own elements") {
  const double inf = INFINITY, nan = NAN;
  on_each_float_level([&] {
    for (const auto& entry : kUpdates) {
      const auto& name = entry.first;
      const auto& c = entry.second;
      CAPTURE(name);
      Parameter p(Tensor::from(std::vector<float>(37, 1.0f), {37})),
          q(Tensor::from(std::vector<float>(37, 1.0f), {37}));
      const auto with = c.make(std::vector<Parameter*>{&p}), without = c.make(std::vector<Parameter*>{&q});
      std::vector<float> g(37, 0.25f);
      set_gradient(q, Tensor::from(g, {37}));
      g[3] = static_cast<float>(nan), g[36] = static_cast<float>(inf);
      set_gradient(p, Tensor::from(g, {37}));
      for (int t = 0; t < 2; ++t) with->step(), without->step();
      const std::vector<float> x = p.to_vector<float>(), y = q.to_vector<float>();
      CHECK(std::isnan(x[3]));
      CHECK((name == "lion" || !std::isfinite(x[36])));  // Lion uses the sign of an infinite gradient
      int wrong = 0;
      for (std::size_t i = 0; i < 36; ++i) wrong += i != 3 && x[i] != y[i];
      CHECK(wrong == 0);
    }
  });
}
