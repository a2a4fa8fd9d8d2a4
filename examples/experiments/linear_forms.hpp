// Forms of causal attention that give the same result, for article 003's figure: linear attention in chunks, by
// cumulative sums and by recurrence, and softmax attention with and without the matrix of weights.
//
// With features f(x) = elu(x) + 1 and keys j <= i, all linear forms compute
//
//   y_i = f(q_i)^T S_i / (f(q_i) . z_i + eps)     S_i = sum_j f(k_j) v_j^T     z_i = sum_j f(k_j)
//
//   chunks       linear_attention(): sums between chunks, products within
//   cumsum       all S_i at once, a tensor of n d d, as the cumulative sum of n outer products
//   recurrence   S_i from S_(i-1), position by position
//   n x n        softmax with all weights in memory
#pragma once
#include <heed/core/tensor.hpp>
#include <string>
#include <vector>

#include "examples/experiments/cost_measure.hpp"

namespace heed::examples {

enum class AttentionForm { softmax_matrix, softmax, chunks, cumsum, recurrence };
const std::vector<AttentionForm>& attention_forms();  // all, in the order of tables
std::string name_of(AttentionForm form);              // "softmax, n x n"

// q, k, v [B, H, n, D] -> [B, H, n, D], causal.
Tensor attend_by(AttentionForm form, const Tensor& q, const Tensor& k, const Tensor& v);

// An estimate of the bytes that a form needs on n positions of a layer.
double bytes_of(AttentionForm form, Index n, const LayerShape& shape, bool backward);

// Measures a form on one sequence, in float32.
Measured measure(AttentionForm form, Index n, const LayerShape& shape, const MeasureOptions& options);

}  // namespace heed::examples
