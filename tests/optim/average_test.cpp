#include <heed/optim/average.hpp>
//
#include <cmath>

#include "tests/core/levels.hpp"
#include "tests/optim/optim_testing.hpp"

using namespace heed;
using namespace heed::testing;

TEST_CASE_TEMPLATE("average: follows the weights, is swapped in and out exactly", T, float, double) {
  const ThreadScope scope;
  std::vector<T> at_one_thread;
  for (const int n_threads : {1, 2, 3, 8}) {
    set_threads(n_threads);
    on_each_level([&] {
      for (const Index n : {0, 1, 7, 8, 9, 17, 16385, 50001}) {
        const std::vector<T> start = spread_values<T>(n, 1);
        Parameter p(Tensor::from(start, {n}));
        WeightAverage average(std::vector<NamedParameter>{{"p", &p}}, 0.9);
        std::vector<double> want(start.begin(), start.end());
        std::vector<T> x = start;
        for (unsigned t = 0; t < 5; ++t) {
          x = spread_values<T>(n, 50 + t);
          p.copy_(Tensor::from(x, {n}));
          average.update();
          for (std::size_t i = 0; i < want.size(); ++i) want[i] = 0.9 * want[i] + (1 - 0.9) * static_cast<double>(x[i]);
        }
        const auto version = p.version();
        {
          const AveragedWeights inside(average);
          CHECK(average.swapped());
          CHECK(p.version() > version);
          const std::vector<T> got = p.to_vector<T>();
          double off = 0;
          for (std::size_t i = 0; i < want.size(); ++i) off = std::max(off, std::abs(got[i] - want[i]));
          // 5 updates of values up to 10, rounded twice each
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

TEST_CASE("average: a scope within a scope leaves the averages in") {
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
    average.swap();  // back before its time
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

TEST_CASE("average: state continues with the same bits, and what does not fit is refused") {
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
                 "WeightAverage: in the state 'average.p' is [4] float32; it must be [3] float32"));
  CHECK(b.updates() == 2);
}

TEST_CASE("average: wrong use is named") {
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
