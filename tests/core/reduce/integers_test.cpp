// Reductions of int32 and bool8 against plain loops in float64, which represents every int32 and every sum here
// exactly.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/record.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>

#include "tests/reference.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

const std::vector<std::vector<int>> kIntegerAxes = {{}, {0}, {1}, {-1}, {-3}, {0, 2}, {-2, 0}, {2, 1}, {0, 1, 2}};

double total_of(const std::vector<double>& x) {
  double y = 0;
  for (double v : x) y += v;
  return y;
}

// The index of the first maximum; of the first minimum if `of_min`.
std::size_t place_of_best(const std::vector<double>& x, bool of_min) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < x.size(); ++i)
    if (of_min ? x[i] < x[best] : x[i] > x[best]) best = i;
  return best;
}

std::vector<double> running_totals(const std::vector<double>& x) {
  std::vector<double> y;
  double sum = 0;
  for (double v : x) y.push_back(sum += v);
  return y;
}

// Views of a tensor of rank 3: itself, transposed, permuted, with gaps, with an offset, expanded.
std::vector<Tensor> views_of(const Tensor& x) {
  return {x,
          x.transpose(0, 2),
          x.permute({1, 2, 0}),
          x.slice(1, 1, 4, 2),
          x.slice(0, 1, 2).expand(x.shape()),
          x.slice(2, 1, 2).expand({x.dim(0), x.dim(1), 7})};
}

bool is_int32(const Tensor& y, const Tensor& expected) {
  return y.dtype() == DType::int32 && test::close(y, expected, 0, 0);
}

void check_extrema(const Tensor& x, const std::vector<int>& axes, bool keepdim) {
  const Tensor high = max(x, axes, keepdim), low = min(x, axes, keepdim);
  CHECK(is_int32(high, test::reduced(x, axes, high, [](const auto& v) { return v[place_of_best(v, false)]; })));
  CHECK(is_int32(low, test::reduced(x, axes, low, [](const auto& v) { return v[place_of_best(v, true)]; })));
}

void check_places(const Tensor& x, const std::vector<int>& axes, bool keepdim) {
  const std::optional<int> axis = axes.empty() ? std::nullopt : std::optional<int>(axes[0]);
  const Tensor high = argmax(x, axis, keepdim), low = argmin(x, axis, keepdim);
  const auto place = [](const std::vector<double>& v, bool of_min) {
    return static_cast<double>(place_of_best(v, of_min));
  };
  CHECK(is_int32(high, test::reduced(x, axes, high, [&](const auto& v) { return place(v, false); })));
  CHECK(is_int32(low, test::reduced(x, axes, low, [&](const auto& v) { return place(v, true); })));
}

void check_sum(const Tensor& x, const std::vector<int>& axes, bool keepdim) {
  const Tensor y = sum(x, axes, keepdim);
  CHECK(is_int32(y, test::reduced(x, axes, y, total_of)));
}

}  // namespace

TEST_CASE("sum of int32 and bool8 over any axes, of any strides, is int32") {
  Rng rng(1);
  const Tensor ints = rng.integers({3, 4, 5}, -9, 9), mask = rng.integers({3, 4, 5}, 0, 2).to(DType::bool8);
  for (const Tensor& x : {ints, mask})
    for (const Tensor& v : views_of(x))
      for (const auto& axes : kIntegerAxes)
        for (const bool keepdim : {false, true}) check_sum(v, axes, keepdim);
  CHECK(sum(mask, {0, 2}).shape() == Shape{4});
  CHECK(sum(mask, {0, -1}, true).shape() == Shape{1, 4, 1});
  CHECK(sum(ints).shape() == Shape{});
  // float32 would round above 2^24.
  CHECK(sum(Tensor::from<std::int32_t>({1 << 30, 1, 1})).to_vector<std::int32_t>() ==
        std::vector<std::int32_t>{(1 << 30) + 2});
}

TEST_CASE("max, min, argmax and argmin of int32 over any axes, of any strides, with equal values") {
  Rng rng(2);
  const Tensor x = rng.integers({3, 4, 5}, -3, 3);
  for (const Tensor& v : views_of(x)) {
    for (const bool keepdim : {false, true}) {
      for (const auto& axes : kIntegerAxes) check_extrema(v, axes, keepdim);
      for (const auto& axes : std::vector<std::vector<int>>{{}, {0}, {1}, {2}, {-1}, {-3}})
        check_places(v, axes, keepdim);
    }
  }
  // The limits of int32, which float32 cannot distinguish from their neighbours.
  const std::int32_t min_int = std::numeric_limits<std::int32_t>::min(),
                     max_int = std::numeric_limits<std::int32_t>::max();
  const Tensor ends = Tensor::from(std::vector<std::int32_t>{max_int - 1, max_int, min_int + 1, min_int}, {4});
  CHECK(max(ends).item<std::int32_t>() == max_int);
  CHECK(min(ends).item<std::int32_t>() == min_int);
  CHECK(argmax(ends).item() == 1);
  CHECK(argmin(ends).item() == 3);
  CHECK(max(Tensor::full({2}, min_int, DType::int32)).item<std::int32_t>() == min_int);
  CHECK(min(Tensor::full({2}, max_int, DType::int32)).item<std::int32_t>() == max_int);
}

