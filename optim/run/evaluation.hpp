// Evaluation: the mean loss and other metrics over an evaluation set, as run() computes them.
//
// Example:
//
//   Rng rng(1);
//   const TokenSource tokens(rng.integers({200}, 0, 20).to_vector<std::int32_t>(), 20);
//   const WholeSplit held_out(tokens, {.batch = 4, .context = 8});
//   const GPT model({.vocabulary = 20, .context = 8,
//                    .blocks = {.layers = 1, .attention = {.width = 16, .heads = 2}}}, rng);
//   const double loss = evaluate([&](const Batch& b) { return model.loss(b.inputs, b.targets); }, held_out);
//   std::cout << "mean loss " << loss << '\n';
#pragma once
#include <functional>
#include <heed/core/tensor.hpp>
#include <heed/data/batches.hpp>
#include <map>
#include <string>

namespace heed {

// Means over the counted targets, by name: "loss" and others, such as "accuracy".
using Metrics = std::map<std::string, double>;

// The share of counted targets that equal the argmax of their logits (the first of equal logits). logits [..., C],
// targets int32 [...]; targets that are kIgnoreIndex do not count. NaN if none counts. Throws Error for other shapes
// and dtypes.
double classification_accuracy(const Tensor& logits, const Tensor& targets);

// "loss", the mean cross-entropy, and "accuracy", as above.
Metrics classification_metrics(const Tensor& logits, const Tensor& targets);

// The mean loss over the first `batches` batches of the set; 0: over all. Each batch is weighted as in a step: by the
// weights that its loss is a mean over (autograd/losses.hpp, "Weighted means"), or by its counted targets. No tape
// records, and dropout is off. NaN for an empty set. Throws Error if no batch has counted targets (Batch::counted) or
// all weights are 0.
double evaluate(const std::function<Tensor(const Batch&)>& loss, const EvaluationSet& set, Index batches = 0);
// The means of several metrics. Each batch must give the same metrics, among them "loss". Other metrics are weighted by
// the counted targets. Empty for an empty set. Throws Error as evaluate().
Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set,
                         Index batches = 0);

}  // namespace heed
