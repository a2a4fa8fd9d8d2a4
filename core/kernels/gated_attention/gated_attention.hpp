// Attention by a state with gates and a delta rule, in blocks of c positions. One head has queries q_t and keys k_t of
// width K, values v_t of width V, and a state S [K, V]. Row vectors; a_t is a number or one number per channel of K:
//
//   S' = diag(a_t) S_(t-1)     u_t = b_t w_t, w_t = v_t - k_t S'   (with the delta rule; otherwise u_t = v_t)
//   S_t = S' + k_t^T u_t       o_t = q_t S_t                       (q includes the scale)
//
// So each mechanism is linear attention with gates over values u. Within a block, f_ij is the product of a_t over
// j < t <= i, p_i the product over the block up to i (inclusive), r_j that over the rest of the block after j, and F
// that over the whole block. With the state S before the block:
//
//   Qg = p * Q    Kg = p * K    Kd = r * K
//   A_ij = sum_c q_ic k_jc f_ijc (j <= i)     N_ij = sum_c k_ic k_jc f_ijc (j < i)
//   W = V - Kg S - N U, U = b * W             solved row by row: the rows of N U need earlier rows of U only
//   O = Qg S + A U
//   S <- F * S + Kd^T U
//
// This is the WY form of Yang et al. ("Parallelizing linear Transformers with the delta rule over sequence length",
// 2024), with the solution of (I + N diag(b)) W = V - Kg S in place of an inverse. Backward, given dO, dS of the state
// after the block, and S before it:
//
//   dU = A^T dO + Kd dS - N^T dW, dW = b * dU    solved from the last row
//   dV = dW (otherwise dU)                       db = rowsum(dU * W)
//   dA = tril(dO U^T)    dN = -tril(dW U^T, -1)
//   dQg = dO S^T         dKg = -dW S^T           dKd = U dS^T                dF = rowsum(dS * S)
//   dS <- F * dS + Qg^T dO - Kg^T dW
//
// Gradients of q, k and the gates follow from those of Qg, Kg, Kd, A, N and F. With one gate per row, f_ij is a matrix
// D: A = tril(Q K^T * D), and N likewise. With P = dA * A + dN * N below the diagonal, the gradient of log a_t is
//
//   sum_(i >= t) (sum_j P_ij - sum_j P_ji + Qg_i.dQg_i + Kg_i.dKg_i) + sum_(j < t) Kd_j.dKd_j + F sum(dS * S)
//
// With one gate per channel, f_ijc is a product of gates along i, for each j: at most 1 if no gate exceeds 1, so
// nothing overflows, and a gate of 0 is exact. Blocks are short then, because each pair costs K products of gates.
// Logarithms of D are differences of running sums in two parts of T each, so that a long sum loses no digits of a small
// difference. A logarithm below kResetLog counts as kResetLog, whose exponential is 0 in both types.
#pragma once
#include "../../kernel_interface.hpp"
#include "../attention/head_rows.hpp"

namespace heed::kernels {

template <class T>
struct GatedProblem {
  int64_t batch, heads, key_heads, length, width, value_width;  // value heads; heads of q and k
  int64_t block;                                                // c
  int64_t kept_blocks;                                          // blocks per kept state
  T scale;                                                      // of q
  bool per_channel;                                             // gate has `width` numbers per row, otherwise one
  HeadRows<const T> q, k, v;
  HeadRows<const T> gate;    // log a, per value head; null: all 0
  HeadRows<const T> beta;    // b [batch, heads, length, 1]; null: without the delta rule
  HeadRows<const T> first;   // S before the sequence, [batch, heads, width, value_width]; null: zeros
  const int32_t* lengths;    // [batch]: rows from this one on are padding; or null
  const int32_t* documents;  // [batch, length]: the row at which the document of a row begins; or null
};

// Sizes in elements. A kept state has `width` rows of `state_row`.
struct GatedPlan {
  int64_t state_row, state_size;
  int64_t kept;  // states per head that forward keeps
  size_t scratch;
};

template <class T>
struct GatedOutputs {
  HeadRows<T> out;   // [batch, heads, length, value_width]
  HeadRows<T> last;  // S at the end of each row, [batch, heads, width, value_width]; or null
  // Both null, or for backward: [batch, heads, plan.kept, plan.state_size], and W [batch, heads, length, value_width]
  // with the delta rule.
  T *kept, *residual;
};

// Null data: not needed.
template <class T>
struct GatedGradients {
  HeadRows<const T> dout, dlast;
  const T *kept, *residual;
  int64_t key_heads;  // of dq and dk: those of q and k, or one per value head
  HeadRows<T> dq, dk, dv;
  bool add_dq, add_dk, add_dv;
  HeadRows<T> dgate, dbeta, dfirst;  // overwritten
};

// Each call computes a whole head. Heads that share dq and dk must run one after another, in the order of h.
template <class T>
struct GatedKernels {
  GatedPlan (*plan)(const GatedProblem<T>& p, bool backward);
  void (*forward)(const GatedProblem<T>& p, const GatedOutputs<T>& to, int64_t b, int64_t h, T* scratch);
  void (*backward)(const GatedProblem<T>& p, const GatedGradients<T>& d, int64_t b, int64_t h, T* scratch);
  // Forward by the recurrence, which replaces `state` [batch, heads, width, value_width]. p.first is not read. For few
  // positions; the scratch of forward is enough.
  void (*step)(const GatedProblem<T>& p, const HeadRows<T>& out, const HeadRows<T>& state, int64_t b, int64_t h,
               T* scratch);
};

struct GatedTable {
  GatedKernels<float> f32;
  GatedKernels<double> f64;
};

const GatedTable& gated_attention_table();  // for the level in use

}  // namespace heed::kernels
