#include <heed/autograd/sparse_attention.hpp>
//
#include <cmath>
#include <heed/autograd/attention_inputs.hpp>
#include <heed/core/random.hpp>
#include <heed/core/sparse_attention.hpp>

namespace heed {
namespace {

using detail::AttentionCall;
using detail::AttentionSinks;
using detail::heads_of;
using detail::unit_rows;

void check_grid(const Where& at, const char* name, const Tensor& x, const Shape& grid) {
  Shape both;
  check(broadcast(x.shape(), grid, both) && both == grid, at, "sparse_attention: ", name, " is ", x,
        "; it must broadcast to [batch, heads, queries, keys] ", grid);
}

void check_options(In q, In k, const SparseAttentionOptions& o) {
  const Where& at = q.where();
  const Shape grid = {q.dim(0), q.dim(1), q.dim(2), k.dim(2)};
  detail::check_key_masks("sparse_attention", k, o.key_lengths, o.key_mask);
  if (o.mask.defined()) {
    check(o.mask.dtype() == DType::bool8, at, "sparse_attention: mask is ", o.mask,
          "; it must be bool8 (a bias is added to scores)");
    check_grid(at, "mask", o.mask, grid);
  }
  if (o.bias.defined()) {
    check(o.bias.dtype() == q.dtype(), at, "sparse_attention: bias is ", o.bias, " and q is ", q.tensor(),
          "; the dtypes must be the same");
    check_grid(at, "bias", o.bias, grid);
  }
  check(o.dropout >= 0 && o.dropout < 1, at, "sparse_attention: dropout is ", o.dropout, "; it must be in [0, 1)");
}

KeyLists checked_lists(In q, In k, const KeyLists& lists) {
  check(lists.offsets.defined() && lists.keys.defined(), q.where(),
        "sparse_attention: the lists are undefined; they must be offsets and keys");
  const KeyLists dense{lists.offsets.dense(), lists.keys.dense()};
  detail::check_lists("sparse_attention", q, k, dense);
  return dense;
}

AttentionCall call_of(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lengths, const Tensor& key_mask,
                      const Tensor& mask, const Tensor& bias, double scale) {
  AttentionCall x;
  x.q = q, x.k = k, x.v = v, x.mask = mask, x.bias = bias;
  x.lengths = lengths.defined() ? lengths.dense() : lengths;
  x.key_mask = key_mask.defined() ? key_mask.dense() : key_mask;
  x.scale = scale;
  return x;
}

double scale_of(const SparseAttentionOptions& o, In q) {
  return o.scale.value_or(1 / std::sqrt(static_cast<double>(q.dim(3))));
}

// What forward and backward must agree upon.
struct Recipe {
  double scale, dropout;
  bool merged;
  Index heads;
  std::uint64_t seed, stream, position;
};

void gradients(const Recipe& r, Grads& d, const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
               const Tensor& y, const Tensor& lse, const Tensor& offsets, const Tensor& keys, const Tensor& lengths,
               const Tensor& key_mask, const Tensor& mask, const Tensor& bias) {
  AttentionCall x = call_of(q, k, v, lengths, key_mask, mask, bias, r.scale);
  x.dropout = r.dropout, x.seed = r.seed, x.stream = r.stream, x.position = r.position;
  AttentionSinks sinks;
  if (Target t = d.strided(0)) sinks.dq = t.gradient, sinks.add_dq = t.accumulate;
  if (Target t = d.strided(1)) sinks.dk = t.gradient, sinks.add_dk = t.accumulate;
  if (Target t = d.strided(2)) sinks.dv = t.gradient, sinks.add_dv = t.accumulate;
  Tensor dbias;
  if (bias.defined() && d.wants(3)) {
    dbias = Tensor::zeros(bias.shape(), bias.dtype());
    sinks.dbias = dbias.expand({q.dim(0), q.dim(1), q.dim(2), k.dim(2)});
  }
  detail::sparse_attention_backward(x, {offsets, keys}, heads_of(y, r.merged, r.heads), heads_of(dy, r.merged, r.heads),
                                    lse, sinks);
  if (dbias.defined()) d.add(3, dbias);
}

Tensor sparse_op(In q_in, In k_in, In v_in, const KeyLists& given, const SparseAttentionOptions& o, bool merged) {
  detail::check_heads("sparse_attention", q_in, k_in, v_in);
  check_options(q_in, k_in, o);
  const KeyLists lists = checked_lists(q_in, k_in, given);
  const Tensor q = unit_rows(q_in), k = unit_rows(k_in), v = unit_rows(v_in);
  const Index batch = q.dim(0), heads = q.dim(1), queries = q.dim(2), width = v.dim(3);
  AttentionCall call = call_of(q, k, v, o.key_lengths, o.key_mask, o.mask, o.bias, scale_of(o, q_in));
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
  detail::sparse_attention_forward(call, lists, out, lse);
  const Recipe recipe{call.scale, call.dropout, merged, heads, call.seed, call.stream, call.position};
  record("sparse_attention", q_in.where(), y, {q, k, v, o.bias},
         saved(q, k, v, y, lse, lists.offsets, lists.keys, o.key_lengths, o.key_mask, o.mask, o.bias),
         [recipe](Grads& d, const Tensor& dy, const auto&... kept) { gradients(recipe, d, dy, kept...); });
  return y;
}

}  // namespace

Tensor sparse_attention(In q, In k, In v, const KeyLists& lists, const SparseAttentionOptions& options) {
  return sparse_op(q, k, v, lists, options, false);
}

Tensor sparse_attention_merged(In q, In k, In v, const KeyLists& lists, const SparseAttentionOptions& options) {
  return sparse_op(q, k, v, lists, options, true);
}

Tensor sparse_attention_weights(In q, In k, const KeyLists& given, const SparseAttentionOptions& o) {
  detail::check_heads("sparse_attention", q, k, k);
  check_options(q, k, o);
  const KeyLists lists = checked_lists(q, k, given);
  const NoTape guard;
  const Tensor query = unit_rows(q), key = unit_rows(k);
  return detail::sparse_attention_weights_of(
      call_of(query, key, key, o.key_lengths, o.key_mask, o.mask, o.bias, scale_of(o, q)), lists);
}

}  // namespace heed
