// Softmax attention of each query over its own list of keys: time O(listed pairs * width).
//
// For query i of a head, with j over the keys on its list that are not masked:
//
//   s_ij = scale * q_i . k_j + bias_ij     L_i = log sum_j e^s_ij     p_ij = e^(s_ij - L_i)
//   o_i  = sum_j m_ij p_ij v_j             m_ij = 0 or 1 / (1 - dropout); 1 without dropout
//
//   delta_i = do_i . o_i                   ds_ij = p_ij (m_ij do_i . v_j - delta_i)
//   dq_i = scale * sum_j ds_ij k_j         dk_j = scale * sum_i ds_ij q_i     dv_j = sum_i m_ij p_ij do_i
//
// Backward has two passes. The pass over queries computes dq, and stores m p and ds of every pair. The pass over keys
// sums over the transposed lists. Each row is summed by one task, in the order of its list.
#pragma once
#include "attention.hpp"

namespace heed::kernels {

template <class T>
struct SparseProblem : AttentionProblem<T> {
  // The keys of query i of head n = b * heads + h are listed[o[i], o[i + 1]), ascending, with o = offsets + n *
  // offsets_of_head. offsets_of_head is 0 if all heads share their lists.
  const int32_t* offsets;
  int64_t offsets_of_head;
  const int32_t* listed;
  int64_t longest;  // length of the longest list
};

template <class T>
struct SparseGradients : PairGradients<T> {
  T *weight, *dscore;  // m p and ds of the pairs of some heads
};

// The transposed lists of some heads. Queries [starts[j], starts[j + 1]) have key j, in ascending order. `places` are
// the positions of the pairs in their head's lists.
struct SparseColumns {
  const int64_t* starts;  // [keys + 1], for all heads or for each
  const int32_t *queries, *places;
  int64_t starts_of_head;  // 0 if all heads share their lists
};

template <class T>
struct SparseKernels {
  size_t (*scratch)(const SparseProblem<T>& p);  // in elements
  // Row i of head (b, h). lse [batch, heads, queries] may be null.
  void (*forward)(const SparseProblem<T>& p, const HeadRows<T>& out, T* lse, int64_t b, int64_t h, int64_t i,
                  T* scratch);
  // dq of row i, and weight and dscore of its pairs. Those of the head start at `base`.
  void (*backward_query)(const SparseProblem<T>& p, const SparseGradients<T>& d, int64_t b, int64_t h, int64_t i,
                         int64_t base, T* scratch);
  // dk and dv of key j. bases: of the heads that share (b, kv_head). columns: of the first of these heads.
  void (*backward_key)(const SparseProblem<T>& p, const SparseGradients<T>& d, const SparseColumns& columns, int64_t b,
                       int64_t kv_head, int64_t j, const int64_t* bases);
};

using SparseTable = FloatTable<SparseKernels>;
const SparseTable& sparse_attention_table();  // for the level in use

}  // namespace heed::kernels
