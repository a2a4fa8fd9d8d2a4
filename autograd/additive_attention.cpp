#include <heed/autograd/additive_attention.hpp>
//
#include <heed/autograd/pair_attention.hpp>
#include <heed/core/additive_attention.hpp>

namespace heed {
namespace {

using detail::AdditiveCall;
using detail::AdditiveSinks;
using detail::heads_of;
using detail::pair_options;
using detail::PairRecipe;
using detail::unit_rows;

void check_call(In q, In k, In v, In u, const AdditiveAttentionOptions& o) {
  detail::check_heads("additive_attention", q, k, v);
  const Shape wanted = {q.dim(1), q.dim(3)};
  check(u.shape() == wanted && u.dtype() == q.dtype(), q.where(), "additive_attention: q is ", q.tensor(), " but u is ",
        u.tensor(), "; it must be [heads, width] ", wanted, " ", q.dtype());
  detail::check_pairs("additive_attention", q, k, pair_options(o));
}

void gradients(const PairRecipe& r, Grads& d, const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
               const Tensor& u, const Tensor& y, const Tensor& lse, const Tensor& lengths, const Tensor& key_mask,
               const Tensor& mask, const Tensor& bias) {
  const AdditiveCall x{detail::pair_call(q, k, v, lengths, key_mask, mask, bias, r), u};
  AdditiveSinks sinks{detail::pair_sinks(d), {}};
  if (d.wants(3)) sinks.du = Tensor::empty(u.shape(), u.dtype());
  const bool wants_bias = bias.defined() && d.wants(4);
  if (wants_bias) sinks.pairs.dbias = Tensor::zeros({q.dim(0), q.dim(1), q.dim(2), k.dim(2)}, q.dtype());
  detail::additive_attention_backward(x, heads_of(y, r.merged, r.heads), heads_of(dy, r.merged, r.heads), lse, sinks);
  if (d.wants(3)) d.add(3, sinks.du);
  if (wants_bias) d.add(4, sinks.pairs.dbias);
}

// Derivation in core/kernels/additive_attention.hpp.
Tensor additive_op(In q_in, In k_in, In v_in, In u_in, const AdditiveAttentionOptions& o, bool merged) {
  check_call(q_in, k_in, v_in, u_in, o);
  const Tensor q = unit_rows(q_in), k = unit_rows(k_in), v = unit_rows(v_in), u = u_in->dense();
  AdditiveCall call{detail::pair_call(q, k, v, pair_options(o), 1), u};
  detail::draw_dropout(call.pairs, o.dropout);
  Tensor y = detail::pair_output(call.pairs, merged), lse;
  if (wants_gradient({q, k, v, u_in, o.bias})) lse = Tensor::empty({q.dim(0), q.dim(1), q.dim(2)}, q.dtype());
  const PairRecipe recipe = detail::recipe_of(call.pairs, merged);
  Tensor out = heads_of(y, merged, recipe.heads);
  detail::additive_attention_forward(call, out, lse);
  record("additive_attention", q_in.where(), y, {q, k, v, u_in, o.bias},
         saved(q, k, v, u, y, lse, o.key_lengths, o.key_mask, o.mask, o.bias),
         [recipe](Grads& d, const Tensor& dy, const auto&... kept) { gradients(recipe, d, dy, kept...); });
  return y;
}

}  // namespace

Tensor additive_attention(In q, In k, In v, In u, const AdditiveAttentionOptions& options) {
  return additive_op(q, k, v, u, options, false);
}

Tensor additive_attention_merged(In q, In k, In v, In u, const AdditiveAttentionOptions& options) {
  return additive_op(q, k, v, u, options, true);
}

Tensor additive_attention_weights(In q, In k, In u, const AdditiveAttentionOptions& o) {
  check_call(q, k, k, u, o);
  const NoTape guard;
  return detail::additive_attention_weights_of(
      {detail::pair_call(unit_rows(q), unit_rows(k), {}, pair_options(o), 1), u->dense()});
}

}  // namespace heed
