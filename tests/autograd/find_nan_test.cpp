// The NaN finder: it names the op in whose result or derivative a NaN or an infinity comes up, and lets pass an
// infinity that was given. More of it in tape_test, record_test and recompute_test.
#include <heed/heed.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::kInf;
using test::kNaN;

namespace {

// What the finder says of f, and of the derivative of its result, for the parameter w = {0, 1, 2, 3} as [2, 2].
std::string found(const std::function<Tensor(const Tensor&)>& f, double dy = 1) {
  Parameter w(Tensor::from<double>({0, 1, 2, 3}, {2, 2}));
  return error_of([&] {
    Tape tape({.find_nan = true});
    const Tensor y = f(w);
    tape.backward(y, Tensor::full(y.shape(), dy, y.dtype()));
  });
}

Tensor upper() { return Tensor::from<bool>({0, 1, 0, 0}, {2, 2}); }

}  // namespace

TEST_CASE("find_nan: an infinity that was given is no fault: the masks of attention") {
  const Tensor bias = Tensor::from<double>({0, -kInf, 0, 0}, {2, 2});
  CHECK(found([](const Tensor& w) { return softmax(masked_fill(w, upper(), -kInf), -1); }) == "");
  CHECK(found([](const Tensor& w) { return softmax(where(upper(), -kInf, w), -1); }) == "");
  CHECK(found([](const Tensor& w) { return softmax(where(logical_not(upper()), w, -kInf), -1); }) == "");
  CHECK(found([&](const Tensor& w) { return softmax(where(upper(), bias, w), -1); }) == "");
  CHECK(found([&](const Tensor& w) { return softmax((w + bias).t().contiguous().t(), -1); }) == "");
  CHECK(found([](const Tensor& w) {
          const auto masked = [](const std::vector<Tensor>& x) { return masked_fill(x[0] * 2, upper(), -kInf); };
          return softmax(recompute(masked, {w}), -1);
        }) == "");
}

TEST_CASE("find_nan: an infinity that comes up is one, beside finite inputs or a finite number") {
  CHECK(contains(found([](const Tensor& w) { return log(w); }),
                 "log: the result of shape [2, 2] holds -inf at element 0; it is the first that is not finite"));
  CHECK(contains(found([](const Tensor& w) { return exp(masked_fill(w, upper(), 1e4)); }),
                 "exp: the result of shape [2, 2] holds inf at element 1"));
  CHECK(contains(
      found([](const Tensor& w) { return recompute([](const std::vector<Tensor>& x) { return log(x[0]); }, {w}); }),
      "log: the result of shape [2, 2] holds -inf at element 0"));
  CHECK(contains(found([](const Tensor& w) { return sqrt(w); }), "sqrt: a gradient of shape [2, 2] holds inf"));
}

TEST_CASE("find_nan: a NaN is a fault, also beside an infinity that was given, and where it was given itself") {
  CHECK(contains(found([](const Tensor& w) {
                   const Tensor y = masked_fill(w, upper(), kInf);
                   return y - y;
                 }),
                 "sub: the result of shape [2, 2] holds nan at element 1"));
  CHECK(contains(found([](const Tensor& w) {
                   return w * Tensor::from<double>({kInf, kInf});
                 }),
                 "mul: the result of shape [2, 2] holds nan at element 0"));
  CHECK(contains(found([](const Tensor& w) {
                   return w + Tensor::from<double>({kInf, kNaN});
                 }),
                 "add: the result of shape [2, 2] holds nan at element 1; it is the first"));
}

TEST_CASE("find_nan: gradients, where dy or what is saved holds an infinity") {
  CHECK(found([](const Tensor& w) { return w * 2; }, kInf) == "");
  CHECK(contains(found([](const Tensor& w) { return w * 2; }, kNaN), "mul: a gradient of shape [2, 2] holds nan"));
  CHECK(contains(found([](const Tensor& w) { return w * w; }, kInf),  // 0 * inf
                 "mul: a gradient of shape [2, 2] holds nan at element 0"));
  const Tensor factor = Tensor::from<double>({1, -kInf});
  CHECK(found([&](const Tensor& w) { return w.slice(0, 1, 2) * factor; }) == "");
}
