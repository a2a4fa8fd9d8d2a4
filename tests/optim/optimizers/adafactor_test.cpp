// Adafactor against PyTorch's: steps, state, resumes and options.
#include <algorithm>
#include <cmath>
#include <heed/optim/optimizers/optimizers.hpp>

#include "tests/core/levels.hpp"
#include "tests/optim/optim_testing.hpp"

using namespace heed;
using namespace heed::test;
using nlohmann::json;

namespace {

// The options of tests/reference/optim_torch.py for this case.
AdafactorOptions adafactor_options(const std::string& name) {
  if (name == "decay") return {.lr = 0.05, .weight_decay = 0.2};
  if (name == "all")
    return {
        .lr = 0.5, .beta2_decay = -0.5, .eps1 = 1e-3, .eps2 = 0.1, .d = 1.5, .weight_decay = 0.02, .maximize = true};
  return {};
}

// The largest difference from PyTorch over the stored steps, in units of the expected rounding error: each value is
// rounded about ten times per step, relative to the parameter's largest value.
template <class T>
double worst(const std::string& name, const json& kept) {
  const json &data = reference()["adafactor"], &shapes = data["shapes"];
  const bool up = adafactor_options(name).maximize;
  std::vector<Parameter> parameters;
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    const std::vector<Index> sizes = shapes[k].get<std::vector<Index>>();
    parameters.emplace_back(Tensor::from(data["start"][k].get<std::vector<T>>(), Shape(sizes.begin(), sizes.end())));
  }
  std::vector<NamedParameter> named;
  for (std::size_t k = 0; k < parameters.size(); ++k) named.push_back({"p" + std::to_string(k), &parameters[k]});
  Adafactor optimizer(named, adafactor_options(name));
  double result = 0;
  std::size_t next = 0;
  for (std::size_t t = 0; t < data["noise"].size(); ++t) {
    for (std::size_t k = 0; k < parameters.size(); ++k) {
      std::vector<T> g = data["noise"][t][k].get<std::vector<T>>();
      const std::vector<T> x = parameters[k].to_vector<T>(), goal = data["target"][k].get<std::vector<T>>();
      for (std::size_t i = 0; i < g.size(); ++i) g[i] = (up ? T(-0.75) : T(0.75)) * (x[i] - goal[i]) + g[i];
      set_gradient(parameters[k], Tensor::from(g, parameters[k].shape()));
    }
    optimizer.step();
    if (next >= kept.size() || reference()["kept"][next].get<std::size_t>() != t + 1) continue;
    const std::vector<double> expected = kept[next++].get<std::vector<double>>();
    std::size_t i = 0;
    for (const Parameter& p : parameters)
      for (const double x : p.to_vector<double>()) {
        const double bound = sizeof(T) == 4 ? 10 * static_cast<double>(t + 1) * std::exp2(-24) : 1e-12;
        result = std::max(result, std::abs(x - expected[i++]) / bound);
      }
    CHECK(i == expected.size());
  }
  CHECK(next == kept.size());
  return result;
}

template <class T>
void check_all(const char* dtype) {
  for (const auto& entry : reference()["adafactor"]["cases"].items()) {
    CAPTURE(entry.key());
    CHECK(worst<T>(entry.key(), entry.value()[dtype]) <= 1);
  }
}

}  // namespace

TEST_CASE("adafactor: 24 steps of a matrix, a vector and three axes equal PyTorch's to rounding") {
  on_each_float_level([] { check_all<float>("float32"); });
  on_each_float_level([] { check_all<double>("float64"); });
}

TEST_CASE("adafactor: keeps a number per row and per column, and every number of a vector") {
  Parameter three(Tensor::ones({2, 3, 4})), one(Tensor::ones({5})), scalar(Tensor::scalar(1));
  Adafactor optimizer({{"three", &three}, {"one", &one}, {"scalar", &scalar}});
  std::vector<std::string> shown;
  for (const NamedTensor& part : optimizer.state())
    if (part.name.find('.') != std::string::npos) shown.push_back(part.name + " " + to_string(part.tensor.shape()));
  CHECK(shown == std::vector<std::string>{"row_var.three [2, 3, 1]", "col_var.three [2, 1, 4]", "variance.one [5]",
                                          "variance.scalar []"});
}

TEST_CASE("adafactor: the same bits at any number of threads, and after a resume in between") {
  const ThreadScope restore;
  const auto trained = [](int count, bool resumes) {
    set_threads(count);
    Rng rng(3);
    Parameter w(rng.normal({130, 257})), b(rng.normal({257}));
    const std::vector<NamedParameter> named = {{"w", &w}, {"b", &b}};
    auto optimizer = std::make_unique<Adafactor>(named, AdafactorOptions{.weight_decay = 0.1});
    for (int t = 0; t < 4; ++t) {
      set_gradient(w, rng.normal({130, 257}));
      set_gradient(b, rng.normal({257}));
      optimizer->clipped_step(1);
      if (!resumes || t != 1) continue;
      std::vector<NamedTensor> state;
      for (const NamedTensor& part : optimizer->state()) state.push_back({part.name, part.tensor.clone()});
      optimizer = std::make_unique<Adafactor>(named, AdafactorOptions{.weight_decay = 0.1});
      optimizer->load_state(state);
    }
    std::vector<float> all = w.to_vector<float>();
    for (const float v : b.to_vector<float>()) all.push_back(v);
    return all;
  };
  const std::vector<float> one = trained(1, false);
  CHECK(trained(2, false) == one);
  CHECK(trained(5, true) == one);
}

TEST_CASE("adafactor: may step under a tape, skips empty parameters and refuses invalid options") {
  Parameter p(Tensor::ones({2, 2})), empty(Tensor::ones({0, 2}));
  Adafactor optimizer({{"p", &p}, {"empty", &empty}});
  set_gradient(p, Tensor::ones({2, 2}));
  set_gradient(empty, Tensor::ones({0, 2}));
  {
    Tape tape;
    optimizer.step();
  }
  CHECK(p.at({1, 1}) == doctest::Approx(0.99));  // a hundredth of its root mean square
  const std::vector<NamedParameter> named = {{"p", &p}};
  const auto refuses = [&](AdafactorOptions o, const char* message) {
    CHECK(contains(error_of([&] { Adafactor(named, o); }), message));
  };
  refuses({.beta2_decay = 0.1}, "Adafactor: beta2_decay is 0.1; it must be 0 or less");
  refuses({.eps1 = -1.0}, "Adafactor: eps1 is -1; it must be 0 or more");
  refuses({.eps2 = -1}, "Adafactor: eps2 is -1; it must be 0 or more");
  refuses({.d = 0.5}, "Adafactor: d is 0.5; it must be 1 or more");
}
