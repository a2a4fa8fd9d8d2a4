// Operands of tiles: rows of q, k, v and gradients in the layouts that products read. Included only by attention
// kernels.
//
// A product sums over a depth. Its left operand is stored by row, [rows, depth], or by column, [depth, rows]. Its right
// operand is [depth, columns]. With pairs of bf16 an element holds two numbers that are neighbours in the depth. A
// matrix that is used in both directions is then stored twice: as `rows` [n, width / 2], and as `pairs` [n / 2, width],
// where an element holds the numbers of two rows. In all other formats both are the same memory.
#pragma once
#include "../gemm/tile.hpp"
#include "attention.hpp"
#include "rows.hpp"

namespace heed::kernels::HEED_LEVEL::attention {

// T: type of scores, sums and results. S: type of q, k, v and out in memory. P: how tiles multiply (gemm/tile.hpp).
template <class T, class S, class P>
struct Format {
  using Value = T;
  using Stored = S;
  using Step = Product<P>;
  using Element = typename Step::Element;
  static constexpr bool kDots = !std::is_same_v<Element, T>;  // bf16 in memory, multiplied in pairs
  static constexpr long kDepth = kDots ? 2 : 1;               // numbers of the depth per element
  using Problem = AttentionProblem<T, S>;
  using Output = AttentionOutput<T, S>;
  using Gradients = AttentionGradients<T, S>;
};

template <class F>
using ValueOf = typename F::Value;
template <class F>
using ElementOf = typename F::Element;

// Elements along a depth of n numbers.
template <class F>
inline long steps_of(long n) {
  return (n + F::kDepth - 1) / F::kDepth;
}

// Number i of a depth, read from the element that holds it.
template <class T>
inline T number_in(T element, long) {
  return element;
}
inline float number_in(uint32_t pair, long i) { return bf16_to_float(static_cast<uint16_t>(pair >> (16 * (i % 2)))); }

// A matrix [n, width] in scratch.
template <class F>
struct Matrix {
  ElementOf<F>* rows;
  long row_stride;
  ElementOf<F>* pairs;
  long pair_stride;

  // The part from row r on; r is a multiple of kDepth.
  Matrix from(long r) const {
    return {rows + r * row_stride, row_stride, pairs + r / F::kDepth * pair_stride, pair_stride};
  }

  // Number p of row r, read from `rows` or from `pairs`.
  ValueOf<F> by_row(long r, long p) const { return number_in(rows[r * row_stride + p / F::kDepth], p); }
  ValueOf<F> by_pair(long r, long p) const { return number_in(pairs[r / F::kDepth * pair_stride + p], r); }
};

template <class F>
inline Matrix<F> take_matrix(Pieces<ValueOf<F>>& from, long n, long width) {
  using E = ElementOf<F>;
  const long row_stride = whole_vectors<ValueOf<F>>(steps_of<F>(width)), pair_stride = whole_vectors<ValueOf<F>>(width);
  E* rows = from.template take_as<E>(n * row_stride);
  return {rows, row_stride, F::kDots ? from.template take_as<E>(steps_of<F>(n) * pair_stride) : rows, pair_stride};
}

// Copies one row, padded with zeros to whole vectors. `non_finite` becomes NaN in a lane if a value is not finite.
template <class T, class S>
inline void copy_row(const S* from, long n, T* to, Batch<T>& non_finite) {
  for (long c = 0; c < n; c += kWidth<T>) {
    const Batch<T> x = load_up_to<T>(from + c, n - c);
    store_aligned(to + c, x);
    non_finite = fma(x, Batch<T>(T(0)), non_finite);
  }
}

// copy_row to pairs of neighbours, rounded.
inline void copy_row(const float* from, long n, uint32_t* to, Batch<float>& non_finite) {
  constexpr long w = kWidth<float>;
  for (long c = 0; c < n; c += 2 * w) {
    const Batch<float> low = get_lanes(from + c, n - c),
                       high = n - c > w ? get_lanes(from + c + w, n - c - w) : Batch<float>(0.f);
    store_pairs(to + c / 2, pairs_of_neighbours(low, high));
    non_finite = fma(low, Batch<float>(0.f), fma(high, Batch<float>(0.f), non_finite));
  }
}

inline void copy_row(const uint16_t* from, long n, uint32_t* to, Batch<float>& non_finite) {
  for (long c = 0; c < n; c += 2 * kWidth<float>) {
    const Pairs x = load_pairs_part(from + c, n - c);
    store_pairs(to + c / 2, x);
#if defined(__AVX512F__)
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    if (_mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent) != 0)
      non_finite = Batch<float>(__builtin_nanf(""));
#else
    const Batch<float> zero(0.f);
    non_finite = fma(earlier_of(x), zero, fma(later_of(x), zero, non_finite));
#endif
  }
}

// to[0, n) = factor * from, two vectors at a time, rounded by the machine's instruction.
inline void store_bf16_row(uint16_t* to, const float* from, long n, float factor) {
  constexpr long w = kWidth<float>;
  const Batch<float> f(factor);
  for (long c = 0; c < n; c += 2 * w) {
    const Batch<float> high = n - c > w ? load_aligned(from + c + w) : Batch<float>(0.f);
    store_pairs_part(to + c, pairs_of_neighbours(load_aligned(from + c) * f, high * f), n - c);
  }
}

