// Losses, with PyTorch's definitions and reductions. x and target are PyTorch's input and target.
//
// Example:
//
//   Rng rng(1);
//   const Tensor logits = rng.normal({4, 10}), targets = Tensor::from<std::int32_t>({3, 1, -100, 7});
//   const Tensor loss = cross_entropy(logits, targets, {.label_smoothing = 0.1});  // the third row is ignored
//   const Tensor distance = mse_loss(logits, Tensor::zeros({4, 10}));
#pragma once
#include <heed/autograd/record.hpp>

namespace heed {

// How the losses of elements (cross_entropy: rows) are combined.
enum class Reduction {
  none,  // one loss per element (cross_entropy: per row)
  mean,
  sum,
  batch_mean,  // kl_div only: the sum divided by the size of the first axis
};

// Options of cross_entropy() and linear_cross_entropy().
struct CrossEntropyOptions {
  Index ignore_index = -100;   // targets of this value are ignored
  double label_smoothing = 0;  // s in [0, 1]: the target's share is 1 - s, and s is spread over all classes
  Tensor weight = {};          // [C], class weights, constant; undefined: all 1
  Reduction reduction = Reduction::mean;  // mean: over the targets that are not ignored, weighted by `weight`
};

// -log softmax(logits)[target] over the last axis. logits [..., C] float32 or float64; targets [...] int32 in [0, C).
// With class weights w, smoothing s and lse = log sum_c e^(x_c): (1 - s) w_t (lse - x_t) + s/C sum_c w_c (lse - x_c).
// The mean divides by the sum of the weights of the targets that are not ignored. If all are ignored it is NaN, as in
// PyTorch, and the gradients are 0. Keeps the logits and two numbers per row for backward. Throws Error for other
// shapes and types, and for the first target out of range.
Tensor cross_entropy(In logits, In targets, const CrossEntropyOptions& options = {});

// cross_entropy(x weight^T + bias, targets), with logits computed in chunks of rows, so that all logits never exist at
// once. x [..., D], weight [C, D], bias [C] or undefined. All float64, or all float32, where x and weight may also be
// bfloat16 (logits are then float32). For the mean and the sum, the gradients that are needed are computed with the
// loss and kept for backward (in size: x and weight). Without reduction, backward computes the logits again. Errors as
// for cross_entropy().
Tensor linear_cross_entropy(In x, In weight, In bias, In targets, const CrossEntropyOptions& options = {});

// Options of ctc_loss().
struct CtcOptions {
  Index blank = 0;                        // the class of no label
  bool zero_infinity = false;             // loss and gradient are 0 for sequences that no path fits
  Reduction reduction = Reduction::mean;  // mean: of the losses, each divided by its number of labels (at least 1)
};

// Connectionist temporal classification: -log P(labels), where P sums the probabilities of all paths, one class per
// step, that give the labels when equal neighbours are merged and then blanks are removed. log_probs [N, T, C], float32
// or float64, for example of log_softmax(); targets [N, S] int32, not blank. The lengths [N] int32 are the steps and
// the labels that count; undefined: T and S. (PyTorch's log_probs are [T, N, C].) The loss is infinite, and its
// gradient NaN, for a sequence that is too short for its labels. Sums are in float64. Throws Error for other shapes and
// types, for lengths out of range, and for the first target out of range.
//
// The gradient is the derivative by log_probs, -P(class c in step t | labels). PyTorch's includes the derivative of
// log_softmax; if log_softmax() computed them, both give the same gradient of the logits. Graves et al.,
// "Connectionist temporal classification", 2006.
Tensor ctc_loss(In log_probs, In targets, const Tensor& input_lengths = {}, const Tensor& target_lengths = {},
                const CtcOptions& options = {});

// Losses of elements: x and target have one shape and one dtype, float32 or float64, and both may need gradients. The
// mean is over all elements (NaN if there are none, as in PyTorch). Throws Error for other shapes and types.

Tensor mse_loss(In x, In target, Reduction reduction = Reduction::mean);  // (x - t)^2
Tensor l1_loss(In x, In target,
               Reduction reduction = Reduction::mean);  // |x - t|; derivative 0 at 0, NaN at NaN

// Options of huber_loss().
struct HuberOptions {
  double delta = 1;  // greater than 0
  Reduction reduction = Reduction::mean;  // over all elements
};

// (x - t)^2 / 2 where |x - t| <= delta, else delta (|x - t| - delta / 2). Huber, "Robust estimation of a location
// parameter", 1964.
Tensor huber_loss(In x, In target, const HuberOptions& options = {});

// Options of binary_cross_entropy_with_logits().
struct BinaryCrossEntropyOptions {
  Tensor weight = {};      // w, a constant that broadcasts to x; undefined: 1
  Tensor pos_weight = {};  // p, the weight of positive targets, likewise
  Reduction reduction = Reduction::mean;  // over all elements
};

// -w (p t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))) for targets t in [0, 1]; accurate for x of any size.
Tensor binary_cross_entropy_with_logits(In x, In target, const BinaryCrossEntropyOptions& options = {});

// Options of kl_div().
struct KlDivOptions {
  bool log_target = false;                // the target holds logarithms of probabilities
  Reduction reduction = Reduction::mean;  // PyTorch's default; batch_mean gives the KL divergence as defined
};

// t (log t - x), or e^t (t - x) with log_target, where x holds logarithms of probabilities. Where the target's
// probability is 0, the loss is 0, even if x is -infinity there (NaN in PyTorch). NaN in x or target stays NaN.
Tensor kl_div(In x, In target, const KlDivOptions& options = {});

// ---- Weighted means ----

// run() and evaluate() combine the mean losses of several batches by their weights. The weight of cross_entropy() and
// linear_cross_entropy() is the divisor of the mean: the sum of weights, or the number of targets. The weight of other
// losses is Batch::counted. The functions below give a weight to custom losses.

// sum(values * weights) / sum(weights), for losses of elements or rows and their mask or weights. values [...] are of a
// floating type, which is the result's type. weights are constants of any type that broadcast to values. If all weights
// are 0, the mean and its gradient are 0. Values whose weight is 0 must be finite. Throws Error for other shapes and
// types, and for weights that are negative, not finite, or need a gradient.
Tensor weighted_mean(In values, In weights);

// Returns `mean` and declares it a mean over this weight: run() and evaluate() multiply by the weight when they combine
// batches, whatever the parts of the loss divide by. A sum s with the weight w is weighted_loss(s / w, w). A batch of
// weight 0 is ignored. Throws Error unless mean is one number and the weight is finite and 0 or more.
Tensor weighted_loss(In mean, double weight);

}  // namespace heed
