#include <heed/autograd/attention.hpp>
//
#include <cmath>
#include <heed/core/attention.hpp>
#include <heed/core/random.hpp>

namespace heed {
namespace {

using detail::AttentionCall;
using detail::AttentionSinks;

void check_inputs(In q, In k, In v) {
  const Where& at = q.where();
  check(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, at, "attention: q is ", q.tensor(), ", k is ", k.tensor(),
        " and v is ", v.tensor(), "; they must be [batch, heads, length, width]");
  check(
      (q.dtype() == DType::float32 || q.dtype() == DType::float64) && k.dtype() == q.dtype() && v.dtype() == q.dtype(),
      at, "attention: q is ", q.tensor(), ", k is ", k.tensor(), " and v is ", v.tensor(),
      "; all must be float32, or all float64");
  check(k.dim(0) == q.dim(0) && k.dim(3) == q.dim(3), at, "attention: q is ", q.tensor(), " but k is ", k.tensor(),
        "; batch and width must be the same");
  check(v.dim(0) == k.dim(0) && v.dim(1) == k.dim(1) && v.dim(2) == k.dim(2), at, "attention: k is ", k.tensor(),
        " but v is ", v.tensor(), "; all axes but the last must be the same");
  check(k.dim(1) > 0 && q.dim(1) % k.dim(1) == 0, at, "attention: q is ", q.tensor(), " and k is ", k.tensor(),
        "; the heads of k and v must divide the heads of q");
  check(q.dim(3) > 0, at, "attention: q is ", q.tensor(), "; its last axis must not be empty");
}

void check_grid(const Where& at, const char* name, const Tensor& x, const Shape& grid) {
  Shape both;
  check(broadcast(x.shape(), grid, both) && both == grid, at, "attention: ", name, " is ", x,
        "; it must broadcast to [batch, heads, queries, keys] ", grid);
}

void check_options(In q, In k, const AttentionOptions& o) {
  const Where& at = q.where();
  const Index batch = q.dim(0), keys = k.dim(2);
  const Shape grid = {batch, q.dim(1), q.dim(2), keys};
  if (o.key_lengths.defined())
    check(o.key_lengths.shape() == Shape{batch} && o.key_lengths.dtype() == DType::int32, at,
          "attention: key_lengths is ", o.key_lengths, "; it must be ", Shape{batch}, " int32");
  if (o.key_mask.defined())
    check(o.key_mask.shape() == Shape{batch, keys} && o.key_mask.dtype() == DType::bool8, at, "attention: key_mask is ",
          o.key_mask, "; it must be ", Shape{batch, keys}, " bool8");
  if (o.mask.defined()) {
    check(o.mask.dtype() == DType::bool8, at, "attention: mask is ", o.mask,
          "; it must be bool8 (a bias is added to scores)");
    check_grid(at, "mask", o.mask, grid);
  }
  if (o.bias.defined()) {
    check(o.bias.dtype() == q.dtype(), at, "attention: bias is ", o.bias, " and q is ", q.tensor(),
          "; the dtypes must be the same");
    check_grid(at, "bias", o.bias, grid);
  }
  check(o.dropout >= 0 && o.dropout < 1, at, "attention: dropout is ", o.dropout, "; it must be in [0, 1)");
}

Tensor unit_rows(const Tensor& x) { return x.dim(-1) <= 1 || x.strides()[-1] == 1 ? x : x.contiguous(); }

// Gathers what forward and backward share. Values are not copied unless an option has gaps.
AttentionCall call_of(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lengths, const Tensor& key_mask,
                      const Tensor& mask, const Tensor& bias, double scale, bool causal) {
  AttentionCall x;
  x.q = q, x.k = k, x.v = v, x.mask = mask, x.bias = bias;
  x.lengths = lengths.defined() ? lengths.dense() : lengths;
  x.key_mask = key_mask.defined() ? key_mask.dense() : key_mask;
  x.scale = scale, x.causal = causal;
  return x;
}

Tensor heads_of(const Tensor& y, bool merged, Index heads) {
  return merged ? y.view({y.dim(0), y.dim(1), heads, y.dim(2) / heads}).transpose(1, 2) : y;
}

// What forward and backward must agree upon.
struct Recipe {
  double scale, dropout;
  bool causal, merged;
  Index heads;
  std::uint64_t seed, stream, position;
};

void attention_gradients(const Recipe& r, Grads& d, const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
                         const Tensor& y, const Tensor& lse, const Tensor& lengths, const Tensor& key_mask,
                         const Tensor& mask, const Tensor& bias) {
  AttentionCall x = call_of(q, k, v, lengths, key_mask, mask, bias, r.scale, r.causal);
  x.dropout = r.dropout, x.seed = r.seed, x.stream = r.stream, x.position = r.position;
  AttentionSinks sinks;
  if (Target t = d.strided(0)) sinks.dq = t.gradient, sinks.add_dq = t.accumulate;
  if (Target t = d.strided(1)) sinks.dk = t.gradient, sinks.add_dk = t.accumulate;
  if (Target t = d.strided(2)) sinks.dv = t.gradient, sinks.add_dv = t.accumulate;
  const bool wants_bias = bias.defined() && d.wants(3);
  if (wants_bias) sinks.dbias = Tensor::zeros({q.dim(0), q.dim(1), q.dim(2), k.dim(2)}, q.dtype());
  detail::attention_backward(x, heads_of(y, r.merged, r.heads), heads_of(dy, r.merged, r.heads), lse, sinks);
  if (wants_bias) d.add(3, sinks.dbias);
}

// Derivation in core/kernels/attention.hpp.
Tensor attention_op(In q_in, In k_in, In v_in, const AttentionOptions& o, bool merged) {
  check_inputs(q_in, k_in, v_in);
  check_options(q_in, k_in, o);
  const Tensor q = unit_rows(q_in), k = unit_rows(k_in), v = unit_rows(v_in);
  const Index batch = q.dim(0), heads = q.dim(1), queries = q.dim(2), width = v.dim(3);
  const double scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(q.dim(3))));
  AttentionCall call = call_of(q, k, v, o.key_lengths, o.key_mask, o.mask, o.bias, scale, o.causal);
  if (is_training() && o.dropout > 0) {
    call.dropout = o.dropout;
    call.seed = default_rng().seed(), call.stream = default_rng().stream();
    call.position = default_rng().advance(detail::attention_counters(call));
  }
  Tensor y = Tensor::empty(merged ? Shape{batch, queries, heads * width} : Shape{batch, heads, queries, width},
                           q.dtype()),
         lse;
  if (wants_gradient({q, k, v, o.bias})) lse = Tensor::empty({batch, heads, queries}, q.dtype());
  Tensor out = heads_of(y, merged, heads);
  detail::attention_forward(call, out, lse);
  const Recipe recipe{scale, call.dropout, o.causal, merged, heads, call.seed, call.stream, call.position};
  record("attention", q_in.where(), y, {q, k, v, o.bias},
         saved(q, k, v, y, lse, o.key_lengths, o.key_mask, o.mask, o.bias),
         [recipe](Grads& d, const Tensor& dy, const auto&... kept) { attention_gradients(recipe, d, dy, kept...); });
  return y;
}

}  // namespace

Tensor attention(In q, In k, In v, const AttentionOptions& options) { return attention_op(q, k, v, options, false); }

Tensor attention_merged(In q, In k, In v, const AttentionOptions& options) {
  return attention_op(q, k, v, options, true);
}

Tensor attention_weights(In q, In k, const AttentionOptions& options) {
  check_inputs(q, k, k);
  check_options(q, k, options);
  const NoTape guard;
  const Tensor query = unit_rows(q), key = unit_rows(k);
  return detail::attention_weights_of(
      call_of(query, key, key, options.key_lengths, options.key_mask, options.mask, options.bias,
              options.scale.value_or(1 / std::sqrt(static_cast<double>(query.dim(3)))), options.causal));
}

}  // namespace heed
