// recompute: the same gradients for less memory, whatever it is given.
#include <heed/heed.hpp>

#include "tests/support.hpp"

using namespace heed;

namespace {

Parameter parameter(std::initializer_list<double> values) { return Parameter(Tensor::from<double>(values)); }

}  // namespace

TEST_CASE("recompute gives the same gradients and keeps only its inputs") {
  const auto deep = [](const Tensor& x, const Parameter& w) {
    Tensor y = x;
    for (int i = 0; i < 5; ++i) y = y * w * y;
    return y;
  };
  Parameter w(Rng(1).uniform({1000}, 0.5, 1.5, DType::float64));
  const Tensor x = Rng(2).uniform({1000}, 0.5, 1.2, DType::float64);
  std::vector<Tensor> grads;
  std::vector<std::size_t> bytes;
  for (const bool again : {false, true}) {
    w.zero_grad();
    Tape tape;
    const Tensor in = tape.watch(x);
    const Tensor y = again ? recompute([&](const auto& v) { return deep(v[0], w); }, {in}) : deep(in, w);
    bytes.push_back(tape.saved_bytes());
    tape.backward(sum(y));
    grads.push_back(w.grad().clone());
    grads.push_back(tape.grad(in).clone());
  }
  CHECK(test::same_bits(grads[0], grads[2]));
  CHECK(test::same_bits(grads[1], grads[3]));
  CHECK(bytes[1] < bytes[0] / 4);
  CHECK(bytes[1] >= 8000);
}

TEST_CASE("recompute with parameters only, with views and unused inputs") {
  Parameter w = parameter({2, 3});
  Tape tape;
  const Tensor constant = Tensor::from<double>({1, 2});
  tape.backward(sum(recompute([&](const auto& x) { return (w * x[0]).slice(0, 1, 2); }, {constant})));
  CHECK(w.grad().to_vector<double>() == std::vector<double>{0, 2});
}

TEST_CASE("recompute given a parameter, and a view of one") {
  Parameter w = parameter({2, 3}), frozen = parameter({5, 7});
  frozen.requires_grad_(false);
  Tape tape;
  const auto f = [](const auto& x) { return x[0] * x[1] * x[2]; };
  tape.backward(sum(recompute(f, {w, w.slice(0, 0, 1).expand({2}), frozen})));
  CHECK(w.grad().to_vector<double>() == std::vector<double>{2 * 2 * 5 + 3 * 7, 2 * 7});
}
