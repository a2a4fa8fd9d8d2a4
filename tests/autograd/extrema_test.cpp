// max, min, argmax, argmin, any, all and top_k: values, ties, gradients, NaN and empty tensors.
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/random.hpp>

#include "tests/core/levels.hpp"
#include "tests/reference.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::kInf;
using test::kNaN;

namespace {

const std::vector<std::vector<int>> kExtremaAxes = {{}, {0}, {1}, {-1}, {0, 2}, {1, 0}, {2, 1}, {0, 1, 2}};

double greatest(const std::vector<double>& x) { return *std::max_element(x.begin(), x.end()); }
double min_of(const std::vector<double>& x) { return *std::min_element(x.begin(), x.end()); }
double first_greatest(const std::vector<double>& x) {
  return static_cast<double>(std::max_element(x.begin(), x.end()) - x.begin());
}
double first_min(const std::vector<double>& x) {
  return static_cast<double>(std::min_element(x.begin(), x.end()) - x.begin());
}

}  // namespace

TEST_CASE("max, min, argmax and argmin over any axes, with equal values") {
  Rng rng(1);
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor x = rng.integers({3, 14, 5}, 0, 6).to(dtype);  // many ties
    for (const Tensor& v : {x, x.transpose(0, 2), x.slice(1, 1, 14, 3)}) {
      for (const auto& axes : kExtremaAxes) {
        const Tensor high = max(v, axes), low = min(v, axes, true);
        CHECK(test::close(high, test::reduced(v, axes, high, greatest), 0, 0));
        CHECK(test::close(low, test::reduced(v, axes, low, min_of), 0, 0));
      }
      for (int axis = -3; axis < 3; ++axis) {
        const Tensor high = argmax(v, axis), low = argmin(v, axis, true);
        CHECK(high.dtype() == DType::int32);
        CHECK(test::close(high, test::reduced(v, {axis}, high, first_greatest), 0, 0));
        CHECK(test::close(low, test::reduced(v, {axis}, low, first_min), 0, 0));
      }
      CHECK(argmax(v).item() == first_greatest(v.to_vector<double>()));
      CHECK(argmin(v).item() == first_min(v.to_vector<double>()));
    }
  }
}

TEST_CASE("argmax at every width, on every instruction set") {
  heed::test::on_each_float_level([] {
    Rng rng(2);
    for (const Index n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 100, 40000}) {
      for (const DType dtype : {DType::float32, DType::float64}) {
        const Tensor rows = rng.normal({2, n}, 0, 1, dtype), columns = rng.normal({9, n}, 0, 1, dtype);
        const Tensor a = argmax(rows, 1), b = argmin(columns, 0);
        CHECK(test::close(a, test::reduced(rows, {1}, a, first_greatest), 0, 0));
        CHECK(test::close(b, test::reduced(columns, {0}, b, first_min), 0, 0));
      }
    }
  });
}

TEST_CASE("max and min pass gradcheck") {
  Rng rng(3);
  const Tensor x = rng.normal({3, 4, 5}, 0, 1, DType::float64);
  for (const auto& axes : kExtremaAxes) {
    gradcheck([&](const std::vector<Tensor>& in) { return max(in[0], axes); }, {x});
    gradcheck([&](const std::vector<Tensor>& in) { return min(in[0].transpose(0, 2), axes, true); }, {x});
    gradcheck([&](const std::vector<Tensor>& in) { return max(in[0].slice(1, 1, 3), axes); }, {x});
  }
}

TEST_CASE("equal values share the gradient of max and min evenly, with axes and without, whatever the strides") {
  using Values = std::vector<double>;
  const auto gradient = [](bool greatest, const Tensor& x, const Axes& axes, bool transposed = false) {
    Tape tape;
    const Tensor in = tape.watch(x), given = transposed ? in.t() : in;
    const Tensor y = greatest ? max(given, axes) : min(given, axes);
    tape.backward(y, Tensor::full(y.shape(), 2, y.dtype()));
    return tape.grad(in).to_vector<double>();
  };
  heed::test::on_each_float_level([&] {
    for (const DType dtype : {DType::float32, DType::float64}) {
      const Tensor x = Tensor::from({1, 2, 2, 2, 0, 2}, {2, 3}).to(dtype);
      for (const bool transposed : {false, true}) {
        CHECK(gradient(true, x, {}, transposed) == Values{0, 0.5, 0.5, 0.5, 0, 0.5});
        CHECK(gradient(false, x, {}, transposed) == Values{0, 0, 0, 0, 2, 0});
        CHECK(gradient(true, x, transposed ? 0 : 1, transposed) == Values{0, 1, 1, 1, 0, 1});
        CHECK(gradient(true, x, transposed ? 1 : 0, transposed) == Values{0, 2, 1, 2, 0, 1});
      }
      CHECK(gradient(true, Tensor::from({1, kNaN, 3, kNaN}).to(dtype), {}) == Values{0, 1, 0, 1});
      CHECK(gradient(false, Tensor::zeros({32768}, dtype), {}) == Values(32768, 1.0 / 16384));
    }
  });
}

TEST_CASE("max of NaN and infinities") {
  const Tensor x = Tensor::from({1, kNaN, 3, kNaN, -kInf, kInf, -kInf, -kInf}, {2, 4});
  CHECK(std::isnan(max(x, 1).at({0})));
  CHECK(std::isnan(min(x, 1).at({0})));
  CHECK(max(x, 1).at({1}) == kInf);
  CHECK(argmax(x, 1).to_vector<double>() == std::vector<double>{1, 1});
  CHECK(argmin(x, 1).to_vector<double>() == std::vector<double>{1, 0});
  CHECK(argmax(x, 0).to_vector<double>() == std::vector<double>{0, 0, 0, 0});
}

