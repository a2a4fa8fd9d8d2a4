// Where the tile finds its operands: b packed in panels, a in place where it lies well, else copied.
// Included only by *.kernel.cpp.
#pragma once
#include "gemm.hpp"
#include "gemm_pack.hpp"

namespace heed::kernels::HEED_LEVEL {

inline constexpr long kBlockRows = 192;   // times the depth: a's part stays in the second cache
inline constexpr long kBlockDepth = 256;  // deep, so that c's sums seldom go through memory

inline constexpr long ceil_div(long a, long b) { return (a + b - 1) / b; }

// Steps of the tile in all of k: pairs for bf16 dot products.
template <class P>
inline constexpr long kStep = 1;
#if defined(__AVX512BF16__)
template <>
inline constexpr long kStep<Bf16Pairs> = 2;
#endif

// k in equal blocks of at most kBlockDepth steps; one, empty, where k is 0.
template <class P>
struct DepthBlocks {
  long steps, count, size;
  explicit DepthBlocks(long k)
      : steps(ceil_div(k, kStep<P>)),
        count(steps == 0 ? 1 : ceil_div(steps, kBlockDepth)),
        size(ceil_div(steps, count)) {}
  long first(long q) const { return q * size; }
  long depth(long q) const { return steps - q * size < size ? steps - q * size : size; }
};

// What the tile reads of a.
template <class E>
struct Rows {
  const E* data;
  long stride;
  Order order;
};

// Rows [row, row + rows) and steps [p, p + depth) of a, of source type S.
template <class P, class S>
struct Operands {
  using T = typename Product<P>::Element;

  static void pack_panel(const GemmProblem& g, long column, long p, long depth, T* out) {
    const S* b = static_cast<const S*>(g.b) + column * g.b_column + p * g.b_row;
    const int lanes = static_cast<int>(g.n - column < kPanel<P> ? g.n - column : kPanel<P>);
    pack(b, g.b_column, g.b_row, lanes, kPanel<P>, depth, out);
  }

