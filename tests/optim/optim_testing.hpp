// Shared by the tests of optimizers: parameters without a model, gradients without a tape.
#pragma once
#include <doctest/doctest.h>

#include <heed/core/members.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <heed/optim/optimizers/optimizers.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tests/support.hpp"
#include "tests/tools/json.hpp"
#include "tests/tools/paths.hpp"

namespace heed::test {

// Trajectories and learning rates of PyTorch's optimizers and schedules, written by tests/reference/optim_torch.py.
inline const nlohmann::json& reference() {
  static const nlohmann::json data = json_file(in_source("tests/reference/optim_torch.json"));
  return data;
}

inline void set_gradient(Parameter& p, const Tensor& gradient) {
  detail::ParameterInfo& info = *p.storage()->parameter;
  info.gradient = gradient;
  info.has_gradient = true;
}

struct Model {
  Parameter weight{Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3})};  // [2, 3]
  Parameter bias{Tensor::from({1, -1}, {2})};                  // [2]
  void members(auto&& visit) { visit("weight", weight), visit("bias", bias); }
};

inline void set_gradients(Model& m, double value) {
  set_gradient(m.weight, Tensor::full({2, 3}, value));
  set_gradient(m.bias, Tensor::full({2}, value));
}

// Different values of both signs, over several magnitudes.
template <class T>
std::vector<T> spread_values(Index n, unsigned salt) {
  std::vector<T> x(static_cast<std::size_t>(n));
  unsigned state = salt * 2654435761u + 12345u;
  for (T& v : x) {
    state = state * 1664525u + 1013904223u;
    const double unit = (state >> 8) / double(1 << 24) - 0.5;
    v = static_cast<T>(unit * (state % 7 == 0 ? 1e-3 : state % 11 == 0 ? 20 : 1));
  }
  return x;
}

struct ThreadScope {
  int before = threads();
  ~ThreadScope() { set_threads(before); }
};

}  // namespace heed::test
