// Reading and writing at computed places. Indices are int32 and lie in [-size of the axis, size of the axis); negative
// ones count from the end (torch.gather refuses them). The error of a wrong one names it and its place. Sums over equal
// indices are taken in the order of the indices: the same bits at any number of threads.
#pragma once
#include <heed/autograd/record.hpp>

namespace heed {

// y[i] = x[i with i[axis] replaced by index[i]], of index's shape, which has x's rank and is nowhere larger than x but
// along the axis (torch.gather). Of every dtype; the gradient is scattered back.
Tensor gather(In x, int axis, In index);

// x plus source[i] at [i with i[axis] replaced by index[i]] (torch.scatter_add); source has index's shape, which fits x
// as in gather. Float32 and float64.
Tensor scatter_add(In x, int axis, In index, In source);

// The slices index[0], index[1], ... of x along the axis; index has one axis (torch.index_select).
Tensor index_select(In x, int axis, In index);

// 1 where the last, new axis of size `classes` is at the index, which is not negative, else 0: [2, 3] gives [2, 3, classes]. (PyTorch's is
// int64; this is float32 unless another dtype is asked for.)
Tensor one_hot(In index, Index classes, DType dtype = DType::float32);

}  // namespace heed
