// Losses. What PyTorch calls input and target, with PyTorch's definitions and reductions.
#pragma once
#include <heed/autograd/record.hpp>

namespace heed {

enum class Reduction {
  none,  // one loss an element (cross_entropy: a row)
  mean,
  sum,
  batch_mean,  // kl_div only: the sum over the size of the first axis
};

struct CrossEntropyOptions {
  Index ignore_index = -100;   // targets of this value count nothing
  double label_smoothing = 0;  // s in [0, 1]: the target's share is 1 - s, and s is spread over all classes
  Tensor weight = {};          // [C] of the classes, a constant; undefined: 1 each
  Reduction reduction = Reduction::mean;
};

// -log softmax(logits)[target] over the last axis. logits [..., C] float32 or float64; targets [...] int32 in [0, C).
// With class weights w and smoothing s: (1 - s) w_t (lse - x_t) + s/C sum_c w_c (lse - x_c). The mean divides by the
// sum of the weights of the targets that are not ignored; where all are, it is NaN as in PyTorch (and gradients are 0).
// Keeps two numbers a row for backward. Throws Error for other shapes and types, and names the first target out of
// range.
Tensor cross_entropy(In logits, In targets, const CrossEntropyOptions& options = {});

// cross_entropy(x weight^T + bias, targets): the logits are made and used up in chunks of rows, so that they never
// exist all at once. x [..., D], weight [C, D], bias [C] or undefined; float32 or float64, and x and weight bfloat16 if
// they like (the logits are float32 then). For the mean and the sum, the gradients are computed with the loss, where
// they are wanted, and kept for backward (x and weight in size); without reduction, the logits are computed again in
// backward.
Tensor linear_cross_entropy(In x, In weight, In bias, In targets, const CrossEntropyOptions& options = {});

}  // namespace heed
