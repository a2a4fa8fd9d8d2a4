// What tiles multiply: rows of q, k, v and gradients as products read them. Included only by attention kernels.
//
// A product runs over a depth. Its left operand lies by row, [rows, depth], or by column, [depth, rows]; its right one
// is [depth, columns]. With dot products of bf16 an element holds two numbers that are neighbours in the depth, so that
// a matrix that is used in both ways is kept twice: as `rows` [n, width / 2], and as `pairs` [n / 2, width], where an
// element holds the numbers of two rows. In all other formats the two are the same memory.
#pragma once
#include "attention.hpp"
#include "gemm_tile.hpp"
#include "rows.hpp"

namespace heed::kernels::HEED_LEVEL::attention {

// T: of scores, sums and results; S: of q, k, v and out in memory; P: how tiles multiply (gemm_tile.hpp).
template <class T, class S, class P>
struct Format {
  using Value = T;
  using Stored = S;
  using Step = Product<P>;
  using Element = typename Step::Element;
  static constexpr bool kHalves = !std::is_same_v<S, T>;  // bf16 in memory
  static constexpr bool kDots = !std::is_same_v<Element, T>;
  static constexpr long kDepth = kDots ? 2 : 1;  // numbers of the depth in an element
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

// A matrix [n, width] in scratch.
template <class F>
struct Matrix {
  ElementOf<F>* rows;
  long row_stride;
  ElementOf<F>* pairs;
  long pair_stride;

  // From row r on; r is a multiple of kDepth.
  Matrix from(long r) const {
    return {rows + r * row_stride, row_stride, pairs + r / F::kDepth * pair_stride, pair_stride};
  }
};

template <class F>
inline Matrix<F> take_matrix(Pieces<ValueOf<F>>& from, long n, long width) {
  using E = ElementOf<F>;
  const long row_stride = whole_vectors<ValueOf<F>>(steps_of<F>(width)), pair_stride = whole_vectors<ValueOf<F>>(width);
  E* rows = from.template take_as<E>(n * row_stride);
  return {rows, row_stride, F::kDots ? from.template take_as<E>(steps_of<F>(n) * pair_stride) : rows, pair_stride};
}

// One row, zeros up to a whole vector. `non_finite` becomes NaN in a lane where a value is not finite.
template <class T, class S>
inline void copy_row(const S* from, long n, T* to, Batch<T>& non_finite) {
  for (long c = 0; c < n; c += kWidth<T>) {
    const Batch<T> x = get_lanes_as<T>(from + c, n - c);
    store_aligned(to + c, x);
    non_finite = fma(x, Batch<T>(T(0)), non_finite);
  }
}

// Number p of row r, by its place in `rows` and in `pairs`.
template <class T>
inline T number_by_row(const T* rows, long stride, long r, long p) {
  return rows[r * stride + p];
}
template <class T>
inline T number_by_pair(const T* pairs, long stride, long r, long p) {
  return pairs[r * stride + p];
}

#if defined(__AVX512BF16__)
inline __m512i bf16_lanes(Batch<float> low, Batch<float> high) {
  return __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(high, low));
}

inline void copy_row(const float* from, long n, uint32_t* to, Batch<float>& non_finite) {
  for (long c = 0; c < n; c += 32) {
    const Batch<float> low = get_lanes(from + c, n - c),
                       high = n - c > 16 ? get_lanes(from + c + 16, n - c - 16) : Batch<float>(0.f);
    _mm512_store_si512(to + c / 2, bf16_lanes(low, high));
    non_finite = fma(low, Batch<float>(0.f), fma(high, Batch<float>(0.f), non_finite));
  }
}

inline void copy_row(const uint16_t* from, long n, uint32_t* to, Batch<float>& non_finite) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  for (long c = 0; c < n; c += 32) {
    const __m512i x = n - c >= 32 ? _mm512_loadu_si512(from + c)
                                  : _mm512_maskz_loadu_epi16((1u << static_cast<unsigned>(n - c)) - 1u, from + c);
    _mm512_store_si512(to + c / 2, x);
    if (_mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent) != 0)
      non_finite = Batch<float>(__builtin_nanf(""));
  }
}

inline float half_of(uint32_t pair, long i) { return bf16_to_float(static_cast<uint16_t>(pair >> (16 * (i % 2)))); }
inline float number_by_row(const uint32_t* rows, long stride, long r, long p) {
  return half_of(rows[r * stride + p / 2], p);
}
inline float number_by_pair(const uint32_t* pairs, long stride, long r, long p) {
  return half_of(pairs[r / 2 * stride + p], r);
}

struct InterleaveOrder {
  alignas(64) uint16_t numbers[64];
};
constexpr InterleaveOrder interleave_order() {
  InterleaveOrder order{};
  for (int i = 0; i < 64; ++i) order.numbers[i] = static_cast<uint16_t>(i / 2 + i % 2 * 32);
  return order;
}
inline constexpr InterleaveOrder kInterleaveOrder = interleave_order();

// Makes pairs of 32 numbers of one row and 32 of the next.
class Interleave {
 public:
  Interleave()
      : first_(_mm512_load_si512(kInterleaveOrder.numbers)),
        second_(_mm512_load_si512(kInterleaveOrder.numbers + 32)) {}
  __m512i first(__m512i a, __m512i b) const { return _mm512_permutex2var_epi16(a, first_, b); }
  __m512i second(__m512i a, __m512i b) const { return _mm512_permutex2var_epi16(a, second_, b); }

