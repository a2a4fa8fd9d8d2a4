// Losses. What PyTorch calls input and target, with PyTorch's definitions and reductions.
//
// Example:
//
//   Rng rng(1);
//   const Tensor logits = rng.normal({4, 10}), targets = Tensor::from<std::int32_t>({3, 1, -100, 7});
//   const Tensor loss = cross_entropy(logits, targets, {.label_smoothing = 0.1});  // the third row counts nothing
//   const Tensor distance = mse_loss(logits, Tensor::zeros({4, 10}));
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
// Keeps two numbers per row for backward. Throws Error for other shapes and types, and names the first target out of
// range.
Tensor cross_entropy(In logits, In targets, const CrossEntropyOptions& options = {});

// cross_entropy(x weight^T + bias, targets): the logits are made and used up in chunks of rows, so that they never
// exist all at once. x [..., D], weight [C, D], bias [C] or undefined; float32 or float64, and x and weight bfloat16 if
// they like (the logits are float32 then). For the mean and the sum, the gradients are computed with the loss, where
// they are wanted, and kept for backward (x and weight in size); without reduction, the logits are computed again in
// backward.
Tensor linear_cross_entropy(In x, In weight, In bias, In targets, const CrossEntropyOptions& options = {});

// Losses of elements: x and target have one shape and one dtype, float32 or float64, and both may want gradients. The
// mean is over all elements (NaN where there are none, as in PyTorch). Throws Error for other shapes and types.

Tensor mse_loss(In x, In target, Reduction reduction = Reduction::mean);  // (x - t)^2
Tensor l1_loss(In x, In target,
               Reduction reduction = Reduction::mean);  // |x - t|; the derivative at 0 is 0, at NaN NaN

struct HuberOptions {
  double delta = 1;  // greater than 0
  Reduction reduction = Reduction::mean;
};

// (x - t)^2 / 2 where |x - t| <= delta, else delta (|x - t| - delta / 2). Huber, "Robust estimation of a location
// parameter", 1964.
Tensor huber_loss(In x, In target, const HuberOptions& options = {});

struct BinaryCrossEntropyOptions {
  Tensor weight = {};      // w, a constant that broadcasts to x; undefined: 1
  Tensor pos_weight = {};  // p, of positive targets; the same
  Reduction reduction = Reduction::mean;
};

// -w (p t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))), exact for x of any size. Targets t in [0, 1].
Tensor binary_cross_entropy_with_logits(In x, In target, const BinaryCrossEntropyOptions& options = {});

struct KlDivOptions {
  bool log_target = false;                // the target holds logarithms of probabilities
  Reduction reduction = Reduction::mean;  // PyTorch's default; batch_mean gives the divergence of the definition
};

// t (log t - x), or e^t (t - x) with log_target, where x holds logarithms of probabilities. Where the probability of
// the target is 0, so is the loss, even if x is minus infinity there (PyTorch: NaN); NaN in x or target stays NaN.
Tensor kl_div(In x, In target, const KlDivOptions& options = {});

// ---- Weighted means ----

// run() and evaluate() join the losses of several batches by the weights that they are means over: cross_entropy and
// linear_cross_entropy by the sum of weights, or the number of targets, that they divide by; other losses by
// Batch::counted. These are for losses of one's own.

// sum(values * weights) / sum(weights), a number of the values' dtype: losses of elements or rows, and their mask or
// weights. Values [...] of a floating type; weights of any type, constants that broadcast to values. The mean is 0, and
// so is its gradient, where all weights are 0. Values whose weight is 0 must be finite. Throws Error for other shapes
// and types, and for weights that are negative, not finite, or want a gradient.
Tensor weighted_mean(In values, In weights);

// Returns `mean`, and states that it is a mean over this weight: run() and evaluate() multiply by it when they join
// batches, whatever the parts of the loss divide by. A sum s with the weight w is weighted_loss(s / w, w). A batch of
// weight 0 counts nothing. Throws Error unless mean is one number and the weight is finite and 0 or more.
Tensor weighted_loss(In mean, double weight);

}  // namespace heed
