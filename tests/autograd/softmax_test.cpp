// softmax and log_softmax: values, gradients, extreme inputs, bits and errors.
#include <heed/autograd/norms.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>

#include "tests/core/levels.hpp"
#include "tests/reference.hpp"
#include "tests/support.hpp"

using namespace heed;
using heed::test::on_each_float_level;
using test::kInf;
using test::kNaN;

namespace {

std::vector<double> naive_softmax(const std::vector<double>& x) {
  double m = -kInf, sum = 0;
  for (double v : x) m = std::max(m, v);
  std::vector<double> y;
  for (double v : x) sum += std::exp(v - m);
  for (double v : x) y.push_back(std::exp(v - m) / sum);
  return y;
}
std::vector<double> naive_log_softmax(const std::vector<double>& x) {
  double m = -kInf, sum = 0;
  for (double v : x) m = std::max(m, v);
  std::vector<double> y;
  for (double v : x) sum += std::exp(v - m);
  for (double v : x) y.push_back(v - m - std::log(sum));
  return y;
}

using Op = Tensor (*)(In, Exactly<int>);

Tensor gradient_of(Op op, const Tensor& x, int axis, const Tensor& dy) {
  Tape tape;
  const Tensor in = tape.watch(x);
  tape.backward(op(in, axis), dy);
  return tape.grad(in);
}

}  // namespace

TEST_CASE("softmax and log_softmax agree with float64 loops at every width and axis, on every instruction set") {
  on_each_float_level([] {
    Rng rng(3);
    for (const Index n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 100, 511, 512, 513, 1200, 5000}) {
      CAPTURE(n);
      for (const DType dtype : {DType::float32, DType::float64}) {
        const double tolerance = dtype == DType::float32 ? 2e-6 : 1e-14;
        const Tensor rows = rng.normal({3, n}, 0, 4, dtype), cubes = rng.normal({2, n, 5}, 0, 4, dtype),
                     wide = rng.normal({3, 2, n}, 0, 4, dtype);
        CHECK(test::worst(softmax(rows, -1), test::along(rows, -1, naive_softmax), tolerance, 1e-30) <= 1);
        CHECK(test::worst(softmax(cubes, 1), test::along(cubes, 1, naive_softmax), tolerance, 1e-30) <= 1);
        CHECK(test::worst(softmax(wide, 0), test::along(wide, 0, naive_softmax), tolerance, 1e-30) <= 1);
        CHECK(test::worst(log_softmax(rows, -1), test::along(rows, -1, naive_log_softmax), tolerance, tolerance) <= 1);
        CHECK(test::worst(log_softmax(cubes, 1), test::along(cubes, 1, naive_log_softmax), tolerance, tolerance) <= 1);
        CHECK(test::worst(log_softmax(wide, 0), test::along(wide, 0, naive_log_softmax), tolerance, tolerance) <= 1);
      }
    }
  });
}

TEST_CASE("the derivative of softmax in float32 agrees with float64 at every width") {
  on_each_float_level([] {
    Rng rng(4);
    for (const Index n : {1, 3, 4, 5, 8, 9, 15, 16, 17, 31, 33, 130, 1030}) {
      CAPTURE(n);
      for (const int axis : {0, 1}) {
        const Tensor x = rng.normal(axis == 1 ? Shape{4, n} : Shape{n, 21}), dy = rng.normal(x.shape());
        for (const Op op : std::initializer_list<Op>{softmax, log_softmax}) {
          const Tensor expected = gradient_of(op, x.to(DType::float64), axis, dy.to(DType::float64));
          CHECK(test::close(gradient_of(op, x, axis, dy), expected, 1e-5, 3e-6));
        }
      }
    }
  });
}

