// Where the tile finds its operands: b packed in panels, a in place where it lies well, else copied.
// Included only by *.kernel.cpp.
#pragma once
#include "gemm.hpp"
#include "gemm_pack.hpp"

namespace heed::kernels::HEED_LEVEL {

// Times the depth, a's part stays in the second cache.
template <class P>
inline constexpr long kBlockRows = 192 / Product<P>::kLefts / Product<P>::kRows* Product<P>::kRows;
inline constexpr long kBlockDepth = 256;  // deep, so that c's sums seldom go through memory

// Bytes of b, packed, that stay in the second cache beside a and c.
inline constexpr size_t kStaying = size_t{1} << 19;

inline constexpr long ceil_div(long a, long b) { return (a + b - 1) / b; }

// Steps of the tile in all of k: pairs for bf16 dot products.
template <class P>
inline constexpr long kStep = 1;
template <>
inline constexpr long kStep<Bf16Pairs> = 2;

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
        long i = 0;
        if constexpr (w == 2 * group)  // two groups at a time
          for (; i + w <= rows; i += w, to += 2 * packed_group<P>(depth))
            store_halves(to, to + packed_group<P>(depth), load_as<T>(a + i));
        for (; i < rows; i += group, to += packed_group<P>(depth))
          unroll<(group + w - 1) / w>([&](auto v) {  // whole vectors: the next step, or the gap, lies behind
            const long left = rows - i - v * w;
            store(to + v * w, left >= w ? load_as<T>(a + i + v * w)
                                        : load_as_part<T>(a + i + v * w, static_cast<int>(left > 0 ? left : 0)));
          });
      }
      return {scratch, kPackedStep<P>, Order::packed};
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

// Pairs of bf16, neighbours in k; a missing last one is 0. The source is bf16 or float32, which is rounded.
struct PairSource {
  template <class S>
  static void prefetch_columns(const S* a, long k_stride, long rows) {  // each may lie on another page
    for (long i = 0; i < rows; i += 64 / static_cast<long>(sizeof(S))) {
      __builtin_prefetch(a + 8 * k_stride + i);
      __builtin_prefetch(a + 9 * k_stride + i);
    }
  }

  static uint32_t bits(uint16_t x) { return x; }
  static uint32_t bits(float x) {
    const float y = rounded_by_machine(x);
    uint32_t u;
    memcpy(&u, &y, sizeof u);
    return u >> 16;
  }
  template <class S>
  static uint32_t pair(const S* x, long stride, bool both) {
    return bits(x[0]) | (both ? bits(x[stride]) << 16 : 0u);
  }

  // The pairs of n lanes of two rows; high may be null: zeros.
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
  static Batch<float> numbers(const uint16_t* x, long n) {
    return n >= kWidth<float> ? load_bf16(x) : load_bf16_part(x, static_cast<int>(n > 0 ? n : 0));
  }
  static Batch<float> numbers(const float* x, long n) {
    return rounded_by_machine(n >= kWidth<float> ? load(x) : load_part(x, static_cast<int>(n > 0 ? n : 0)));
  }
  template <class S>
  static Pairs pairs(const S* low, const S* high, long n) {
    return pairs_of(numbers(low, n), high == nullptr ? Batch<float>(0.f) : numbers(high, n));
  }
#endif

  // The first n of the neighbours of a line that a vector of pairs holds.
  static Pairs line(const uint16_t* x, long n) { return load_pairs_part(x, n); }
  static Pairs line(const float* x, long n) {
    constexpr int w = kWidth<float>;
    const auto part = [](const float* from, long left) {
      return left >= w ? load(from) : load_part(from, static_cast<int>(left > 0 ? left : 0));
    };
    return pairs_of_neighbours(part(x, n), part(x + w, n - w));
  }
};

template <class S>
struct Operands<Bf16Pairs, S> : PairSource {
  using Left = Product<Bf16Pairs>::Left;
  static constexpr long kGroup = Product<Bf16Pairs>::kRows, kLanes = kWidth<float>;
  static constexpr long kLefts = Product<Bf16Pairs>::kLefts;

