// The position-wise network against plain loops, and dropout as a layer.
#include <cmath>
#include <heed/core/memory.hpp>
#include <heed/core/mode.hpp>
#include <heed/layers/feed_forward.hpp>
#include <heed/layers/norm.hpp>

#include "tests/layers/layer_cases.hpp"
#include "tests/support.hpp"

using namespace heed;

namespace {

double activated(FeedForwardKind kind, double x) {
  switch (kind) {
    case FeedForwardKind::relu: return x > 0 ? x : 0;
    case FeedForwardKind::relu_squared: return x > 0 ? x * x : 0;
    case FeedForwardKind::gelu: return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case FeedForwardKind::gelu_tanh: return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    default: return x / (1 + std::exp(-x));
  }
}

// The output of a Linear: row i of W times x, plus b_i.
double applied(const Linear& linear, Index i, const std::vector<double>& x) {
  double sum = linear.bias.defined() ? linear.bias.at({i}) : 0;
  for (std::size_t j = 0; j < x.size(); ++j) sum += linear.weight.at({i, static_cast<Index>(j)}) * x[j];
  return sum;
}

}  // namespace

TEST_CASE("the feed-forward network equals its formula, for each activation, with biases and without") {
  Rng rng(1);
  for (const FeedForwardKind kind : {FeedForwardKind::relu, FeedForwardKind::gelu, FeedForwardKind::gelu_tanh,
                                     FeedForwardKind::silu, FeedForwardKind::swiglu, FeedForwardKind::relu_squared}) {
    for (const bool bias : {true, false}) {
      const FeedForward network(3, rng, {.hidden = 7, .activation = kind, .bias = bias});
      const Tensor x = test::normal({4, 3}, 5, DType::float32);
      Tensor expected = Tensor::empty({4, 3}, DType::float64);
      for (Index row = 0; row < 4; ++row) {
        const std::vector<double> values = x[row].to_vector<double>();
        std::vector<double> hidden;
        for (Index i = 0; i < 7; ++i) {
          const double up = applied(network.up, i, values);  // with swiglu, the first rows are those of the gate
          hidden.push_back(kind == FeedForwardKind::swiglu ? activated(kind, up) * applied(network.up, 7 + i, values)
                                                           : activated(kind, up));
        }
        for (Index i = 0; i < 3; ++i) expected.ptr<double>()[row * 3 + i] = applied(network.down, i, hidden);
      }
      INFO(static_cast<int>(kind), " ", bias);
      CHECK(test::close(network(x).to(DType::float64), expected));
    }
  }
}

TEST_CASE("the hidden size of a feed-forward network is four widths, and swiglu has the same number of parameters") {
  Rng rng(1);
  CHECK(FeedForward(6, rng).hidden() == 24);
  CHECK(FeedForward(6, rng, {.activation = FeedForwardKind::swiglu}).hidden() == 16);
  CHECK(FeedForward(6, rng, {.hidden = 5}).hidden() == 5);
}

TEST_CASE("a block with a gated network keeps its input and its hidden layer alone, in training") {
  Rng rng(1);
  const Index rows = 1024, width = 32, hidden = 400;
  const FeedForward network(width, rng, {.hidden = hidden, .activation = FeedForwardKind::swiglu, .bias = false});
  const Norm norm({.kind = NormKind::rms}, width);
  const Tensor x = test::normal({rows, width}, 1, DType::float32);
  Tape tape;
  const Tensor watched = tape.watch(x);
  const std::size_t before = memory_use().current;
  const Tensor y = network(norm(watched), norm.recomputed(watched));
  const auto kept = static_cast<double>(memory_use().current - before) / sizeof(float) / rows;
  CHECK(kept >= 2 * hidden + width);                // the hidden layer and y
  CHECK(kept < 2 * hidden + width + hidden * 0.5);  // no half of it, besides the memory of products
}

TEST_CASE("dropout acts on the hidden values while training alone") {
  Rng rng(1);
  const FeedForward network(4, rng, {.dropout = 0.5}), same = [] {
    Rng again(1);
    return FeedForward(4, again, {.dropout = 0});
  }();
  const Tensor x = test::normal({8, 4}, 1, DType::float32);
  CHECK(test::same_bits(network(x), same(x)));
  const Tape tape;
  CHECK(!test::same_bits(network(x), same(x)));
  const Tensor half = Dropout{0.5}(Tensor::ones({10000}));
  double kept = 0;
  for (const double v : half.to_vector<double>()) {
    const bool is_kept_or_not = v == 0 || v == 2;
    CHECK(is_kept_or_not);
    kept += v / 2;
  }
  CHECK(std::abs(kept - 5000) < 250);  // five deviations
}
