// Elementwise ops: derivatives, special values as in PyTorch, and errors.

#include "tests/autograd/op_cases.hpp"
#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::kInf;
using test::kNaN;
using test::spread;

namespace {}  // namespace

TEST_CASE("elementwise: gradcheck of views, and of one tensor twice") {
  for (const test::OpCase& c : test::elementwise_cases()) {
    if (c.shapes.size() != 1) continue;
    CAPTURE(c.name);
    const auto f = [&](const Tensor& x) { return c.f({x}); };
    gradcheck([&](const test::List& x) { return f(x[0].slice(1, 1, 7, 2)); }, {spread({3, 7}, c.low, c.high)});
    gradcheck([&](const test::List& x) { return f(x[0].expand({4, 3})); }, {spread({3}, c.low, c.high)});
    gradcheck([&](const test::List& x) { return f(x[0]) + f(x[0]); }, {spread({3}, c.low, c.high)});
  }
}

TEST_CASE("elementwise: gradcheck of functions of two tensors, with broadcasting") {
  for (const test::OpCase& c : test::elementwise_cases()) {
    if (c.shapes != std::vector<Shape>{{test::N}, {test::N}}) continue;
    CAPTURE(c.name);
    const auto pair = [&](const Shape& a, const Shape& b) {
      return test::List{spread(a, c.low, c.high), spread(b, c.low, c.high, 3)};
    };
    gradcheck(c.f, pair({}, {2, 3}));
    gradcheck(c.f, pair({3, 1, 2}, {4, 2}));
    gradcheck(c.f, pair({0, 2}, {2}));
    gradcheck([&](const test::List& x) { return c.f({x[0].t(), x[1].slice(1, 0, 6, 2)}); }, pair({3, 4}, {4, 6}));
  }
  // One tensor twice: both gradients are added to the same memory.
  gradcheck([](const test::List& x) { return x[0] * x[0] + x[0] / x[0] + pow(x[0], x[0]); }, {spread({4}, 0.5, 2)});
  gradcheck([](const test::List& x) { return x[0] * x[0].t(); }, {spread({3, 3}, 0.5, 2)});
}

namespace {

// The gradient of sum(f(x)).
Tensor gradient(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  Tape tape;
  const Tensor w = tape.watch(x);
  const Tensor y = f(w);
  tape.backward(y, Tensor::ones(y.shape(), y.dtype()));
  return tape.grad(w);
}

void check_values(const Tensor& got, const std::vector<double>& expected) {
  const std::vector<double> values = got.to_vector<double>();
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    if (std::isnan(expected[i]))
      CHECK(std::isnan(values[i]));
    else
      CHECK(values[i] == expected[i]);
  }
}

}  // namespace

TEST_CASE("elementwise: derivatives at kinks are PyTorch's") {
  const Tensor x = Tensor::from({-1, 0, 1, 2, kNaN});
  check_values(gradient([](const Tensor& a) { return relu(a); }, x), {0, 0, 1, 1, 1});
  check_values(gradient([](const Tensor& a) { return relu_squared(a); }, x), {0, 0, 2, 4, kNaN});
  check_values(gradient([](const Tensor& a) { return abs(a); }, x), {-1, 0, 1, 1, 0});
  check_values(gradient([](const Tensor& a) { return leaky_relu(a, 0.5); }, x), {0.5, 0.5, 1, 1, 0.5});
  check_values(gradient([](const Tensor& a) { return clamp(a, -1, 1); }, x), {1, 1, 1, 0, 0});
  check_values(gradient([](const Tensor& a) { return sign(a); }, x), {0, 0, 0, 0, 0});
  const Tensor one = Tensor::ones({5});
  check_values(gradient([&](const Tensor& a) { return maximum(a, one); }, x), {0, 0, 0.5, 1, 1});
  check_values(gradient([&](const Tensor& a) { return minimum(one, a); }, x), {1, 1, 0.5, 0, 1});
  check_values(gradient([](const Tensor& a) { return pow(a, 0); }, x), {0, 0, 0, 0, 0});
  check_values(gradient([](const Tensor& a) { return pow(a, 2); }, x), {-2, 0, 2, 4, kNaN});
  const Tensor base = Tensor::from({0, 0, 0, 2, -2});
  const Tensor exponent = Tensor::from({0, 2, -1, 0, 3});
  check_values(gradient([&](const Tensor& a) { return pow(a, exponent); }, base), {0, 0, -kInf, 0, 12});
  check_values(gradient([&](const Tensor& b) { return pow(base, b); }, exponent),
               {0, 0, -kInf, static_cast<double>(std::log(2.f)), kNaN});
}

