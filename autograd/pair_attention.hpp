// What the attention ops with a score for each pair of query and key share: softmax (attention), additive, over lists
// of keys, any similarity.
#pragma once
#include <heed/autograd/attention_inputs.hpp>
#include <heed/autograd/record.hpp>
#include <heed/core/attention.hpp>
#include <optional>

namespace heed::detail {

// The options that all of them have, by the names they have there.
struct PairOptions {
  bool causal = false;
  Tensor key_lengths, key_mask, mask, bias;
  double dropout = 0, scale = 1;
};
template <class Options>
PairOptions pair_options(const Options& o) {
  PairOptions all{false, o.key_lengths, o.key_mask, o.mask, o.bias, o.dropout};
  if constexpr (requires { o.causal; }) all.causal = o.causal;
  if constexpr (requires { o.scale; }) all.scale = std::optional<double>(o.scale).value_or(1);
  return all;
}

// Masks, bias, dropout and scale for q [B, H, T, D] and k [B, Hk, S, D], which are checked; else an Error that begins
// with `op`.
void check_pairs(const char* op, In q, In k, const PairOptions& o);

// What backward needs besides tensors to make the call of forward again.
struct PairRecipe {
  double scale = 1, dropout = 0;
  bool causal = false, merged = false;
  Index heads = 0;
  std::uint64_t seed = 0, stream = 0, position = 0;
};

// The call of the kernels. Values are not copied unless an option has gaps. v may be undefined, for weights alone.
AttentionCall pair_call(const Tensor& q, const Tensor& k, const Tensor& v, const PairOptions& o, double scale);
AttentionCall pair_call(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lengths,
                        const Tensor& key_mask, const Tensor& mask, const Tensor& bias, const PairRecipe& r);

// Takes the random numbers of a dropout, where training.
void draw_dropout(AttentionCall& call, double dropout);

PairRecipe recipe_of(const AttentionCall& call, bool merged);

// The output, uninitialised: [B, H, T, Dv], or [B, T, H * Dv] where heads are merged.
Tensor pair_output(const AttentionCall& call, bool merged);

// For the gradients of q, k and v, inputs 0 to 2 of the op.
AttentionSinks pair_sinks(Grads& d);

}  // namespace heed::detail
