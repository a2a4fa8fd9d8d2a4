// Luna: attention through a short learned memory, in linear time.
//
// Example:
//
//   Rng rng(1);
//   const MultiHeadAttention layer({.width = 16, .heads = 2}, rng, LunaAttention(2, 8, rng, {.memory = 16}));
//   const Tensor y = layer(rng.normal({1, 1000, 16}));
#pragma once
#include <heed/core/random.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

// Options of LunaAttention.
struct LunaOptions {
  Index memory = 16;     // m: vectors of the memory
  Index value_size = 0;  // of a head's values; 0: the size of its queries
};

// Luna (Ma et al., "Luna: linear unified nested attention", 2021, equations 4 and 5), as a mechanism: softmax attention
// of m learned queries packs all positions into m vectors, and the queries attend to these. Per head, with the softmax
// over j and over the m rows:
//
//   C = softmax(P K^T / sqrt(D)) V            [m, Dv]     P: `memory`
//   O = softmax(Q (C' W_K^T)^T / sqrt(D)) (C' W_V^T)      C': C of all heads side by side, [m, H Dv]
//
// Time is O(n m D). P includes the paper's map of the memory to queries. In the paper, the packed memory of a layer is
// the memory of the next layer; here each layer has its own. C mixes all positions, so this form is not causal. A
// sequence without any key gives zeros.
struct LunaAttention {
  Parameter memory;  // [H, m, D]
  Parameter keys;    // W_K: [H D, H Dv]
  Parameter values;  // W_V: [H Dv, H Dv]

  // head_size: D. Throws Error for heads, sizes or a memory below 1.
  LunaAttention(Exactly<Index> head_count, Exactly<Index> head_size, Rng& rng, const LunaOptions& options = {});

  // The members of a mechanism: see mechanism.hpp. keys_per_query() counts packing and unpacking.
  std::string name() const { return "luna"; }
  AttentionCapabilities capabilities() const {
    return {.key_mask = true, .cross = true, .grouped = true, .why = "its memory packs all positions"};
  }
  double keys_per_query(Index, Index) const { return 2 * static_cast<double>(memory.dim(1)); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  void members(auto&& visit) {
    visit("memory", memory);
    visit("keys", keys);
    visit("values", values);
  }
};

// The causal form (the same paper, section 3.3), as a mechanism. With t the number of positions up to the query's, and
// sums over j up to it:
//
//   a_j = softplus(P k_j / sqrt(D))                          [m]
//   w_t = softmax(1/t sum_j (q_t . k_j) a_j / sqrt(D))       [m]
//   o_t = 1/t sum_j (w_t . a_j) v_j
//
// Both sums are states of gated_attention() without gates: O(n m D), and decoding in constant memory. The paper
// projects the keys of a_j by a map of their own; here P includes it, and all keys are those of the layer.
struct CausalLunaAttention {
  Parameter memory;  // P: [H, m, D]

  // head_size: D. Throws Error for heads, sizes or a memory below 1.
  CausalLunaAttention(Exactly<Index> head_count, Exactly<Index> head_size, Rng& rng, const LunaOptions& options = {});

  // The members of a mechanism: see mechanism.hpp. keys_per_query() counts both sums.
  std::string name() const { return "luna"; }
  AttentionCapabilities capabilities() const {
    return {.causal = true,
            .causal_only = true,
            .key_mask = true,
            .state = true,
            .why = "its sums over the positions so far have no weights of single pairs"};
  }
  double keys_per_query(Index, Index) const { return 2 * static_cast<double>(memory.dim(1)); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&& visit) { visit("memory", memory); }
};

}  // namespace heed