TEST_CASE("cumsum of int32 and bool8 along any axis, of any strides, is int32") {
  Rng rng(3);
  const Tensor ints = rng.integers({3, 4, 5}, -9, 9), mask = rng.integers({3, 4, 5}, 0, 2).to(DType::bool8);
  for (const Tensor& x : {ints, mask})
    for (const Tensor& v : views_of(x))
      for (int axis = -3; axis < 3; ++axis) CHECK(is_int32(cumsum(v, axis), test::along(v, axis, running_totals)));
  for (const Shape& shape : {Shape{70000}, Shape{2, 300, 130}, Shape{3, 1, 64}, Shape{2, 100, 65}}) {
    const Tensor x = rng.integers(shape, -1000, 1000);
    for (int axis = 0; axis < shape.rank(); ++axis)
      CHECK(is_int32(cumsum(x, axis), test::along(x, axis, running_totals)));
  }
}

TEST_CASE("integer reductions of long rows and wide columns, in parts, are the same at any number of threads") {
  Rng rng(4);
  const std::vector<Tensor> inputs = {rng.integers({100003}, -9999, 9999),      rng.integers({3, 70001}, -9999, 9999),
                                      rng.integers({300, 1500}, -9999, 9999),   rng.integers({40000, 3}, -9999, 9999),
                                      rng.integers({2, 5000, 40}, -9999, 9999), rng.integers({70, 1025}, -9999, 9999)};
  std::vector<Tensor> first;
  for (const int n : {1, 2, 3, 8}) {
    if (!test::is_taken(n - 1, 7)) continue;
    set_threads(n);
    std::vector<Tensor> got;
    for (const Tensor& x : inputs) {
      for (int axis = 0; axis < x.rank(); ++axis) {
        if (first.empty()) {
          check_sum(x, {axis}, false);
          check_sum(x > 0, {axis}, false);
          check_extrema(x, {axis}, false);
          check_places(x, {axis}, false);
        }
        for (const Tensor& y : {sum(x, axis), sum(x > 0, axis), max(x, axis), min(x, axis), argmax(x, axis),
                                argmin(x, axis), cumsum(x, axis)})
          got.push_back(y);
      }
      got.push_back(sum(x));
      got.push_back(argmax(x));
    }
    if (first.empty()) first = got;
    bool same = true;
    for (std::size_t i = 0; i < got.size(); ++i) same = same && test::same_bits(got[i], first[i]);
    CHECK(same);
  }
  set_threads(0);
  check_sum(inputs[4], {}, false);
  check_extrema(inputs[4], {}, false);
  check_places(inputs[4], {}, false);
}

TEST_CASE("integer reductions of no elements, of one and of rank 0") {
  for (const DType dtype : {DType::int32, DType::bool8}) {
    CHECK(test::same_bits(sum(Tensor::zeros({0}, dtype)), Tensor::scalar(0, DType::int32)));
    CHECK(test::same_bits(sum(Tensor::zeros({2, 0}, dtype), 1), Tensor::zeros({2}, DType::int32)));
    CHECK(test::same_bits(sum(Tensor::zeros({0, 2}, dtype), 0, true), Tensor::zeros({1, 2}, DType::int32)));
    CHECK(test::same_bits(sum(Tensor::zeros({2, 0}, dtype), 0), Tensor::zeros({0}, DType::int32)));
    CHECK(test::same_bits(sum(Tensor::scalar(1, dtype)), Tensor::scalar(1, DType::int32)));
    CHECK(test::same_bits(cumsum(Tensor::zeros({2, 0}, dtype), 0), Tensor::zeros({2, 0}, DType::int32)));
    CHECK(test::same_bits(cumsum(Tensor::zeros({2, 0}, dtype), 1), Tensor::zeros({2, 0}, DType::int32)));
    CHECK(test::same_bits(cumsum(Tensor::ones({1}, dtype), 0), Tensor::ones({1}, DType::int32)));
    CHECK(test::same_bits(cumsum(Tensor::scalar(1, dtype), -1), Tensor::scalar(1, DType::int32)));
    CHECK(test::same_bits(sum(Tensor::scalar(1, dtype), 0), Tensor::scalar(1, DType::int32)));
  }
  CHECK(test::same_bits(max(Tensor::scalar(-3, DType::int32)), Tensor::scalar(-3, DType::int32)));
  CHECK(test::same_bits(argmin(Tensor::scalar(-3, DType::int32)), Tensor::scalar(0, DType::int32)));
  CHECK(test::same_bits(max(Tensor::zeros({0, 3}, DType::int32), 1), Tensor::zeros({0}, DType::int32)));
  CHECK(test::same_bits(argmax(Tensor::zeros({2, 0, 3}, DType::int32), 2), Tensor::zeros({2, 0}, DType::int32)));
  const Tensor none = Tensor::zeros({0, 3}, DType::int32);
  const std::string words = ": x is [0, 3] int32; the reduced axes must not be empty";
  CHECK(contains(error_of([&] { max(none, 0); }), "max" + words));
  CHECK(contains(error_of([&] { min(none); }), "min" + words));
  CHECK(contains(error_of([&] { argmax(none, 0); }), "argmax" + words));
  CHECK(contains(error_of([&] { argmin(none); }), "argmin" + words));
}

