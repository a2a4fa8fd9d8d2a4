#include <algorithm>
#include <heed/layers/attention/softmax.hpp>

namespace heed {

// Room for `length` positions: the capacity doubles, so that a token costs no copy of the others.
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

Tensor KeyValueCache::apply(In q, In k, In v) {
  const Index length = length_ + k.dim(2);
  check(!keys_.defined() || (keys_.dim(0) == k.dim(0) && keys_.dim(1) == k.dim(1) && keys_.dim(3) == k.dim(3)),
        k.where(), "KeyValueCache: k is ", k.tensor(), " but the cache holds ", keys_,
        "; batch, heads and size must stay the same");
  grow(keys_, k, length_, length);
  grow(values_, v, length_, length);
  Tensor new_keys = keys_.slice(2, length_, length), new_values = values_.slice(2, length_, length);
  detail::copy_values(new_keys, k);
  detail::copy_values(new_values, v);
  length_ = length;
  const NoTape guard;  // decoding is not trained through
  return attention(q, keys_.slice(2, 0, length), values_.slice(2, 0, length), {.causal = true});
}

Tensor SoftmaxAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  // The heads lie side by side in memory, so that merging them again is a view.
  const Tensor y = attention_merged(q, k, v,
                                    {.causal = call.causal,
                                     .scale = scale,
                                     .key_lengths = call.key_lengths,
                                     .key_mask = call.key_mask,
                                     .mask = call.mask,
                                     .bias = call.bias,
                                     .dropout = call.dropout});
  return y.view({q.dim(0), q.dim(2), q.dim(1), v.dim(3)}).transpose(1, 2);
}

}  // namespace heed
