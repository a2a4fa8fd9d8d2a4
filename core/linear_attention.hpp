// Linear attention on plain tensors: splits the work of kernels/linear_attention among threads.
// autograd/linear_attention.hpp has the op.
#pragma once
#include <heed/core/tensor.hpp>

namespace heed::detail {

enum class LinearMap { identity, elu, relu, softplus };

// features: q and k go through the map. logs, efficient: q and k are what kernels/log_attention.hpp says.
enum class LinearKind { features, logs, efficient };

// Already checked: q [B, H, T, D], k [B, Hk, S, D], v [B, Hk, S, Dv] of one dtype, float32 or float64, with a last axis
// of stride 1; Hk divides H.
struct LinearCall {
  Tensor q, k, v;
  Tensor lengths;   // int32 [B], contiguous, or undefined
  Tensor key_mask;  // bool8 [B, S], contiguous, or undefined
  Tensor weight;    // [B, H, S], contiguous: factors of f(k), or what is added to logarithms; or undefined
  LinearKind kind = LinearKind::features;
  LinearMap map = LinearMap::elu;
  double eps = 1e-6;
  bool causal = false;
};

// Sums over keys: S [B, H, D, Dv], z [B, H, D] and, of logarithms, their maxima [B, H, D]. Undefined: none before, not
// asked for after.
struct LinearSums {
  Tensor before, norms_before, maxima_before, after, norms_after, maxima_after;
};

// What backward wants of forward.
struct LinearKept {
  Tensor norm;    // [B, H, T]: the denominators
  Tensor states;  // sums over keys before each step of the work, as the kernels lay them out
};
LinearKept linear_attention_keeps(const LinearCall& x);  // uninitialised

// out [B, H, T, Dv] may have any strides whose last is 1. Undefined tensors of `kept` are not filled.
void linear_attention_forward(const LinearCall& x, const LinearSums& sums, Tensor& out, LinearKept& kept);

// Gradients to overwrite or add to; undefined: not wanted.
struct LinearSinks {
  Tensor dq, dk, dv;
  bool add_dq = false, add_dk = false, add_dv = false;
  Tensor dweight;  // [B, H, S], contiguous, zeros
};
void linear_attention_backward(const LinearCall& x, const Tensor& out, const Tensor& dout, const LinearKept& kept,
                               LinearSinks& d);

}  // namespace heed::detail
