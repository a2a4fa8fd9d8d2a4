// Gradient norms and clipping: values, bits, and gradients that are not finite.
#include <heed/optim/optimizers/parameter_group.hpp>
//
#include <cmath>
#include <limits>

#include "tests/core/levels.hpp"
#include "tests/optim/optim_testing.hpp"

using namespace heed;
using namespace heed::test;

namespace {

struct Two {
  Parameter a{Tensor::zeros({2})}, b{Tensor::zeros({2, 1}, DType::float64)};
  std::vector<NamedParameter> list() { return {{"a", &a}, {"b", &b}}; }
};

void set_3_4_12(Two& m) {
  set_gradient(m.a, Tensor::from({3, -4}));
  set_gradient(m.b, Tensor::from<double>({12, 0}, {2, 1}));
}

}  // namespace

TEST_CASE_TEMPLATE("clip: the norm agrees with long double, with the same bits on all levels", T, float, double) {
  for (const Index n : {1, 5, 15, 16, 17, 33, 1000, 16384, 16385, 100003}) {
    const std::vector<T> g = spread_values<T>(n, 3);
    long double sum = 0;
    for (const T v : g) sum += static_cast<long double>(v) * v;
    Parameter p(Tensor::from(std::vector<T>(g.size()), {n}));
    set_gradient(p, Tensor::from(g, {n}));
    double first = -1;
    on_each_float_level([&] {
      const double norm = grad_norm(std::vector<Parameter*>{&p});
      CHECK(std::abs(norm - static_cast<double>(std::sqrt(sum))) <= 1e-14 * norm);
      if (first < 0) first = norm;
      CHECK(norm == first);
    });
  }
}

TEST_CASE("clip: large and tiny float32 gradients neither overflow nor vanish in the norm") {
  Parameter p(Tensor::zeros({2}));
  set_gradient(p, Tensor::from({3e30, 4e30}));
  CHECK(grad_norm(std::vector<Parameter*>{&p}) == doctest::Approx(5e30).scale(0).epsilon(1e-6));
  set_gradient(p, Tensor::from({3e-30, 4e-30}));
  CHECK(grad_norm(std::vector<Parameter*>{&p}) == doctest::Approx(5e-30).scale(0).epsilon(1e-6));
}

TEST_CASE("clip: clip_grad_norm_ scales as PyTorch, and leaves a small norm alone") {
  Two m;
  set_3_4_12(m);
  CHECK(clip_grad_norm_(m.list(), 100) == 13);
  CHECK(m.a.grad().at({1}) == -4);
  CHECK(clip_grad_norm_(m.list(), 6.5) == 13);
  CHECK(std::abs(m.b.grad().at({0, 0}) - 12 * 6.5 / (13 + 1e-6)) < 1e-14);
  CHECK(m.a.grad().at({1}) == static_cast<float>(-4 * static_cast<float>(6.5 / (13 + 1e-6))));
  set_3_4_12(m);
  CHECK(clip_grad_norm_(m.list(), INFINITY) == 13);
  CHECK(m.a.grad().at({0}) == 3);
}

TEST_CASE("clip: parameters without gradient and frozen ones do not count") {
  Two m;
  set_3_4_12(m);
  m.a.zero_grad();
  CHECK(grad_norm(m.list()) == 12);
  set_3_4_12(m);
  m.b.requires_grad_(false);
  CHECK(grad_norm(m.list()) == 5);
  m.a.zero_grad();
  CHECK(clip_grad_norm_(m.list(), 1) == 0);
}

TEST_CASE("clip: a clipped step is a step with clipped gradients, which it leaves alone") {
  Two m, n;
  set_3_4_12(m);
  set_3_4_12(n);
  SGD fused(m.list(), {.lr = 1}), apart(n.list(), {.lr = 1});
  CHECK(fused.clipped_step(2) == 13);
  clip_grad_norm_(n.list(), 2);
  apart.step();
  CHECK(m.a.to_vector<float>() == n.a.to_vector<float>());
  CHECK(m.b.to_vector<double>() == n.b.to_vector<double>());
  CHECK(m.a.grad().at({0}) == 3);
}

