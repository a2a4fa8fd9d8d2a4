// Which keys each query of sparse attention attends to, in compressed rows.
#pragma once
#include <heed/core/pool.hpp>
#include <heed/core/tensor.hpp>

namespace heed::detail {

// Query i has keys[offsets[i], offsets[i + 1]), in ascending order and each once. offsets int32 is [T + 1], the same
// for all heads, or [B, H, T + 1], where the lists of a head begin at the end of those of the head before; keys int32
// is [n]. Both are contiguous.
struct SparseLists {
  Tensor offsets, keys;
};

// Throws Error, naming the first bad row, unless the lists fit q [B, H, T, D] and k [B, Hk, S, D].
void check_lists(const char* op, In q, In k, const SparseLists& lists);

Index longest_list(const SparseLists& lists);

// The lists of heads [first, first + heads), b * H + h, seen from the keys; of one head where all share theirs.
class TransposedLists {
 public:
  TransposedLists(const SparseLists& lists, Index keys, Index first, Index heads);

  // [keys + 1]: key j of head `n` of these is on the lists of queries()[starts[j], starts[j + 1]), which ascend, at
  // places()[...] of that head's pairs.
  const Index* starts(Index n) { return starts_.data() + n * starts_of_head(); }
  Index starts_of_head() const { return shared_ ? 0 : keys_ + 1; }
  const std::int32_t* queries() { return queries_.data(); }
  const std::int32_t* places() { return places_.data(); }

 private:
  Index keys_, rows_;  // rows_: of the offsets of a head
  bool shared_;
  Scratch<Index> starts_;
  Scratch<std::int32_t> queries_, places_;

  void transpose(const std::int32_t* offsets, const std::int32_t* listed, Index base, Index* starts);
};

}  // namespace heed::detail
