// Operands of products of pairs, for levels whose registers hold 16 pairs. Included only by *.kernel.cpp.
#pragma once
#include "operands.hpp"

#if defined(__AVX512F__)
namespace heed::kernels::HEED_LEVEL {

// Pairs of bf16, neighbours in k. A missing last number is 0. The source is bf16, or float32 that is rounded.
struct PairSource {
  template <class S>
  static uint32_t pair(const S* x, long stride, bool both) {
    return bf16_by_machine(x[0]) | (both ? uint32_t{bf16_by_machine(x[stride])} << 16 : 0u);
  }

  // The pairs of n lanes of two rows. A null `high` means zeros.
#if defined(__AVX512BF16__)
  static __mmask16 first_of_16(long n) {
    return n >= 16 ? 0xffff : static_cast<__mmask16>((1u << (n < 0 ? 0 : n)) - 1u);
  }
  static Pairs interleave(__m512i low_then_high) {
    alignas(64) static constexpr uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_load_si512(order), low_then_high);
  }
  static Pairs pairs(const uint16_t* low, const uint16_t* high, long n) {
    const __mmask16 m = first_of_16(n);
    const __m256i h = high == nullptr ? _mm256_setzero_si256() : _mm256_maskz_loadu_epi16(m, high);
    return interleave(_mm512_inserti64x4(_mm512_castsi256_si512(_mm256_maskz_loadu_epi16(m, low)), h, 1));
  }
  static Pairs pairs(const float* low, const float* high, long n) {
    const __mmask16 m = first_of_16(n);
    const __m512 h = high == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(m, high);
    return interleave(reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(h, _mm512_maskz_loadu_ps(m, low))));
  }
#else
  template <class S>
  static Pairs pairs(const S* low, const S* high, long n) {
    using From = Source<Bf16Numbers, S>;
    return pairs_of(From::load(low, n), high == nullptr ? Batch<float>(0.f) : From::load(high, n));
  }
#endif

  // The first n numbers of a line as pairs, at most one vector.
  static Pairs line(const uint16_t* x, long n) { return load_pairs_part(x, n); }
  static Pairs line(const float* x, long n) {
    constexpr int w = kWidth<float>;
    return pairs_of_neighbours(load_up_to<float>(x, n), load_up_to<float>(x + w, n - w));
  }
};

template <class S>
struct Operands<Bf16Pairs, S> : PairSource {
  static constexpr long kGroup = Product<Bf16Pairs>::kRows, kLanes = kWidth<float>;

  // out[s * width + i] = pair s of lane i for i < lanes, 0 for other i < width.
  static void pack_panel_rows(const S* x, long lane_stride, long k_stride, long lanes, long width, long k,
                              uint32_t* out) {
    for (long s = 0; s < ceil_div(k, 2); ++s) {
      const bool both = 2 * s + 1 < k;
      const S* low = x + 2 * s * k_stride;
      uint32_t* to = out + s * width;
      if (lane_stride == 1)
        for (long i = 0; i < width; i += kLanes) {
          __builtin_prefetch(low + 16 * k_stride + i);  // each line may be on another page
          __builtin_prefetch(low + 17 * k_stride + i);
          store_pairs(to + i, pairs(low + i, both ? low + k_stride + i : nullptr, lanes - i));
        }
      else
        for (long i = 0; i < width; ++i) to[i] = i < lanes ? pair(low + i * lane_stride, k_stride, both) : 0u;
    }
  }

  // The same for k_stride 1. Lines of one vector of pairs are transposed into columns.
  static void pack_panel_lines(const S* x, long lane_stride, long lanes, long width, long k, uint32_t* out) {
    for (long group = 0; group < width; group += kLanes)
      for (long s = 0; s < ceil_div(k, 2); s += kLanes) {
        const long halves = k - 2 * s;
        Batch<float> row[kLanes];
        unroll<kLanes>([&](auto i) {
          const bool there = group + i < lanes;
          row[i] = bits_as<float>(line(x + (there ? group + i : 0) * lane_stride + 2 * s, there ? halves : 0));
        });
        transpose_lanes<float>(row);
        unroll<kLanes>([&](auto i) {
          if (2 * i < halves) store_pairs(out + (s + i) * width + group, bits_as<uint32_t>(row[i]));
        });
      }
  }

  static void pack_panel(const GemmProblem& g, long column, long p, long depth, uint32_t* out) {
    const S* b = static_cast<const S*>(g.b) + column * g.b_column + 2 * p * g.b_row;
    const long lanes = g.n - column < kPanel<Bf16Pairs> ? g.n - column : kPanel<Bf16Pairs>;
    const long k = g.k - 2 * p < 2 * depth ? g.k - 2 * p : 2 * depth;
    if (g.b_row == 1)
      pack_panel_lines(b, g.b_column, lanes, kPanel<Bf16Pairs>, k, out);
    else
      pack_panel_rows(b, g.b_column, g.b_row, lanes, kPanel<Bf16Pairs>, k, out);
  }

  // Packs columns of a in groups of the tile's rows, two groups at a time.
  static void pack_groups(const S* a, long k_stride, long rows, long k, long depth, uint32_t* out) {
    static_assert(kLanes == 2 * kGroup);
    for (long s = 0; s < depth; ++s, a += 2 * k_stride) {
      const S* high = 2 * s + 1 < k ? a + k_stride : nullptr;
      for (long i = 0; i < rows; i += 64 / static_cast<long>(sizeof(S))) {  // each column may be on another page
        __builtin_prefetch(a + 8 * k_stride + i);
        __builtin_prefetch(a + 9 * k_stride + i);
      }
      uint32_t* to = out + s * kGroup;
      for (long i = 0; i < rows; i += kLanes, to += 2 * packed_group<Bf16Pairs>(depth)) {
        alignas(64) uint32_t none[kGroup];
        uint32_t* const next = i + kGroup < rows ? to + packed_group<Bf16Pairs>(depth) : none;
        const Pairs x = pairs(a + i, high == nullptr ? nullptr : high + i, rows - i);
        store_halves(reinterpret_cast<float*>(to), reinterpret_cast<float*>(next), bits_as<float>(x));
      }
    }
  }

  static Rows<uint32_t> rows(const GemmProblem& g, long row, long rows, long p, long depth, uint32_t* scratch) {
    const S* a = static_cast<const S*>(g.a) + row * g.a_row + 2 * p * g.a_column;
    const long k = g.k - 2 * p < 2 * depth ? g.k - 2 * p : 2 * depth;
    if constexpr (sizeof(S) == 2)
      if (g.a_column == 1 && k % 2 == 0 && g.a_row % 2 == 0)  // the pairs are already in place
        return {reinterpret_cast<const uint32_t*>(a), g.a_row / 2, Order::by_row};
    if (g.a_row == 1) {
      pack_groups(a, g.a_column, rows, k, depth, scratch);
      return {scratch, kGroup, Order::packed};
    }
    for (long i = 0; i < rows; ++i) {
      const S* from = a + i * g.a_row;
      uint32_t* to = scratch + i * depth;
      if (g.a_column == 1)
        // The last vector of a row overwrites part of the next row, which is written later, or the spare end of the
        // scratch.
        for (long s = 0; s < depth; s += kLanes) store_pairs(to + s, line(from + 2 * s, k - 2 * s));
      else
        for (long s = 0; s < depth; ++s) to[s] = pair(from + 2 * s * g.a_column, g.a_column, 2 * s + 1 < k);
    }
    return {scratch, depth, Order::by_row};
  }
};

}  // namespace heed::kernels::HEED_LEVEL
#endif
