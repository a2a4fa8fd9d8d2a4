// A step of Adam or AdamW on a stretch of a parameter, for optimizers that give it to some of theirs. Internal.
#pragma once
#include <array>
#include <heed/optim/optimizer.hpp>

namespace heed::detail {

// Its states are the averages of the gradient and of its square, and the greatest of these or null.
void adam_step(const UpdateChunk& chunk, const std::array<double, 2>& betas, double eps, bool decoupled);

}  // namespace heed::detail
