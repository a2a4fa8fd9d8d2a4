// Tutorial 7: pure attention loses rank with depth. Dong, Cordonnier, Loukas, "Attention is not all you need: pure
// attention loses rank doubly exponentially with depth", 2021.
//
// A row of softmax weights computes an average, and averages of averages become equal. After a few layers of attention
// alone, all tokens have the same vector: the matrix X [tokens, width] has rank 1, and no later layer can distinguish
// the tokens. This tutorial stacks layers with random weights and measures how far X is from rank 1: with residual
// sums, with feed-forward parts, with both, and with neither.
#include <cmath>
#include <cstdio>
#include <heed/heed.hpp>
#include <heed/plot/plot.hpp>

#include "examples/support/program.hpp"

using namespace heed;

namespace {

constexpr Index kTokens = 64, kWidth = 64, kHeads = 4, kSize = kWidth / kHeads, kLayers = 24;
// Factor of a layer's output in a residual sum, as in GPT-2. (With factor 1, the part that all tokens share would grow
// by a constant factor per layer. The distance below would fall too, exponentially but not doubly exponentially.)
const double kPart = 1 / std::sqrt(2.0 * kLayers);

// Normal weights with deviation 1/sqrt(rows): on average, a product with them preserves the length of vectors. All
// values are float64: 16 digits show the fall over a few more layers.
Tensor weights(Rng& rng, Index rows, Index columns) {
  return rng.normal({rows, columns}, 0, 1 / std::sqrt(static_cast<double>(rows)), DType::float64);
}

// x [T, W] -> [T, W]: heads softmax(q k^T / sqrt(D)) v, each with its own weights, concatenated, then an output
// projection.
Tensor self_attention(const Tensor& x, Rng& rng) {
  const auto heads = [&](const Tensor& y) { return y.view({1, kTokens, kHeads, kSize}).transpose(1, 2); };
  const Tensor q = matmul(x, weights(rng, kWidth, kWidth)), k = matmul(x, weights(rng, kWidth, kWidth)),
               v = matmul(x, weights(rng, kWidth, kWidth));
  const Tensor y = attention(heads(q), heads(k), heads(v));  // [1, H, T, D]
  return matmul(y.transpose(1, 2).reshape({kTokens, kWidth}), weights(rng, kWidth, kWidth));
}

// gelu(x up) down, per token. It mixes no tokens, so equal tokens stay equal.
Tensor feed_forward(const Tensor& x, Rng& rng) {
  return matmul(gelu(matmul(x, weights(rng, kWidth, 4 * kWidth))), weights(rng, 4 * kWidth, kWidth));
}

// The norm of the paper, sqrt(|X|_1 |X|_inf): the largest sum of magnitudes in a column, and in a row.
double composite_norm(const Tensor& x) {
  const Tensor magnitudes = abs(x);
  return std::sqrt(max(sum(magnitudes, {0})).item() * max(sum(magnitudes, {1})).item());
}

// Distance from rank 1: |X - 1 m^T| / |X|, where m is the mean token. Among matrices of equal rows, 1 m^T is nearest to
// X by the sum of squares. 0 if all tokens are equal.
double relative_residual(const Tensor& x) { return composite_norm(x - mean(x, {0}, true)) / composite_norm(x); }

// The stable rank: the sum of the squared singular values, divided by the largest of them. It is at most the rank and,
// unlike the rank, needs no threshold. The largest is computed by power iteration on X^T X, starting from X^T X times
// the first row.
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
  std::vector<double> residuals = {}, ranks = {};  // before the first layer, after the first, ...
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
    // Both measures ignore a common factor. Values of constant size keep the softmax as it was at the start. (A norm
    // per token, as in Transformers, would do the same. The paper shows that it does not prevent the loss of rank
    // either.)
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

  // The exponent itself grows per layer. If tokens differ by r, their weights differ by about r^2, because queries and
  // keys both differ by r. The values that are averaged differ by r, so the new tokens differ by about r^3. The
  // distance falls "doubly exponentially", until float64 has no more digits.
  // A feed-forward part cannot restore differences that are lost. A residual sum adds each token to its average, so
  // tokens stay different: residual sums, not attention, allow deep Transformers.
  if (!plot.empty()) {
    std::vector<Series> lines;
    for (const Stack& stack : stacks) {
      const bool hides = stack.residual && stack.feed_forward;  // would cover the line of residual sums: dashed
      lines.push_back({stack.name, {}, hides ? Series::dashed : Series::line});
      for (std::size_t layer = 0; layer <= kLayers; ++layer)
        lines.back().points.emplace_back(static_cast<double>(layer), std::max(stack.residuals[layer], 1e-17));
    }
    heed::plot(plot, {"Distance of the tokens from being equal", "layer", "distance from rank 1"}, lines,
               {.log_y = true, .names_outside = true});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_tutorial("Tutorial 7: pure attention loses rank with depth; residual sums keep it", argc, argv,
                                {"--plot", "Plot the distance from rank 1 by layer to this .svg or .png"}, lesson);
}
