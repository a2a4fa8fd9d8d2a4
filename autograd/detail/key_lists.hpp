// Lists of keys per query: construction, checks and transposition. For the sources of sparse attention and its
// mechanisms only.
#pragma once
#include <heed/autograd/attention.hpp>
#include <heed/core/memory.hpp>
#include <vector>

namespace heed::detail {

// ---- Construction ----

// offsets and keys as tensors; `shape` is the shape of offsets.
inline KeyLists lists_from(const std::vector<std::int32_t>& offsets, const std::vector<std::int32_t>& keys,
                           const Shape& shape) {
  return {Tensor::from(offsets, shape), Tensor::from(keys, {static_cast<Index>(keys.size())})};
}
// The number of pairs as int32. Throws Error if it does not fit.
inline std::int32_t checked_pairs(std::size_t pairs) {
  require(pairs < std::size_t{1} << 31, "sparse attention: there are ", pairs,
          " pairs of queries and keys; there must be fewer than 2^31: use fewer keys or smaller batches");
  return static_cast<std::int32_t>(pairs);
}

// Joins the lists of all heads. The offsets of each head begin at 0; `shape` is the shape of all offsets.
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

// Joins the lists of the rows of a batch. All heads of a row have the same lists.
inline KeyLists lists_of_rows(const std::vector<std::vector<std::int32_t>>& offsets,
                              const std::vector<std::vector<std::int32_t>>& keys, Index heads) {
  std::vector<std::vector<std::int32_t>> all_offsets, all;
  for (std::size_t b = 0; b < keys.size(); ++b) {
    all_offsets.insert(all_offsets.end(), static_cast<std::size_t>(heads), offsets[b]);
    all.insert(all.end(), static_cast<std::size_t>(heads), keys[b]);
  }
  const Index batch = static_cast<Index>(keys.size());
  return joined_lists(all_offsets, all, {batch, heads, static_cast<Index>(offsets[0].size())});
}

// ---- Use ----

// Throws Error with the first bad row unless the lists fit q [B, H, T, D] and k [B, Hk, S, D].
void check_lists(const char* op, In q, In k, const KeyLists& lists);

Index longest_list(const KeyLists& lists);

// The transposed lists (queries per key) of heads [first, first + heads), counted as b * H + h. If all heads share
// their lists, there is one.
class TransposedLists {
 public:
  TransposedLists(const KeyLists& lists, Index keys, Index first, Index heads);

  // The starts [keys + 1] of the n-th of these heads. Key j is on the lists of queries()[starts[j], starts[j + 1]), in
  // ascending order; places() has the positions of these pairs in the lists of the head.
  const Index* starts(Index n) { return starts_.data() + n * starts_of_head(); }
  Index starts_of_head() const { return shared_ ? 0 : keys_ + 1; }
  const std::int32_t* queries() { return queries_.data(); }
  const std::int32_t* places() { return places_.data(); }

 private:
  Index keys_, rows_;  // rows_: offsets per head
  bool shared_;
  Scratch<Index> starts_;
  Scratch<std::int32_t> queries_, places_;

  void transpose(const std::int32_t* offsets, const std::int32_t* listed, Index base, Index* starts);
};

}  // namespace heed::detail
