// Additive attention (Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and
// translate", 2015, section A.1.2). The score of a pair is a small network with one hidden layer. Nothing of size
// T x S x A is stored.
//
// q_i (= W q + b) and k_j (= U k) are the projected queries and keys, of width A. For one head, with j running over the
// keys that query i may attend to:
//
//   t_ij = tanh(q_i + k_j)    s_ij = u . t_ij + bias_ij    L_i = log sum_j e^s_ij    p_ij = e^(s_ij - L_i)
//   o_i  = sum_j m_ij p_ij v_j                             m_ij = 0 or 1 / (1 - dropout); 1 without dropout
//
//   dv_j = sum_i m_ij p_ij do_i                            delta_i = do_i . o_i
//   ds_ij = p_ij (m_ij do_i . v_j - delta_i)               e_ij = ds_ij u * (1 - t_ij^2)
//   dq_i = sum_j e_ij      dk_j = sum_i e_ij               du = sum_ij ds_ij t_ij         dbias_ij = ds_ij
//
// Forward holds the scores of a few queries against all keys. Backward holds t for a few queries and a few keys, so t
// is computed once and used twice.
#pragma once
#include "../attention/attention.hpp"

namespace heed::kernels {

// The problem of softmax attention, with the projected queries and keys as q and k. `scale` is not used.
template <class T>
struct AdditiveProblem : AttentionProblem<T> {
  const T* u;  // [heads, width]
};

// The queries are divided into `groups` of `group_rows`. Each group sums its own share of the gradients of keys, values
// and u. `combine_keys` and `combine_u` add the shares in order.
template <class T>
struct AdditiveGradients : PairGradients<T> {
  T* dbias;  // [batch, heads, queries, keys], zeros before; or null
  T* du;     // [heads, width]; or null
  int64_t groups, group_rows;
  T* partial_keys;  // [batch, kv_heads, groups, keys, key_size]
  T* partial_u;     // [batch, heads, groups, u_size]
};

template <class T>
struct AdditiveKernels {
  int64_t rows;                                       // queries processed at once
  int64_t (*key_size)(const AttentionProblem<T>& p);  // elements of a key's share of dk and dv
  int64_t (*u_size)(const AttentionProblem<T>& p);
  size_t (*forward_scratch)(const AttentionProblem<T>& p);  // in elements
  size_t (*backward_scratch)(const AttentionProblem<T>& p);
  // Rows [begin, end) of head (b, h).
  void (*forward)(const AdditiveProblem<T>& p, const AttentionOutput<T>& y, int64_t b, int64_t h, int64_t begin,
                  int64_t end, T* scratch);
  // The queries of one group, of all heads that share (b, kv_head).
  void (*backward)(const AdditiveProblem<T>& p, const AdditiveGradients<T>& d, int64_t b, int64_t kv_head,
                   int64_t group, T* scratch);
  // dk and dv of keys [begin, end).
  void (*combine_keys)(const AdditiveProblem<T>& p, const AdditiveGradients<T>& d, int64_t b, int64_t kv_head,
                       int64_t begin, int64_t end);
  // du of head h.
  void (*combine_u)(const AdditiveProblem<T>& p, const AdditiveGradients<T>& d, int64_t h);
};

using AdditiveTable = FloatTable<AdditiveKernels>;
const AdditiveTable& additive_attention_table();  // for the level in use

}  // namespace heed::kernels
