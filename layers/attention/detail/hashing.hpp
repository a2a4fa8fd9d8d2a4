// Attention by hashing: what lsh and reformer share.
#pragma once
#include <algorithm>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/core/tensor.hpp>
#include <vector>

namespace heed::detail {

// The rotations of all rounds side by side, [size, columns], in the dtype of the hashed values.
template <class T>
struct Rotations {
  static constexpr Index kColumns = 8;  // columns per block; their sums are computed together
  Index size, rounds, half, columns;    // half: columns per round; columns: rounds * half in whole blocks of kColumns
  std::vector<T> values;

  explicit Rotations(const Tensor& r)  // [rounds, size, half] float32, contiguous
      : size(r.dim(1)), rounds(r.dim(0)), half(r.dim(2)) {
    columns = (rounds * half + kColumns - 1) / kColumns * kColumns;
    values.assign(static_cast<std::size_t>(size * columns), T(0));
    for (Index n = 0; n < r.numel(); ++n) {
      const Index round = n / (size * half), c = n / half % size;
      values[static_cast<std::size_t>(c * columns + round * half + n % half)] = static_cast<T>(r.ptr<float>()[n]);
    }
  }
  // Writes x R of all rounds to sums [columns]. Sums are added in one order, so a vector has the same bucket in every
  // call and on every level.
  void rotate(const T* x, T* sums) const {
    for (Index first = 0; first < columns; first += kColumns) {
      T sum[kColumns] = {};
      for (Index c = 0; c < size; ++c) {
        const T* row = values.data() + c * columns + first;
        for (Index m = 0; m < kColumns; ++m) sum[m] += x[c] * row[m];
      }
      std::copy_n(sum, kColumns, sums + first);
    }
  }
};

// argmax [sums; -sums]; the first of equal ones.
template <class T>
std::int32_t bucket_of(const T* sums, Index half) {
  Index best = 0;
  T max_abs = sums[0];
  for (Index m = 1; m < half; ++m) best = sums[m] > max_abs ? m : best, max_abs = sums[m] > max_abs ? sums[m] : max_abs;
  for (Index m = 0; m < half; ++m)
    best = -sums[m] > max_abs ? half + m : best, max_abs = -sums[m] > max_abs ? -sums[m] : max_abs;
  return static_cast<std::int32_t>(best);
}

// The unmasked positions, sorted by bucket and then by position.
class Buckets {
 public:
  // bucket [keys], each below `buckets`; of row b of the batch.
  Buckets(const std::int32_t* bucket, Index buckets, Index keys, const PairMasks& masks, Index b)
      : starts_(static_cast<std::size_t>(buckets) + 1), places_(static_cast<std::size_t>(keys)) {
    for (Index j = 0; j < keys; ++j)
      if (masks.unmasked(b, j)) ++starts_[static_cast<std::size_t>(bucket[j]) + 1];
    for (std::size_t c = 1; c < starts_.size(); ++c) starts_[c] += starts_[c - 1];
    std::vector<Index> at(starts_.begin(), starts_.end() - 1);
    for (Index j = 0; j < keys; ++j)
      if (masks.unmasked(b, j))
        places_[static_cast<std::size_t>(at[static_cast<std::size_t>(bucket[j])]++)] = static_cast<std::int32_t>(j);
  }
  const std::int32_t* begin() const { return places_.data(); }  // of all buckets
  const std::int32_t* begin(std::int32_t c) const { return places_.data() + starts_[static_cast<std::size_t>(c)]; }
  const std::int32_t* end(std::int32_t c) const { return places_.data() + starts_[static_cast<std::size_t>(c) + 1]; }

 private:
  std::vector<Index> starts_;
  std::vector<std::int32_t> places_;
};

// Finishes the keys of one query, which rounds appended to `seen` from `begin` on: sorts them and removes repeats. If
// there is no key, appends `self`, if it is not negative and allows_self().
template <class AllowsSelf>
void unite(std::vector<std::int32_t>& seen, std::size_t begin, Index self, const AllowsSelf& allows_self) {
  const auto from = seen.begin() + static_cast<std::ptrdiff_t>(begin);
  std::sort(from, seen.end());
  seen.erase(std::unique(from, seen.end()), seen.end());
  if (seen.size() == begin && self >= 0 && allows_self()) seen.push_back(static_cast<std::int32_t>(self));
}

// The keys of shared queries and keys: q / |q|, and 0 for q = 0.
inline Tensor keys_from_queries(In q) {
  const Tensor squares = sum(square(q), -1, true);
  return q * rsqrt(masked_fill(squares, eq(squares, 0), 1));
}

}  // namespace heed::detail
