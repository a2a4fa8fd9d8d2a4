// A table of vectors, looked up by index.
#pragma once
#include <heed/autograd/embedding.hpp>
#include <heed/layers/init.hpp>

namespace heed {

struct Embedding {
  Parameter weight;                  // [count, width]
  std::optional<Index> padding_idx;  // a row that begins as zeros and gets no gradient; negative: from the end

  Embedding(Index count, Index width, Rng& rng, std::optional<Index> padding = {})
      : weight(Tensor::empty({count, width})), padding_idx(padding) {
    require(count > 0 && width > 0, "Embedding: count is ", count, " and width is ", width, "; both must be 1 or more");
    require(!padding || (*padding >= -count && *padding < count), "Embedding: padding_idx is ", padding.value_or(0),
            " and count is ", count, "; padding_idx must be in [", -count, ", ", count, ")");
    init::normal_(weight, rng);
    if (padding) weight[*padding].zero_();
  }

  // int32 [...] -> [..., width]
  Tensor operator()(In indices) const { return embedding(indices, weight, padding_idx); }

  void members(auto&& visit) { visit("weight", weight); }
};

}  // namespace heed
