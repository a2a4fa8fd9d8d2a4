// What losses were divided by, so that the means of several batches can be joined into one. Internal.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

namespace heed::detail {

enum class LossWeight {
  count,    // targets, of a mean without weights
  weights,  // the sum of their weights
  stated,   // by weighted_loss()
};

// Called by a loss that is a mean, with its value: what it divided by. Kept where a LossWeights of this thread lives.
void note_loss_weight(double value, double weight, LossWeight kind, bool cross_entropy = false);

// What the losses that this thread computes divide by, from the construction on. The innermost one gets all.
class LossWeights {
 public:
  LossWeights();
  ~LossWeights();
  LossWeights(const LossWeights&) = delete;
  LossWeights& operator=(const LossWeights&) = delete;

  // The weight of the loss of a batch, whose value this is. One that was stated comes first; then that of the mean that
  // has this value; then the sum of weights by which the parts of the loss were divided; else `counted`. Throws Error,
  // which begins with `who`, where parts were divided by different sums, or different weights were stated.
  double of(std::string_view who, double value, double counted) const;
  bool is_cross_entropy(double value) const;  // whether one of cross_entropy has this value

 private:
  struct Noted {
    double value, weight;
    LossWeight kind;
    bool cross_entropy;
  };
  std::vector<Noted> noted_;
  LossWeights* outer_;

  friend void note_loss_weight(double value, double weight, LossWeight kind, bool cross_entropy);
  std::optional<double> only(std::string_view who, LossWeight kind) const;
};

}  // namespace heed::detail
