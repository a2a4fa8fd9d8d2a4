#include <heed/autograd/attention.hpp>
//
#include <cmath>
#include <heed/autograd/attention_inputs.hpp>
#include <heed/core/attention.hpp>
#include <heed/core/random.hpp>

namespace heed {
namespace {

using detail::AttentionCall;
using detail::AttentionSinks;
using detail::heads_of;
using detail::unit_rows;

void check_grid(const Where& at, const char* name, const Tensor& x, const Shape& grid) {
  Shape both;
  check(broadcast(x.shape(), grid, both) && both == grid, at, "attention: ", name, " is ", x,
        "; it must broadcast to [batch, heads, queries, keys] ", grid);
}

void check_options(In q, In k, const AttentionOptions& o) {
  const Where& at = q.where();
  const Shape grid = {q.dim(0), q.dim(1), q.dim(2), k.dim(2)};
  detail::check_key_masks("attention", k, o.key_lengths, o.key_mask);
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
  detail::check_heads("attention", q_in, k_in, v_in);
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
  detail::check_heads("attention", q, k, k);
  check_options(q, k, options);
  const NoTape guard;
  const Tensor query = unit_rows(q), key = unit_rows(k);
  return detail::attention_weights_of(
      call_of(query, key, key, options.key_lengths, options.key_mask, options.mask, options.bias,
              options.scale.value_or(1 / std::sqrt(static_cast<double>(query.dim(3)))), options.causal));
}

}  // namespace heed