TEST_CASE("softmax passes gradcheck over any axis, contiguous or not") {
  Rng rng(5);
  const Tensor x = rng.normal({3, 4, 5}, 0, 1, DType::float64);
  for (const int axis : {0, 1, 2, -1}) {
    gradcheck([axis](const std::vector<Tensor>& in) { return softmax(in[0], axis); }, {x});
    gradcheck([axis](const std::vector<Tensor>& in) { return log_softmax(in[0], axis); }, {x});
    gradcheck([axis](const std::vector<Tensor>& in) { return softmax(in[0].transpose(0, 2), axis); }, {x});
  }
  // The same input twice: the second derivative is added to the first.
  gradcheck(
      [](const std::vector<Tensor>& in) {
        const Tensor y = log_softmax(in[0], 1);
        return softmax(In(y.transpose(1, 2)), 0);
      },
      {x});
}

TEST_CASE("softmax of large values, infinities and NaN") {
  on_each_float_level([] {
    const Tensor x = Tensor::from({1000, 1001, 999, -1e30, 0, -kInf, 1, 2}, {2, 4});
    CHECK(test::close(softmax(x), test::along(x, -1, naive_softmax), 2e-6, 1e-30));
    CHECK(softmax(x).at({1, 1}) == 0);
    CHECK(log_softmax(x).at({1, 1}) == -kInf);
    for (const Op op : std::initializer_list<Op>{softmax, log_softmax}) {
      const Tensor bad = op(Tensor::from({-kInf, -kInf, kInf, 1, kNaN, 1, 1, 1}, {4, 2}), -1);
      for (Index r = 0; r < 3; ++r) CHECK((std::isnan(bad.at({r, 0})) && std::isnan(bad.at({r, 1}))));
      CHECK(std::isfinite(bad.at({3, 0})));
      const Tensor columns = op(Tensor::from({-kInf, kInf, kNaN, 1, -kInf, 1, 1, 1}, {2, 4}), 0);
      for (Index j = 0; j < 3; ++j) CHECK((std::isnan(columns.at({0, j})) && std::isnan(columns.at({1, j}))));
    }
  });
}

TEST_CASE("softmax of empty tensors, one element and views") {
  CHECK(softmax(Tensor::zeros({0, 3})).shape() == Shape{0, 3});
  CHECK(softmax(Tensor::zeros({3, 0})).shape() == Shape{3, 0});
  CHECK(softmax(Tensor::full({1}, 7)).item() == 1);
  CHECK(log_softmax(Tensor::full({1}, 7)).item() == 0);
  Rng rng(6);
  const Tensor x = rng.normal({6, 10});
  CHECK(test::close(softmax(x.t(), 0), softmax(x, 1).t(), 1e-6, 0));
  CHECK(test::same_bits(softmax(x.t(), 0), softmax(x.t().clone(), 0)));
  const Tensor part = x.slice(1, 2, 9, 2);
  CHECK(test::same_bits(softmax(part), softmax(part.clone())));
}

TEST_CASE("softmax has the same bits at any number of threads") {
  Rng rng(7);
  const Tensor x = rng.normal({300, 301}), dy = rng.normal({300, 301});
  std::vector<Tensor> first;
  for (const int n : {1, 2, 3, 8}) {
    set_threads(n);
    std::vector<Tensor> got;
    for (const int axis : {0, 1})
      for (const Op op : std::initializer_list<Op>{softmax, log_softmax}) {
        got.push_back(op(x, axis));
        got.push_back(gradient_of(op, x, axis, dy));
      }
    if (first.empty()) first = got;
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(test::same_bits(got[i], first[i]));
  }
  set_threads(0);
}

TEST_CASE("softmax: errors name the wrong argument") {
  CHECK(test::contains(test::error_of([] {
                         softmax(Tensor::zeros({2, 3}), 2);
                       }),
                       "softmax: axis is 2 but x is [2, 3] float32; it must be in [-2, 2)"));
  CHECK(test::contains(test::error_of([] { softmax(Tensor::zeros({2}, DType::int32)); }),
                       "softmax: x is [2] int32; it must be floating"));
  CHECK(test::contains(test::error_of([] { log_softmax(Tensor::zeros({2}, DType::bool8)); }),
                       "log_softmax: x is [2] bool8"));
  CHECK(
      test::contains(test::error_of([] { softmax(Tensor::zeros({}), 1); }), "softmax: axis is 1 but x is [1] float32"));
}
