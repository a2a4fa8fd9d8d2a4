// What becomes of a token and of its position: rows of a table, and rotary positions.
//
// Example:
//
//   Rng rng(1);
//   const Tensor tokens = Tensor::from<std::int32_t>({3, 1, 2}), table = rng.normal({5, 8});
//   const Tensor x = embedding(tokens, table);  // [3, 8]
//   const Tensor turned = rope(x);              // row t turned by its position
#pragma once
#include <heed/autograd/record.hpp>
#include <optional>

namespace heed {

// y[i, ...] = weight[indices[i, ...]]. indices [...] int32 in [0, V); weight [V, D] float32 or float64, or bfloat16
// without a gradient, of which y is float32; y [..., D].
// Row padding_idx of the weight, if given, is read like any other but gets no gradient; negative, it counts from the
// end.
// Throws Error for other shapes and types, and names the first index out of range, with its position.
Tensor embedding(In indices, In weight, std::optional<Index> padding_idx = {});

struct RopeOptions {
  double base = 10000;  // pair i of n turns by position * base^(-i / n)
  Index offset = 0;     // the position of the first row: the length of the cache in decoding
  Tensor offsets = {};  // in place of offset, int32 [B]: that of each x[b], where rows are of different length
  Index dims = 0;       // only the first `dims` elements of a row turn, an even number; 0: all
  // Which elements pair up: false, i and i + dims / 2 (GPT-NeoX, Llama in Hugging Face's form, "rotate half"); true, 2i
  // and 2i + 1 (the paper, GPT-J). Weights trained with one do not fit the other.
  bool interleaved = false;
};

// x [..., T, D] -> the same shape: row t of the last two axes turns by position offset + t. float32 or float64; up to
// four axes of any strides whose last is 1 are read in place. A dot product of two rotated rows depends on their
// distance only.
Tensor rope(In x, const RopeOptions& options = {});

}  // namespace heed
