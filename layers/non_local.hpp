// Blocks in which every position of an image attends to all others: residual layers on images [N, C, H, W].
//
// Convolutions relate neighbouring positions. A block below relates all of them, whatever their distance. x_i is the
// vector of position i, and theta, phi, g and W are linear maps of it, convolutions of size 1:
//
//   NonLocalBlock     z_i = x_i + W sum_j f(x_i, x_j) g(x_j) / c                                  (Wang et al. 2018)
//   the same          with keys and values that are averages over bins of the image: `pyramid`    (Zhu et al. 2019)
//   DoubleAttention   z_i = x_i + W G softmax(rho(x_i)), where G has a vector per attention map   (Chen et al. 2018)
//   EMAttention       z_i = x_i + W relu(sum_k z_ik mu_k), with bases mu found by iterations      (Li et al. 2019)
//
// W and its bias are 0 at the start, so a new block is the identity and may be put into a trained model (Wang et al.,
// section 3.3).
//
// Example:
//
//   Rng rng(1);
//   const NonLocalBlock block(16, rng, {.subsample = true});
//   const DoubleAttention pairs(16, rng, {.features = 8, .maps = 4});
//   const Tensor y = pairs(block(rng.normal({2, 16, 8, 8})));  // [2, 16, 8, 8]
//   const Tensor map = block.weights(y);                       // [2, 64, 64]
#pragma once
#include <heed/layers/convolution.hpp>
#include <optional>
#include <vector>

namespace heed {

// ---- Non-local block ----

// The function f of two positions (Wang, Girshick, Gupta, He, "Non-local neural networks", 2018, equations 2 to 5).
// c is the sum of f over the keys for the first two, and the number of keys for the others.
enum class NonLocalKind {
  gaussian,       // e^(x_i . x_j): no theta and no phi
  embedded,       // e^(theta(x_i) . phi(x_j))
  dot,            // theta(x_i) . phi(x_j)
  concatenation,  // relu(w . [theta(x_i); phi(x_j)])
};

// Options of NonLocalBlock.
struct NonLocalOptions {
  NonLocalKind kind = NonLocalKind::embedded;  // see NonLocalKind
  Index inner = 0;                             // channels of theta, phi and g; 0: half of the channels, at least 1
  // phi and g (gaussian: x and g) are maxima over windows of 2 x 2 positions (section 3.3). The image must have at
  // least 2 x 2 positions; windows at its end may be smaller.
  bool subsample = false;
  // For each number n, phi and g are averages over n x n bins of the image, as torch's adaptive_avg_pool2d:
  // {1, 3, 6, 8} gives 110 keys for an image of any size. Zhu, Xu, Bai, Huang, Bai, "Asymmetric non-local neural
  // networks for semantic segmentation", 2019. Their code concatenates x and the result, and this block
  // adds them.
  std::vector<Index> pyramid = {};
};

// The non-local block.
struct NonLocalBlock {
  NonLocalOptions options;           // the argument of the constructor
  std::optional<Conv2d> theta, phi;  // [inner, C, 1, 1]
  Conv2d g;                          // [inner, C, 1, 1]
  Conv2d out;                        // W, [C, inner, 1, 1]; 0 at the start
  Parameter score;                   // concatenation: w, [2, inner], of theta and of phi

  // Initial values are those of Conv2d; of the score, uniform in +-1/sqrt(2 inner). Throws Error for sizes out of
  // range, and for both `subsample` and `pyramid`.
  NonLocalBlock(Exactly<Index> channels, Rng& rng, const NonLocalOptions& block_options = {});

  Tensor operator()(In x) const;  // [N, C, H, W], the same shape
  // How each position attends to the positions, f / c: [N, H W, H W], without a gradient. The weight of an average or a
  // maximum is divided evenly among its positions.
  Tensor weights(In x) const;

  void members(auto&& visit) {  // theta, phi, g, out, score
    visit("theta", theta);
    visit("phi", phi);
    visit("g", g);
    visit("out", out);
    visit("score", score);
  }
};

// ---- Double attention ----

// Options of DoubleAttention.
struct DoubleAttentionOptions {
  Index features = 0;  // numbers per gathered vector; 0: a quarter of the channels, at least 1
  Index maps = 0;      // attention maps, and so gathered vectors; 0: as features
};

// Double attention (Chen, Kalantidis, Li, Yan, Feng, "A2-Nets: double attention networks", 2018). The first
// attention gathers a vector per map from all positions; the second distributes these vectors to each position:
//
//   G = A softmax_j(B)^T      A = phi(x) [features, H W], B = theta(x) [maps, H W]
//   z_i = x_i + W G softmax_m(V_i)      V = rho(x) [maps, H W]
//
// The product is efficient_attention(V, B, A): linear in the number of positions.
struct DoubleAttention {
  Conv2d features, maps, vectors;  // phi [features, C, 1, 1]; theta and rho [maps, C, 1, 1]
  Conv2d out;                      // W, [C, features, 1, 1]; 0 at the start

  // Throws Error for sizes out of range.
  DoubleAttention(Exactly<Index> channels, Rng& rng, const DoubleAttentionOptions& options = {});

  Tensor operator()(In x) const;  // [N, C, H, W], the same shape
  Tensor weights(In x) const;     // [N, H W, H W], the product of both attentions, without a gradient

  void members(auto&& visit) {  // features, maps, vectors, out
    visit("features", features);
    visit("maps", maps);
    visit("vectors", vectors);
    visit("out", out);
  }
};

// ---- Expectation-maximisation attention ----

// Options of EMAttention.
struct EMAttentionOptions {
  Index bases = 64;       // K
  Index iterations = 3;   // of both steps
  double momentum = 0.1;  // part of a batch in the moving average of the bases
};

// Expectation-maximisation attention (Li, Zhong, Wu, Yang, Lin, Liu, "Expectation-maximization attention networks for
// semantic segmentation", 2019). The vectors r_i of an image, a linear map of x_i, are fitted by K
// bases mu_k, and replaced by their mixtures of the bases:
//
//   repeat:  z_ik = softmax_k(r_i . mu_k)                              the E step
//            mu_k = sum_i z_ik r_i / sum_i z_ik,  then mu_k / |mu_k|   the M step
//   z_i = x_i + W relu(sum_k z_ik mu_k)
//
// The first bases are a buffer. In training they move to those that the iterations found, averaged over the batch, as
// the running statistics of BatchNorm do. Gradients pass through the iterations; the authors' code treats the bases and
// z as constants, so that their first convolution is not trained. Linear in the number of positions.
struct EMAttention {
  Conv2d in, out;    // [C, C, 1, 1]; out is W, 0 at the start
  Tensor bases;      // [K, C], rows of length 1 at the start
  Index iterations;  // of EMAttentionOptions
  double momentum;   // of EMAttentionOptions

  // Throws Error for sizes below 1 and for a momentum outside of [0, 1].
  EMAttention(Exactly<Index> channels, Rng& rng, const EMAttentionOptions& options = {});

  Tensor operator()(In x) const;  // [N, C, H, W], the same shape
  // [N, H W, H W]: the part of each position in the mixture of a position, sum_k z_ik z_jk / sum_i z_ik, without a
  // gradient and without the bases' norms.
  Tensor weights(In x) const;

  void members(auto&& visit) {  // in, out; buffer bases
    visit("in", in);
    visit("out", out);
    visit.buffer("bases", bases);
  }
};

}  // namespace heed
