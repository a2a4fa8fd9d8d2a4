// The decode state of LSH attention: keys and values, and of each bucket the last positions.
#pragma once
#include <algorithm>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/attention/states.hpp>
#include <vector>

namespace heed {

namespace detail {
// The keys of a query that rounds appended from `begin` on: each once, ascending; `self` where there is none and it is
// allowed.
template <class AllowsSelf>
void unite(std::vector<std::int32_t>& seen, std::size_t begin, Index self, const AllowsSelf& allows_self) {
  const auto from = seen.begin() + static_cast<std::ptrdiff_t>(begin);
  std::sort(from, seen.end());
  seen.erase(std::unique(from, seen.end()), seen.end());
  if (seen.size() == begin && self >= 0 && allows_self()) seen.push_back(static_cast<std::int32_t>(self));
}
}  // namespace detail

// A token costs O(rounds * (buckets * D + window)), however many came before.
class LshState {
 public:
  explicit LshState(const LshAttention& mechanism);
  // Appends k [B, Hk, T, D] and v [B, Hk, T, Dv], and attends: [B, H, T, Dv]. No gradient.
  Tensor apply(In q, In k, In v, const AttentionCall& call = {});
  const Tensor& lengths() const { return cache_.lengths(); }
  LshState rows(const Tensor& indices) const;
  void members(auto&& visit) {
    cache_.members(visit);
    visit.buffer("places", places_);
    visit.buffer("counts", counts_);
    mechanism_.members(visit);  // the rotations, by which the buckets were chosen
  }

 private:
  LshAttention mechanism_;
  KeyValueState cache_{nullptr};
  Tensor places_;  // int32 [B, Hk, rounds, buckets, window]: position number n of a bucket stands at n % window
  Tensor counts_;  // int32 [B, Hk, rounds, buckets]

  KeyLists lists(In q, In keys, const AttentionCall& call);
};

}  // namespace heed
