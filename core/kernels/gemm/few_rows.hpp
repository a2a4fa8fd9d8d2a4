// Products of few rows. They are limited by the reading of b, so b is read once, in place, in long runs. Included only
// by *.kernel.cpp.
#pragma once
#include "few_lanes.hpp"

namespace heed::kernels::HEED_LEVEL {

// Stores one sum to c: alpha * sum (+ c) (+ bias).
template <class T>
inline void finish_few(const GemmProblem& g, long i, long j, T sum) {
  T* c = static_cast<T*>(g.c) + i * g.ldc + j;
  T y = sum * static_cast<T>(g.alpha);
  if (g.add) y += *c;
  if (g.bias != nullptr) y += static_cast<const T*>(g.bias)[j];
  *c = y;
}

// ---- b's columns are contiguous ----

// sum[i][0, columns) += a[i, p .. p + steps) b[p .. p + steps, 0 .. columns)
template <class T, class A, class B, int kSteps, int kStrip>
inline void add_rows(const GemmProblem& g, long p, const B* b, int columns, T (*sum)[kStrip]) {
  constexpr int w = kWidth<T>;
  Batch<T> x[kFewRowsAcross][kSteps];
  for (long i = 0; i < g.m; ++i)
    for (int s = 0; s < kSteps; ++s)
      x[i][s] = Batch<T>(element<T>(static_cast<const A*>(g.a) + i * g.a_row + (p + s) * g.a_column));
  for (int j = 0; j < columns; j += w) {
    Batch<T> y[kSteps];
    unroll<kSteps>([&](auto s) { y[s] = load_up_to<T>(b + (p + s) * g.b_row + j, columns - j); });
    for (long i = 0; i < g.m; ++i) {
      Batch<T> v = load_aligned(&sum[i][j]);
      unroll<kSteps>([&](auto s) { v = fma(x[i][s], y[s], v); });
      store_aligned(&sum[i][j], v);
    }
  }
}

// The sums of a strip of columns stay in L1 while k runs.
template <class T, class A, class B>
inline void few_by_rows(const GemmProblem& g, long begin, long end) {
  constexpr int strip = 256;
  alignas(64) T sum[kFewRowsAcross][strip];
  for (long j0 = begin; j0 < end; j0 += strip) {
    const int columns = static_cast<int>(end - j0 < strip ? end - j0 : strip);
    memset(sum, 0, sizeof sum);
    const B* b = static_cast<const B*>(g.b) + j0;
    long p = 0;
    for (; p + 4 <= g.k; p += 4) add_rows<T, A, B, 4, strip>(g, p, b, columns, sum);
    for (; p < g.k; ++p) add_rows<T, A, B, 1, strip>(g, p, b, columns, sum);
    for (long i = 0; i < g.m; ++i)
      for (int j = 0; j < columns; ++j) finish_few(g, i, j0 + j, sum[i][j]);
  }
}

// ---- b's rows are contiguous ----

// Rows of a whose sums share a register, if there are several rows.
#if defined(__AVX512F__)
inline constexpr int kFewPaired = 2;
#else
inline constexpr int kFewPaired = 1;
#endif
// Rows of a that share each read of b. With few_columns() columns of b at once, their sums fill the registers.
inline constexpr int kFewGroup = 4 * kFewPaired;
template <class P, int R>
constexpr int few_columns() {
  // The latency of a product of pairs is half as long again, so more sums are needed.
  if (kFewPaired == 2) return std::is_same_v<P, Bf16Pairs> && R <= 4 ? 8 : 4;
  return R <= 2 ? 4 : 3;
}

// Bytes of a row of a that are multiplied by some columns before the rest of the row. These parts of a group's rows fit
// in L1, along with the lines of b.
inline constexpr long kFewRun = 3072;
// Max tiles whose sums are kept in memory between the parts of k.
inline constexpr int kFewTiles = 16;

// Each line of b is prefetched into L2 this number of bytes ahead. With several rows of a between two lines, the
// hardware prefetcher is too slow, and memory access and arithmetic alternate instead of overlapping.
template <int R>
inline constexpr long kFewAhead = R <= 2 ? 4096 : 2048;

// n numbers in k: of C columns of b, and of rows of a [n / kTaken, rows, kTaken]. `ahead` is the memory of b to
// prefetch.
template <class P, class B, int C>
struct FewRun {
  const typename FewLanes<P, 1>::Element* a;
  const B* b[C];
  const char* ahead[C];
  long n;
};

// The sums of R rows by C columns in registers: groups of kFewPaired rows, then the last row if it is left.
template <class P, int R, int C>
struct FewTile {
  static constexpr int kPairs = R / kFewPaired, kSingle = R % kFewPaired;
  using Pair = FewLanes<P, kFewPaired>;
  using Single = FewLanes<P, 1>;
  using T = typename Product<P>::Sum;
  static constexpr int kTaken = Single::kTaken;
  typename Pair::Sums pairs[kPairs > 0 ? kPairs : 1][C];
  typename Single::Sums single[C];