// Computes `pairs` from n rows. A last single row is paired with zeros.
inline void interleave(const uint32_t* rows, long row_stride, long n, uint32_t* pairs, long pair_stride) {
  constexpr long w = kWidth<float>;
  const Interleave of;
  for (long r = 0; r < n; r += 2, pairs += pair_stride)
    for (long c = 0; c < pair_stride; c += 2 * w) {
      const Pairs a = load_pairs(rows + r * row_stride + c / 2),
                  b = r + 1 < n ? load_pairs(rows + (r + 1) * row_stride + c / 2) : Pairs(0u);
      store_pairs(pairs + c, of.first(a, b));
      if (c + w < pair_stride) store_pairs(pairs + c + w, of.second(a, b));
    }
}

// to[0, n) = factor * from, where `from` is padded to whole vectors.
template <class F>
inline void store_row(typename F::Stored* to, const ValueOf<F>* from, long n, ValueOf<F> factor) {
  using T = ValueOf<F>;
  if constexpr (F::kDots)
    store_bf16_row(to, from, n, factor);
  else
    for (long c = 0; c < n; c += kWidth<T>) put_lanes(to + c, load_aligned(from + c) * Batch<T>(factor), n - c);
}

// to[0, rest_width(n)) = the bits that factor * from loses in bf16, given the bf16 row `rounded`.
inline void store_rest_row(uint8_t* to, const uint16_t* rounded, const float* from, long n, float factor) {
  for (long c = 0; c < n; c += kWidth<float>)
    store_rest(to + c, load_aligned(from + c) * Batch<float>(factor), load_up_to<float>(rounded + c, n - c));
}

// delta = do . o of one row of n numbers. `dout` is a row of Matrix::rows, as products read it.
template <class F>
inline ValueOf<F> delta_of(const typename F::Stored* out, [[maybe_unused]] const uint8_t* rest,
                           const ElementOf<F>* dout, long n) {
  using T = ValueOf<F>;
  return lane_sum_of_products<T>(n, [=](int64_t c, auto at, Batch<T>& o, Batch<T>& y) __attribute__((always_inline)) {
    o = at.template load_as<T>(out + c);
    if constexpr (F::kDots) o = with_rest(o, rest + c);
    if constexpr (F::kDots)
      y = load_bf16(reinterpret_cast<const uint16_t*>(dout) + c);
    else
      y = load_aligned(dout + c);
  });
}

// Computes x.pairs from the n rows of x.rows.
template <class F>
inline void pair_up(const Matrix<F>& x, long n) {
  if constexpr (F::kDots) interleave(x.rows, x.row_stride, n, x.pairs, x.pair_stride);
}

// columns [width, lanes] = factor x^T for x [lanes, width]. Pairs are not multiplied, since that would round them
// again.
template <class F>
inline void pack_columns(const Matrix<F>& x, long width, long lanes, ValueOf<F> factor, ElementOf<F>* columns) {
  using T = ValueOf<F>;
  if constexpr (F::kDots) {  // elements are moved as if they were float32
    transpose<T>(
        reinterpret_cast<const T*>(x.rows), x.row_stride, lanes, steps_of<F>(width), lanes,
        [&](long c, long i, Batch<T> y, int) { store_aligned(reinterpret_cast<T*>(columns) + c * lanes + i, y); });
  } else {
    const Batch<T> f(factor);
    transpose<T>(x.rows, x.row_stride, lanes, width, lanes,
                 [&](long c, long i, Batch<T> y, int) { store_aligned(columns + c * lanes + i, y * f); });
  }
}

// ---- Tiles of scores ----

// A tile [keys of the block, lanes] as numbers, and as the operand of the products that follow.
template <class F>
struct ScoreTiles {
  ValueOf<F>* values;
  Matrix<F> operand;
};

template <class F>
inline ScoreTiles<F> take_scores(Pieces<ValueOf<F>>& from, long keys, long lanes) {
  ScoreTiles<F> x{from.take(keys * lanes), {}};
  if constexpr (F::kDots)
    x.operand = take_matrix<F>(from, keys, lanes);
  else
    x.operand = {x.values, lanes, x.values, lanes};
  return x;
}

// Two vectors of one key's row of a tile, from lane `first` on, rounded. They are stored from registers to the operand.
// For formats with kDots.
template <class F>
struct RoundedRow {
  Pairs bits = Pairs(0u);

  RoundedRow() = default;
  RoundedRow(Batch<float> low, Batch<float> high) : bits(pairs_of_neighbours(low, high)) {}

  static void put_rows(const ScoreTiles<F>& x, long j, long first, RoundedRow a) {
    store_pairs(x.operand.rows + j * x.operand.row_stride + first / 2, a.bits);
  }
  // Keys j and j + 1; j is even.
  static void put_pairs(const Interleave& of, const ScoreTiles<F>& x, long j, RoundedRow a, RoundedRow b) {
    uint32_t* to = x.operand.pairs + j / 2 * x.operand.pair_stride;
    store_pairs(to, of.first(a.bits, b.bits));
    store_pairs(to + kWidth<float>, of.second(a.bits, b.bits));
  }
};

// operand.rows = values [keys, lanes], rounded if tiles take bf16.
template <class F>
inline void round_scores(const ScoreTiles<F>& x, long keys, long lanes) {
  if constexpr (F::kDots)
    for (long j = 0; j < keys; ++j)
      for (long i = 0; i < lanes; i += 2 * kWidth<float>) {
        const auto* row = x.values + j * lanes + i;
        RoundedRow<F>::put_rows(x, j, i, {load_aligned(row), load_aligned(row + kWidth<float>)});
      }
}

}  // namespace heed::kernels::HEED_LEVEL::attention
