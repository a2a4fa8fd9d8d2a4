// What an evaluation tells of a model.
#pragma once
#include <heed/core/tensor.hpp>
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

}  // namespace heed
