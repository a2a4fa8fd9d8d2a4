// Dropout, without a stored mask.
#pragma once
#include <heed/autograd/record.hpp>

namespace heed {

// While training (see is_training): each element is 0 with probability p, else x / (1 - p). Otherwise, or if p is 0: x
// itself. The mask is a function of default_rng()'s seed, stream and position and of the element's number; it is
// computed again in backward. Takes 16 positions for each 64 elements begun. x float32 or float64 of any shape; p in
// [0, 1]: of 1 nothing is left. Srivastava et al., "Dropout", JMLR 2014.
Tensor dropout(In x, double p);

}  // namespace heed
