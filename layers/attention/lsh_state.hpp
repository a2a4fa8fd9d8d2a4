// The decode state of LSH attention: keys and values, and of each bucket the last positions.
#pragma once
#include <algorithm>
#include <heed/layers/attention/key_value_state.hpp>
#include <heed/layers/attention/lsh.hpp>
#include <memory>
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
  Tensor apply(In q, In k, In v, const Tensor& bias = {});
  Index length() const { return cache_.length(); }
  void members(auto&& visit) {
    cache_.members(visit);
    visit.buffer("places", rings_->places);
    visit.buffer("counts", rings_->counts);
    mechanism_->members(visit);  // the rotations, by which the buckets were chosen
  }

 private:
  struct Rings {
    Tensor places;  // int32 [B, Hk, rounds, buckets, window]: position number n of a bucket stands at n % window
    Tensor counts;  // int32 [B, Hk, rounds, buckets]
  };
  // All that attending needs, at a fixed address: the cache's function refers to it, and the state may move.
  std::shared_ptr<LshAttention> mechanism_;
  std::shared_ptr<Rings> rings_;
  KeyValueState cache_;

  static KeyLists lists(const LshAttention& mechanism, Rings& rings, In q, In new_keys, Index before);
};

}  // namespace heed
