// The decode state that stores all keys and values.
#include <algorithm>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {

// Makes room for `length` positions. The capacity doubles, so most steps copy no earlier positions.
static void grow(Tensor& cache, const Tensor& like, Index used, Index length) {
  if (cache.defined() && cache.dim(2) >= length) return;
  const Index capacity = std::max<Index>(length, cache.defined() ? 2 * cache.dim(2) : 64);
  Tensor larger = Tensor::empty({like.dim(0), like.dim(1), capacity, like.dim(3)}, like.dtype());
  if (used > 0) {
    Tensor front = larger.slice(2, 0, used);
    detail::copy_values(front, cache.slice(2, 0, used));
  }
  cache = larger;
}

Tensor KeyValueState::apply(In q, In k, In v, const AttentionCall& call) {
  if (!map_keys_) return apply(q, k, v, call, attend_);
  const NoTape guard;  // no gradient passes through decoding
  const Tensor keys = map_keys_(k), values = detail::repeat_heads(v, keys.dim(1));
  return apply(q, {keys, k.where()}, {values, v.where()}, call, attend_);
}

Tensor KeyValueState::apply(In q, In k, In v, const AttentionCall& call, const Attend& attend) {
  check(k.rank() == 4 && v.rank() == 4 && k.shape().first(3) == v.shape().first(3), k.where(), "KeyValueState: k is ",
        k.tensor(), " and v is ", v.tensor(),
        "; they must be [batch, heads, positions, size] and may differ only in size");
  check(detail::follows(keys_, k) && detail::follows(values_, v), k.where(), "KeyValueState: k is ", k.tensor(),
        " and v is ", v.tensor(), " but the cache holds ", keys_, " and ", values_, "; only the positions may differ");
  const Tensor after = detail::lengths_after("KeyValueState", lengths_, k, call);
  if (k.dim(2) > 1 && !detail::all_alike(lengths_))
    return detail::one_at_a_time(q, k, v, call, lengths_, [&](In q1, In k1, In v1, const AttentionCall& one) {
      return apply(q1, k1, v1, one, attend);
    });
  const NoTape guard;  // no gradient passes through decoding
  const Index before = detail::longest_of(lengths_), length = before + k.dim(2);
  grow(keys_, k, before, length);
  grow(values_, v, before, length);
  detail::append_rows(keys_, k, lengths_);
  detail::append_rows(values_, v, lengths_);
  AttentionCall all{.causal = true, .bias = call.bias};
  if (detail::shortest_of(after) < length) all.key_lengths = after;
  const Tensor y = attend(q, keys_.slice(2, 0, length), values_.slice(2, 0, length), all);
  lengths_ = after;  // last, so that an error leaves the state unchanged
  return y;
}

}  // namespace heed
