// Operations across lanes: exchanges, reductions, transposition of registers. Included by simd.hpp.
#pragma once

namespace heed::kernels::HEED_LEVEL {

// Calls f with the constants 0 .. N-1. Loops over registers must be unrolled before registers are allocated.
template <int N, int I = 0, class F>
[[gnu::always_inline]] inline void unroll(F&& f) {
  if constexpr (I < N) {
    f(std::integral_constant<int, I>{});
    unroll<N, I + 1>(f);
  }
}

// ---- Reductions over lanes, always as the tree (0+w/2, 1+w/2+1, ...), halving. ----
// Gap: xsimd 8.1 has no reduce_add, reduce_max or reduce_min, and its haddp permutes lanes on AVX-512.

// Lane i of the result is lane i ^ K of v.
template <int K, class T>
inline Batch<T> swap_lanes(Batch<T> v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    if constexpr (K == 8) return _mm512_shuffle_f32x4(v, v, 0x4E);
    if constexpr (K == 4) return _mm512_shuffle_f32x4(v, v, 0xB1);
    if constexpr (K == 2) return _mm512_permute_ps(v, 0x4E);
    if constexpr (K == 1) return _mm512_permute_ps(v, 0xB1);
  } else {
    if constexpr (K == 4) return _mm512_shuffle_f64x2(v, v, 0x4E);
    if constexpr (K == 2) return _mm512_shuffle_f64x2(v, v, 0xB1);
    if constexpr (K == 1) return _mm512_permute_pd(v, 0x55);
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    if constexpr (K == 4) return _mm256_permute2f128_ps(v, v, 1);
    if constexpr (K == 2) return _mm256_permute_ps(v, 0x4E);
    if constexpr (K == 1) return _mm256_permute_ps(v, 0xB1);
  } else {
    if constexpr (K == 2) return _mm256_permute2f128_pd(v, v, 1);
    if constexpr (K == 1) return _mm256_permute_pd(v, 0x5);
  }
#elif defined(__SSE2__)
  if constexpr (sizeof(T) == 4)
    return _mm_shuffle_ps(v, v, K == 2 ? 0x4E : 0xB1);
  else
    return _mm_shuffle_pd(v, v, 1);
#else
  alignas(64) T lane[kWidth<T>], swapped[kWidth<T>];
  v.store_aligned(lane);
  for (int i = 0; i < kWidth<T>; ++i) swapped[i] = lane[i ^ K];
  return Batch<T>::load_aligned(swapped);
#endif
}

// The lower and the upper half of the lanes.
#if defined(__AVX512F__)
inline __m256 lower_half(__m512 v) { return _mm512_castps512_ps256(v); }
inline __m256d lower_half(__m512d v) { return _mm512_castpd512_pd256(v); }
inline __m256 upper_half(__m512 v) { return _mm512_extractf32x8_ps(v, 1); }
inline __m256d upper_half(__m512d v) { return _mm512_extractf64x4_pd(v, 1); }
#endif
template <class T>
inline void store_halves(T* low, T* high, Batch<T> v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    _mm256_storeu_ps(low, lower_half(v));
    return _mm256_storeu_ps(high, upper_half(v));
  }
#endif
  alignas(64) T lane[kWidth<T>];
  v.store_aligned(lane);
  memcpy(low, lane, sizeof(lane) / 2);
  memcpy(high, lane + kWidth<T> / 2, sizeof(lane) / 2);
}

// For float and double.
template <class T>
inline T first_lane(Batch<T> v) {
  const typename Batch<T>::register_type lanes = v;
  return lanes[0];
}

template <int K, class T, class Op>
inline Batch<T> fold(Batch<T> v, Op op) {
  if constexpr (K == 0)
    return v;
  else
    return fold<K / 2>(op(v, swap_lanes<K>(v)), op);
}
#if defined(__AVX2__)
// The same tree on halves of registers, which is faster.
inline float sum_of_lanes(__m256 x) {
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
inline double sum_of_lanes(__m256d x) {
  const __m128d y = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
  return _mm_cvtsd_f64(_mm_add_sd(y, _mm_unpackhi_pd(y, y)));
}
#endif
// For float and double. The maximum and the minimum are NaN if any lane is NaN.
template <class T>
inline T reduce_add(Batch<T> v) {
#if defined(__AVX512F__)
  const typename Batch<T>::register_type x = v;
  return sum_of_lanes(lower_half(x) + upper_half(x));
#elif defined(__AVX2__)
  return sum_of_lanes(v);
#else
  return first_lane(fold<kWidth<T> / 2>(v, [](Batch<T> a, Batch<T> b) { return a + b; }));
#endif
}
template <class T>
inline T reduce_max(Batch<T> v) {
  return first_lane(fold<kWidth<T> / 2>(v, [](Batch<T> a, Batch<T> b) { return max(a, b); }));
}
template <class T>
inline T reduce_min(Batch<T> v) {
  return first_lane(fold<kWidth<T> / 2>(v, [](Batch<T> a, Batch<T> b) { return min(a, b); }));
}

// Transposes a square block, one vector per row: for each bit, swaps that bit of the row number and of the lane number.
template <class T, int K = kWidth<T> / 2>
[[gnu::always_inline]] inline void transpose_lanes(Batch<T> (&row)[kWidth<T>]) {
  alignas(64) T bit[kWidth<T>];
  for (int i = 0; i < kWidth<T>; ++i) bit[i] = (i & K) != 0 ? T(1) : T(0);
  const Mask<T> upper = load_aligned(bit) > Batch<T>(T(0));
  unroll<kWidth<T>>([&](auto i) {
    if constexpr ((i & K) == 0) {
      const Batch<T> a = row[i], b = row[i + K];
      row[i] = select(upper, swap_lanes<K>(b), a);
      row[i + K] = select(upper, b, swap_lanes<K>(a));
    }
  });
  if constexpr (K > 1) transpose_lanes<T, K / 2>(row);
}

// Transposes src [rows, columns]. store(c, r, lanes, n) receives row c of the transpose from its column r on; the first
// n lanes are valid, the others 0. Rows of src from `rows` to `padded_rows` count as zeros.
template <class T, class S, class Store>
inline void transpose(const S* src, long stride, long rows, long columns, long padded_rows, Store&& store) {
  constexpr int w = kWidth<T>;
  for (long r = 0; r < padded_rows; r += w)
    for (long c = 0; c < columns; c += w) {
      const int part = columns - c < w ? static_cast<int>(columns - c) : w;
      Batch<T> x[w];
      unroll<w>([&](auto i) {
        const S* from = src + (r + i) * stride + c;
        x[i] = r + i >= rows ? Batch<T>(T(0)) : part == w ? load_as<T>(from) : load_as_part<T>(from, part);
      });
      transpose_lanes<T>(x);
      const int count = rows - r < w ? static_cast<int>(rows - r) : w;
      unroll<w>([&](auto i) {
        if (i < part) store(c + i, r, x[i], count);
      });
    }
}

}  // namespace heed::kernels::HEED_LEVEL
