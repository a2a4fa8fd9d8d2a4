// Attention whose weights are any function of the scores (Wang, Girshick, Gupta, He, "Non-local neural networks",
// 2018). With s_ij = scale * q_i . k_j + bias_ij, j over the keys that query i may attend to, and g the gradient of o:
//
//   w_ij = f(s_ij) / c_i     o_i = sum_j w_ij v_j     c_i = sum_j f(s_ij) + eps, or the number of these keys
//   ds_ij = f'(s_ij) (g_i . v_j - g_i . o_i) / c_i    without - g_i . o_i where c_i is a number of keys
//
// and where f is known by its logarithm l, so that no f overflows:
//
//   w_ij = e^(l(s_ij) - m_i) / sum_j e^(l(s_ij) - m_i)     m_i = max_j l(s_ij)
//   ds_ij = l'(s_ij) w_ij (g_i . v_j - g_i . o_i)
//
// Scores are computed for a block of queries at a time, again in backward, and never held: O(n) memory, O(n^2) time.
//
// Example:
//
//   Rng rng(1);
//   const Tensor q = rng.normal({1, 2, 5, 8}), k = rng.normal({1, 2, 7, 8}), v = rng.normal({1, 2, 7, 8});
//   const Similarity cube{.name = "cube", .f = [](const Tensor& s) { return pow(relu(s), 3); }};
//   const Tensor y = generic_attention(q, k, v, cube);
//   const Tensor z = generic_attention(q, k, v, similarity_by_name("softplus"), {.causal = true});
#pragma once
#include <functional>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/record.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

enum class SimilarityNorm { sum, count };

// f, for a block of scores of any shape, by ops that act element by element. It must use nothing else that wants a
// gradient, such as a parameter: that is an Error, as its gradient would be lost. detach() says that a constant is
// meant.
//
//   const Similarity cube{.name = "cube", .f = [](const Tensor& s) { return pow(relu(s), 3); }};
struct Similarity {
  using Function = std::function<Tensor(const Tensor& s)>;

  std::string name = {};
  Function f = {};                          // or log f, where `log` is true
  Function derivative = {};                 // of `f`, of the same shape; undefined: a tape takes it
  bool log = false;                         // f is e^f, normalised by its sum
  SimilarityNorm by = SimilarityNorm::sum;  // by sum, f must be 0 or more
  double eps = 1e-6;                        // added to the sum of f, not where `log` is true
};

// Those of the paper that are functions of q . k, and others that are never negative:
//
//   embedded-gaussian   e^s, by its sum: softmax       dot-product   s, by the number of keys
//   relu                max(s, 0), by its sum          square        s^2, by its sum
//   softplus            log(1 + e^s), by its sum       sigmoid       1 / (1 + e^-s), by its sum
//
// Error for another name.
Similarity similarity_by_name(std::string_view name);
const std::vector<std::string>& similarity_names();

enum class Pooling { average, max };

struct GenericAttentionOptions {
  double scale = 1;  // of q . k
  // > 1: attends to the average or greatest of each so many neighbouring keys, and of their values (section 3.3 of the
  // paper: subsampling), of those alone that key_lengths and key_mask leave. Neither causal, nor with mask or bias.
  Index pool = 1;
  Pooling pooling = Pooling::average;
};

// q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv], whose heads lie side by side in memory. float32
// or float64. Hk divides H: query heads h * (H / Hk) ... share key-value head h. A row whose f are all 0 is zeros, too,
// and passes no gradient on. The same bits at any number of threads. Error for a negative f that is normalised by its
// sum.
Tensor generic_attention(In q, In k, In v, const Similarity& similarity, const AttentionCall& call = {},
                         const GenericAttentionOptions& options = {});

}  // namespace heed
