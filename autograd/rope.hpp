// Rotary position embedding (Su et al., "RoFormer", 2021).
#pragma once
#include <heed/autograd/record.hpp>

namespace heed {

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