TEST_CASE("elementwise: neg turns the sign of zeros too, on each level, and elu keeps NaN in its gradient") {
  heed::test::on_each_level([] {
    for (const DType dtype : {DType::float32, DType::float64})
      for (const Index n : {1, 3, 16, 17}) {
        const Tensor zeros = Tensor::zeros({n}, dtype);
        const auto all = [n](double v) { return std::vector<double>(static_cast<std::size_t>(n), v); };
        check_values(1.0 / neg(zeros), all(-kInf));
        check_values(1.0 / neg(neg(zeros)), all(kInf));
        check_values(1.0 / gradient([](const Tensor& a) { return neg(a) * 0.0; }, zeros), all(-kInf));
        check_values(gradient([](const Tensor& a) { return elu(a); }, Tensor::full({n}, kNaN, dtype)), all(kNaN));
      }
  });
}

TEST_CASE("elementwise: values of the special cases") {
  const Tensor x = Tensor::from({-kInf, -1, -0.0, 0, 1, kInf, kNaN});
  check_values(relu(x), {0, 0, 0, 0, 1, kInf, kNaN});
  check_values(relu_squared(x), {0, 0, 0, 0, 1, kInf, kNaN});
  check_values(sign(x), {-1, -1, 0, 0, 1, 1, 0});
  check_values(abs(x), {kInf, 1, 0, 0, 1, kInf, kNaN});
  check_values(clamp(x, -0.5, 0.5), {-0.5, -0.5, 0, 0, 0.5, 0.5, kNaN});
  check_values(clamp(x, 2, 1), {1, 1, 1, 1, 1, 1, kNaN});
  check_values(sigmoid(x),
               {0, sigmoid(Tensor::scalar(-1)).item(), 0.5, 0.5, sigmoid(Tensor::scalar(1)).item(), 1, kNaN});
  check_values(softplus(Tensor::from({-kInf, -200, 200, kInf, kNaN})), {0, 0, 200, kInf, kNaN});
  check_values(elu(Tensor::from({-kInf, -200, 200, kInf, kNaN})), {-1, -1, 200, kInf, kNaN});
  check_values(gelu(Tensor::from({-1e30, 1e30, kInf}), Gelu::tanh), {0, static_cast<double>(1e30f), kInf});
  check_values(gradient([](const Tensor& a) { return gelu(a, Gelu::tanh); }, Tensor::from({-1e30, 1e30, -50, 50})),
               {0, 1, 0, 1});
  check_values(gradient([](const Tensor& a) { return gelu(a); }, Tensor::from({-1e30, 1e30, -50, 50})), {0, 1, 0, 1});
  check_values(gradient([](const Tensor& a) { return silu(a); }, Tensor::from({-200, 200})), {0, 1});
  check_values(maximum(x, 0.0), {0, 0, 0, 0, 1, kInf, kNaN});
  check_values(minimum(Tensor::full({7}, kNaN), x), {kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN});
  check_values(pow(Tensor::from({0, 0, -2, -2, -2, kNaN, 1, 5}), Tensor::from({0, -1, 3, 2, 0.5, 0, kNaN, kInf})),
               {1, kInf, -8, 4, kNaN, 1, 1, kInf});
  check_values(pow(x, 2), {kInf, 1, 0, 0, 1, kInf, kNaN});
  check_values(1.0 / x, {-0.0, -1, -kInf, kInf, 1, 0, kNaN});
  check_values(sin(Tensor::from({0, kInf, kNaN, 1e8})), {0, kNaN, kNaN, static_cast<double>(std::sin(1e8f))});
}

