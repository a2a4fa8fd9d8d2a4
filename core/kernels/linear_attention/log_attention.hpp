// Linear attention with features that are given by their logarithms, in chunks as in linear_attention.hpp. Such
// features are exp (the numerator of Efficient attention) and the random features of the softmax (FAVOR+: Choromanski
// et al., "Rethinking attention with Performers", 2021). Efficient attention (Shen et al. 2018) is also made causal
// here. No feature is computed by itself, since it might overflow.
//
// a_ir and b_jr are the logarithms of feature r of query i and key j; m_r is the largest b_jr so far. For a chunk, with
// m and S, z from before it, and m' = max(m, b of the chunk):
//
//   S, z *= exp(m - m')   per feature
//   K_jr = exp(b_jr - m'_r)
//
// 1. logs: o_i = sum_j w_ij v_j / sum_j w_ij, w_ij = sum_r exp(a_ir + b_jr):
//      Q_ir = exp(a_ir + m'_r - max_r(a_ir + m'_r)), then as in linear_attention.hpp, with eps = 0;
//      da = Q * dQ, db = K * dK.
// 2. efficient: o_i = sum_r p_ir sum_j exp(b_jr) v_j / sum_j exp(b_jr), for p_i = softmax(q_i) of the caller:
//      z_i = z + sum_{j <= i} K_j   (for each query of the chunk)      Q_i = p_i / z_i
//      O = tril(Q K^T) V + Q S                                         W = tril(G V^T)
//      dQ = W K + G S^T       dp_i = dQ_i / z_i                        e_i = -dQ_i * Q_i / z_i
//      dK_j = (W^T Q + V P^T)_j + sum_{i >= j} e_i + y                 db = K * dK
//      dV = A^T G + K P       P += Q^T G, y += sum e
//
// P, r (or y) are passed from chunk c + 1 to chunk c, multiplied by exp(m'_c - m'_{c+1}). Maxima have no gradient. A
// chunk ends before a key that would raise a maximum by more than 60 within the chunk. Otherwise the features of the
// keys visible to an earlier query would underflow.
#pragma once
#include "../dispatch/dispatch.hpp"
#include "linear_attention.hpp"

namespace heed::kernels {

// LinearKind::logs and ::efficient: 1. and 2. above. In LinearProblem, q and k are a (or p) and b, the map is identity,
// eps is 0, and the weight is added to b. A state holds m after S and z. dweight is the gradient of the added weight.
struct LogTable {
  LinearTable logs, efficient;
};

const LogTable& log_attention_table();  // for the level in use

// S: the type of q, k, v and out in memory, which is T, or bf16 for kind `features` only.
template <class T, class S>
const LinearKernels<T, S>& linear_kernels(LinearKind kind) {
  if constexpr (sizeof(S) == 2)
    return linear_attention_table().bf16;
  else
    return of<T>(kind == LinearKind::features ? linear_attention_table()
                 : kind == LinearKind::logs   ? log_attention_table().logs
                                              : log_attention_table().efficient);
}

}  // namespace heed::kernels
