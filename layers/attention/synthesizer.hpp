// Synthesizer: attention whose weights do not come from products of queries and keys.
//
// Example:
//
//   Rng rng(1);
//   SynthesizerAttention dense(2, 8, rng, {.kind = SynthesizerKind::dense, .positions = 100});
//   const MultiHeadAttention layer({.width = 16, .heads = 2}, rng, std::move(dense));
//   const Tensor y = layer(rng.normal({1, 50, 16}), {.causal = true});
#pragma once
#include <heed/core/random.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <string_view>
#include <vector>

namespace heed {

// How the scores are made: from the query alone, or learned per pair of positions; in full, or as a product.
enum class SynthesizerKind { dense, random, factorized_dense, factorized_random };
// The kind named "dense", "random", "factorized-dense" or "factorized-random". Throws Error for another name.
SynthesizerKind synthesizer_kind(std::string_view name);

// Options of SynthesizerAttention.
struct SynthesizerOptions {
  SynthesizerKind kind = SynthesizerKind::dense;  // see SynthesizerAttention
  Index positions = 0;                            // n: the largest number of keys
  Index rank = 0;                                 // k of factorized_random; 0: 8, as in the paper
};

// Attention by synthetic scores (Tay et al., "Synthesizer: rethinking self-attention for Transformer models", 2020), as
// a mechanism. Per head, with query i at position P = i + S - T (at least 0), and key j:
//
//   dense              s_ij = W_j . relu(q_i) + b_j                                W [n, D], b [n]
//   random             s_ij = R_Pj                                                R [n, n]
//   factorized_dense   s_ij = (A relu(q_i) + a)_(j mod m) (B relu(q_i) + b)_(j div m)   A [m, D], B [ceil(n / m), D]
//   factorized_random  s_ij = U_P . V_j                                           U, V [n, k]
//
// and softmax over j. m is the square root of n, rounded up. q_i, a linear function of x, is the first layer of the
// paper's networks. Keys are not read, and the gradient that reaches them is 0. dense and factorized_random need O(n)
// memory; the others hold the scores.
class SynthesizerAttention {
 public:
  // W and b, or R, or A and a, B and b, or U and V, [heads, rows, D or k] each, with biases as a last column.
  std::vector<Parameter> maps;

  // size: of queries per head. Throws Error for sizes, positions and a rank below 1.
  SynthesizerAttention(Exactly<Index> heads, Exactly<Index> size, Rng& rng, const SynthesizerOptions& options);

  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "synthesizer"; }
  AttentionCapabilities capabilities() const { return AttentionCapabilities::of_places({}); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  void members(auto&& visit) { visit("maps", maps); }

 private:
  SynthesizerOptions options_;
};

}  // namespace heed
