// Rows of a table, chosen by indices.
#pragma once
#include <heed/autograd/record.hpp>
#include <optional>

namespace heed {

// y[i, ...] = weight[indices[i, ...]]. indices [...] int32 in [0, V); weight [V, D] float32 or float64; y [..., D].
// Row padding_idx of the weight, if given, is read like any other but gets no gradient; negative, it counts from the
// end.
// Throws Error for other shapes and types, and names the first index out of range, with its position.
Tensor embedding(In indices, In weight, std::optional<Index> padding_idx = {});

}  // namespace heed
