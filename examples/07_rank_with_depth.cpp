// Tutorial 7: pure attention loses rank with depth. Dong, Cordonnier, Loukas, "Attention is not all you need: pure
// attention loses rank doubly exponentially with depth", 2021.
//
// A row of softmax weights is an average, and averages of averages become alike. Layers of attention alone soon give
// all tokens the same vector: the matrix X [tokens, width] comes to rank 1, and nothing that a later layer does can
// tell the tokens apart again. This page stacks layers with random weights and measures how far X is from rank 1, with
// residual sums, with feed-forward parts, with both, and with neither.
#include <cmath>
#include <cstdio>
#include <heed/heed.hpp>
#include <heed/plot/plot.hpp>

#include "examples/support/program.hpp"

using namespace heed;

namespace {

constexpr Index kTokens = 64, kWidth = 64, kHeads = 4, kSize = kWidth / kHeads, kLayers = 24;
// What a layer adds to a residual sum counts so much, as in GPT-2. (At full weight, the part that all tokens have in
// common would grow by a factor in each layer: the distance below then falls too, exponentially but not doubly so.)
const double kPart = 1 / std::sqrt(2.0 * kLayers);

// Normal weights with deviation 1/sqrt(rows): a product with them keeps the length of vectors, on the average. All is
// in float64, whose 16 digits allow to see the fall for a few layers more.
Tensor weights(Rng& rng, Index rows, Index columns) {
  return rng.normal({rows, columns}, 0, 1 / std::sqrt(static_cast<double>(rows)), DType::float64);
}

// x [T, W] -> [T, W]: heads softmax(q k^T / sqrt(D)) v with weights of their own, side by side, and a last product.
Tensor self_attention(const Tensor& x, Rng& rng) {
  const auto heads = [&](const Tensor& y) { return y.view({1, kTokens, kHeads, kSize}).transpose(1, 2); };
  const Tensor q = matmul(x, weights(rng, kWidth, kWidth)), k = matmul(x, weights(rng, kWidth, kWidth)),
               v = matmul(x, weights(rng, kWidth, kWidth));
  const Tensor y = attention(heads(q), heads(k), heads(v));  // [1, H, T, D]
  return matmul(y.transpose(1, 2).reshape({kTokens, kWidth}), weights(rng, kWidth, kWidth));
}

// gelu(x up) down, token by token: it mixes no tokens, and what is alike before it is alike behind it.
Tensor feed_forward(const Tensor& x, Rng& rng) {
  return matmul(gelu(matmul(x, weights(rng, kWidth, 4 * kWidth))), weights(rng, 4 * kWidth, kWidth));
}

// The paper's norm of a matrix, sqrt(|X|_1 |X|_inf): the largest sums of magnitudes in a column and in a row.
double composite_norm(const Tensor& x) {
  const Tensor magnitudes = abs(x);
  return std::sqrt(max(sum(magnitudes, {0})).item() * max(sum(magnitudes, {1})).item());
}

// How far from rank 1: |X - 1 m^T| / |X|, m the mean token, which is the nearest matrix of equal rows by the sum of
// squares. 0: all tokens are the same.
double relative_residual(const Tensor& x) { return composite_norm(x - mean(x, {0}, true)) / composite_norm(x); }

// The stable rank, sum of the squared singular values over the largest of them: at most the rank, and unlike it no
// matter of a threshold. The largest comes from power iteration on X^T X, begun at X^T X times the first row.
double stable_rank(const Tensor& x) {
  const Tensor gram = matmul(x.t(), x);  // [W, W]
  Tensor v = matmul(gram, x[0].unsqueeze(1));
  double largest = 0;
  for (int i = 0; i < 200; ++i) {
    v = v / std::sqrt(sum(square(v)).item());
    const Tensor next = matmul(gram, v);
    largest = sum(v * next).item();
    v = next;
  }
  return sum(square(x)).item() / largest;
}

struct Stack {
  const char* name;
  bool residual, feed_forward;
  std::vector<double> residuals = {}, ranks = {};  // before the first layer, behind it, ...
};

void measure(Stack& stack) {
  Rng rng(1);
  Tensor x = rng.normal({kTokens, kWidth}, 0, 1, DType::float64);
  for (Index layer = 0; layer <= kLayers; ++layer) {
    stack.residuals.push_back(relative_residual(x));
    stack.ranks.push_back(stable_rank(x));
    Rng own(2, static_cast<std::uint64_t>(layer));  // the same attention in all four stacks
    const Tensor a = self_attention(x, own);
    x = stack.residual ? x + kPart * a : a;
    if (stack.feed_forward) {
      const Tensor f = feed_forward(x, own);
      x = stack.residual ? x + kPart * f : f;
    }
    // Relative measures do not feel a common factor; numbers of the same size keep the softmax as it was at the start.
    // (A norm of each token, as Transformers have it, would do the same; the paper shows that it does not help either.)
    x = x / std::sqrt(mean(square(x)).item());
  }
}

void print_table(const char* title, const std::vector<Stack>& stacks, const char* format,
                 std::vector<double> Stack::*values) {
  std::printf("%s\n%6s", title, "layer");
  for (const Stack& stack : stacks) std::printf("%16s", stack.name);
  std::printf("\n");
  for (std::size_t layer = 0; layer <= kLayers; ++layer) {
    if (layer > 8 && layer % 4 != 0) continue;
    std::printf("%6zu", layer);
    for (const Stack& stack : stacks) std::printf(format, (stack.*values)[layer]);
    std::printf("\n");
  }
  std::printf("\n");
}

int lesson(const std::string& plot) {
  std::vector<Stack> stacks = {
      {"attention", false, false}, {"+ ffn", false, true}, {"+ residual", true, false}, {"+ both", true, true}};
  for (Stack& stack : stacks) measure(stack);
  print_table("distance from rank 1, |X - 1 m^T| / |X|", stacks, "%16.1e", &Stack::residuals);
  print_table("stable rank", stacks, "%16.2f", &Stack::ranks);

  // The exponent itself grows from layer to layer. At distance r, the weights of two tokens differ by about r^2 (a
  // query that is r off meets keys that are r apart), and what they average differs by r: r^3 is left. That is "doubly
  // exponentially", until float64 has no more digits.
  // A feed-forward part cannot bring back what is gone. A residual sum adds each token to its average, so that it
  // stays itself: this, not the attention, is what lets Transformers be deep.
  if (!plot.empty()) {
    std::vector<Series> lines;
    for (const Stack& stack : stacks) {
      const bool hides = stack.residual && stack.feed_forward;  // the line of residual sums alone, but for dashes
      lines.push_back({stack.name, {}, hides ? Series::dashed : Series::line});
      for (std::size_t layer = 0; layer <= kLayers; ++layer)
        lines.back().points.emplace_back(static_cast<double>(layer), std::max(stack.residuals[layer], 1e-17));
    }
    heed::plot(plot, {"How far the tokens are from being all alike", "layer", "distance from rank 1"}, lines,
                         {.log_y = true, .names_outside = true});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_tutorial("Tutorial 7: pure attention loses rank with depth; residual sums keep it", argc, argv,
                                {"--plot", "Draws the distance from rank 1 by layer into this .svg or .png"}, lesson);
}
