// The register tile of matrix products: R rows by V vectors of C stay in registers while k runs. Included only by
// *.kernel.cpp.
#pragma once
#include "../simd/simd.hpp"
#include "fetch.hpp"

namespace heed::kernels::HEED_LEVEL {

// How elements are multiplied and summed. Float and double: one product per lane.
template <class T>
struct Product {
  using Element = T;  // of A and B
  using Sum = T;      // of C
  using Vector = Batch<T>;
  // Rows of the largest tile: enough sums to hide the latency of the multiply-add and to read little of B per
  // multiply-add, few enough for the registers.
  static constexpr int kRows = kWidth<T> * sizeof(T) == 64 ? 12 : 6;
  // Steps of k by which B is prefetched into L1, where a panel does not stay; 0: not at all.
  static constexpr int kAhead = kRows == 12 ? 8 : 0;
  static Vector broadcast(const T* p) { return Vector(*p); }
  static Vector load(const T* p) { return HEED_LEVEL::load(p); }
  static Batch<T> add(Vector a, Vector b, Batch<T> sum) { return fma(a, b, sum); }
  using Rule = SubnormalsKept;  // treatment of subnormal numbers in the sums given to it, until end()
  struct CallRule {};           // the same in the sums of called functions, during its lifetime
};

// Pairs of bf16, neighbours in k: two products per lane, summed in float32.
template <>
struct Product<Bf16Pairs> {
  using Element = uint32_t;
  using Sum = float;
  using Vector = Pairs;
  static constexpr int kRows = kWidth<float> == 16 ? 8 : 6;  // on the avx512 level, a pair needs more registers
  static constexpr int kAhead = 0;
  static Vector broadcast(const uint32_t* p) {
    uint32_t pair;
    memcpy(&pair, p, sizeof pair);  // a pair in a view may start between two words
    return Vector(pair);
  }
  static Vector load(const uint32_t* p) { return load_pairs(p); }
  static Batch<float> add(Vector a, Vector b, Batch<float> sum) { return add_products(sum, a, b); }
  using Rule = SubnormalsAsZero;
  using CallRule = CalledSubnormalsAsZero;
};

// The numbers of bf16 pairs one by one, in the order in which add_products adds them: the later of each pair first.
// Operands are packed in this order, as float32. With 16 registers, widening pairs in the tile would leave too few for
// sums.
struct Bf16Numbers {};
template <>
struct Product<Bf16Numbers> : Product<float> {
  using Rule = SubnormalsAsZero;
  using CallRule = CalledSubnormalsAsZero;
};

inline constexpr int kTileVectors = 2;
// Columns of C per panel of B.
template <class P>
inline constexpr int kPanel = kTileVectors* kWidth<typename Product<P>::Sum>;

// The order of A's elements. by_row: a[i * stride + p]; by_column: a[p * stride + i]; packed: by column within groups
// of kRows rows (those of the largest tile), stride kRows, one group after another.
enum class Order { by_row, by_column, packed };

// Elements from one packed group of k steps to the next. The gap keeps the groups from sharing one set of L1.
template <class P>
constexpr long packed_group(long k) {
  return Product<P>::kRows * k + 16;
}

// The destination of the sums: c = alpha * sum (+ c) (+ bias, one per column).
template <class T>
struct TileOut {
  T* c;
  long ldc;
  bool add;
  T alpha;
  const T* bias;         // or null
  Fetch* fetch[2] = {};  // advanced with each tile; or null
};

// kCut: the last vector of a row of C has only `last` columns. B is packed, and read to the end of the vector.
template <class P, int R, int V, Order kOrder, bool kCut>
[[gnu::always_inline]] inline void tile(long k, const typename Product<P>::Element* a, long a_stride,
                                        const typename Product<P>::Element* b, long b_stride, int last,
                                        const TileOut<typename Product<P>::Sum>& out) {
  using Op = Product<P>;
  using T = typename Op::Sum;
  constexpr int w = kWidth<T>;
  Batch<T> sum[R][V];
  unroll<R>([&](auto i) { unroll<V>([&](auto j) { sum[i][j] = Batch<T>(T(0)); }); });
  for (long p = 0; p < k; ++p) {
    typename Op::Vector row[V];
    unroll<V>([&](auto j) {
      row[j] = Op::load(b + j * w);
      if constexpr (Op::kAhead > 0 && R == Op::kRows) __builtin_prefetch(b + j * w + Op::kAhead * b_stride);
    });
    unroll<R>([&](auto i) __attribute__((always_inline)) {
      const typename Op::Vector x = Op::broadcast(kOrder == Order::by_row ? a + i * a_stride : a + i);
      unroll<V>([&](auto j) { sum[i][j] = Op::add(x, row[j], sum[i][j]); });
    });
    a += kOrder == Order::by_row ? 1 : a_stride;
    b += b_stride;
  }
  unroll<V>([&](auto j) __attribute__((always_inline)) {
    constexpr bool cut = kCut && j == V - 1;
    Batch<T> bias(T(0));
    if (out.bias != nullptr) bias = cut ? load_part(out.bias + j * w, last) : load(out.bias + j * w);
    unroll<R>([&](auto i) __attribute__((always_inline)) {
      T* c = out.c + i * out.ldc + j * w;
      Batch<T> y = sum[i][j];
      if (out.alpha != T(1)) y = y * Batch<T>(out.alpha);
      if (out.add) y = y + (cut ? load_part(c, last) : load(c));
      if (out.bias != nullptr) y = y + bias;
      if constexpr (cut)
        store_part(c, y, last);
      else
        store(c, y);
    });
  });
}

// m rows of one panel of columns: tiles of R rows, then smaller tiles. Not inlined: g++ spills sums in one large
// function.
template <class P, int V, Order kOrder, bool kCut, int R = Product<P>::kRows>
[[gnu::noinline]] inline void panel_rows(long m, long k, const typename Product<P>::Element* a, long a_stride,
                                         const typename Product<P>::Element* b, long b_stride, int last,
                                         TileOut<typename Product<P>::Sum> out) {
  constexpr int w = kWidth<typename Product<P>::Sum>;
  long i = 0;
  const long next_tile = kOrder == Order::by_row ? R * a_stride : R == Product<P>::kRows ? packed_group<P>(k) : R;
  for (; i + R <= m; i += R) {
    for (Fetch* fetch : out.fetch)
      if (fetch != nullptr && !fetch->is_done()) fetch->prefetch_next();
    if (k >= 32)  // prefetches rows of C while k runs
      for (int r = 0; r < R; ++r)
        for (int j = 0; j < V * w; j += 64 / static_cast<int>(sizeof *out.c))
          __builtin_prefetch(out.c + r * out.ldc + j, 1);
    tile<P, R, V, kOrder, kCut>(k, a, a_stride, b, b_stride, last, out);
    a += next_tile;
    out.c += R * out.ldc;
  }
  constexpr int next = R > 4 ? 4 : R / 2;
  if constexpr (next > 0) {
    if (i < m) panel_rows<P, V, kOrder, kCut, next>(m - i, k, a, a_stride, b, b_stride, last, out);
  }
}

// The same for n <= kPanel columns.
template <class P, Order kOrder>
inline void panel(long m, int n, long k, const typename Product<P>::Element* a, long a_stride,
                  const typename Product<P>::Element* b, long b_stride, const TileOut<typename Product<P>::Sum>& out) {
  constexpr int w = kWidth<typename Product<P>::Sum>;
  const int last = n > w ? n - w : n;
  if (n == 2 * w)
    panel_rows<P, 2, kOrder, false>(m, k, a, a_stride, b, b_stride, last, out);
  else if (n > w)
    panel_rows<P, 2, kOrder, true>(m, k, a, a_stride, b, b_stride, last, out);
  else if (n == w)
    panel_rows<P, 1, kOrder, false>(m, k, a, a_stride, b, b_stride, last, out);
  else
    panel_rows<P, 1, kOrder, true>(m, k, a, a_stride, b, b_stride, last, out);
}

}  // namespace heed::kernels::HEED_LEVEL
