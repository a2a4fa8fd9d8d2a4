#include <heed/autograd/attention.hpp>
//
#include <cmath>
#include <heed/autograd/pair_attention.hpp>

namespace heed {
namespace {

using detail::AttentionCall;
using detail::AttentionSinks;
using detail::heads_of;
using detail::pair_options;
using detail::PairRecipe;
using detail::unit_rows;

double scale_of(const AttentionOptions& o, In q) {
  return o.scale.value_or(1 / std::sqrt(static_cast<double>(q.dim(3))));
}

void gradients(const PairRecipe& r, Grads& d, const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
               const Tensor& y, const Tensor& lse, const Tensor& lengths, const Tensor& key_mask, const Tensor& mask,
               const Tensor& bias) {
  const AttentionCall x = detail::pair_call(q, k, v, lengths, key_mask, mask, bias, r);
  AttentionSinks sinks = detail::pair_sinks(d);
  const bool wants_bias = bias.defined() && d.wants(3);
  if (wants_bias) sinks.dbias = Tensor::zeros({q.dim(0), q.dim(1), q.dim(2), k.dim(2)}, q.dtype());
  detail::attention_backward(x, heads_of(y, r.merged, r.heads), heads_of(dy, r.merged, r.heads), lse, sinks);
  if (wants_bias) d.add(3, sinks.dbias);
}

// Derivation in core/kernels/attention.hpp.
Tensor attention_op(In q_in, In k_in, In v_in, const AttentionOptions& o, bool merged) {
  detail::check_heads("attention", q_in, k_in, v_in);
  detail::check_pairs("attention", q_in, k_in, pair_options(o));
  const Tensor q = unit_rows(q_in), k = unit_rows(k_in), v = unit_rows(v_in);
  AttentionCall call = detail::pair_call(q, k, v, pair_options(o), scale_of(o, q_in));
  detail::draw_dropout(call, o.dropout);
  Tensor y = detail::pair_output(call, merged), lse;
  if (wants_gradient({q, k, v, o.bias})) lse = Tensor::empty({q.dim(0), q.dim(1), q.dim(2)}, q.dtype());
  const PairRecipe recipe = detail::recipe_of(call, merged);
  Tensor out = heads_of(y, merged, recipe.heads);
  detail::attention_forward(call, out, lse);
  record("attention", q_in.where(), y, {q, k, v, o.bias},
         saved(q, k, v, y, lse, o.key_lengths, o.key_mask, o.mask, o.bias),
         [recipe](Grads& d, const Tensor& dy, const auto&... kept) { gradients(recipe, d, dy, kept...); });
  return y;
}

}  // namespace

Tensor attention(In q, In k, In v, const AttentionOptions& options) { return attention_op(q, k, v, options, false); }

Tensor attention_merged(In q, In k, In v, const AttentionOptions& options) {
  return attention_op(q, k, v, options, true);
}

Tensor attention_weights(In q, In k, const AttentionOptions& options) {
  detail::check_heads("attention", q, k, k);
  detail::check_pairs("attention", q, k, pair_options(options));
  const NoTape guard;
  const Tensor query = unit_rows(q), key = unit_rows(k);
  return detail::attention_weights_of(detail::pair_call(query, key, key, pair_options(options), scale_of(options, q)));
}

}  // namespace heed
