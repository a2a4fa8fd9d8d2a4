// Linformer (Wang et al., "Linformer: self-attention with linear complexity", 2020): keys and values are projected from
// the positions to m rows, softmax(Q (E K)^T / sqrt(D)) (F V). Keys beyond the length are zeros before the projection.
// The projection mixes all positions, so there is no causal form; the weights of single positions may be negative.
#pragma once
#include <heed/core/random.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

struct LinformerAttention {
  Parameter e, f;  // [rows, positions]: m x n, n >= S

  // positions: the most that a sequence may have.
  LinformerAttention(Index positions, Index rows, Rng& rng);

  std::string name() const { return "linformer"; }
  AttentionCapabilities capabilities() const {
    return {.key_mask = true, .cross = true, .grouped = true, .why = "its rows of keys mix all positions"};
  }
  double keys_per_query(Index, Index) const { return 2 * static_cast<double>(e.dim(0)); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  void members(auto&& visit) {
    visit("e", e);
    visit("f", f);
  }
};

}  // namespace heed