  static Rows<T> rows(const GemmProblem& g, long row, long rows, long p, long depth, T* scratch) {
    const S* a = static_cast<const S*>(g.a) + row * g.a_row + p * g.a_column;
    if constexpr (std::is_same_v<S, T>)
      if (g.a_column == 1) return {a, g.a_row, Order::by_row};
    if (g.a_row == 1) {
      // In place, each step would lie on another page, and those of even strides on few sets of the first cache.
      constexpr int group = Product<P>::kRows, w = kWidth<T>;
      for (long step = 0; step < depth; ++step, a += g.a_column) {
        for (long i = 0; i < rows; i += 64 / static_cast<long>(sizeof(T))) __builtin_prefetch(a + 8 * g.a_column + i);
        T* to = scratch + step * group;
        for (long i = 0; i < rows; i += group, to += packed_group<P>(depth))
          unroll<(group + w - 1) / w>([&](auto v) {  // whole vectors: the next step, or the gap, lies behind
            const long left = rows - i - v * w;
            store(to + v * w, left >= w ? load_as<T>(a + i + v * w)
                                        : load_as_part<T>(a + i + v * w, static_cast<int>(left > 0 ? left : 0)));
          });
      }
      return {scratch, group, Order::packed};
    }
    for (long i = 0; i < rows; ++i) {
      const S* line = a + i * g.a_row;
      // The last vector of a row writes into the next row, which comes later, or into the spare end of the scratch.
      if (g.a_column == 1)
        pack_rows(line, 0, static_cast<int>(depth), static_cast<int>(depth), 1, scratch + i * depth);
      else
        for (long s = 0; s < depth; ++s) scratch[i * depth + s] = element<T>(line + s * g.a_column);
    }
    return {scratch, depth, Order::by_row};
  }
};

#if defined(__AVX512BF16__)
// Both operands bf16, as pairs of neighbours in k in 32 bits, the earlier in the lower half; a missing last one is 0.
template <>
struct Operands<Bf16Pairs, uint16_t> {
  static uint32_t pair(const uint16_t* x, long stride, bool both) {
    return x[0] | (both ? static_cast<uint32_t>(x[stride]) << 16 : 0u);
  }
  static __m512i load_halves(const uint16_t* x, long count) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(
        count >= 16 ? 0xffff : static_cast<__mmask16>((1u << (count < 0 ? 0 : count)) - 1u), x));
  }

  // out[s * width + i] = pair s of lane i
  static void pack_pairs(const uint16_t* x, long lane_stride, long k_stride, long lanes, long width, long k,
                         uint32_t* out) {
    for (long s = 0; s < ceil_div(k, 2); ++s) {
      const bool both = 2 * s + 1 < k;
      const uint16_t* low = x + 2 * s * k_stride;
      uint32_t* to = out + s * width;
      if (lane_stride == 1)
        for (long i = 0; i < width; i += 16) {
          const __m512i high = both ? load_halves(low + k_stride + i, lanes - i) : _mm512_setzero_si512();
          const __m512i y = _mm512_or_si512(load_halves(low + i, lanes - i), _mm512_slli_epi32(high, 16));
          _mm512_storeu_si512(to + i, y);
        }
      else
        for (long i = 0; i < width; ++i) to[i] = i < lanes ? pair(low + i * lane_stride, k_stride, both) : 0u;
    }
  }

  // The same for k_stride 1: 16 lines of 16 pairs become columns.
  static void pack_pairs_transposed(const uint16_t* x, long lane_stride, long lanes, long width, long k,
                                    uint32_t* out) {
    for (long group = 0; group < width; group += 16)
      for (long s = 0; s < ceil_div(k, 2); s += 16) {
        const long halves = k - 2 * s;
        const __mmask32 m = halves >= 32 ? ~0u : (1u << halves) - 1u;
        Batch<float> row[16];
        unroll<16>([&](auto i) {
          const bool there = group + i < lanes;
          const uint16_t* line = x + (there ? group + i : 0) * lane_stride + 2 * s;
          row[i] = _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(there ? m : 0u, line));
        });
        transpose_lanes<float>(row);
        unroll<16>([&](auto i) {
          if (2 * i < halves) _mm512_storeu_ps(out + (s + i) * width + group, row[i]);
        });
      }
  }

  static void pack_panel(const GemmProblem& g, long column, long p, long depth, uint32_t* out) {
    const uint16_t* b = static_cast<const uint16_t*>(g.b) + column * g.b_column + 2 * p * g.b_row;
    const long lanes = g.n - column < kPanel<Bf16Pairs> ? g.n - column : kPanel<Bf16Pairs>;
    const long k = g.k - 2 * p < 2 * depth ? g.k - 2 * p : 2 * depth;
    if (g.b_row == 1)
      pack_pairs_transposed(b, g.b_column, lanes, kPanel<Bf16Pairs>, k, out);
    else
      pack_pairs(b, g.b_column, g.b_row, lanes, kPanel<Bf16Pairs>, k, out);
  }

  static Rows<uint32_t> rows(const GemmProblem& g, long row, long rows, long p, long depth, uint32_t* scratch) {
    const uint16_t* a = static_cast<const uint16_t*>(g.a) + row * g.a_row + 2 * p * g.a_column;
    const long k = g.k - 2 * p < 2 * depth ? g.k - 2 * p : 2 * depth;
    if (g.a_column == 1 && k % 2 == 0 && g.a_row % 2 == 0)  // pairs lie as they are wanted
      return {reinterpret_cast<const uint32_t*>(a), g.a_row / 2, Order::by_row};
    if (g.a_row == 1) {
      constexpr long group = Product<Bf16Pairs>::kRows;
      uint32_t* scratch_group = scratch;
      for (long i = 0; i < rows; i += group, scratch_group += packed_group<Bf16Pairs>(depth))
        pack_pairs(a + i, 1, g.a_column, rows - i < group ? rows - i : group, group, k, scratch_group);
      return {scratch, group, Order::packed};
    }
    for (long i = 0; i < rows; ++i)
      for (long s = 0; s < depth; ++s)
        scratch[i * depth + s] = pair(a + i * g.a_row + 2 * s * g.a_column, g.a_column, 2 * s + 1 < k);
    return {scratch, depth, Order::by_row};
  }
};
#endif

}  // namespace heed::kernels::HEED_LEVEL
