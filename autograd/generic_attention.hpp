// Attention whose weights are any function f of the scores (Wang, Girshick, Gupta, He, "Non-local neural networks",
// 2018). With s_ij = scale * q_i . k_j + bias_ij, j over the keys that query i may attend to, and g the gradient of o:
//
//   w_ij = f(s_ij) / c_i     o_i = sum_j w_ij v_j     c_i = sum_j f(s_ij) + eps, or the number of these keys
//   ds_ij = f'(s_ij) (g_i . v_j - g_i . o_i) / c_i    without - g_i . o_i if c_i is the number of keys
//
// If f is given by its logarithm l, no f overflows:
//
//   w_ij = e^(l(s_ij) - m_i) / sum_j e^(l(s_ij) - m_i)     m_i = max_j l(s_ij)
//   ds_ij = l'(s_ij) w_ij (g_i . v_j - g_i . o_i)
//
// Scores are computed for a block of queries at a time, again in backward, and never stored: O(n) memory, O(n^2) time.
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
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// The divisor of the weights: the sum of f over the keys, or the number of keys.
enum class SimilarityNorm { sum, count };

// A similarity function f. It gets a block of scores of any shape and applies elementwise ops. f must not use anything
// else that needs a gradient, such as a parameter: generic_attention() throws Error, because that gradient would be
// lost. Use detach() if a constant is meant.
//
//   const Similarity cube{.name = "cube", .f = [](const Tensor& s) { return pow(relu(s), 3); }};
struct Similarity {
  using Function = std::function<Tensor(const Tensor& s)>;  // scores in, values of the same shape out

  std::string name = {};                    // for messages
  Function f = {};                          // or log f, if `log` is true
  Function derivative = {};                 // of `f`, of the same shape; undefined: computed by a tape
  bool log = false;                         // `f` is the logarithm; normalised by the sum
  SimilarityNorm by = SimilarityNorm::sum;  // for sum, f must be 0 or more
  double eps = 1e-6;                        // added to the sum of f, unless `log` is true
};

// Returns a similarity by name: those of the paper that are functions of q . k, and others that are never negative.
//
//   embedded-gaussian   e^s, by its sum: softmax       dot-product   s, by the number of keys
//   relu                max(s, 0), by its sum          square        s^2, by its sum
//   softplus            log(1 + e^s), by its sum       sigmoid       1 / (1 + e^-s), by its sum
//   polynomial          (1 + s)^2, by its sum
//
// Throws Error for a name that is not in similarity_names().
Similarity similarity_by_name(std::string_view name);
const std::vector<std::string>& similarity_names();

// The polynomial kernel (s + offset)^degree, by its sum. Throws Error for a degree that is not even, for which values
// may be negative, or below 2; and for an offset that is not finite.
Similarity polynomial_similarity(Exactly<Index> degree, double offset = 1);

// How neighbouring keys and values are pooled.
enum class Pooling { average, max };

// Options of generic_attention().
struct GenericAttentionOptions {
  double scale = 1;  // factor of q . k
  // If above 1, queries attend to the average or maximum of each `pool` neighbouring keys, and of their values
  // (subsampling, section 3.3 of the paper). Keys that key_lengths and key_mask exclude are left out. Throws Error with
  // causal, mask or bias.
  Index pool = 1;
  Pooling pooling = Pooling::average;
};

// q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv]. The heads of a position are adjacent in memory.
// float32 or float64. Hk divides H: query heads h * (H / Hk) ... share key-value head h. A row whose f are all 0 gets
// zeros and passes no gradient on. The same bits at any number of threads. Throws Error for other shapes, types and
// options, and for a negative f that is normalised by its sum.
Tensor generic_attention(In q, In k, In v, const Similarity& similarity, const AttentionCall& call = {},
                         const GenericAttentionOptions& options = {});

// ---- Vectors of relative positions ----

// Softmax attention in which keys and values depend on their distance from the query (Shaw, Uszkoreit, Vaswani,
// "Self-attention with relative position representations", 2018, equations 3 to 5). With a clip c, query i at position
// P_i, and a vector a_d for keys and b_d for values at each distance d = min(max(j - P_i, -c), c):
//
//   s_ij = scale * q_i . (k_j + a_d) + bias_ij     w_i = softmax_j(s_i)     o_i = sum_j w_ij (v_j + b_d)
//   ds_ij = w_ij (g_i . (v_j + b_d) - g_i . o_i)    dq_i = scale * sum_j ds_ij (k_j + a_d)
//   da_d = scale * sum over the pairs at distance d of ds_ij q_i              db_d = sum over these pairs of w_ij g_i
//
// Vectors are shared by the heads. They cost products with the 2 c + 1 vectors of a table, not with one vector per
// pair. Scores are computed for a block of queries at a time and never stored.
struct RelativeVectors {
  Tensor keys = {}, values = {};  // [2 c + 1, D] and [2 c + 1, Dv], by distance from -c to c; undefined: none
  // int32 [B]: the position of the first query of each row. Undefined: queries are aligned with the end of the keys.
  Tensor positions = {};

  auto tensors() { return std::tie(keys, values, positions); }  // for saved()
};

// q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv], as for attention(). float32 or float64. The scale
// is 1 / sqrt(D) by default. Throws Error for other shapes and types, and unless both tables have one number of rows,
// which is odd.
Tensor relative_attention(In q, In k, In v, const RelativeVectors& vectors, const AttentionCall& call = {},
                          std::optional<double> scale = {});

}  // namespace heed
