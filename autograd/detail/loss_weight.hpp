// The weights of mean losses (their divisors), by which the means of several batches are combined. Internal.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

namespace heed::detail {

// The kind of a weight.
enum class LossWeight {
  count,    // number of targets, for a mean without weights
  weights,  // sum of the targets' weights
  stated,   // given to weighted_loss()
};

// Called by each mean loss with its value and its divisor. Kept if a LossWeights exists on this thread.
void note_loss_weight(double value, double weight, LossWeight kind, bool cross_entropy = false);

// Collects the weights of the losses that this thread computes while this object exists. Only the innermost object
// collects.
class LossWeights {
 public:
  LossWeights();
  ~LossWeights();
  LossWeights(const LossWeights&) = delete;
  LossWeights& operator=(const LossWeights&) = delete;

  // The weight of a batch's loss, which has this value. In order of preference: the weight given to weighted_loss(),
  // the weight of the mean with this value, the sum of weights by which parts of the loss were divided, `counted`.
  // Throws Error, beginning with `caller`, if parts were divided by different sums or if different weights were given.
  double of(std::string_view caller, double value, double counted) const;
  bool is_cross_entropy(double value) const;  // whether a cross-entropy has this value

 private:
  struct Noted {
    double value, weight;
    LossWeight kind;
    bool cross_entropy;
  };
  std::vector<Noted> noted_;
  LossWeights* outer_;

  friend void note_loss_weight(double value, double weight, LossWeight kind, bool cross_entropy);
  std::optional<double> only(std::string_view caller, LossWeight kind) const;
};

}  // namespace heed::detail
