// Embeddings of tokens and of positions: rows of a table, and rotary positions.
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

// y[i, ...] = weight[indices[i, ...]]: indices [...] int32 in [0, V), weight [V, D] -> [..., D]. weight is float32,
// float64, or, without a gradient, bfloat16 or quantized, for which y is float32.
// Row padding_idx of the weight, if given, is read like any other but gets no gradient. A negative padding_idx counts
// from the end.
// Throws Error for other shapes and types, and for the first index out of range, with its position.
Tensor embedding(In indices, In weight, std::optional<Index> padding_idx = {});

// How rope() changes its frequencies for texts longer than those of the training.
enum class RopeScalingKind { none, linear, llama3 };
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;  // none: the frequencies stay as they are
  // linear: all frequencies are divided by it (Chen et al., "Extending context window of large language models via
  // positional interpolation", 2023).
  double factor = 1;
  // llama3 (Llama 3.1, 2024): with n = original_context * frequency / (2 pi), the number of full turns in the context
  // of the training, frequencies of n < low_turns are divided by the factor, those of n > high_turns are kept, and
  // between them 1 / factor goes linearly to 1.
  double low_turns = 1, high_turns = 4;
  Index original_context = 8192;

  auto operator<=>(const RopeScaling&) const = default;  // by members, for tables
};

// Options of rope().
struct RopeOptions {
  double base = 10000;  // pair i of n turns by position * base^(-i / n)
  RopeScaling scaling = {};  // changes these frequencies
  Index offset = 0;     // position of the first row: the length of the cache in decoding
  Tensor offsets = {};  // int32 [B], in place of offset: the offset of each x[b], for rows of different lengths
  // int32 [B, T], in place of both: the position of each row of x [B, H, T, D], for rows that hold several documents
  Tensor positions = {};
  Index dims = 0;       // only the first `dims` elements of a row turn, an even number; 0: all
  // Which elements form a pair. false: i and i + dims / 2 (GPT-NeoX, Llama in Hugging Face's form, "rotate half").
  // true: 2i and 2i + 1 (the paper, GPT-J). Weights trained with one form do not fit the other.
  bool interleaved = false;
};

// Rotary positions (Su et al., "RoFormer: enhanced Transformer with rotary position embedding", 2021): x [..., T, D] ->
// the same shape. Row t of the last two axes turns by position offset + t, so a dot product of two rotated rows depends
// on their distance only. float32 or float64. Up to four axes are read in place, with any strides whose last is 1.
// Throws Error for other shapes, types and options.
Tensor rope(In x, const RopeOptions& options = {});

}  // namespace heed