  // out[s * width + i] = pair s of lane i, for lanes up to `width`; those from `lanes` on are zeros.
  static void pack_panel_rows(const S* x, long lane_stride, long k_stride, long lanes, long width, long k,
                              uint32_t* out) {
    for (long s = 0; s < ceil_div(k, 2); ++s) {
      const bool both = 2 * s + 1 < k;
      const S* low = x + 2 * s * k_stride;
      uint32_t* to = out + s * width;
      if (lane_stride == 1)
        for (long i = 0; i < width; i += kLanes) {
          __builtin_prefetch(low + 16 * k_stride + i);  // each line may lie on another page
          __builtin_prefetch(low + 17 * k_stride + i);
          store_pairs(to + i, pairs(low + i, both ? low + k_stride + i : nullptr, lanes - i));
        }
      else
        for (long i = 0; i < width; ++i) to[i] = i < lanes ? pair(low + i * lane_stride, k_stride, both) : 0u;
    }
  }

  // The same for k_stride 1: lines of as many pairs as a vector holds become columns.
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

#if defined(__AVX512F__)
  // Columns of a in groups of the tile's rows, two groups at a time.
  static void pack_groups(const S* a, long k_stride, long rows, long k, long depth, uint32_t* out) {
    static_assert(kLanes == 2 * kGroup);
    for (long s = 0; s < depth; ++s, a += 2 * k_stride) {
      const S* high = 2 * s + 1 < k ? a + k_stride : nullptr;
      prefetch_columns(a, k_stride, rows);
      uint32_t* to = out + s * kPackedStep<Bf16Pairs>;
      for (long i = 0; i < rows; i += kLanes, to += 2 * packed_group<Bf16Pairs>(depth)) {
        alignas(64) uint32_t none[kGroup];
        uint32_t* const next = i + kGroup < rows ? to + packed_group<Bf16Pairs>(depth) : none;
        const Pairs x = pairs(a + i, high == nullptr ? nullptr : high + i, rows - i);
        store_halves(reinterpret_cast<float*>(to), reinterpret_cast<float*>(next), bits_as<float>(x));
      }
    }
  }

  // `count` numbers of a row of a. The last vector writes into the next row, which comes later, or into the spare end
  // of the scratch.
  static void pack_row(const S* from, long stride, long count, long depth, uint32_t* to) {
    if (stride == 1)
      for (long s = 0; s < depth; s += kLanes) store_pairs(to + s, line(from + 2 * s, count - 2 * s));
    else
      for (long s = 0; s < depth; ++s) to[s] = pair(from + 2 * s * stride, stride, 2 * s + 1 < count);
  }
#else
  // The same widened: of each step the earlier numbers of a group, then the later ones.
  static void pack_groups(const S* a, long k_stride, long rows, long k, long depth, float* out) {
    for (long s = 0; s < depth; ++s, a += 2 * k_stride) {
      prefetch_columns(a, k_stride, rows);
      float* to = out + s * kPackedStep<Bf16Pairs>;
      for (long i = 0; i < rows; i += kGroup, to += packed_group<Bf16Pairs>(depth))
        for (const long later : {0, 1})
          for (long v = 0; v < kGroup; v += kLanes) {  // whole vectors: what comes next, or the gap, lies behind
            const long left = 2 * s + later < k ? rows - i - v : 0;
            store(to + later * kGroup + v, numbers(a + later * k_stride + i + v, left));
          }
    }
  }

  static void pack_row(const S* from, long stride, long count, long depth, float* to) {
    if (stride == 1)
      for (long p = 0; p < 2 * depth; p += kLanes) store(to + p, numbers(from + p, count - p));
    else
      for (long p = 0; p < 2 * depth; ++p)
        to[p] = p < count ? bf16_to_float(static_cast<uint16_t>(bits(from[p * stride]))) : 0.f;
  }
#endif

  static Rows<Left> rows(const GemmProblem& g, long row, long rows, long p, long depth, Left* scratch) {
    const S* a = static_cast<const S*>(g.a) + row * g.a_row + 2 * p * g.a_column;
    const long k = g.k - 2 * p < 2 * depth ? g.k - 2 * p : 2 * depth;
    if constexpr (sizeof(S) == 2 && sizeof(Left) * kLefts == 4)
      if (g.a_column == 1 && k % 2 == 0 && g.a_row % 2 == 0)  // pairs lie as they are wanted
        return {reinterpret_cast<const Left*>(a), g.a_row / 2, Order::by_row};
    if (g.a_row == 1) {
      pack_groups(a, g.a_column, rows, k, depth, scratch);
      return {scratch, kPackedStep<Bf16Pairs>, Order::packed};
    }
    for (long i = 0; i < rows; ++i) pack_row(a + i * g.a_row, g.a_column, k, depth, scratch + i * kLefts * depth);
    return {scratch, kLefts * depth, Order::by_row};
  }
};

}  // namespace heed::kernels::HEED_LEVEL
