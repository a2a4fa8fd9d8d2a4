// The decode state of LSH attention: keys and values, and the last positions of each bucket.
#pragma once
#include <algorithm>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/attention/states.hpp>
#include <vector>

namespace heed {

namespace detail {
// Finishes the keys of one query, which rounds appended to `seen` from `begin` on: sorts them and removes repeats. If
// there is no key, appends `self`, if it is not negative and allows_self().
template <class AllowsSelf>
void unite(std::vector<std::int32_t>& seen, std::size_t begin, Index self, const AllowsSelf& allows_self) {
  const auto from = seen.begin() + static_cast<std::ptrdiff_t>(begin);
  std::sort(from, seen.end());
  seen.erase(std::unique(from, seen.end()), seen.end());
  if (seen.size() == begin && self >= 0 && allows_self()) seen.push_back(static_cast<std::int32_t>(self));
}
}  // namespace detail

// A token takes O(rounds * (buckets * D + window)) time for its buckets, for any length.
class LshState {
 public:
  explicit LshState(const LshAttention& mechanism);
  // Appends k [B, Hk, T, D] and v [B, Hk, T, Dv], and attends: [B, H, T, Dv]. No gradient.
  Tensor apply(In q, In k, In v, const AttentionCall& call = {});
  const Tensor& lengths() const { return cache_.lengths(); }
  void members(auto&& visit) {
    cache_.members(visit);
    visit.buffer("places", places_);
    visit.buffer("counts", counts_);
    for (const NamedBuffer& b : named_buffers(mechanism_)) visit.shared(b.name, *b.buffer);  // the rotations
  }

 private:
  LshAttention mechanism_;
  KeyValueState cache_{nullptr};
  Tensor places_;  // int32 [B, Hk, rounds, buckets, window]: the n-th position of a bucket is at index n % window
  Tensor counts_;  // int32 [B, Hk, rounds, buckets]: positions that each bucket has received

  KeyLists lists(In q, In keys, const AttentionCall& call);
};

}  // namespace heed
