// Updates of running statistics, made at once or collected for the end of a step.
#include <heed/autograd/detail/running_statistics.hpp>
#include <heed/core/check.hpp>
#include <heed/core/dry_run.hpp>
#include <utility>

namespace heed::detail {

static thread_local StatisticsUpdates* innermost_updates = nullptr;

StatisticsUpdates::StatisticsUpdates() : outer_(std::exchange(innermost_updates, this)) {}
StatisticsUpdates::~StatisticsUpdates() { innermost_updates = outer_; }

void StatisticsUpdate::apply() {
  require(static_cast<Index>(values.size()) == buffer.numel(), "running statistics: the buffer is ", buffer, " and ",
          values.size(), " values are given; it must have as many");
  with_float(buffer.dtype(), [&]<class T>(T) {
    T* to = buffer.mutable_data<T>();
    for (const double v : values) {
      *to = static_cast<T>((1 - momentum) * static_cast<double>(*to) + momentum * v);
      ++to;
    }
  });
}

void update_statistics(const Tensor& buffer, const Tensor& values, double momentum) {
  if (mode().second_run || in_dry_run()) return;
  StatisticsUpdate update{buffer, momentum, values.to_vector<double>()};
  if (innermost_updates != nullptr)
    innermost_updates->list_.push_back(std::move(update));
  else
    update.apply();
}

}  // namespace heed::detail