TEST_CASE("clip: non-finite gradients are an Error that names the parameter, or skipped, or passed on") {
  for (const double bad : std::vector<double>{INFINITY, -INFINITY, NAN}) {
    Two m;
    SGD optimizer(m.list(), {.lr = 1});
    const auto set_bad = [&] {
      set_3_4_12(m);
      set_gradient(m.b, Tensor::from<double>({1, bad}, {2, 1}));
    };
    set_bad();
    const std::string rest = ": the gradient of b has NaN, infinite or far too large values; gradients must be finite";
    CHECK(error_of([&] { clip_grad_norm_(m.list(), 1); }) == "clip_grad_norm_" + rest);
    CHECK(error_of([&] { optimizer.clipped_step(1); }) == "SGD" + rest);
    CHECK(!std::isfinite(clip_grad_norm_(m.list(), 1, NonFinite::skip)));
    CHECK(!std::isfinite(optimizer.clipped_step(1, NonFinite::skip)));
    CHECK(optimizer.step_count() == 0);
    CHECK(m.a.at({0}) == 0);
    CHECK(m.a.grad().at({0}) == 3);
    CHECK(!std::isfinite(optimizer.clipped_step(1, NonFinite::propagate)));
    CHECK(optimizer.step_count() == 1);
    CHECK(std::isnan(m.b.at({1, 0})));
    set_bad();
    CHECK(!std::isfinite(clip_grad_norm_(m.list(), 1, NonFinite::propagate)));
    CHECK(std::isnan(m.b.grad().at({1, 0})));
  }
}

TEST_CASE("clip: the sum of finite squares may be too large") {
  Two m;
  set_gradient(m.b, Tensor::from<double>({1.2e154, 1.2e154}, {2, 1}));
  CHECK(contains(error_of([&] { clip_grad_norm_(m.list(), 1); }), "gradient"));
}

TEST_CASE_TEMPLATE("clip: clip_grad_value_ clamps, NaN stays, at every size and level", T, float, double) {
  on_each_float_level([] {
    for (const Index n : {1, 3, 4, 7, 8, 9, 16, 17, 33}) {
      std::vector<T> g = spread_values<T>(n, 8);
      g.back() = std::numeric_limits<T>::quiet_NaN();
      if (n > 1) g[0] = -std::numeric_limits<T>::infinity();
      Parameter p(Tensor::from(g, {n}));
      set_gradient(p, Tensor::from(g, {n}));
      const auto version = p.grad().version();
      clip_grad_value_(std::vector<Parameter*>{&p}, 0.25);
      CHECK(p.grad().version() > version);
      const std::vector<T> got = p.grad().to_vector<T>();
      int wrong = 0;
      for (std::size_t i = 0; i + 1 < g.size(); ++i) wrong += got[i] != std::min(T(0.25), std::max(T(-0.25), g[i]));
      CHECK(wrong == 0);
      CHECK(std::isnan(got.back()));
    }
  });
}

TEST_CASE("clip: invalid limits are errors") {
  Two m;
  CHECK(
      contains(error_of([&] { clip_grad_norm_(m.list(), 0); }), "clip_grad_norm_: max_norm is 0; it must be positive"));
  CHECK(contains(error_of([&] { clip_grad_norm_(m.list(), NAN); }), "max_norm is nan"));
  CHECK(contains(error_of([&] { clip_grad_value_(m.list(), -1); }),
                 "clip_grad_value_: limit is -1; it must be positive"));
  CHECK(contains(error_of([&] { clip_coefficient(1, -1); }), "clip_coefficient: max_norm is -1"));
  CHECK(contains(error_of([&] { grad_norm(std::vector<NamedParameter>{}); }), "grad_norm: there are no parameters"));
  SGD optimizer(m.list());
  CHECK(contains(error_of([&] { optimizer.clipped_step(0); }), "SGD: max_norm is 0"));
  CHECK(clip_coefficient(2, INFINITY) == 1);
  CHECK(clip_coefficient(0.5, 1) == 1);
  CHECK(std::isnan(clip_coefficient(NAN, 1)));
}