TEST_CASE("max of empty tensors and scalars") {
  CHECK(max(Tensor::scalar(3)).item() == 3);
  CHECK(argmax(Tensor::scalar(3)).item() == 0);
  CHECK(max(Tensor::zeros({0, 3}), 1).shape() == Shape{0});
  CHECK(argmin(Tensor::zeros({2, 0, 3}), 2).shape() == Shape{2, 0});
  CHECK(contains(error_of([] {
                   max(Tensor::zeros({0, 3}), 0);
                 }),
                 "max: x is [0, 3] float32; the reduced axes must not be empty"));
  CHECK(contains(error_of([] { argmin(Tensor::zeros({0})); }),
                 "argmin: x is [0] float32; the reduced axes must not be empty"));
  CHECK(contains(error_of([] { min(Tensor::zeros({2}, DType::bool8)); }),
                 "min: x is [2] bool8; it must be floating or int32"));
  CHECK(contains(error_of([] { argmax(Tensor::zeros({2}), 1); }), "argmax: axis is 1 but x is [2] float32"));
}

TEST_CASE("extrema of more elements than int32 counts are refused before anything is copied") {
  const Tensor x = Tensor::scalar(1).expand({Index{1} << 31});
  const char* words = ": 2147483648 elements are reduced to one; they must be fewer than 2^31";
  CHECK(contains(error_of([&] { max(x); }), std::string("max") + words));
  CHECK(contains(error_of([&] { argmin(x); }), std::string("argmin") + words));
}

TEST_CASE("any and all of masks") {
  Rng rng(6);
  const Tensor x = rng.integers({3, 4, 5}, 0, 5).to(DType::bool8), y = rng.integers({3, 4, 5}, -3, 2).to(DType::bool8);
  for (const Tensor& v : {x, x.transpose(0, 2), y.slice(1, 0, 4, 2)}) {
    for (const auto& axes : kExtremaAxes) {
      const Tensor a = any(v, axes), b = all(v, axes, true);
      CHECK(a.dtype() == DType::bool8);
      CHECK(test::close(a, test::reduced(v, axes, a, greatest), 0, 0));
      CHECK(test::close(b, test::reduced(v, axes, b, min_of), 0, 0));
    }
  }
  CHECK(any(Tensor::zeros({0}, DType::bool8)).item() == 0);
  CHECK(all(Tensor::zeros({2, 0}, DType::bool8), 1).to_vector<double>() == std::vector<double>{1, 1});
  CHECK(any(Tensor::scalar(1, DType::bool8)).item() == 1);
  CHECK(contains(error_of([] { any(Tensor::zeros({2})); }), "any: the mask is [2] float32; it must be bool8"));
  CHECK(contains(error_of([] { all(Tensor::zeros({2}, DType::bool8), 3); }), "all: axis is 3"));
}

TEST_CASE("top_k takes the best in order, of equal ones the first") {
  Rng rng(7);
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor x = rng.integers({4, 30, 3}, 0, 12).to(dtype);
    for (const Tensor& v : {x, x.transpose(0, 1)}) {
      for (int axis = -3; axis < 3; ++axis) {
        for (const bool largest : {true, false}) {
          for (const Index k : {Index{0}, Index{1}, Index{2}, v.dim(axis)}) {
            const TopK best = top_k(v, k, axis, largest);
            const auto sorted = [&](bool places) {
              return test::along(v, axis,
                                 [&](const std::vector<double>& line) {
                                   std::vector<double> order(line.size());
                                   for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<double>(i);
                                   std::stable_sort(order.begin(), order.end(), [&](double i, double j) {
                                     const double p = line[static_cast<std::size_t>(i)],
                                                  q = line[static_cast<std::size_t>(j)];
                                     return largest ? p > q : p < q;
                                   });
                                   if (!places)
                                     for (double& o : order) o = line[static_cast<std::size_t>(o)];
                                   return order;
                                 })
                  .slice(axis, 0, k);
            };
            CHECK(best.indices.dtype() == DType::int32);
            CHECK(best.values.dtype() == dtype);
            CHECK(test::close(best.values, sorted(false), 0, 0));
            CHECK(test::close(best.indices, sorted(true), 0, 0));
          }
        }
      }
    }
  }
  const Tensor bad = Tensor::from({1, kNaN, 3, kInf, kNaN, -kInf});
  CHECK(top_k(bad, 4).indices.to_vector<double>() == std::vector<double>{1, 4, 3, 2});
  CHECK(top_k(bad, 5, 0, false).indices.to_vector<double>() == std::vector<double>{5, 0, 2, 3, 1});
  CHECK(contains(error_of([&] { top_k(bad, 7); }),
                 "top_k: k is 7 but x is [6] float32; it must be in [0, 6], the size of axis 0"));
  CHECK(contains(error_of([&] { top_k(bad, -1); }), "top_k: k is -1"));
  CHECK(contains(error_of([&] { top_k(bad.to(DType::int32), 1); }), "top_k: x is [6] int32"));
}

TEST_CASE("top_k passes gradcheck") {
  Rng rng(8);
  const Tensor x = rng.normal({3, 4, 5}, 0, 1, DType::float64);
  for (const int axis : {0, 1, 2}) {
    for (const bool largest : {true, false}) {
      gradcheck([&](const std::vector<Tensor>& in) { return top_k(in[0], 2, axis, largest).values; }, {x});
      gradcheck(
          [&](const std::vector<Tensor>& in) {
            return top_k(max(in[0].transpose(0, 2), 0, true), 1, axis, largest).values;
          },
          {x});
    }
  }
}
