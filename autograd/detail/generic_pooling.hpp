// Pooled keys and values for generic attention.
#pragma once
#include <heed/autograd/generic_attention.hpp>

namespace heed::detail {

struct PooledKeys {
  Tensor k, v;      // [B, Hk, ceil(S / pool), D]
  Tensor key_mask;  // bool8 [B, ceil(S / pool)]: the group has a key that is not masked
};

// Pools the keys that key_lengths and key_mask allow, and their values. The call and the options must have been
// checked.
PooledKeys pooled_keys(In k, In v, const AttentionCall& call, const GenericAttentionOptions& options);

}  // namespace heed::detail
