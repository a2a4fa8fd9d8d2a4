// Linear attention (Katharopoulos et al., "Transformers are RNNs", 2020) in chunks of c positions: time O(n (c + D) D),
// and no n x n matrix.
//
// f(q), f(k) >= 0 are the mapped queries and keys. For one head, with j over the keys that query i may attend to:
//
//   a_ij = f(q_i) . f(k_j)     d_i = sum_j a_ij + eps     o_i = sum_j a_ij v_j / d_i      (d_i = eps: o_i = 0)
//
// Keys that all queries of a chunk see form the state S = sum f(k_j) v_j^T, z = sum f(k_j). For a chunk, let Q = f(q),
// K = f(k), G the gradient of O, H = G / d, u = -rowsum(H * O), and P, r the sums over later chunks:
//
//   A = tril(Q K^T)               W = tril(H V^T + u 1^T)
//   O = (A V + Q S) / d           d = A 1 + Q z + eps
//   dQ = W K + H S^T + u z^T      dK = W^T Q + V P^T + 1 r^T      dV = A^T H + K P
//   S += K^T V, z += K^T 1        (front to back)
//   P += Q^T H, r += Q^T u        (back to front)
//
// and dq = f'(q) * dQ, dk = f'(k) * dK. Without the triangle, all keys are in the state.
#pragma once
#include "../../kernel_interface.hpp"
#include "../attention/head_rows.hpp"

namespace heed::kernels {

// How features are given. features: mapped queries and keys, as above. logs, efficient: log_attention.hpp.
enum class LinearKind { features, logs, efficient };

// T: type of sums and gradients. S: type of q, k, v and out in memory: T, or uint16_t for bf16.
template <class T, class S = T>
struct LinearProblem {
  int64_t batch, heads, kv_heads, queries, keys, width, value_width;
  FeatureMap map;  // f: identity, elu, relu or softplus
  T alpha;         // of elu
  T eps;
  bool causal;  // query i may attend to keys j <= i + keys - queries
  HeadRows<const S> q, k, v;
  const int32_t* lengths;   // [batch]: keys from this one on are padding; or null
  const uint8_t* key_mask;  // [batch, keys]: 0 if a key is masked; or null
  const T* weight;          // [batch, heads, keys]: factors of f(k); or null
};

// The work on a head is a sequence of steps, executed front to back in forward and back to front in backward. The first
// steps take the keys that all queries see (without the triangle, all keys). The other steps take queries, with their
// own keys if causal.
struct LinearPlan {
  int64_t key_steps, steps;  // steps of keys only, and all steps; at least one has queries
  // A state in memory, in elements: `width` rows of S (or P), then z (or r), then the maxima in log_attention.hpp.
  int64_t state_row, vector_size, state_size;
  int64_t kept;    // states per head that forward keeps for backward: S before a step of queries
  size_t scratch;  // in elements, enough for any task
};

template <class T, class S = T>
struct LinearGradients {
  HeadRows<const S> out;
  HeadRows<const T> dout;
  const T* norm;           // d of forward: [batch, heads, queries]
  const T* kept;           // [batch, heads, plan.kept, plan.state_size], of forward
  HeadRows<T> dq, dk, dv;  // null data: not needed
  bool add_dq, add_dk, add_dv;
  T* dweight;  // [batch, heads, keys], zeros before; or null
};

// The step that a thread executes next, a step of a head of the same batch, whose rows are prefetched. step -1: none.
struct LinearNext {
  int64_t h, step;
};

// A step of head (b, h), and the step after it.
struct LinearStep {
  int64_t b, h, step;
  LinearNext next;
};

// Kernels for one step of head (b, h). `state` holds the sums before the step; the step adds its rows.
template <class T, class S = T>
struct LinearKernels {
  using Problem = LinearProblem<T, S>;
  using Gradients = LinearGradients<T, S>;

  LinearPlan (*plan)(const Problem& p);
  void (*clear)(const Problem& p, T* state);  // to the empty state
  // state += more, where `more` is of earlier keys, or of later queries. `more` is not changed.
  void (*add_keys)(const Problem& p, T* state, T* more);
  void (*add_queries)(const Problem& p, T* state, T* more);
  // Only the sums: of keys for forward, of queries for backward.
  void (*sum_keys)(const Problem& p, const LinearStep& at, T* state, T* scratch);
  void (*sum_queries)(const Problem& p, const Gradients& d, const LinearStep& at, T* state, T* scratch);
  // norm [batch, heads, queries] and kept may be null.
  void (*forward)(const Problem& p, const HeadRows<S>& out, T* norm, T* kept, const LinearStep& at, T* state,
                  T* scratch);
  // Heads that share keys add to the same gradients, so they must run one after another, in the order of h.
  void (*backward)(const Problem& p, const Gradients& d, const LinearStep& at, T* state, T* scratch);
};

struct LinearTable {
  LinearKernels<float> f32;
  LinearKernels<double> f64;
};
struct LinearFeatureTable : LinearTable {
  LinearKernels<float, uint16_t> bf16;  // rows are widened as they are mapped
};

const LinearFeatureTable& linear_attention_table();  // for the level in use

}  // namespace heed::kernels
