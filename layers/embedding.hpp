// A table of vectors, looked up by index.
#pragma once
#include <heed/autograd/embedding.hpp>
#include <heed/layers/init.hpp>

namespace heed {

struct Embedding {
  Parameter weight;  // [count, width]

  Embedding(Index count, Index width, Rng& rng) : weight(Tensor::empty({count, width})) {
    require(count > 0 && width > 0, "Embedding: count is ", count, " and width is ", width, "; both must be 1 or more");
    init::normal_(weight, rng);
  }

  Tensor operator()(In indices) const { return embedding(indices, weight); }  // int32 [...] -> [..., width]

  void members(auto&& visit) { visit("weight", weight); }
};

}  // namespace heed