 private:
  __m512i first_, second_;
};

// Two vectors at a time, rounded by the machine's instruction.
inline void store_bf16_row(uint16_t* to, const float* from, long n, float factor) {
  const Batch<float> f(factor);
  for (long c = 0; c < n; c += 32) {
    const Batch<float> high = n - c > 16 ? load_aligned(from + c + 16) : Batch<float>(0.f);
    const __m512i x = bf16_lanes(load_aligned(from + c) * f, high * f);
    if (n - c >= 32)
      _mm512_storeu_si512(to + c, x);
    else
      _mm512_mask_storeu_epi16(to + c, (1u << static_cast<unsigned>(n - c)) - 1u, x);
  }
}

// pairs of n rows; a last row without another gets one of zeros.
inline void interleave(const uint32_t* rows, long row_stride, long n, uint32_t* pairs, long pair_stride) {
  const Interleave of;
  for (long r = 0; r < n; r += 2, pairs += pair_stride)
    for (long c = 0; c < pair_stride; c += 32) {
      const __m512i a = _mm512_load_si512(rows + r * row_stride + c / 2),
                    b = r + 1 < n ? _mm512_load_si512(rows + (r + 1) * row_stride + c / 2) : _mm512_setzero_si512();
      _mm512_store_si512(pairs + c, of.first(a, b));
      if (c + 16 < pair_stride) _mm512_store_si512(pairs + c + 16, of.second(a, b));
    }
}
#endif

// to[0, n) = factor * from, which is in whole vectors.
template <class F>
inline void store_row(typename F::Stored* to, const ValueOf<F>* from, long n, ValueOf<F> factor) {
  using T = ValueOf<F>;
  if constexpr (F::kDots)
    store_bf16_row(to, from, n, factor);
  else
    for (long c = 0; c < n; c += kWidth<T>) put_lanes(to + c, load_aligned(from + c) * Batch<T>(factor), n - c);
}

// to[0, rest_width(n)): what factor * from loses as bf16, which `rounded` is.
inline void store_rest_row(uint8_t* to, const uint16_t* rounded, const float* from, long n, float factor) {
  for (long c = 0; c < n; c += kWidth<float>)
    store_rest(to + c, load_aligned(from + c) * Batch<float>(factor), get_lanes_as<float>(rounded + c, n - c));
}

// delta = do . o of one row of n numbers; do as products read it, a row of x.rows.
template <class F>
inline ValueOf<F> delta_of(const typename F::Stored* out, [[maybe_unused]] const uint8_t* rest,
                           const ElementOf<F>* dout, long n) {
  using T = ValueOf<F>;
  return lane_sum_of_products<T>(n, [=](int64_t c, auto at, Batch<T>& o, Batch<T>& y) __attribute__((always_inline)) {
    o = at.template load_as<T>(out + c);
    if constexpr (F::kHalves) o = with_rest(o, rest + c);
    if constexpr (F::kDots)
      y = load_bf16(reinterpret_cast<const uint16_t*>(dout) + c);
    else
      y = load_aligned(dout + c);
  });
}

// x.pairs of x.rows.
template <class F>
inline void pair_up(const Matrix<F>& x, long n) {
  if constexpr (F::kDots) interleave(x.rows, x.row_stride, n, x.pairs, x.pair_stride);
}

// columns [width, lanes] = factor x^T for x [lanes, width]; pairs are not multiplied, as that would round them again.
template <class F>
inline void pack_columns(const Matrix<F>& x, long width, long lanes, ValueOf<F> factor, ElementOf<F>* columns) {
  using T = ValueOf<F>;
  if constexpr (F::kDots) {  // elements change places as if they were float32
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

// [keys of the block, lanes] as numbers, and as the operand of the products that follow.
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

// One key's row of a tile of two vectors, rounded: from registers to the operand. For formats with kDots.
template <class F>
struct RoundedRow;
#if defined(__AVX512BF16__)
template <class S>
struct RoundedRow<Format<float, S, Bf16Pairs>> {
  using F = Format<float, S, Bf16Pairs>;
  using Order = Interleave;
  __m512i bits = _mm512_setzero_si512();

  RoundedRow() = default;
  RoundedRow(Batch<float> low, Batch<float> high) : bits(bf16_lanes(low, high)) {}

  static void put_rows(const ScoreTiles<F>& x, long j, RoundedRow a) {
    _mm512_store_si512(x.operand.rows + j * x.operand.row_stride, a.bits);
  }
  // Keys j, which is even, and j + 1.
  static void put_pairs(const Interleave& of, const ScoreTiles<F>& x, long j, RoundedRow a, RoundedRow b) {
    uint32_t* to = x.operand.pairs + j / 2 * x.operand.pair_stride;
    _mm512_store_si512(to, of.first(a.bits, b.bits));
    _mm512_store_si512(to + 16, of.second(a.bits, b.bits));
  }
};
#endif

// operand.rows = values, rounded where tiles take bf16.
template <class F>
inline void round_scores(const ScoreTiles<F>& x, long keys) {
  if constexpr (F::kDots)
    for (long j = 0; j < keys; ++j) {
      const auto* row = x.values + j * x.operand.pair_stride;
      RoundedRow<F>::put_rows(x, j, {load_aligned(row), load_aligned(row + kWidth<ValueOf<F>>)});
    }
}

}  // namespace heed::kernels::HEED_LEVEL::attention
