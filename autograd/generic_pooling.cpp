// Keys and values pooled over groups of neighbours, for generic attention.
#include <heed/autograd/detail/generic_pooling.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>

namespace heed::detail {

// x [B, Hk, S, D] -> [B, Hk, ceil(S / pool), D], pooled over the keys in `seen`, bool8 [B, 1, ceil(S / pool), pool, 1].
static Tensor pooled(const Tensor& x, const Tensor& seen, Pooling kind) {
  const Index groups = seen.dim(2), pool = seen.dim(3), missing = groups * pool - x.dim(2);
  Tensor full = x;
  if (missing > 0) full = concatenate({x, Tensor::zeros(x.shape().with(2, missing), x.dtype())}, 2);
  full = full.reshape({x.dim(0), x.dim(1), groups, pool, x.dim(3)});
  const Tensor masked = logical_not(seen);
  if (kind == Pooling::max) {
    const Tensor top = max(masked_fill(full, masked, -detail::kInfinity), {3});
    return masked_fill(top, logical_not(any(seen, {3})), 0);
  }
  return sum(masked_fill(full, masked, 0), {3}) / maximum(sum(seen.to(x.dtype()), {3}), 1);
}

PooledKeys pooled_keys(In k, In v, const AttentionCall& call, const GenericAttentionOptions& o) {
  const Index batch = k.dim(0), keys = k.dim(2), groups = (keys + o.pool - 1) / o.pool;
  Tensor seen = Tensor::zeros({batch, groups * o.pool}, DType::bool8), real = seen.slice(1, 0, keys);
  real.fill_(1);
  if (call.key_mask.defined()) detail::copy_values(real, call.key_mask);
  if (call.key_lengths.defined())
    seen = logical_and(seen, Tensor::arange(groups * o.pool) < call.key_lengths.unsqueeze(1));
  seen = seen.view({batch, 1, groups, o.pool, 1});
  return {pooled(k, seen, o.pooling), pooled(v, seen, o.pooling), any(seen, {3}).view({batch, groups})};
}

}  // namespace heed::detail