TEST_CASE("elementwise: comparisons and masks") {
  const Tensor a = Tensor::from({1, 2, 3, kNaN}), b = Tensor::from({2, 2, 2, 2});
  check_values(eq(a, b), {0, 1, 0, 0});
  check_values(ne(a, b), {1, 0, 1, 1});
  check_values(a < b, {1, 0, 0, 0});
  check_values(a <= b, {1, 1, 0, 0});
  check_values(a > b, {0, 0, 1, 0});
  check_values(a >= b, {0, 1, 1, 0});
  check_values(eq(a, 2), {0, 1, 0, 0});
  check_values(ne(a, 2), {1, 0, 1, 1});
  check_values(a < 2, {1, 0, 0, 0});
  check_values(a <= 2, {1, 1, 0, 0});
  check_values(a > 2, {0, 0, 1, 0});
  check_values(a >= 2, {0, 1, 1, 0});
  CHECK(eq(a, b).dtype() == DType::bool8);
  check_values(eq(Tensor::from({0.1}), 0.1), {1});
  check_values(isnan(a), {0, 0, 0, 1});
  check_values(isfinite(Tensor::from({1, kInf, -kInf, kNaN})), {1, 0, 0, 0});
  const Tensor i = Tensor::from<std::int32_t>({1, 2, 3, 4});
  check_values(i < 2.5, {1, 1, 0, 0});
  check_values(ge(i, Tensor::from<std::int32_t>({2})), {0, 1, 1, 1});
  const Tensor p = Tensor::from<bool>({0, 0, 1, 1}), q = Tensor::from<bool>({0, 1, 0, 1});
  check_values(logical_and(p, q), {0, 0, 0, 1});
  check_values(logical_or(p, q), {0, 1, 1, 1});
  check_values(logical_xor(p, q), {0, 1, 1, 0});
  check_values(logical_not(p), {1, 1, 0, 0});
  check_values(where(p, q, logical_not(q)), {1, 0, 0, 1});
  check_values(where(p, i, 7), {7, 7, 3, 4});
  check_values(where(p.view({4, 1}), Tensor::from({1, 2}), Tensor::from({3})), {3, 3, 3, 3, 1, 2, 1, 2});
  check_values(masked_fill(Tensor::zeros({2, 4}), p, -kInf), {0, 0, -kInf, -kInf, 0, 0, -kInf, -kInf});
}

TEST_CASE("clamp by tensors: values and gradients are PyTorch's, at the limits and if the limits are crossed") {
  // Below, at low, between, at high, above, and with low above high, as torch.clamp of PyTorch 2.13.
  const Tensor x = Tensor::from({-2, -1, 0, 1, 2, 0}), low = Tensor::from({-1, -1, -1, -1, -1, 3}),
               high = Tensor::from({1, 1, 1, 1, 1, 2});
  Tape tape;
  const Tensor a = tape.watch(x), b = tape.watch(low), c = tape.watch(high), y = clamp(a, b, c);
  check_values(y, {-1, -1, 0, 1, 1, 2});
  tape.backward(y, Tensor::from({1, 2, 3, 4, 5, 6}));
  check_values(tape.grad(a), {0, 2, 3, 4, 0, 0});
  check_values(tape.grad(b), {1, 0, 0, 0, 0, 0});
  check_values(tape.grad(c), {0, 0, 0, 0, 5, 6});
}

