// Running statistics of layers such as BatchNorm, which a step of a run updates once, in the order of its shards.
// Internal.
#pragma once
#include <heed/core/tensor.hpp>
#include <vector>

namespace heed::detail {

// An update of running statistics: buffer = (1 - momentum) * buffer + momentum * values.
struct StatisticsUpdate {
  Tensor buffer = {};  // a handle of the layer's tensor
  double momentum = 0;
  std::vector<double> values = {};  // of the statistics of one batch, as many as the buffer has

  void apply();
};

// Called by a layer in a forward pass in training. The update is kept if a StatisticsUpdates exists on this thread, and
// else made at once. None is made in the second run of recompute(), which repeats the first, and in a dry run.
void update_statistics(const Tensor& buffer, const Tensor& values, double momentum);

// Collects the updates of this thread while this object exists. Only the innermost object collects.
class StatisticsUpdates {
 public:
  StatisticsUpdates();
  ~StatisticsUpdates();
  StatisticsUpdates(const StatisticsUpdates&) = delete;
  StatisticsUpdates& operator=(const StatisticsUpdates&) = delete;

  std::vector<StatisticsUpdate>& list() { return list_; }  // in the order of the calls

 private:
  std::vector<StatisticsUpdate> list_;
  StatisticsUpdates* outer_;

  friend void update_statistics(const Tensor& buffer, const Tensor& values, double momentum);
};

}  // namespace heed::detail
