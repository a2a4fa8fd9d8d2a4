// Keys and values of generic attention, pooled over neighbours.
#pragma once
#include <heed/autograd/generic_attention.hpp>

namespace heed::detail {

struct PooledKeys {
  Tensor k, v;      // [B, Hk, ceil(S / pool), D]
  Tensor key_mask;  // bool8 [B, ceil(S / pool)]: some key of the group is not masked
};

// Of the keys that key_lengths and key_mask leave. The call and the options were checked.
PooledKeys pooled_keys(In k, In v, const AttentionCall& call, const GenericAttentionOptions& options);

}  // namespace heed::detail
