// Softmax attention with vectors of relative positions on keys and values, learned (Shaw) or fixed (NEZHA).
//
// Example:
//
//   Rng rng(1);
//   const MultiHeadAttention shaw({.width = 16, .heads = 2}, rng, ShawAttention(8, rng, {.max_distance = 4}));
//   const MultiHeadAttention nezha({.width = 16, .heads = 2}, rng, NezhaAttention(8));
//   const Tensor y = shaw(rng.normal({1, 20, 16}), {.causal = true});
#pragma once
#include <heed/autograd/generic_attention.hpp>
#include <heed/core/random.hpp>
#include <heed/layers/attention/mechanism.hpp>

namespace heed {

// Both mechanisms add a vector a_d to keys and a vector b_d to values, for the distance d of the key from the query,
// clipped to max_distance. All heads share the vectors. Formulas and derivatives: relative_attention() in
// autograd/generic_attention.hpp. As values depend on the query, there are no weights with which apply() sums the given
// values alone.

// Options of ShawAttention and NezhaAttention.
struct RelativeVectorsOptions {
  Index max_distance = 0;  // c: farther keys have the vectors of this distance. 0: 16 for Shaw, 64 for NEZHA
  Index value_size = 0;    // of a head; 0: the size of queries and keys
  bool of_keys = true;     // a_d
  bool of_values = true;   // b_d; Shaw et al. found no loss without them
};

namespace detail {

// What both mechanisms share. Tables are [2 max_distance + 1, size], by distance from -max_distance.
AttentionCapabilities relative_capabilities(const RelativeVectorsOptions& options);
RelativeVectorsOptions checked_relative(const char* name, Index size, RelativeVectorsOptions options, Index usual);
AttentionState relative_state(const RelativeVectors& vectors);

}  // namespace detail

// Learned vectors (Shaw, Uszkoreit, Vaswani, "Self-attention with relative position representations", 2018), as a
// mechanism.
class ShawAttention {
 public:
  Parameter keys, values;  // [2 max_distance + 1, size] and [.., value_size]; undefined if an option leaves them out

  // size: of queries and keys per head. Throws Error for sizes and a distance below 1, and without any vectors.
  ShawAttention(Exactly<Index> size, Rng& rng, const RelativeVectorsOptions& options = {});

  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "shaw"; }
  AttentionCapabilities capabilities() const { return detail::relative_capabilities(options_); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const {
    return relative_attention(q, k, v, {keys, values, {}}, call);
  }
  AttentionState make_state() const { return detail::relative_state({keys, values, {}}); }
  void members(auto&& visit) {
    visit("keys", keys);
    visit("values", values);
  }

 private:
  RelativeVectorsOptions options_;
};

// Fixed sinusoidal vectors (Wei et al., "NEZHA: neural contextualized representation for Chinese language
// understanding", 2019), as a mechanism:
//
//   a_d[2 m] = sin(d / 10000^(2 m / size))     a_d[2 m + 1] = cos(d / 10000^(2 m / size))     b_d by its own size
class NezhaAttention {
 public:
  // size: of queries and keys per head. Throws Error as ShawAttention.
  explicit NezhaAttention(Exactly<Index> size, const RelativeVectorsOptions& options = {});

  // The members of a mechanism: see mechanism.hpp.
  std::string name() const { return "nezha"; }
  AttentionCapabilities capabilities() const { return detail::relative_capabilities(options_); }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const;
  AttentionState make_state() const;
  const Tensor& keys() const { return keys_; }      // [2 max_distance + 1, size]; undefined without
  const Tensor& values() const { return values_; }  // [2 max_distance + 1, value_size]; undefined without
  void members(auto&&) {}

 private:
  RelativeVectorsOptions options_;
  Tensor keys_, values_;  // float64
};

}  // namespace heed