TEST_CASE("elementwise: int32 wraps around, and division is an error") {
  const Tensor a = Tensor::from<std::int32_t>({1, -2, 2147483647}), b = Tensor::from<std::int32_t>({3});
  check_values(a + b, {4, 1, -2147483646});
  check_values(a - b, {-2, -5, 2147483644});
  check_values(a * 2, {2, -4, -2});
  check_values(10 - a, {9, 12, -2147483637});
  check_values(maximum(a, 0), {1, 0, 2147483647});
  check_values(minimum(a, b), {1, -2, 3});
  const Tensor with_min = Tensor::from<std::int32_t>({-2147483648., 5, -5});
  check_values(-with_min, {-2147483648., -5, 5});
  check_values(abs(with_min), {-2147483648., 5, 5});
  check_values(sign(with_min), {-1, 1, -1});
  check_values(square(with_min), {0, 25, 25});
  check_values(clamp(with_min, -3, 4), {-3, 4, -3});
  check_values(clamp(with_min, -kInf, 4), {-2147483648., 4, -5});
  check_values(clamp(with_min, a, Tensor()), {1, 5, 2147483647});
  check_values(clamp(with_min, Tensor(), b), {-2147483648., 3, -5});
  CHECK((a + b).dtype() == DType::int32);
  CHECK(contains(error_of([&] { a / b; }), "div: x is [3] int32; it must be floating"));
  CHECK(contains(error_of([&] { a * 0.5; }),
                 "mul: the tensor is [3] int32 and the number is 0.5; int32 must hold it exactly"));
  CHECK(contains(error_of([&] { a + 3e9; }), "must hold it exactly"));
}

TEST_CASE("elementwise: where and masked_fill refuse a number that the dtype cannot hold exactly") {
  const Tensor p = Tensor::from<bool>({0, 1}), i = Tensor::from<std::int32_t>({5, 6});
  CHECK(contains(error_of([&] { masked_fill(i, p, 2.7); }),
                 "masked_fill: the tensor is [2] int32 and the number is 2.7; int32 must hold it exactly"));
  CHECK(contains(error_of([&] { masked_fill(p, p, 2); }),
                 "masked_fill: the tensor is [2] bool8 and the number is 2; bool8 must hold it exactly"));
  for (const double bad : {3e9, -3e9, 0.5, -kInf, kNaN}) {
    CAPTURE(bad);
    CHECK(contains(error_of([&] { masked_fill(i, p, bad); }), "int32 must hold it exactly"));
    CHECK(contains(error_of([&] { where(p, i, bad); }), "where: the tensor is [2] int32 and the number is "));
    CHECK(contains(error_of([&] { where(p, bad, i); }), "where: the tensor is [2] int32 and the number is "));
  }
  check_values(masked_fill(i, p, -2147483648.), {5, -2147483648.});
  check_values(masked_fill(p, p, 0), {0, 0});
}

