// Rows that hold several documents, for AttentionCall::documents.
#pragma once
#include <algorithm>
#include <heed/core/random.hpp>
#include <heed/core/tensor.hpp>
#include <vector>

namespace heed::test {

// The documents of rows whose documents have these lengths.
inline Tensor documents_of(const std::vector<std::vector<Index>>& rows) {
  std::vector<std::int32_t> begins;
  for (const std::vector<Index>& lengths : rows) {
    Index first = 0;
    for (const Index length : lengths) {
      begins.insert(begins.end(), static_cast<std::size_t>(length), static_cast<std::int32_t>(first));
      first += length;
    }
  }
  const auto count = static_cast<Index>(rows.size());
  return Tensor::from(begins, {count, static_cast<Index>(begins.size()) / count});
}

// Two rows of documents with random lengths up to `longest`.
inline Tensor random_documents(Index length, Index longest, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::vector<Index>> rows(2);
  for (std::vector<Index>& lengths : rows)
    for (Index left = length; left > 0; left -= lengths.back())
      lengths.push_back(std::min(left, 1 + rng.integer(longest)));
  return documents_of(rows);
}

}  // namespace heed::test
