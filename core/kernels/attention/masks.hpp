// Which keys a query may attend to, for the kernels of all attentions. A Problem has keys, lengths and key_mask; a
// Problem with pairs also has causal, queries and documents. Included only by *.kernel.cpp.
#pragma once
#include "../simd/simd.hpp"
#include "attention.hpp"

namespace heed::kernels::HEED_LEVEL {

// The address of query i and keys j, j + 1, ... of head (b, h) in a grid. The keys are g.key apart. Null without a
// grid.
template <class T>
inline T* pairs_of(const ScoreGrid<T>& g, long b, long h, long i, long j) {
  return g.data == nullptr ? nullptr : g.data + b * g.batch + h * g.head + i * g.query + j * g.key;
}

// The Philox counter of query i and keys 0 to 3. The next counter is for keys 4 to 7.
template <class Problem>
inline uint64_t dropout_counter(const Problem& p, long b, long h, long i) {
  return p.position +
         static_cast<uint64_t>((b * p.heads + h) * p.queries + i) * (static_cast<uint64_t>(p.keys + 3) / 4);
}

// Whether keys may be masked for all queries.
template <class Problem>
inline bool has_masked_keys(const Problem& p) {
  return p.lengths != nullptr || p.key_mask != nullptr;
}

// Whether key j of sequence b is masked for all queries, as padding is.
template <class Problem>
inline bool masked_key(const Problem& p, long b, long j) {
  return (p.lengths != nullptr && j >= p.lengths[b]) || (p.key_mask != nullptr && p.key_mask[b * p.keys + j] == 0);
}

// The end of the keys that query i may attend to, by lengths and the causal triangle.
template <class Problem>
inline long key_end(const Problem& p, long b, long i) {
  long end = p.keys;
  if (p.lengths != nullptr && p.lengths[b] < end) end = p.lengths[b];
  const long seen = p.causal ? causal_end(query_position(i, p.queries, p.keys), p.keys) : p.keys;
  return seen < end ? seen : end;
}

// The first key that query i may attend to, by its document. Ascends with i.
template <class Problem>
inline long key_begin(const Problem& p, long b, long i) {
  return p.documents == nullptr ? 0 : p.documents[b * p.queries + i];
}

}  // namespace heed::kernels::HEED_LEVEL
