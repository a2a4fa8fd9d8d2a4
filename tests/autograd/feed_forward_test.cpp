// The fused feed-forward network against its composition of separate ops, on every level.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>

#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::on_each_level;

namespace {

constexpr Activation kActivations[] = {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu,
                                       Activation::relu_squared};

Tensor activate(Activation a, const Tensor& u) {
  switch (a) {
    case Activation::relu: return relu(u);
    case Activation::gelu: return gelu(u);
    case Activation::gelu_tanh: return gelu(u, Gelu::tanh);
    case Activation::relu_squared: return relu_squared(u);
    case Activation::silu: break;
  }
  return silu(u);
}

struct Network {
  Parameter up, up_bias, down, down_bias;
  Network(Index width, Index hidden, Index out, DType type, Rng& rng)
      : up(rng.normal({hidden, width}, 0, 0.3, type)),
        up_bias(rng.normal({hidden}, 0, 1, type)),
        down(rng.normal({out, hidden}, 0, 0.3, type)),
        down_bias(rng.normal({out}, 0, 1, type)) {}
  Tensor fused(In x, Activation a) const { return feed_forward(x, up, up_bias, down, down_bias, a); }
  Tensor composed(In x, Activation a) const { return linear(activate(a, linear(x, up, up_bias)), down, down_bias); }
};

// The output for x, and the gradients of x and of the parameters for the loss sum(y * weights).
std::vector<Tensor> results(Network& net, const Tensor& x, const Tensor& weights, auto&& f) {
  Parameter input(x.clone());
  Tape tape;
  const Tensor y = f(In(input));
  tape.backward(sum(y * weights));
  const NoTape no_tape;
  std::vector<Tensor> all = {y.clone()};
  for (Parameter* p : {&input, &net.up, &net.up_bias, &net.down, &net.down_bias}) {
    all.push_back(p->grad().clone());
    p->zero_grad();
  }
  return all;
}

void compare(Index rows, Index width, Index hidden, Index out, DType type, DType precision, double tolerance) {
  Rng rng(3);
  Network net(width, hidden, out, type, rng);
  const Tensor x = rng.normal({rows, width}, 0, 1, type), weights = rng.normal({rows, out}, 0, 1, type);
  const MatmulPrecision scope(precision);
  for (const Activation a : kActivations) {
    const auto fused = results(net, x, weights, [&](In v) { return net.fused(v, a); });
    const auto composed = results(net, x, weights, [&](In v) { return net.composed(v, a); });
    for (std::size_t i = 0; i < fused.size(); ++i) {
      CAPTURE(i);
      const double size = max(abs(composed[i])).item();
      CHECK(test::close(fused[i], composed[i], 0, tolerance * size));
    }
  }
}

}  // namespace

TEST_CASE("feed_forward: values and gradients equal those of linear, activation and linear") {
  on_each_level([] {
    for (const Index hidden : {1, 15, 16, 17, 300}) compare(5, 7, hidden, 6, DType::float64, DType::float32, 1e-13);
    for (const Index rows : {1, 3, 40, 290}) compare(rows, 33, 530, 31, DType::float32, DType::float32, 1e-5);
  });
}

// Shapes determine the division of products into tasks. These backward products have blocks of 24 rows, of 16 rows
// (shared evenly), and whole blocks.
TEST_CASE("feed_forward: gradients are correct for tasks with any number of rows") {
  on_each_level([] {
    int number = 0;
    for (const Index rows : {33, 48, 64, 90, 97}) {
      if (!test::is_taken(number++, 2)) continue;
      compare(rows, 16, 512, 256, DType::float32, DType::float32, 2e-5);
      compare(rows, 16, 256, 512, DType::float64, DType::float32, 1e-12);
      compare(rows, 16, 512, 256, DType::float32, DType::bfloat16, 0.02);
    }
  });
}

