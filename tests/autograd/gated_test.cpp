// gated() against its composition, and what it keeps for backward.
#include <heed/heed.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::same_bits;

namespace {

Tensor activated(const Tensor& x, Activation a) {
  switch (a) {
    case Activation::relu: return relu(x);
    case Activation::gelu: return gelu(x);
    case Activation::gelu_tanh: return gelu(x, Gelu::tanh);
    case Activation::relu_squared: return relu_squared(x);
    case Activation::silu: break;
  }
  return silu(x);
}

Tensor composed(const Tensor& h, Activation a) {
  const Index n = h.dim(-1) / 2;
  return activated(h.slice(-1, 0, n), a) * h.slice(-1, n, 2 * n);
}

}  // namespace

TEST_CASE("gated: the bits of activation and product, forward and backward") {
  for (const Activation a :
       {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu, Activation::relu_squared}) {
    for (const DType type : {DType::float32, DType::float64}) {
      for (const Index n : {1, 7, 16, 33}) {
        INFO(static_cast<int>(a), " ", name_of(type), " ", n);
        const Tensor x = test::normal({3, 2, 2 * n}, 4, type), dy = test::normal({3, 2, n}, 5, type);
        const auto run = [&](const auto& f) {
          Tape tape;
          const Tensor h = tape.watch(x), y = f(h, a);
          tape.backward(y, dy);
          return std::pair(y.detach(), tape.grad(h));
        };
        const auto [y, dx] = run(gated);
        const auto [expected, dexpected] = run(composed);
        CHECK(same_bits(y, expected));
        CHECK(same_bits(dx + 0.0, dexpected + 0.0));  // 0 and -0 are the same
      }
    }
  }
}

TEST_CASE("gated: bfloat16 is computed in float32 and rounded once") {
  const Tensor h = test::normal({5, 34}, 4, DType::float32).to(DType::bfloat16);
  const Tensor y = gated(h, Activation::silu), wide = h.to(DType::float32);
  CHECK(y.dtype() == DType::bfloat16);
  CHECK(same_bits(y, composed(wide, Activation::silu).to(DType::bfloat16)));
  const auto gradient = [](const Tensor& x, const Tensor& dy) {
    Tape tape;
    const Tensor h2 = tape.watch(x), y2 = gated(h2, Activation::silu);
    tape.backward(y2, dy);
    return tape.grad(h2);
  };
  const Tensor dy = test::normal({5, 17}, 5, DType::float32);
  CHECK(same_bits(gradient(h, dy), gradient(wide, dy)));
}

TEST_CASE("gated: keeps its input alone") {
  Tape tape;
  const Tensor h = tape.watch(test::normal({5, 8}, 1, DType::float32)), y = gated(h, Activation::silu);
  CHECK(tape.saved_bytes() == 5 * 8 * 4);
}

TEST_CASE("gated: refused inputs") {
  CHECK(contains(error_of([] {
                   gated(Tensor::zeros({2, 3}), Activation::silu);
                 }),
                 "gated: h is [2, 3] float32; it must be floating, with a last axis of even size"));
  CHECK(contains(error_of([] {
                   gated(Tensor::zeros({2, 4}, DType::int32), Activation::silu);
                 }),
                 "gated: h is [2, 4] int32"));
}
