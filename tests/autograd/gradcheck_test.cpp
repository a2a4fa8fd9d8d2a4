// gradcheck itself: errors that it finds, state that it restores, and inputs that it refuses. The tests of all ops
// depend on gradcheck finding a wrong derivative of any element.
#include <heed/heed.hpp>

#include "tests/autograd/small_ops.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using List = std::vector<Tensor>;

// x, with a derivative whose element `element` is wrong by `by`.
Tensor wrong(In x, Index element, double by) {
  Tensor y = x->detach().clone();
  y = y.with_node(0);
  record("wrong", x.where(), y, {x}, saved(), [element, by](Grads& d, const Tensor& dy) {
    Tensor g = dy.clone();
    g.mutable_data<double>()[element] *= 1 + by;
    d.add(0, g);
  });
  return y;
}

struct Model {
  Parameter a{normal({2})}, b{normal({2})};
  void members(auto&& visit) {
    visit("a", a);
    visit("b", b);
  }
};

}  // namespace

TEST_CASE("gradcheck finds an error of 1e-5 at any element, and lets 1e-8 pass") {
  const Tensor x = normal({3, 4});
  for (Index i = 0; i < 12; ++i) {
    const std::string error = error_of([&] { gradcheck([i](const List& in) { return wrong(in[0], i, 1e-5); }, {x}); });
    CHECK(
        contains(error, "gradcheck: the derivative with respect to element " + std::to_string(i) + " of input 0 is "));
    CHECK(contains(error, " but finite differences give "));
    CHECK(contains(error, "it must be at most 1e-06 (gradcheck_test.cpp:"));
    gradcheck([i](const List& in) { return wrong(in[0], i, 1e-8); }, {x});
  }
}

TEST_CASE("gradcheck finds missing derivatives, NaN, and the derivative of another input") {
  const Tensor x = normal({3}), y = normal({3});
  const auto error = [&](const std::function<Tensor(const List&)>& f) {
    return error_of([&] { gradcheck(f, {x, y}); });
  };
  CHECK(contains(error([](const List& in) { return in[0] * in[1].detach(); }), "of input 1 is 0 but"));
  CHECK(contains(error([](const List& in) { return in[0].detach(); }), "of input 0 is 0 but"));
  CHECK(contains(error([](const List& in) { return log(in[0] * 0 - 1); }),
                 "differences give nan: a relative error of nan"));
  CHECK(error([](const List& in) { return in[0] * in[1]; }).empty());
  CHECK(error([](const List& in) { return in[0].detach() * 0; }).empty());  // constant: the derivative is 0
}

TEST_CASE("gradcheck of parameters names the path, restores values and mode, and leaves no gradients") {
  Model model;
  const Tensor before = model.a.clone();
  gradcheck([&] { return model.a * model.b; }, named_parameters(model));
  CHECK(test::same_bits(model.a, before));
  CHECK(!model.a.grad().defined());
  CHECK(
      contains(error_of([&] { gradcheck([&] { return model.a * wrong(model.b, 1, 1e-3); }, named_parameters(model)); }),
               "the derivative with respect to element 1 of b is "));
  const auto throwing = [n = 0](const List& in) mutable {
    require(++n < 3, "three");
    return in[0] * 2;
  };
  CHECK(error_of([&] { gradcheck(throwing, {before}); }) == "three");
  for (int last = 1; last <= 3; ++last) {  // the run on the tape, and the two runs of the first difference
    int n = 0;
    const auto stops = [&] {
      require(++n < last, "stopped");
      return model.a * model.b;
    };
    CHECK(error_of([&] { gradcheck(stops, named_parameters(model)); }) == "stopped");
    CHECK(n == last);
    CHECK(test::same_bits(model.a, before));
  }
  CHECK(!is_training());
  CHECK(detail::mode().tape == nullptr);
}

TEST_CASE("gradcheck draws the same random numbers each time, and passes on inputs that are not float64") {
  manual_seed(3);
  gradcheck([](const List& in) { return dropout(in[0], 0.5) * in[1].to(DType::float64); },
            {normal({40}), Tensor::arange(40)});
  gradcheck([](const List& in) { return embedding(in[1], in[0]); }, {normal({4, 2}), Tensor::arange(3), Tensor()});
  gradcheck([](const List& in) { return sum(in[0]); }, {Tensor::zeros({0, 3}, DType::float64)});
  gradcheck([](const List& in) { return exp(in[0]); }, {Tensor::scalar(0.5, DType::float64)});
}

TEST_CASE("gradcheck: errors") {
  Parameter single(Tensor::ones({2}));
  const auto twice = [](const List& in) { return in[0] * 2; };
  const Tensor x = normal({2});
  check_errors({
      {"gradcheck: f returns [2] float32; it must return float64",
       [&] { gradcheck([](const List& in) { return in[0].to(DType::float32); }, {x}); }},
      {"gradcheck: f returns undefined; it must return float64",
       [&] { gradcheck([](const List&) { return Tensor(); }, {x}); }},
      {"gradcheck: f returns [] int32; it must return float64",
       [&] { gradcheck([] { return Tensor::scalar(1, DType::int32); }, {}); }},
      {"gradcheck: parameter w is [2] float32; it must be float64",
       [&] {
         gradcheck([&] { return single * 2; }, {{"w", &single}});
       }},
      {"gradcheck: step is 0 and min_samples is 200; both must be positive",
       [&] { gradcheck(twice, {x}, {.step = 0}); }},
      {"gradcheck: step is 1e-06 and min_samples is 0; both must be positive",
       [&] { gradcheck(twice, {x}, {.min_samples = 0}); }},
  });
}

TEST_CASE("gradcheck finds a wrong derivative and names it") {
  const auto wrong = [](const std::vector<Tensor>& x) {
    Tensor y = x[0].detach().clone().with_node(0);
    record("wrong", Where::current(), y, {x[0]}, saved(), [](Grads& d, const Tensor& dy) {
      d.add(0, times(dy, Tensor::from<double>({1, 1, 1.001})));
    });
    return y;
  };
  const std::string message = error_of([&] { gradcheck(wrong, {Tensor::from<double>({1, 2, 3})}); });
  CHECK(contains(message, "element 2 of input 0"));
  Parameter w = parameter({1, 2}, {2});
  gradcheck([&] { return times(w, w); }, std::vector<NamedParameter>{{"layer.w", &w}});
}
