// A step of Adam or AdamW on a chunk: for Adam, and for optimizers that give some parameters AdamW's step. Private to
// optim/optimizers.
#pragma once
#include <array>
#include <heed/optim/optimizers/optimizer.hpp>

namespace heed::detail {

// States of the chunk: the average of the gradient, the average of its square, and the largest such average so far or
// null.
void adam_step(const UpdateChunk& chunk, const std::array<double, 2>& betas, double eps, bool decoupled);

}  // namespace heed::detail
