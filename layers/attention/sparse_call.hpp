// What the sparse mechanisms share: from lists of keys and a call to their op.
#pragma once
#include <heed/autograd/sparse_attention.hpp>
#include <heed/layers/attention/mechanism.hpp>
#include <vector>

namespace heed::detail {

inline SparseAttentionOptions sparse_options(const heed::AttentionCall& call, std::optional<double> scale) {
  return {.scale = scale,
          .key_lengths = call.key_lengths,
          .key_mask = call.key_mask,
          .mask = call.mask,
          .bias = call.bias,
          .dropout = call.dropout};
}

// sparse_attention with the heads side by side in memory, so that merging them again is a view.
inline Tensor apply_lists(In q, In k, In v, const KeyLists& lists, const heed::AttentionCall& call,
                          std::optional<double> scale) {
  const Tensor y = sparse_attention_merged(q, k, v, lists, sparse_options(call, scale));
  return y.view({q.dim(0), q.dim(2), q.dim(1), v.dim(3)}).transpose(1, 2);
}

// offsets and keys as tensors; `shape` is that of offsets. Error for more pairs than int32 counts.
inline KeyLists lists_from(const std::vector<std::int32_t>& offsets, const std::vector<std::int32_t>& keys,
                           const Shape& shape) {
  return {Tensor::from(offsets, shape), Tensor::from(keys, {static_cast<Index>(keys.size())})};
}
inline std::int32_t checked_pairs(std::size_t pairs) {
  require(pairs < std::size_t{1} << 31, "sparse attention: there are ", pairs,
          " pairs of queries and keys; there must be fewer than 2^31: attend to fewer keys, or in smaller batches");
  return static_cast<std::int32_t>(pairs);
}

// Lists of each head, whose offsets begin at 0, one head after another; `shape` is that of all offsets.
inline KeyLists joined_lists(const std::vector<std::vector<std::int32_t>>& offsets,
                             const std::vector<std::vector<std::int32_t>>& keys, const Shape& shape) {
  std::vector<std::int32_t> all_offsets, all;
  for (std::size_t h = 0; h < keys.size(); ++h) {
    checked_pairs(all.size() + keys[h].size());
    for (const std::int32_t o : offsets[h]) all_offsets.push_back(static_cast<std::int32_t>(all.size()) + o);
    all.insert(all.end(), keys[h].begin(), keys[h].end());
  }
  return lists_from(all_offsets, all, shape);
}

}  // namespace heed::detail
