// Tutorial 5: attention by hand. Each word of a sentence has a query, a key and a value. The query describes the words
// to look for, the key describes the word itself, the value is the content to pass on. Where a query matches a key, the
// word of the query receives the value. Here all three are chosen by hand, to show why «it» finds «animal». A model
// learns them.
#include <cmath>
#include <cstdio>
#include <heed/heed.hpp>
#include <heed/plot/plot.hpp>

#include "examples/support/program.hpp"

using namespace heed;

namespace {

const std::vector<std::string> kWords = {"the", "animal", "slept", "because", "it", "was", "tired"};
constexpr Index T = 7, D = 4;  // number of words; size of a vector

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
  double max_difference = 0;
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  for (std::size_t i = 0; i < x.size(); ++i) max_difference = std::max(max_difference, std::abs(x[i] - y[i]));
  return max_difference;
}

int lesson(const std::string& plot) {
  // The kind of each word, [T, D]:    thing  deed  refers  joins
  const Tensor x = Tensor::from({0, 0, 0, 1,   // the
                                 1, 0, 0, 0,   // animal
                                 0, 1, 0, 0,   // slept
                                 0, 0, 0, 1,   // because
                                 0, 0, 1, 0,   // it
                                 0, 1, 0, 0,   // was
                                 0, 1, 0, 0},  // tired
                                {T, D});
  // The kinds that each kind looks for, [D, D]. Row: the kind of the query. Column: the kind to find.
  const Tensor query = Tensor::from({3, 0, 0, 0,   // a thing: things
                                     6, 0, 4, 0,   // a deed: its doer, or a word that refers to the doer
                                     8, 0, 0, 0,   // a word that refers: things
                                     2, 2, 2, 2},  // a word that joins: anything
                                    {D, D});
  const Tensor q = matmul(x, query), k = x, v = x;  // [T, D] each; a model has one matrix for each of the three

  // softmax(q k^T / sqrt(D)) v. Without the division the scores would grow with D, and softmax would saturate.
  const Tensor scores = matmul(q, k.t()) / std::sqrt(static_cast<double>(D));  // [T, T]: how well word j fits word i
  const Tensor weights = softmax(scores, -1);                                  // each row sums to 1
  const Tensor y = matmul(weights, v);                                         // [T, D]: one mean per word
  print("weights: one row per query word, one column per key word", weights);

  // A language model must not see later words, because it predicts them. Where j > i, the score is set to minus
  // infinity, so the weight is 0.
  const Tensor row = Tensor::arange(T).unsqueeze(1), column = Tensor::arange(T).unsqueeze(0);  // [T, 1], [1, T]
  const Tensor causal_weights = softmax(masked_fill(scores, column > row, -INFINITY), -1);
  const Tensor causal_y = matmul(causal_weights, v);
  print("causal weights: no word attends to later words", causal_weights);

  // attention() computes the same in blocks, without storing the [T, T] matrix. It takes [batch, heads, T, D].
  const auto heads = [](const Tensor& m) { return m.view({1, 1, T, D}); };
  const Tensor fused = attention(heads(q), heads(k), heads(v)),
               fused_causal = attention(heads(q), heads(k), heads(v), {.causal = true});
  // Layers use attention() as a mechanism, which can also return its weights.
  const Tensor shown = AttentionMechanism(SoftmaxAttention{}).weights(heads(q), heads(k), {.causal = true});
  std::printf("attention() differs from the lines above by at most 1e-6: %s\n",
              largest_difference(fused, y) <= 1e-6 ? "yes" : "no");
  std::printf("the same with a causal mask: %s; the weights of SoftmaxAttention: %s\n",
              largest_difference(fused_causal, causal_y) <= 1e-6 ? "yes" : "no",
              largest_difference(shown, causal_weights) <= 1e-6 ? "yes" : "no");
  std::printf("«it» is {thing 0, refers 1} before attention and {thing %.3f, refers %.3f} after it\n",
              causal_y.at({4, 0}), causal_y.at({4, 2}));

  if (!plot.empty()) {
    std::vector<std::vector<double>> cells;
    for (Index i = 0; i < T; ++i) cells.push_back(causal_weights[i].to_vector<double>());
    plot_matrix(plot, "Which word attends to which", cells, kWords, kWords);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_tutorial("Tutorial 5: softmax attention from matmul and softmax, and with attention()", argc,
                                argv, {"--plot", "Plot the causal weights to this .svg or .png"}, lesson);
}
