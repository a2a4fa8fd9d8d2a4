// Storage of gradients: separate memory, handing out, and writing part by part.
#include <heed/heed.hpp>

#include "tests/autograd/small_ops.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("gradients: each value that is watched has memory of its own") {
  Tape tape;
  const Tensor a = tape.watch(Tensor::ones({2})), b = tape.watch(Tensor::ones({2})), c = Tensor::from({1, 2});
  const Tensor y = tape.watch(a + b), z = tape.watch(Tensor::ones({2}));
  Tensor constant = Tensor::zeros({2});
  record("constant", Where::current(), constant, {z}, saved(c),
         [](Grads& d, const Tensor&, const Tensor& kept) { d.add(0, kept); });
  tape.backward(y + constant, Tensor::from({3, 4}));
  Tensor da = tape.grad(a), dz = tape.grad(z);
  da.fill_(7), dz.fill_(7);
  CHECK(values_of(tape.grad(b)) == std::vector<double>{3, 4});
  CHECK(values_of(tape.grad(y)) == std::vector<double>{3, 4});
  CHECK(values_of(c) == std::vector<double>{1, 2});
}

TEST_CASE("gradients: zero_grad leaves the old gradient to its other holders, else its memory is reused") {
  Parameter w(Tensor::ones({2}));
  const auto step = [&](double by) {
    Tape tape;
    tape.backward(sum(w * by));
  };
  step(2);
  {
    const Tensor first = w.grad();
    w.zero_grad();
    step(3);
    CHECK(values_of(first) == std::vector<double>{2, 2});
    CHECK(values_of(w.grad()) == std::vector<double>{3, 3});
    Tape tape;
    const Tensor loss = sum(w * 5), second = w.grad();  // taken after the tape has recorded w
    w.zero_grad();
    tape.backward(loss);
    CHECK(values_of(second) == std::vector<double>{3, 3});
    CHECK(values_of(w.grad()) == std::vector<double>{5, 5});
    const Tensor live = w.grad();
    step(1);  // without zero_grad(), the gradient is added
    CHECK(values_of(live) == std::vector<double>{6, 6});
  }
  const void* at = w.grad().raw();
  w.zero_grad();
  step(4);
  CHECK(w.grad().raw() == at);
}

TEST_CASE("parts that make up a value are written without zeroing it first, and a part left out counts as zero") {
  for (int left_out = -1; left_out < 3; ++left_out) {
    for (int i = 0; i < 4; ++i) Tensor::full({2, 3, 4}, 77, DType::float64);  // fills the pool's free memory
    Tape tape;
    const Tensor x = tape.watch(Tensor::ones({2, 3, 4}, DType::float64));
    const Tensor a = x.select(1, 0), b = x.select(1, 1), c = x.select(1, 2);
    Tensor y = Tensor::full({2, 4}, 3, DType::float64);
    record("sum", Where::current(), y, {a, b, c}, saved(), [left_out](Grads& d, const Tensor& dy) {
      std::vector<Tensor> held;  // targets must stay valid while other targets are requested
      for (int i = 0; i < 3; ++i) {
        if (i == left_out) continue;
        if (i == 1) {
          d.add(i, dy);
          continue;
        }
        const Target t = d.strided(i);
        CHECK(!t.accumulate);
        Tensor into = t.gradient;
        detail::copy_values(into, dy);
        held.push_back(into);
      }
    });
    tape.backward(y, Tensor::ones({2, 4}, DType::float64));
    const Tensor g = tape.grad(x);
    for (Index i = 0; i < 3; ++i)
      CHECK(same_bits(g.select(1, i), Tensor::full({2, 4}, i == left_out ? 0 : 1, DType::float64)));
  }
}
