// A table of every differentiable op, for the tests that all ops share: op_cases_test.cpp.
#pragma once
#include <functional>
#include <heed/heed.hpp>
#include <limits>
#include <string>
#include <vector>

namespace heed::test {

using List = std::vector<Tensor>;

// Exceptions from the shared tests, per op.
enum Except : unsigned {
  kNothing = 0,
  kNoScalar = 1,   // needs an axis: rank 0 is an Error
  kNotEmpty = 2,   // an axis without elements is an Error
  kAnyType = 4,    // accepts other dtypes too
  kHidesNan = 8,   // a NaN may have no effect
  kJumps = 16,     // the effect of NaN or infinity on a gradient depends on rounding, or on the order of equal elements
  kEven = 32,      // the axis of variable size must be even
  kOneIsNan = 64,  // the result for one element is NaN
  kAnyName = 128,  // errors do not name the op
  kRounds = 256,   // rounds to float32, so difference quotients are impossible
  kDots = 512,     // on levels with bfloat16 products, intermediate bfloat16 values are rounded too
};

inline constexpr Index N = -1;  // in a shape: the size that varies

struct OpCase {
  std::string name;  // the part before the first space is the name in error messages
  std::vector<Shape> shapes;
  std::function<Tensor(const List&)> f;
  unsigned except = kNothing;
  double low = -2, high = 2;
  std::size_t optional = 99;  // inputs from this index on may be undefined
};

// n different numbers in (low, high), in scrambled order. None is within 1e-3 of a multiple of 0.5, where ops have
// kinks. Other seeds give other numbers in between.
inline Tensor spread(const Shape& shape, double low, double high, Index seed = 0) {
  Tensor x = Tensor::empty(shape, DType::float64);
  for (Index i = 0; i < x.numel(); ++i) {
    const double u = std::fmod(0.6180339887498949 * static_cast<double>(i + 1 + 17 * seed), 1.0);
    double v = low + (high - low) * u;
    const double near = std::round(v * 2) / 2;
    if (std::fabs(v - near) < 1e-3) v = near + 2e-3;
    x.ptr<double>()[i] = v;
  }
  return x;
}

inline List inputs_of(const OpCase& c, Index n) {
  List inputs;
  for (const Shape& given : c.shapes) {
    Shape shape = given;
    for (Index& s : shape) s = s == N ? n : s;
    inputs.push_back(spread(shape, c.low, c.high, 3 * static_cast<Index>(inputs.size())));
  }
  return inputs;
}

// The size of an axis; 1 if x has no such axis, as in tests of rank 0.
inline Index axis_size(const Tensor& x, int axis) { return axis < x.rank() && axis >= -x.rank() ? x.dim(axis) : 1; }

// A bool8 tensor of x's shape: true, false, false, true, ...
inline Tensor thirds(const Tensor& x) {
  Tensor mask = Tensor::zeros(x.shape(), DType::bool8);
  for (Index i = 0; i < mask.numel(); i += 3) mask.ptr<bool>()[i] = true;
  return mask;
}

// An int32 tensor: 0, 2, 4, ... modulo n.
inline Tensor places(const Shape& shape, Index n) {
  Tensor index = Tensor::zeros(shape, DType::int32);
  for (Index i = 0; n > 0 && i < index.numel(); ++i)
    index.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(2 * i % n);
  return index;
}

inline std::vector<OpCase> elementwise_cases() {
  constexpr double inf = std::numeric_limits<double>::infinity();
  std::vector<OpCase> list;
  const auto one = [&](const char* name, double low, double high, Tensor (*f)(const Tensor&), unsigned except = 0) {
    list.push_back({name, {{N}}, [f](const List& x) { return f(x[0]); }, except, low, high});
  };
  const auto two = [&](const char* name, double low, double high, Tensor (*f)(const Tensor&, const Tensor&),
                       unsigned except = 0) {
    list.push_back({name, {{N}, {N}}, [f](const List& x) { return f(x[0], x[1]); }, except, low, high});
    list.push_back({std::string(name) + " of a row",
                    {{2, N}, {N}},
                    [f](const List& x) { return f(x[0], x[1]); },
                    except,
                    low,
                    high});
    list.push_back({std::string(name) + " of a column",
                    {{3, 1}, {2, 1, N}},
                    [f](const List& x) { return f(x[0], x[1]); },
                    except,
                    low,
                    high});
  };
  one(
      "neg", -3, 3, [](const Tensor& x) { return -x; }, kAnyType);
  one(
      "abs", -3, 3, [](const Tensor& x) { return abs(x); }, kAnyType);
  one(
      "sign", -3, 3, [](const Tensor& x) { return sign(x); }, kHidesNan | kAnyType);
  one(
      "square", -3, 3, [](const Tensor& x) { return square(x); }, kAnyType);
  one("sqrt", 0.1, 4, [](const Tensor& x) { return sqrt(x); });
  one("rsqrt", 0.2, 4, [](const Tensor& x) { return rsqrt(x); });
  one("exp", -3, 3, [](const Tensor& x) { return exp(x); });
  one("expm1", -3, 3, [](const Tensor& x) { return expm1(x); });
  one("log", 0.1, 5, [](const Tensor& x) { return log(x); });
  one("log1p", -0.8, 5, [](const Tensor& x) { return log1p(x); });
  one("sin", -9, 9, [](const Tensor& x) { return sin(x); });
  one("cos", -9, 9, [](const Tensor& x) { return cos(x); });
  one("erf", -3, 3, [](const Tensor& x) { return erf(x); });
  one("pow 2", -3, 3, [](const Tensor& x) { return pow(x, 2); });
  one("pow 3", -3, 3, [](const Tensor& x) { return pow(x, 3); });
  one("pow 1", -3, 3, [](const Tensor& x) { return pow(x, 1); });
  one(
      "pow 0", -3, 3, [](const Tensor& x) { return pow(x, 0); }, kHidesNan);
  one("pow -1", 0.3, 3, [](const Tensor& x) { return pow(x, -1); });
  one("pow -2", 0.4, 3, [](const Tensor& x) { return pow(x, -2); });
  one("pow 0.5", 0.3, 3, [](const Tensor& x) { return pow(x, 0.5); });
  one("pow -0.5", 0.3, 3, [](const Tensor& x) { return pow(x, -0.5); });
  one("pow 2.3", 0.3, 3, [](const Tensor& x) { return pow(x, 2.3); });
  one("pow 5", -2, 2, [](const Tensor& x) { return pow(x, 5); });
  one("pow 2^x", -3, 3, [](const Tensor& x) { return pow(2, x); });
  one("clamp", -3, 3, [](const Tensor& x) { return clamp(x, -1, 1.5); });  // int32 cannot hold 1.5
  one("clamp above", -3, 3, [](const Tensor& x) { return clamp(x, -inf, 1.5); });
  one("sigmoid", -6, 6, [](const Tensor& x) { return sigmoid(x); });
  one("tanh", -4, 4, [](const Tensor& x) { return tanh(x); });
  one("relu", -3, 3, [](const Tensor& x) { return relu(x); });
  one("relu_squared", -3, 3, [](const Tensor& x) { return relu_squared(x); });
  one("leaky_relu", -3, 3, [](const Tensor& x) { return leaky_relu(x, 0.1); });
  one("elu", -3, 3, [](const Tensor& x) { return elu(x, 0.7); });
  one("gelu", -5, 5, [](const Tensor& x) { return gelu(x); });
  one("gelu_tanh", -5, 5, [](const Tensor& x) { return gelu(x, Gelu::tanh); });
  one("silu", -6, 6, [](const Tensor& x) { return silu(x); });
  one("softsign", -6, 6, [](const Tensor& x) { return softsign(x); });
  one("softplus", -6, 6, [](const Tensor& x) { return softplus(x); });
  one("softplus 3", -6, 6, [](const Tensor& x) { return softplus(x, 3); });
  one(
      "add x + 2", -3, 3, [](const Tensor& x) { return x + 2; }, kAnyType);
  one(
      "add 2 + x", -3, 3, [](const Tensor& x) { return 2 + x; }, kAnyType);
  one(
      "sub x - 2", -3, 3, [](const Tensor& x) { return x - 2; }, kAnyType);
  one(
      "sub 2 - x", -3, 3, [](const Tensor& x) { return 2 - x; }, kAnyType);
  one(
      "mul x * 2", -3, 3, [](const Tensor& x) { return x * 2; }, kAnyType);
  one(
      "mul 2 * x", -3, 3, [](const Tensor& x) { return 2 * x; }, kAnyType);
  one("div x / 2", -3, 3, [](const Tensor& x) { return x / 2; });
  one("div 2 / x", 0.5, 3, [](const Tensor& x) { return 2 / x; });
  one("maximum 0.5", -3, 3, [](const Tensor& x) { return maximum(x, 0.5); });
  one("minimum 0.5", -3, 3, [](const Tensor& x) { return minimum(x, 0.5); });
  one(
      "where x or 1", -3, 3, [](const Tensor& x) { return where(thirds(x), x, 1.0); }, kAnyType | kHidesNan);
  one(
      "where 1 or x", -3, 3, [](const Tensor& x) { return where(thirds(x), 1.0, x); }, kAnyType | kHidesNan);
  one(
      "masked_fill", -3, 3, [](const Tensor& x) { return masked_fill(x, thirds(x), 4); }, kAnyType | kHidesNan);
  two("add", -3, 3, [](const Tensor& a, const Tensor& b) { return a + b; });
  two("sub", -3, 3, [](const Tensor& a, const Tensor& b) { return a - b; });
  two("mul", -3, 3, [](const Tensor& a, const Tensor& b) { return a * b; });
  two("div", 0.5, 3, [](const Tensor& a, const Tensor& b) { return a / b; });
  two("pow", 0.3, 2, [](const Tensor& a, const Tensor& b) { return pow(a, b); });
  two("maximum", -3, 3, [](const Tensor& a, const Tensor& b) { return maximum(a, b); });
  two("minimum", -3, 3, [](const Tensor& a, const Tensor& b) { return minimum(a, b); });
  two(
      "where", -3, 3, [](const Tensor& a, const Tensor& b) { return where(thirds(a), a, b); }, kHidesNan);
  list.push_back({"clamp by tensors",
                  {{3, N}, {N}, {3, 1}},
                  [](const List& x) { return clamp(x[0], x[1], x[2]); },
                  kHidesNan,
                  -3,
                  3,
                  1});
  list.push_back(
      {"clamp from below", {{N}, {N}}, [](const List& x) { return clamp(x[0], x[1], Tensor()); }, 0, -3, 3, 1});
  list.push_back(
      {"clamp from above", {{N}, {N}}, [](const List& x) { return clamp(x[0], Tensor(), x[1]); }, 0, -3, 3, 1});
  return list;
}

inline std::vector<OpCase> reduction_cases() {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const std::vector<Shape> row = {{N}}, rows = {{3, N}}, columns = {{N, 3}}, cube = {{2, N, 3}};
  std::vector<OpCase> list;
  const auto reduce = [&](const std::string& name, Tensor (*f)(const Tensor&, const Axes&, bool), unsigned except = 0) {
    list.push_back({name, row, [f](const List& x) { return f(x[0], {}, false); }, except});
    list.push_back({name + " of rows", rows, [f](const List& x) { return f(x[0], -1, true); }, except});
    list.push_back({name + " of columns", columns, [f](const List& x) { return f(x[0], 0, false); }, except});
    list.push_back({name + " of two axes", cube,
                    [f](const List& x) {
                      return f(x[0], {0, 1}, false);
                    },
                    except | kNoScalar});
  };
  reduce(
      "sum", [](const Tensor& x, const Axes& a, bool k) { return sum(x, a, k); }, kAnyType);
  reduce("mean", [](const Tensor& x, const Axes& a, bool k) { return mean(x, a, k); });
  reduce("variance",
         [](const Tensor& x, const Axes& a, bool k) { return variance(x, a, {.correction = 0, .keepdim = k}); });
  reduce(
      "stddev", [](const Tensor& x, const Axes& a, bool k) { return stddev(x, a, {.keepdim = k}); }, kOneIsNan);
  reduce("logsumexp", [](const Tensor& x, const Axes& a, bool k) { return logsumexp(x, a, k); });
  reduce("norm", [](const Tensor& x, const Axes& a, bool k) { return norm(x, a, {2, k}); });
  reduce("norm 1", [](const Tensor& x, const Axes& a, bool k) { return norm(x, a, {1, k}); });
  reduce("norm 3", [](const Tensor& x, const Axes& a, bool k) { return norm(x, a, {3, k}); });
  reduce("norm inf", [](const Tensor& x, const Axes& a, bool k) { return norm(x, a, {inf, k}); });
  reduce("prod", [](const Tensor& x, const Axes& a, bool k) { return prod(x, a, k); });
  reduce(
      "max", [](const Tensor& x, const Axes& a, bool k) { return max(x, a, k); }, kNotEmpty | kAnyType);
  reduce(
      "min", [](const Tensor& x, const Axes& a, bool k) { return min(x, a, k); }, kNotEmpty | kAnyType);
  const auto along = [&](const std::string& name, Tensor (*f)(const Tensor&, int), unsigned except = 0) {
    list.push_back({name, rows, [f](const List& x) { return f(x[0], -1); }, except});
    list.push_back({name + " of columns", columns, [f](const List& x) { return f(x[0], 0); }, except});
  };
  along("softmax", [](const Tensor& x, int a) { return softmax(x, a); });
  along("log_softmax", [](const Tensor& x, int a) { return log_softmax(x, a); });
  along(
      "cumsum", [](const Tensor& x, int a) { return cumsum(x, a); }, kAnyType);
  along("top_k", [](const Tensor& x, int a) { return top_k(x, (axis_size(x, a) + 1) / 2, a).values; });
  return list;
}

}  // namespace heed::test
