// Normalisation: layers. LayerNorm and RMSNorm over the last axis, GroupNorm and BatchNorm of channels.
//
// Example:
//
//   Rng rng(1);
//   const LayerNorm norm(16);
//   const Tensor y = norm(rng.normal({2, 10, 16}));
#pragma once
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/norms.hpp>
#include <variant>

namespace heed {

// Layer normalisation (Ba, Kiros, Hinton, "Layer normalization", 2016).
struct LayerNorm {
  Parameter weight;  // [width]
  Parameter bias;    // [width], or undefined
  double eps;        // added to the variance

  // Initially the identity after normalisation: weight 1, bias 0.
  explicit LayerNorm(Exactly<Index> width, double epsilon = 1e-5, bool with_bias = true);

  Tensor operator()(In x) const { return layer_norm(x, weight, bias, eps); }  // [..., width] -> [..., width]

  void members(auto&& visit) {  // weight, bias
    visit("weight", weight);
    visit("bias", bias);
  }
};

// Normalisation by the root mean square (Zhang, Sennrich, "Root mean square layer normalization", 2019).
struct RMSNorm {
  Parameter weight;          // [width]
  double eps;                // added to the mean square
  bool unit_offset = false;  // multiplies by 1 + weight, as in Gemma, so that weight decay pulls the factor to 1

  // The initial factor is 1.
  explicit RMSNorm(Exactly<Index> width, double epsilon = 1e-6, bool with_unit_offset = false);

  Tensor operator()(In x) const {  // [..., width] -> [..., width]
    return unit_offset ? rms_norm(x, weight + 1, eps) : rms_norm(x, weight, eps);
  }

  void members(auto&& visit) { visit("weight", weight); }  // weight
};

// Normalisation: LayerNorm or RMSNorm.
enum class NormKind { layer, rms };

// Options of Norm.
struct NormLayerOptions {
  NormKind kind = NormKind::layer;  // which layer
  double eps = 0;                   // 0: 1e-5 for a LayerNorm, 1e-6 for an RMSNorm
  bool bias = true;                 // of a LayerNorm
  bool unit_offset = false;         // of an RMSNorm
};

// A LayerNorm or an RMSNorm, for models with a choice. Its parameters have the names of the chosen layer.
struct Norm {
  std::variant<LayerNorm, RMSNorm> layer;  // the chosen one

  // Throws Error for a negative eps.
  Norm(const NormLayerOptions& options, Exactly<Index> width);

  Tensor operator()(In x) const {  // [..., width] -> [..., width]
    return std::visit([&](const auto& chosen) { return chosen(x); }, layer);
  }
  // How backward computes operator()(x) again.
  Recomputed recomputed(const Tensor& x) const;

  void members(auto&& visit) {  // those of the chosen layer
    std::visit([&](auto& chosen) { chosen.members(visit); }, layer);
  }
};

// Options of GroupNorm, in the order of PyTorch's arguments.
struct GroupNormOptions {
  double eps = 1e-5;   // added to the variance
  bool affine = true;  // false: no weight and no bias
};

// Normalisation of groups of channels, as torch.nn.GroupNorm (Wu, He, "Group normalization", 2018).
struct GroupNorm {
  Index groups;            // of channels
  Parameter weight, bias;  // [channels], or undefined; initially 1 and 0
  double eps;              // added to the variance

  // Throws Error unless num_groups divides num_channels.
  GroupNorm(Exactly<Index> num_groups, Exactly<Index> num_channels, const GroupNormOptions& options = {});

  Tensor operator()(In x) const { return group_norm(x, groups, weight, bias, eps); }  // [N, C, ...], the same shape

  void members(auto&& visit) {  // weight, bias
    visit("weight", weight);
    visit("bias", bias);
  }
};

// Options of BatchNorm, in the order of PyTorch's arguments.
struct BatchNormOptions {
  double eps = 1e-5;                // added to the variance
  double momentum = 0.1;            // part of a batch in the running statistics
  bool affine = true;               // false: no weight and no bias
  bool track_running_stats = true;  // false: evaluations, too, use the statistics of their batch
};

// Normalisation of channels over the batch, as torch.nn.BatchNorm1d and BatchNorm2d (Ioffe, Szegedy, "Batch
// normalization", 2015). In training (is_training()), the statistics are those of x, in a run() those of a batch of one
// shard, and
//   running = (1 - momentum) * running + momentum * statistics of x
// follows, with the unbiased variance. Outside of training, the running statistics are used. A step of run() updates
// them when it ends, in the order of its shards, so they have the same bits in any number of ranks. recompute() updates
// them once.
struct BatchNorm {
  Parameter weight, bias;            // [channels], or undefined; initially 1 and 0
  Tensor running_mean, running_var;  // [channels], or undefined; initially 0 and 1
  double eps, momentum;              // of BatchNormOptions

  // Throws Error for fewer than 1 channel, a negative eps, and a momentum outside of [0, 1].
  explicit BatchNorm(Exactly<Index> num_features, const BatchNormOptions& options = {});

  // [N, C, ...], the same shape. In training, throws Error if a channel has one value.
  Tensor operator()(In x) const;

  void members(auto&& visit) {  // weight, bias; buffers running_mean, running_var
    visit("weight", weight);
    visit("bias", bias);
    visit.buffer("running_mean", running_mean);
    visit.buffer("running_var", running_var);
  }
};

}  // namespace heed
