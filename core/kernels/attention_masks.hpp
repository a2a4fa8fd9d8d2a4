// Which keys a query sees: what the kernels of all attentions ask. Problems have keys, lengths and key_mask, and those
// of pairs causal and queries. Included only by *.kernel.cpp.
#pragma once
#include "simd.hpp"

namespace heed::kernels::HEED_LEVEL {

// Whether some keys are masked for all queries.
template <class Problem>
inline bool has_masked_keys(const Problem& p) {
  return p.lengths != nullptr || p.key_mask != nullptr;
}

// Whether key j of sequence b is masked for all queries: padding.
template <class Problem>
inline bool masked_key(const Problem& p, long b, long j) {
  return (p.lengths != nullptr && j >= p.lengths[b]) || (p.key_mask != nullptr && p.key_mask[b * p.keys + j] == 0);
}

// The first key that query i may not see, by lengths and the causal triangle.
template <class Problem>
inline long key_end(const Problem& p, long b, long i) {
  long end = p.keys;
  if (p.lengths != nullptr && p.lengths[b] < end) end = p.lengths[b];
  if (p.causal && i + 1 + p.keys - p.queries < end) end = i + 1 + p.keys - p.queries;
  return end < 0 ? 0 : end;
}

}  // namespace heed::kernels::HEED_LEVEL
