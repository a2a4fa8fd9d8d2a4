// Softmax over any axis of floating tensors; of bfloat16, computed in float32 and rounded once. A scalar counts as a
// vector of one element.
#pragma once
#include <heed/autograd/record.hpp>

namespace heed {

// e^x / sum(e^x) over the axis, with the greatest x subtracted first, so that nothing overflows. An element of -inf
// gets 0; where all are -inf, one is +inf or one is NaN, the whole row is NaN, as in PyTorch (attention masks by
// itself: a row that is masked out is 0 there). Errors: other dtypes, an axis out of range.
Tensor softmax(In x, int axis = -1);

// x - log(sum(e^x)), without the loss of softmax's small values. NaN rows as above; -inf stays -inf.
Tensor log_softmax(In x, int axis = -1);

}  // namespace heed
