#include <heed/autograd/sparse_attention.hpp>
//
#include <cmath>
#include <heed/autograd/pair_attention.hpp>
#include <heed/core/sparse_attention.hpp>

namespace heed {
namespace {

using detail::AttentionCall;
using detail::AttentionSinks;
using detail::heads_of;
using detail::pair_options;
using detail::PairRecipe;
using detail::unit_rows;

KeyLists checked_lists(In q, In k, const KeyLists& lists) {
  check(lists.offsets.defined() && lists.keys.defined(), q.where(),
        "sparse_attention: the lists are undefined; they must be offsets and keys");
  note_reads({lists.offsets, lists.keys});
  const KeyLists dense{lists.offsets.dense(), lists.keys.dense()};
  detail::check_lists("sparse_attention", q, k, dense);
  return dense;
}

double scale_of(const SparseAttentionOptions& o, In q) {
  return o.scale.value_or(1 / std::sqrt(static_cast<double>(q.dim(3))));
}

void gradients(const PairRecipe& r, Grads& d, const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
               const Tensor& y, const Tensor& lse, const Tensor& offsets, const Tensor& keys, const Tensor& lengths,
               const Tensor& key_mask, const Tensor& mask, const Tensor& bias) {
  const AttentionCall x = detail::pair_call(q, k, v, lengths, key_mask, mask, bias, r);
  AttentionSinks sinks = detail::pair_sinks(d);
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
  detail::check_pairs("sparse_attention", q_in, k_in, pair_options(o));
  const KeyLists lists = checked_lists(q_in, k_in, given);
  const Tensor q = unit_rows(q_in), k = unit_rows(k_in), v = unit_rows(v_in);
  AttentionCall call = detail::pair_call(q, k, v, pair_options(o), scale_of(o, q_in));
  detail::draw_dropout(call, o.dropout);
  Tensor y = detail::pair_output(call, merged), lse;
  if (wants_gradient({q, k, v, o.bias})) lse = Tensor::empty({q.dim(0), q.dim(1), q.dim(2)}, q.dtype());
  const PairRecipe recipe = detail::recipe_of(call, merged);
  Tensor out = heads_of(y, merged, recipe.heads);
  detail::sparse_attention_forward(call, lists, out, lse);
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
  detail::check_pairs("sparse_attention", q, k, pair_options(o));
  const KeyLists lists = checked_lists(q, k, given);
  const NoTape guard;
  const Tensor query = unit_rows(q), key = unit_rows(k);
  return detail::sparse_attention_weights_of(detail::pair_call(query, key, key, pair_options(o), scale_of(o, q)),
                                             lists);
}

}  // namespace heed
