// Linear attention (Katharopoulos et al., "Transformers are RNNs: fast autoregressive Transformers with linear
// attention", 2020): a feature map replaces the softmax, so that time and memory grow linearly with the length.
// Derivation in core/kernels/linear_attention/linear_attention.hpp.
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
#include <heed/core/kernel_interface.hpp>

namespace heed {

// Custom features: ops from [B, H, N, D] to [B, H, N, R] of the same dtype, each row independent of the others.
using FeatureFunction = std::function<Tensor(In x)>;

// Options of linear_attention(): the features that weights are made of.
struct LinearFeatures {
  FeatureMap feature_map = FeatureMap::elu;  // for queries and for keys
  // Alpha of elu, above 0 and at most 1: features are alpha (e^x - 1) + 1 below 0 (Clevert, Unterthiner, Hochreiter,
  // "Fast and accurate deep network learning by exponential linear units", 2016). A smaller alpha keeps features away
  // from 0. Not read for other maps.
  double alpha = 1;
  // If both are given, they replace feature_map: f maps queries and g maps keys, to the same number of features R, and
  // weights are f(q) . g(k). g gets zeros for keys that key_lengths or key_mask exclude.
  FeatureFunction query_map = {}, key_map = {};
  // Features of identity and of custom maps must be 0 or more, otherwise Error: weights of both signs may add up to 0,
  // and the result is divided by their sum. true: features may be negative, because no weight f(q) . g(k) is (1 + a
  // cosine). Not read for other maps.
  bool signed_features = false;
  double eps = 1e-6;  // added to the denominator; not for exp, where the largest weight is about 1

  // Whether the kernels read bfloat16 q, k and v: for elu, relu and softplus. For the others they get float32 copies.
  bool reads_bfloat16() const;
};

// sum_j f(q_i).f(k_j) v_j / (sum_j f(q_i).f(k_j) + eps).
// q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] -> [B, H, T, Dv]. The heads of a position are adjacent in memory.
// float32, float64, or bfloat16: features, sums, bias and gradients are then float32, and the result is rounded. Hk
// divides H. Views whose last stride is 1 are read in place. The call may have causal, key_lengths, key_mask and a bias
// per key, [..., 1, S]; exp of the bias is a factor of the key's features. The same bits at any number of threads.
// Throws Error for other shapes and dtypes, for negative features, and for a mask, a bias of pairs or dropout, because
// the weights of pairs are never computed. Also throws Error for one custom map without the other, and for a map that
// changes more than the last axis.
Tensor linear_attention(In q, In k, In v, const AttentionCall& call = {}, const LinearFeatures& features = {});

// The decode state of linear attention: sums over the keys and values so far. Its size does not grow with their number.
struct LinearAttentionSums {
  // [B, H, R, Dv] for R features, R = D without custom maps and poly2: sum over keys of f(k) v^T. float64 for poly2,
  // float32 for bfloat16.
  Tensor sums = {};
  Tensor norms = {};   // [B, H, R]: sum over keys of f(k)
  Tensor maxima = {};  // [B, H, D], for exp and efficient_attention(): maximum of k so far, whose exp divides both sums
};

// Continues from `state` (undefined tensors: no position so far) with T new positions, causally, and updates the state:
// q, k [B, H or Hk, T, D], v [B, Hk, T, Dv] -> [B, H, T, Dv]. The call is as above, for the new keys, and always
// causal. No gradient. Throws Error as linear_attention(), and for a state of other shapes or of another feature map.
Tensor linear_attention_step(In q, In k, In v, LinearAttentionSums& state, const AttentionCall& call = {},
                             const LinearFeatures& features = {});

// Efficient attention (Shen et al., "Efficient attention: attention with linear complexities", 2018):
// softmax_d(q) (softmax_n(k)^T v), with the softmax of queries over their features and of keys over positions. With
// causal, row i is this formula for the keys j <= i. No feature map and no eps. A bias per key is added to k. Errors as
// for linear_attention(). The step continues from a state as linear_attention_step() does.
Tensor efficient_attention(In q, In k, In v, const AttentionCall& call = {});
Tensor efficient_attention_step(In q, In k, In v, LinearAttentionSums& state, const AttentionCall& call = {});

}  // namespace heed
