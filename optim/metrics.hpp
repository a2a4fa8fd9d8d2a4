// What an evaluation tells of a model.
#pragma once
#include <functional>
#include <heed/data/batches.hpp>
#include <map>
#include <string>

namespace heed {

// Means over the targets that count, by name: "loss", and whatever else, as "accuracy".
using Metrics = std::map<std::string, double>;

// The share of targets, int32 [...] or kIgnoreIndex, that are the first greatest of their logits [..., C]; NaN where
// none counts. Throws Error for other shapes.
double classification_accuracy(const Tensor& logits, const Tensor& targets);

// "loss", the mean cross-entropy, and "accuracy".
Metrics classification_metrics(const Tensor& logits, const Tensor& targets);

// Weighted by the targets that count; `batches` 0 means all. Nothing is recorded, dropout is off. NaN of an empty set;
// Error where no batch counts a target (Batch::counted).
double evaluate(const std::function<Tensor(const Batch&)>& loss, const EvaluationSet& set, Index batches = 0);
// The same of several numbers: each batch must have those of the first, the loss among them. Of an empty set: nothing.
Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set,
                         Index batches = 0);

}  // namespace heed
