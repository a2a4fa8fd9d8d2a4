// Linear attention (Katharopoulos et al., "Transformers are RNNs: fast autoregressive Transformers with linear
// attention", 2020): a feature map in place of the softmax, so that time and memory grow with the length, not its
// square. Derivation in core/kernels/linear_attention.hpp.
//
// Example:
//
//   Rng rng(1);
//   const Tensor q = rng.normal({1, 2, 1000, 8}), k = rng.normal({1, 2, 1000, 8}), v = rng.normal({1, 2, 1000, 8});
//   const Tensor y = linear_attention(q, k, v, {.causal = true}, {.feature_map = FeatureMap::relu});
#pragma once
#include <functional>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/record.hpp>

namespace heed {

// What is applied to queries and keys, element by element. elu is elu(x) + 1, computed as exp(min(x, 0)) + max(x, 0);
// identity is for features that are computed before. exp is never computed by itself, so that no x is too large: it is
// also for features that are known by their logarithms (core/kernels/log_attention.hpp). poly2 is all products of two
// elements, whose product is (q . k)^2: D (D + 1) / 2 features, each pair once, in float64 for float32 too, as they
// cancel where q and k are nearly orthogonal. Short sequences, by a rule on the shapes, square the scores themselves.
enum class FeatureMap { identity, elu, relu, softplus, exp, poly2 };

// Features of one's own: ops from [B, H, N, D] to [B, H, N, R], each row by itself, of the same dtype.
using FeatureFunction = std::function<Tensor(In x)>;

// Of what the weights are made.
struct LinearFeatures {
  FeatureMap feature_map = FeatureMap::elu;
  // Where both are given, in place of the map: two maps to one number of features R, f of the queries and g of the
  // keys, with weights f(q) . g(k). Keys that key_lengths or key_mask leave out are zeros for g.
  FeatureFunction query_map = {}, key_map = {};
  // Features of identity and of one's own maps must be 0 or more, else an Error: weights of both signs may add up to 0,
  // by which the result is divided. true: they may be negative, as no weight f(q) . g(k) is (1 + a cosine). Not read
  // for other maps.
  bool signed_features = false;
  double eps = 1e-6;  // added to the denominator; not for exp, where the largest weight counts as about 1

  // Whether the kernels read bfloat16 q, k and v: of elu, relu and softplus. All others are given float32 copies.
  bool reads_bfloat16() const;
};

// sum_j f(q_i).f(k_j) v_j / (sum_j f(q_i).f(k_j) + eps): q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] ->
// [B, H, T, Dv], whose heads lie side by side in memory. float32 or float64, or bfloat16: features, sums and gradients
// are then float32, as is a bias, and the result is rounded. Hk divides H. Views whose last stride is 1 are read in
// place. Of the call, causal, key_lengths, key_mask and a bias for each key, [..., 1, S]: its exp is a
// factor of the key's features. The same bits at any number of threads. Errors: shapes and dtypes that do not fit; a
// mask, a bias of pairs or dropout, as no pair has a weight; one map of one's own without the other, or that changes
// more than the last axis; negative features.
Tensor linear_attention(In q, In k, In v, const AttentionCall& call = {}, const LinearFeatures& features = {});

// What linear attention keeps of the keys and values seen so far: its size does not grow with their number.
struct LinearAttentionSums {
  Tensor sums = {};    // [B, H, R, Dv] for R features, D unless said: sum over keys of f(k) v^T. Of poly2 float64, of
                       // bfloat16 float32
  Tensor norms = {};   // [B, H, R]: sum over keys of f(k)
  Tensor maxima = {};  // [B, H, D]: of exp only: the largest k so far, whose exp is a divisor of both sums
};

// Goes on from `state` (undefined tensors: nothing seen so far) with T new positions, causally, and leaves their sums
// there: q, k [B, H or Hk, T, D], v [B, Hk, T, Dv] -> [B, H, T, Dv]. Of the call as above, for the new keys; it is
// causal anyway. No gradient.
Tensor linear_attention_step(In q, In k, In v, LinearAttentionSums& state, const AttentionCall& call = {},
                             const LinearFeatures& features = {});

// Efficient attention (Shen et al., "Efficient attention: attention with linear complexities", 2018):
// softmax_d(q) (softmax_n(k)^T v), the softmax of queries over their features, of keys over the positions. Causal is
// its relative: row i is what it gives for the keys j <= i. No feature map and no eps; a bias of a key is added to k.
Tensor efficient_attention(In q, In k, In v, const AttentionCall& call = {});
Tensor efficient_attention_step(In q, In k, In v, LinearAttentionSums& state, const AttentionCall& call = {});

}  // namespace heed
