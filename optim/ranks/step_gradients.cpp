// The norms of a step's gradients, and the steps of one rank.
#include <heed/core/profiler.hpp>
#include <heed/optim/ranks/rounded.hpp>
#include <heed/optim/ranks/step_gradients.hpp>

namespace heed::detail {

double StepGradients::norm(const Optimizer& optimizer, std::span<double> of_shards) {
  const ProfileScope scope("clipping");
  check_owned(optimizer.name(), "optimizer", optimizer.trained_parameters());
  chunks_.assign_active(optimizer.trained_parameters());
  sum_squares(optimizer, of_shards);
  return norm_of(sums_);
}

void StepGradients::fail_non_finite(const Optimizer& optimizer, double norm) const {
  detail::fail_non_finite(optimizer.name(), norm, optimizer.trained_parameters(), chunks_, sums_);
}

void LocalGradients::apply(Optimizer& optimizer, double gradient_scale) {
  if (!tree_.rounds()) return optimizer.step(gradient_scale);
  const ProfileScope scope("optimizer");
  RoundedStep step(optimizer, gradient_scale, true);
  Chunks chunks;
  chunks.assign_active(optimizer.trained_parameters());
  chunks.run([&](Index, const Chunk& c) { step.update(c, nullptr); });
  step.end();
}

}  // namespace heed::detail