TEST_CASE("integer sums that exceed int32 are an Error, and sums at its limits are not") {
  const Tensor high = Tensor::from<std::int32_t>({2147483647, 852516353}),
               low = Tensor::from<std::int32_t>({-2147483647, -1, -1});
  const std::string above = "; int32 holds at most 2147483647: convert to float64 first",
                    below = "; int32 holds at least -2147483648: convert to float64 first";
  CHECK(contains(error_of([&] { sum(high); }), "sum: the sum is 3000000000" + above));
  CHECK(contains(error_of([&] { sum(low); }), "sum: the sum is -2147483649" + below));
  CHECK(contains(error_of([&] { cumsum(high, 0); }), "cumsum: a running sum is 3000000000" + above));
  CHECK(contains(error_of([&] { cumsum(low, 0); }), "cumsum: a running sum is -2147483649" + below));
  CHECK(contains(error_of([&] { sum(high); }), "integers_test.cpp:"));
  CHECK(sum(low.slice(0, 0, 2)).item() == -2147483648.0);
  CHECK(cumsum(low.slice(0, 0, 2), 0).to_vector<double>() == std::vector<double>{-2147483647, -2147483648.0});
  CHECK(sum(high.to(DType::float64)).item() == 3e9);

  // A sum may leave the range of int32 temporarily, but a running sum may not. A sum that is too large by exactly 2^32
  // would wrap to a valid number.
  const Tensor back = Tensor::from<std::int32_t>({2147483647, 1, -1});
  CHECK(sum(back).item() == 2147483647);
  CHECK(contains(error_of([&] { cumsum(back, 0); }), "cumsum: a running sum is 2147483648" + above));
  CHECK(contains(error_of([] { sum(Tensor::full({4, 3}, 1 << 30, DType::int32), 0); }), "the sum is 4294967296"));

  // If several sums overflow, the error names the first at any number of threads: here row 1, column 2.
  Tensor x = Tensor::zeros({4, 300, 200}, DType::int32);
  for (Index r = 1; r < 4; ++r)
    for (Index c = 2; c < 200; ++c)
      for (Index i = 0; i < 2; ++i)
        x.ptr<std::int32_t>()[(r * 300 + 100 + i) * 200 + c] = static_cast<std::int32_t>(2000000000 + 1000 * r + c);
  for (const int n : {1, 2, 8}) {
    set_threads(n);
    CHECK(contains(error_of([&] { sum(x, 1); }), "sum: the sum is 4000002004" + above));
    CHECK(contains(error_of([&] { cumsum(x, 1); }), "cumsum: a running sum is 4000002004" + above));
  }
  set_threads(0);
}

TEST_CASE("integer reductions on a tape are constants") {
  const Tensor x = Tensor::from({0.5, -1, 2, 3}, {2, 2});
  Tape tape;
  const Tensor in = tape.watch(x), lengths = sum(in > 0, 1), places = in.to(DType::int32);
  CHECK(lengths.to_vector<double>() == std::vector<double>{1, 2});
  for (const Tensor& y : {lengths, sum(places), max(places, 0), min(places), argmax(places), cumsum(places, 0)}) {
    CHECK(y.dtype() == DType::int32);
    CHECK(y.node() == 0);
    CHECK(!needs_gradient({y}));
  }
  tape.backward(sum(in * lengths.to(DType::float32).unsqueeze(1)));
  CHECK(tape.grad(in).to_vector<double>() == std::vector<double>{1, 1, 2, 2});
}

TEST_CASE("errors of reductions name the dtypes that they accept") {
  const Tensor ints = Tensor::arange(3), mask = Tensor::zeros({3}, DType::bool8);
  const std::string convert = "; it must be floating: convert it with to(DType::float32) first";
  const std::string ordered = "; it must be floating or int32";
  test::check_errors({
      {"mean: x is [3] int32" + convert, [&] { mean(ints); }},
      {"mean: x is [3] bool8" + convert, [&] { mean(mask, 0); }},
      {"sum: x is undefined; it must be floating, int32 or bool8", [] { sum(Tensor()); }},
      {"sum: axis is 1 but x is [3] int32", [&] { sum(ints, 1); }},
      {"cumsum: x is undefined; it must be floating, int32 or bool8", [] { cumsum(Tensor(), 0); }},
      {"cumsum: axis is -2 but x is [3] bool8", [&] { cumsum(mask, -2); }},
      {"max: x is [3] bool8" + ordered, [&] { max(mask); }},
      {"min: x is undefined" + ordered, [] { min(Tensor()); }},
      {"argmax: x is [3] bool8" + ordered, [&] { argmax(mask); }},
      {"argmin: x is [3] bool8" + ordered, [&] { argmin(mask, 0); }},
      {"argmin: axis is 1 but x is [3] int32", [&] { argmin(ints, 1); }},
  });
}
