#include <heed/autograd/additive_attention.hpp>
//
#include <heed/autograd/attention_inputs.hpp>
#include <heed/core/additive_attention.hpp>
#include <heed/core/random.hpp>

namespace heed {
namespace {

using detail::AdditiveCall;
using detail::AdditiveSinks;
using detail::heads_of;
using detail::unit_rows;

void check_grid(In q, const char* name, const Tensor& x, DType dtype, const Shape& grid) {
  Shape both;
  check(!x.defined() || (x.dtype() == dtype && broadcast(x.shape(), grid, both) && both == grid), q.where(),
        "additive_attention: ", name, " is ", x, "; it must be ", dtype,
        " and broadcast to [batch, heads, queries, keys] ", grid);
}

void check_options(In q, In k, In u, const AdditiveAttentionOptions& o) {
  const Shape wanted = {q.dim(1), q.dim(3)};
  check(u.shape() == wanted && u.dtype() == q.dtype(), q.where(), "additive_attention: q is ", q.tensor(), " but u is ",
        u.tensor(), "; it must be [heads, width] ", wanted, " ", q.dtype());
  const Shape grid = {q.dim(0), q.dim(1), q.dim(2), k.dim(2)};
  detail::check_key_masks("additive_attention", k, o.key_lengths, o.key_mask);
  check_grid(q, "mask", o.mask, DType::bool8, grid);
  check_grid(q, "bias", o.bias, q.dtype(), grid);
  check(o.dropout >= 0 && o.dropout < 1, q.where(), "additive_attention: dropout is ", o.dropout,
        "; it must be in [0, 1)");
}

// Gathers what forward and backward share. Values are not copied unless an option has gaps.
AdditiveCall call_of(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& u, const Tensor& lengths,
                     const Tensor& key_mask, const Tensor& mask, const Tensor& bias, bool causal) {
  AdditiveCall x;
  x.pairs.q = q, x.pairs.k = k, x.pairs.v = v, x.pairs.mask = mask, x.pairs.bias = bias;
  x.pairs.lengths = lengths.defined() ? lengths.dense() : lengths;
  x.pairs.key_mask = key_mask.defined() ? key_mask.dense() : key_mask;
  x.pairs.causal = causal;
  x.u = u;
  return x;
}

// What forward and backward must agree upon.
struct Recipe {
  double dropout;
  bool causal, merged;
  Index heads;
  std::uint64_t seed, stream, position;
};

void gradients(const Recipe& r, Grads& d, const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
               const Tensor& u, const Tensor& y, const Tensor& lse, const Tensor& lengths, const Tensor& key_mask,
               const Tensor& mask, const Tensor& bias) {
  AdditiveCall x = call_of(q, k, v, u, lengths, key_mask, mask, bias, r.causal);
  x.pairs.dropout = r.dropout, x.pairs.seed = r.seed, x.pairs.stream = r.stream, x.pairs.position = r.position;
  AdditiveSinks sinks;
  if (Target t = d.strided(0)) sinks.pairs.dq = t.gradient, sinks.pairs.add_dq = t.accumulate;
  if (Target t = d.strided(1)) sinks.pairs.dk = t.gradient, sinks.pairs.add_dk = t.accumulate;
  if (Target t = d.strided(2)) sinks.pairs.dv = t.gradient, sinks.pairs.add_dv = t.accumulate;
  if (d.wants(3)) sinks.du = Tensor::empty(u.shape(), u.dtype());
  const bool wants_bias = bias.defined() && d.wants(4);
  if (wants_bias) sinks.pairs.dbias = Tensor::zeros({q.dim(0), q.dim(1), q.dim(2), k.dim(2)}, q.dtype());
  detail::additive_attention_backward(x, heads_of(y, r.merged, r.heads), heads_of(dy, r.merged, r.heads), lse, sinks);
  if (d.wants(3)) d.add(3, sinks.du);
  if (wants_bias) d.add(4, sinks.pairs.dbias);
}

// Derivation in core/kernels/additive_attention.hpp.
Tensor additive_op(In q_in, In k_in, In v_in, In u_in, const AdditiveAttentionOptions& o, bool merged) {
  detail::check_heads("additive_attention", q_in, k_in, v_in);
  check_options(q_in, k_in, u_in, o);
  const Tensor q = unit_rows(q_in), k = unit_rows(k_in), v = unit_rows(v_in), u = u_in->dense();
  const Index batch = q.dim(0), heads = q.dim(1), queries = q.dim(2), width = v.dim(3);
  AdditiveCall call = call_of(q, k, v, u, o.key_lengths, o.key_mask, o.mask, o.bias, o.causal);
  if (is_training() && o.dropout > 0) {
    call.pairs.dropout = o.dropout;
    call.pairs.seed = default_rng().seed(), call.pairs.stream = default_rng().stream();
    call.pairs.position = default_rng().advance(detail::attention_counters(call.pairs));
  }
  Tensor y = Tensor::empty(merged ? Shape{batch, queries, heads * width} : Shape{batch, heads, queries, width},
                           q.dtype()),
         lse;
  if (wants_gradient({q, k, v, u_in, o.bias})) lse = Tensor::empty({batch, heads, queries}, q.dtype());
  Tensor out = heads_of(y, merged, heads);
  detail::additive_attention_forward(call, out, lse);
  const Recipe recipe{call.pairs.dropout, o.causal,           merged, heads, call.pairs.seed,
                      call.pairs.stream,  call.pairs.position};
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
  detail::check_heads("additive_attention", q, k, k);
  check_options(q, k, u, o);
  const NoTape guard;
  const Tensor query = unit_rows(q), key = unit_rows(k);
  return detail::additive_attention_weights_of(
      call_of(query, key, {}, u->dense(), o.key_lengths, o.key_mask, o.mask, o.bias, o.causal));
}

}  // namespace heed
