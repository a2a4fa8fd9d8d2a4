// Tutorial 5: attention, by hand. Each word of a sentence asks a question (its query), every word offers an answer (its
// key), and where they match the word takes over what the other has to say (its value). Here the three are chosen by
// hand, so that one can see why «it» finds «animal»; a model learns them.
#include <cmath>
#include <cstdio>
#include <heed/heed.hpp>
#include <heed/plot/plot.hpp>

#include "examples/support/program.hpp"

using namespace heed;

namespace {

const std::vector<std::string> kWords = {"the", "animal", "slept", "because", "it", "was", "tired"};
constexpr Index T = 7, D = 4;  // words; the width of a vector

void print(const char* title, const Tensor& weights) {
  std::printf("%s\n%10s", title, "");
  for (const std::string& word : kWords) std::printf("%9s", word.c_str());
  for (Index i = 0; i < T; ++i) {
    std::printf("\n%10s", kWords[static_cast<std::size_t>(i)].c_str());
    for (Index j = 0; j < T; ++j) std::printf("%9.3f", weights.at({i, j}));
  }
  std::printf("\n\n");
}

double largest_difference(const Tensor& a, const Tensor& b) {
  double most = 0;
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  for (std::size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}

int lesson(const std::string& plot) {
  // What a word is, [T, D]:           thing  deed  refers  joins
  const Tensor x = Tensor::from({0, 0, 0, 1,   // the
                                 1, 0, 0, 0,   // animal
                                 0, 1, 0, 0,   // slept
                                 0, 0, 0, 1,   // because
                                 0, 0, 1, 0,   // it
                                 0, 1, 0, 0,   // was
                                 0, 1, 0, 0},  // tired
                                {T, D});
  // What each kind looks for, [D, D]: a row is the kind that asks, a column what it would like to find.
  const Tensor ask = Tensor::from({3, 0, 0, 0,   // a thing: things
                                   6, 0, 4, 0,   // a deed: who does it, or a word that refers to who does it
                                   8, 0, 0, 0,   // a word that refers: things
                                   2, 2, 2, 2},  // a word that joins: anything
                                  {D, D});
  const Tensor q = matmul(x, ask), k = x, v = x;  // [T, D] each; a model has a matrix for each of the three

  // softmax(q k^T / sqrt(D)) v. The scores are divided so that they do not grow with D, where softmax would saturate.
  const Tensor scores = matmul(q, k.t()) / std::sqrt(static_cast<double>(D));  // [T, T]: what word i thinks of word j
  const Tensor weights = softmax(scores, -1);                                  // rows that add up to 1
  const Tensor y = matmul(weights, v);                                         // [T, D]: the mixture for each word
  print("weights: a row is the word that looks, a column the word looked at", weights);

  // A language model may not look ahead, as it would see what it is to predict. Where j > i the score becomes minus
  // infinity, and the weight zero.
  const Tensor row = Tensor::arange(T).unsqueeze(1), column = Tensor::arange(T).unsqueeze(0);  // [T, 1], [1, T]
  const Tensor causal_weights = softmax(masked_fill(scores, column > row, -INFINITY), -1);
  const Tensor causal_y = matmul(causal_weights, v);
  print("causal weights: no word sees the ones after it", causal_weights);

  // attention() is the same in blocks that never hold the [T, T] matrix. It takes [batch, heads, T, D].
  const auto heads = [](const Tensor& m) { return m.view({1, 1, T, D}); };
  const Tensor fused = attention(heads(q), heads(k), heads(v)),
               fused_causal = attention(heads(q), heads(k), heads(v), {.causal = true});
  // A layer takes it as a mechanism, which also shows its weights.
  const Tensor shown = AttentionMechanism(SoftmaxAttention{}).weights(heads(q), heads(k), {.causal = true});
  std::printf("attention() differs from the lines above by at most 1e-6: %s\n",
              largest_difference(fused, y) <= 1e-6 ? "yes" : "no");
  std::printf("and causally: %s; the weights of SoftmaxAttention: %s\n",
              largest_difference(fused_causal, causal_y) <= 1e-6 ? "yes" : "no",
              largest_difference(shown, causal_weights) <= 1e-6 ? "yes" : "no");
  std::printf("«it» was {thing 0, refers 1}; what it heard is {thing %.3f, refers %.3f}\n", causal_y.at({4, 0}),
              causal_y.at({4, 2}));

  if (!plot.empty()) {
    std::vector<std::vector<double>> cells;
    for (Index i = 0; i < T; ++i) cells.push_back(causal_weights[i].to_vector<double>());
    plot_matrix(plot, "Which word looks at which", cells, kWords, kWords);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_tutorial("Tutorial 5: softmax attention from matmul and softmax, and by attention()", argc, argv,
                                {"--plot", "Draws the causal weights into this .svg or .png"}, lesson);
}