// The composed network rounds u and act(u) when they are read, the fused network when they are stored. Each rounding
// has a relative error of at most 2^-9, and sums average the errors.
TEST_CASE("feed_forward: in bfloat16 it differs from the composed network only by the rounding of u and act(u)") {
  on_each_level([] {
    for (const Index rows : {5, 100}) compare(rows, 40, 150, 24, DType::float32, DType::bfloat16, 0.02);
    compare(64, 128, 515, 128, DType::float32, DType::bfloat16, 0.02);
  });
}

TEST_CASE("feed_forward: the same bits at any number of threads, recorded or not") {
  const int before = threads();
  on_each_level([] {
    for (const DType precision : {DType::float32, DType::bfloat16}) {
      Rng rng(1);
      Network net(128, 512, 128, DType::float32, rng);
      const Tensor x = rng.normal({300, 128}), weights = rng.normal({300, 128});
      const MatmulPrecision scope(precision);
      const auto run = [&] { return results(net, x, weights, [&](In v) { return net.fused(v, Activation::gelu); }); };
      set_threads(1);
      const auto expected = run();
      CHECK(test::same_bits(net.fused(x, Activation::gelu), expected[0]));
      for (const int n : {2, 3, 8}) {
        set_threads(n);
        const auto got = run();
        for (std::size_t i = 0; i < expected.size(); ++i) CHECK(test::same_bits(got[i], expected[i]));
      }
    }
  });
  set_threads(before);
}

TEST_CASE("feed_forward: backward keeps one hidden activation tensor, with bfloat16 products of half the size") {
  Rng rng(1);
  Network net(64, 8192, 64, DType::float32, rng);
  const Tensor x = rng.normal({512, 64});
  const auto kept = [&](DType precision) {
    const MatmulPrecision scope(precision);
    Tape tape;
    const std::size_t before = memory_use().current;
    const Tensor y = net.fused(x, Activation::gelu);
    return static_cast<double>(memory_use().current - before) / (512 * 8192 * 4);
  };
  kept(DType::float32);  // allocates memory for the gradients of the parameters
  CHECK(kept(DType::float32) < 1.15);
  CHECK(kept(DType::bfloat16) < 0.65);
}

TEST_CASE("feed_forward: any single input may need a gradient, and biases may be missing") {
  Rng rng(2);
  const Tensor x = rng.normal({6, 4}), up = rng.normal({8, 4}), down = rng.normal({3, 8});
  for (int number = 0; number < 3; ++number) {
    Parameter p(number == 0 ? x.clone() : number == 1 ? up.clone() : down.clone());
    const auto gradient = [&](bool fused) {
      Tape tape;
      const In a = number == 0 ? In(p) : In(x), w1 = number == 1 ? In(p) : In(up), w2 = number == 2 ? In(p) : In(down);
      tape.backward(sum(fused ? feed_forward(a, w1, Tensor(), w2, Tensor(), Activation::relu)
                              : linear(relu(linear(a, w1, Tensor())), w2, Tensor())));
      const NoTape no_tape;
      const Tensor g = p.grad().clone();
      p.zero_grad();
      return g;
    };
    CHECK(test::close(gradient(true), gradient(false), 1e-5, 1e-5));
  }
}

TEST_CASE("feed_forward: errors") {
  const Tensor x = Tensor::zeros({2, 4}), up = Tensor::zeros({8, 4}), down = Tensor::zeros({3, 8}), none;
  const auto error = [&](const Tensor& a, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2) {
    return test::error_of([&] { feed_forward(a, w1, b1, w2, b2, Activation::gelu); });
  };
  CHECK(test::contains(error(x, Tensor::zeros({8, 5}), none, down, none),
                       "feed_forward: x is [2, 4] float32 but up is [8, 5] float32"));
  CHECK(test::contains(error(x, up, none, Tensor::zeros({3, 7}), none), "but down is [3, 7] float32"));
  CHECK(test::contains(error(x, up, none, down.to(DType::float64), none), "both must be float64"));
  CHECK(test::contains(error(x, up, Tensor::zeros({7}), down, none), "and its bias is [7] float32"));
  CHECK(test::contains(error(x, up, none, down, Tensor::zeros({3}, DType::float64)), "and its bias is [3] float64"));
}