TEST_CASE("elementwise: errors show the arguments and the rule") {
  const Tensor f = Tensor::zeros({2, 3}), d = Tensor::zeros({2, 3}, DType::float64),
               i = Tensor::zeros({2}, DType::int32);
  const Tensor h = Tensor::zeros({2}, DType::bfloat16), m = Tensor::zeros({2, 3}, DType::bool8);
  CHECK(contains(error_of([&] { f + d; }),
                 "add: a is [2, 3] float32 but b is [2, 3] float64; their dtypes must be the same"));
  CHECK(contains(error_of([&] { f* Tensor::zeros({4}); }),
                 "mul: a is [2, 3] float32 but b is [4] float32; the sizes of their axes, counted from the last, must "
                 "be the same or 1"));
  CHECK(contains(error_of([&] { f* Tensor::zeros({4}); }), "elementwise_test.cpp:"));
  CHECK(contains(error_of([&] { m* m; }), "mul: x is [2, 3] bool8; it must be floating or int32"));
  CHECK(contains(error_of([&] { exp(i); }), "exp: x is [2] int32; it must be floating"));
  CHECK(contains(error_of([&] { relu(Tensor()); }), "relu: x is undefined; it must have values"));
  CHECK(
      contains(error_of([&] { f + Tensor(); }), "add: a is [2, 3] float32 and b is undefined; both must have values"));
  CHECK(contains(error_of([&] { Tensor() + 1; }), "add: x is undefined; it must have values"));
  CHECK(contains(error_of([&] { softplus(f, 0); }), "softplus: beta is 0; it must be above 0"));
  CHECK(contains(error_of([&] { where(f, f, f); }), "where: mask is [2, 3] float32; it must be bool8"));
  CHECK(contains(error_of([&] { where(m, f, d); }),
                 "where: a is [2, 3] float32 but b is [2, 3] float64; their dtypes must be the same"));
  CHECK(contains(error_of([&] { where(m, f, Tensor::zeros({7})); }),
                 "where: mask is [2, 3] bool8, a is [2, 3] float32 and b is of shape [7]"));
  CHECK(contains(error_of([&] { masked_fill(Tensor::zeros({3}), m, 0); }),
                 "masked_fill: x is [3] float32 but mask is [2, 3] bool8; the mask must broadcast to x's shape"));
  CHECK(contains(error_of([&] { logical_and(f, f); }), "logical_and: x is [2, 3] float32; it must be bool8"));
  CHECK(contains(error_of([&] { isnan(i); }), "isnan: x is [2] int32; it must be floating"));
  CHECK(contains(error_of([&] { eq(f, i); }),
                 "eq: a is [2, 3] float32 but b is [2] int32; their dtypes must be the same"));
  CHECK(contains(error_of([&] { where(m, Tensor(), 1); }), "where: x is undefined"));
  CHECK(contains(error_of([&] { lt(Tensor(), 1); }), "lt: x is undefined; it must have values"));
  CHECK(contains(error_of([&] { f + h; }), "add: a is [2, 3] float32 but b is [2] bfloat16; their dtypes"));
  CHECK(contains(error_of([&] { clamp(i, 0.5, 2); }),
                 "clamp: x is [2] int32 and the limits are 0.5 and 2; int32 must hold both exactly, except low = -inf "
                 "and high = inf"));
  CHECK(contains(error_of([&] { clamp(f, Tensor(), Tensor()); }),
                 "clamp: x is [2, 3] float32 and both limits are undefined; one must have values"));
  CHECK(contains(error_of([&] { clamp(f, d, Tensor()); }),
                 "clamp: a is [2, 3] float32 but b is [2, 3] float64; their dtypes must be the same"));
}

TEST_CASE("elementwise: an op saves only tensors that the requested gradients need") {
  const Tensor big = Tensor::ones({100}), other = Tensor::ones({100});
  Parameter w(Tensor::ones({100}));
  Tape tape;
  const Tensor y = w * big;
  CHECK(tape.saved_bytes() == 400);
  const Tensor z = w + big;
  CHECK(tape.saved_bytes() == 400);
  const Tensor u = big * other;
  CHECK(tape.steps() == 2);
}

TEST_CASE("elementwise: gradients of large broadcast and transposed inputs, in float32") {
  const Tensor a = spread({300, 200}, -2, 2).to(DType::float32), b = spread({300, 200}, 1, 2, 3).to(DType::float32);
  const Tensor row = spread({200}, 1, 2, 5).to(DType::float32);
  const auto f = [&](const Tensor& x) { return x.t() * b.t() / row.view({200, 1}); };
  CHECK(test::close(gradient(f, a), b / row, 1e-6, 1e-6));
  const auto g = [&](const Tensor& x) { return a * x; };
  Tensor sums = Tensor::zeros({200}, DType::float64);
  for (Index i = 0; i < 300; ++i) sums = sums + a[i].to(DType::float64);
  CHECK(test::close(gradient(g, row), sums.to(DType::float32), 1e-5, 1e-4));
}
