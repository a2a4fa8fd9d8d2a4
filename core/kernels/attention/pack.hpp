// Copies of rows into scratch. Included only by attention kernels.
#pragma once
#include "softmax.hpp"

namespace heed::kernels::HEED_LEVEL::attention {

// The number of register tiles of a product, for `rows` rows of C and `columns` numbers in each.
template <class F>
inline long register_tiles(long rows, long columns) {
  constexpr long max_rows = kRowsOfTile<F, 2, Order::by_row>, two_vectors = 2 * kWidth<ValueOf<F>>;
  return (rows + max_rows - 1) / max_rows * ((columns + two_vectors - 1) / two_vectors);
}

// Copies keys or values to x.rows, zeros for masked keys. Returns whether all are finite.
template <class F>
inline bool pack_keys(const typename F::Problem& p, const HeadRows<const typename F::Stored>& from, const HeadPart& at,
                      long width, const Matrix<F>& x) {
  const uint8_t* key_mask = p.key_mask == nullptr ? nullptr : p.key_mask + at.b * p.keys + at.first;
  Batch<ValueOf<F>> non_finite(ValueOf<F>(0));
  for (long j = 0; j < at.n; ++j) {
    if (key_mask == nullptr || key_mask[j] != 0)
      copy_row(row_of(from, at.b, at.h, at.first + j), width, x.rows + j * x.row_stride, non_finite);
    else
      clear(x.rows + j * x.row_stride, x.row_stride);
  }
  return !any(isnan(non_finite));
}

// Sets a sum of query_sums() to NaN if its query sees a value that is not finite and has weight 0, since 0 * infinity
// and 0 * NaN are NaN. A query sees a key if the score is not -inf.
template <class F, int kLanes>
[[gnu::noinline]] void spread_unweighted(const SummedRows<F>& values, const ValueOf<F>* scores,
                                         const Matrix<F>& weights, const VisiblePairs& pairs, ValueOf<F>* c) {
  using T = ValueOf<F>;
  for (long j = 0; j < pairs.keys; ++j)
    for (long d = 0; d < values.width; ++d) {
      const T value = values.x.by_row(j, d);
      if (value - value == T(0)) continue;
      for (long i = 0; i < pairs.rows; ++i) {
        const bool seen = scores[j * kLanes + i] != -kInfinity<T>;
        if (seen && weights.by_pair(j, i) == T(0)) c[i * values.x.pair_stride + d] = value - value;
      }
    }
}

}  // namespace heed::kernels::HEED_LEVEL::attention