  // Calls f(sum, lanes, i, j) for the sums of the rows from i on and of column j.
  template <class F>
  [[gnu::always_inline]] void each(const F& f) {
    unroll<kPairs>([&](auto i) __attribute__((always_inline)) {
      unroll<C>([&](auto j) __attribute__((always_inline)) { f(pairs[i][j], Pair{}, i * kFewPaired, j); });
    });
    if constexpr (kSingle > 0)
      unroll<C>([&](auto j) __attribute__((always_inline)) { f(single[j], Single{}, R - 1, j); });
  }

  // Adds a_i[p ..] b_j[p ..]. kAhead: also prefetches b.
  template <bool kAhead, class B, class ReadA, class ReadB>
  [[gnu::always_inline]] void add(const FewRun<P, B, C>& run, long p, const ReadA& read_a, const ReadB& read_b) {
    unroll<Single::kHalves>([&](auto half) __attribute__((always_inline)) {
      add_half<kAhead && half == 0>(run, p, half, read_a, read_b);
    });
  }
  template <bool kAhead, class B, class Half, class ReadA, class ReadB>
  [[gnu::always_inline]] void add_half(const FewRun<P, B, C>& run, long p, Half half, const ReadA& read_a,
                                       const ReadB& read_b) {
    using Wide = std::conditional_t<(kPairs > 0), Pair, Single>;
    typename Wide::Vector y[C];
    unroll<C>([&](auto j) __attribute__((always_inline)) {
      y[j] = read_b(Wide{}, half, run.b[j] + p);
      if constexpr (kAhead) __builtin_prefetch(run.ahead[j] + p * static_cast<long>(sizeof(B)), 0, 2);
    });
    const auto* a = run.a + p * R;
    unroll<kPairs>([&](auto i) __attribute__((always_inline)) {
      const auto* const row = a + i * kFewPaired * kTaken;
      if constexpr (requires { Pair::template add_row<half>(row, y, pairs[i]); })
        return Pair::template add_row<half>(row, y, pairs[i]);
      else {
        const typename Pair::Vector x = read_a(Pair{}, half, row);
        unroll<C>([&](auto j) __attribute__((always_inline)) { pairs[i][j] = Pair::add(x, y[j], pairs[i][j]); });
      }
    });
    if constexpr (kSingle > 0) {
      const typename Single::Vector x = read_a(Single{}, half, a + (R - 1) * kTaken);
      unroll<C>([&](auto j) __attribute__((always_inline)) {
        if constexpr (kPairs > 0)
          single[j] = Single::add(x, Pair::half(y[j]), single[j]);
        else
          single[j] = Single::add(x, y[j], single[j]);
      });
    }
  }
};

// Where the sums of a run are loaded and stored: kept [R, C, lanes] between runs, c[row .. row + R,
// column(0 .. columns)] after the last run.
template <class T, int C>
struct FewSums {
  T* kept;
  bool first, last;  // whether this is the first or the last run of these sums
  long row;
  long column[C];
  int columns;
};

// Dot products of rows of a with rows of b^T; lanes run along k. The order of each sum does not depend on R and C.
template <class P, class B, int R, int C>
[[gnu::noinline]] inline void dot_products(const GemmProblem& g, const FewRun<P, B, C>& given,
                                           const FewSums<typename Product<P>::Sum, C>& s) {
  using Tile = FewTile<P, R, C>;
  using T = typename Tile::T;
  constexpr int taken = Tile::kTaken, lanes = kFewLanes<T>;
  // Numbers per iteration: a cache line of b, which is prefetched once, if the sums leave enough registers.
  constexpr int line = kFewPaired == 2 || R < kFewGroup ? 64 / static_cast<int>(sizeof(B)) : taken;
  const FewRun<P, B, C> run = given;
  Tile sum;
  sum.each([&](auto& x, auto of, auto i, auto j) __attribute__((always_inline)) {
    x = s.first ? of.zero() : of.sums_at(s.kept + (i * C + j * of.kRows) * lanes);
  });
  const auto a = [](auto of, auto half, const auto* from) __attribute__((always_inline)) {
    if constexpr (of.kHalves == 1)
      return of.a(from);
    else
      return of.template a<half>(from);
  };
  const auto b = [](auto of, auto half, const auto* from) __attribute__((always_inline)) {
    if constexpr (of.kHalves == 1)
      return of.b(from);
    else
      return of.template b<half>(from);
  };
  long p = 0;
  for (; p + line <= run.n; p += line)
    unroll<line / taken>([&](auto k) __attribute__((always_inline)) {
      sum.template add<k == 0>(run, p + k * taken, a, b);
    });
  for (; p + taken <= run.n; p += taken) sum.template add<true>(run, p, a, b);
  const int left = static_cast<int>(run.n - p);
  if (left > 0) {
    const auto part = [left](auto of, auto half, const auto* from) __attribute__((always_inline)) {
      if constexpr (of.kHalves == 1)
        return of.part(from, left);
      else
        return of.template part<half>(from, left);
    };
    if constexpr (R == 1)  // a may be in place, without padding
      sum.template add<true>(run, p, part, part);
    else
      sum.template add<true>(run, p, a, part);
  }
  sum.each([&](auto& x, auto of, auto i, auto j) __attribute__((always_inline)) {
    if (!s.last) return of.store_sums(s.kept + (i * C + j * of.kRows) * lanes, x);
    if (j >= s.columns) return;
    T total[of.kRows];
    of.totals(x, total);
    for (int h = 0; h < of.kRows; ++h) finish_few(g, s.row + i + h, s.column[j], total[h]);
  });
}

template <class P, class B, int C, int R>
inline void dot_rows(const GemmProblem& g, int rows, const FewRun<P, B, C>& run,
                     const FewSums<typename Product<P>::Sum, C>& s) {
  if (rows == R)
    dot_products<P, B, R, C>(g, run, s);
  else if constexpr (R > 1)
    dot_rows<P, B, C, R - 1>(g, rows, run, s);
}

// Rows per group of a: equal groups, of at most kFewGroup rows.
inline long few_group(long m) { return ceil_div(m, ceil_div(m, kFewGroup)); }

// The elements of a packed row of a: k rounded up to whole vectors.
template <class P>
inline long few_depth(long k) {
  return ceil_div(k, FewLanes<P, 1>::kTaken) * FewLanes<P, 1>::kTaken;
}

// Takes C columns at once that are far apart. The next column in each place continues a long run in memory, which the
// hardware prefetches. With C neighbouring columns, every run would end after one column. If a is larger than L1,
// several such tiles are computed side by side, one part of k at a time.
template <class P, class B, int C, int R>
inline void dot_columns(const GemmProblem& g, long begin, long end) {
  using A = typename FewLanes<P, 1>::Element;
  using T = typename Product<P>::Sum;
  constexpr long size = sizeof(A), lanes = FewLanes<P, 1>::kTaken;
  alignas(64) T kept[kFewTiles][R * C * kFewLanes<T>];
  const long group = few_group(g.m), groups = ceil_div(g.m, group), depth = few_depth<P>(g.k);
  const long apart = ceil_div(end - begin, C);
  const long parts = group * depth * size > 8 * kFewRun ? ceil_div(depth * size, kFewRun) : 1;
  const long part = depth == 0 ? lanes : ceil_div(depth / lanes, parts) * lanes;
  const long tiles = parts == 1 ? 1 : kFewTiles / groups > 0 ? kFewTiles / groups : 1;
  const auto column_of = [&](long j, int s) { return j + s * apart < end ? j + s * apart : end - 1; };
  const auto run_of = [&](long j, int s, long first) {
    return static_cast<const B*>(g.b) + column_of(j, s) * g.b_column + first;
  };
  for (long j0 = begin; j0 < begin + apart; j0 += tiles) {
    const long j1 = begin + apart < j0 + tiles ? begin + apart : j0 + tiles;
    for (long first = 0; first == 0 || first < g.k; first += part)
      for (long j = j0; j < j1; ++j) {
        const bool last = first + part >= g.k;
        FewRun<P, B, C> run = {nullptr, {}, {}, last ? g.k - first : part};
        FewSums<T, C> sums = {nullptr, first == 0, last, 0, {}, 0};
        for (int s = 0; s < C; ++s) {
          run.b[s] = run_of(j, s, first);
          const B* next = j + 1 < j1 ? run_of(j + 1, s, first) : last ? run_of(j1, s, 0) : run_of(j0, s, first + part);
          run.ahead[s] =
              parts > 1 ? reinterpret_cast<const char*>(next) : reinterpret_cast<const char*>(run.b[s]) + kFewAhead<R>;
          sums.column[s] = column_of(j, s);  // beyond the end, the last column is repeated and its sums are dropped
          if (j + s * apart < end) sums.columns = s + 1;
        }
        for (long q = 0; q < groups; ++q) {
          const long rows = g.m - q * group < group ? g.m - q * group : group;
          run.a = static_cast<const A*>(g.a) + q * group * depth + rows * first;
          sums.row = q * group;
          sums.kept = kept[(j - j0) * groups + q];
          dot_rows<P, B, C, R>(g, static_cast<int>(rows), run, sums);
        }
      }
  }
}

// a is packed by pack_few.
template <class P, class B>
inline void few_by_columns(const GemmProblem& g, long begin, long end) {
  [[maybe_unused]] typename Product<P>::CallRule rule;
  const long group = few_group(g.m);
  if (group <= 2) return dot_columns<P, B, few_columns<P, 2>(), 2>(g, begin, end);
  if constexpr (few_columns<P, 4>() != few_columns<P, kFewGroup>())
    if (group <= 4) return dot_columns<P, B, few_columns<P, 4>(), 4>(g, begin, end);
  dot_columns<P, B, few_columns<P, kFewGroup>(), kFewGroup>(g, begin, end);
}

// out: a in the form that products P read, in groups of rows, each [k / kTaken, rows, kTaken], padded with zeros.
// Elements read together are adjacent in memory and do not share a few sets of L1.
template <class P, class S>
inline void pack_few(const GemmProblem& g, void* out) {
  using A = typename FewLanes<P, 1>::Element;
  constexpr long lanes = FewLanes<P, 1>::kTaken;
  const long group = few_group(g.m), depth = few_depth<P>(g.k);
  for (long i = 0; i < g.m; ++i) {
    const long q = i / group, rows = g.m - q * group < group ? g.m - q * group : group;
    const S* from = static_cast<const S*>(g.a) + i * g.a_row;
    A* to = static_cast<A*>(out) + q * group * depth + (i - q * group) * lanes;
    for (long p = 0; p < g.k; p += lanes, to += rows * lanes)
      copy_neighbours<P>(from + p * g.a_column, g.a_column, g.k - p < lanes ? g.k - p : lanes, to);
  }
}

// GemmKind::few_in_place of products P: sizeof(S) if they read elements of type S as they are, else 0.
template <class P, class S>
inline constexpr long few_in_place = std::is_same_v<typename FewLanes<P, 1>::Element, S> ? sizeof(S) : 0;

}  // namespace heed::kernels::HEED_LEVEL
