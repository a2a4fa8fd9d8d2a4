// Products of few rows: limited by the reading of b, so that b is read once, in place, in long runs. Included only by
// *.kernel.cpp.
#pragma once
#include "gemm_operands.hpp"

namespace heed::kernels::HEED_LEVEL {

// One sum to c: alpha * sum (+ c) (+ bias).
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
    const int left = columns - j;
    Batch<T> y[kSteps];
    unroll<kSteps>([&](auto s) {
      const B* line = b + (p + s) * g.b_row + j;
      y[s] = left >= w ? load_as<T>(line) : load_as_part<T>(line, left);
    });
    for (long i = 0; i < g.m; ++i) {
      Batch<T> v = load_aligned(&sum[i][j]);
      unroll<kSteps>([&](auto s) { v = fma(x[i][s], y[s], v); });
      store_aligned(&sum[i][j], v);
    }
  }
}

// Sums of a strip of columns stay in the nearest cache while k runs.
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

// v, which the compiler may not read from memory anew for each of its uses.
template <class T>
inline Batch<T> kept_in_register(Batch<T> v) {
#if defined(__x86_64__)
  typename Batch<T>::register_type r = v;
  asm("" : "+v"(r));
  return r;
#else
  return v;
#endif
}

// Neighbours in k, as many as a product P takes at once, as they lie in memory of type S.
template <class P>
struct Neighbours {
  using Element = P;  // of a
  static constexpr int kLanes = kWidth<P>;
  template <class S>
  static Batch<P> read(const S* x) {
    return load_as<P>(x);
  }
  template <class S>
  static Batch<P> read_part(const S* x, int n) {
    return load_as_part<P>(x, n);
  }
  // to [kLanes]: n that lie `stride` apart, and zeros.
  template <class S>
  static void copy(const S* x, long stride, long n, P* to) {
    if (stride == 1 && n == kLanes) return store(to, read(x));
    for (long p = 0; p < kLanes; ++p) to[p] = p < n ? element<P>(x + p * stride) : P(0);
  }
};

#if defined(__AVX512BF16__)
template <>
struct Neighbours<Bf16Pairs> {
  using Element = uint16_t;
  static constexpr int kLanes = 32;
  static __m512bh read(const uint16_t* x) { return __m512bh(_mm512_loadu_si512(x)); }
  static __m512bh read_part(const uint16_t* x, int n) { return __m512bh(PairSource::line(x, n)); }
  template <class S>
  static void copy(const S* x, long stride, long n, uint16_t* to) {
    if (stride == 1) return _mm512_storeu_si512(to, PairSource::line(x, n));
    for (long p = 0; p < kLanes; ++p) to[p] = p < n ? static_cast<uint16_t>(PairSource::bits(x[p * stride])) : 0;
  }
};
inline __m512bh kept_in_register(__m512bh v) {
  asm("" : "+v"(v));
  return v;
}
#endif

// Rows of a that share what is read of b, and of how many of these b's columns are taken four at once, and not three:
// as many sums as the registers hold.
template <class T>
inline constexpr int kFewGroup = kWidth<T> * sizeof(T) == 64 ? 8 : 4;
template <class T>
inline constexpr int kFewByFour = kWidth<T> * sizeof(T) == 64 ? 6 : 2;

// Bytes of a row of a that are multiplied by some columns before the rest of it: so many of each row of a group lie in
// the first cache beside what passes by of b.
inline constexpr long kFewRun = 3072;
// Tiles of sums that wait in memory for the rest.
inline constexpr int kFewTiles = 16;

// So many bytes before it is read, each line of b is called to the second cache: where several rows of a wait between
// two lines, the processor's own fetching falls behind, and memory and arithmetic take turns.
template <int R>
inline constexpr long kFewAhead = R == 1 ? 1024 : 2048;

// n neighbours in k of C columns of b, of R rows of a [n / lanes, R, lanes], and what will be read of b next.
template <class P, class B, int C>
struct FewRun {
  const typename Neighbours<P>::Element* a;
  const B* b[C];
  const char* ahead[C];
  long n;
};

// sum[i][j] += a_i[p ..] b_j[p ..], one vector of each, as `read` reads it. Inlined, so that sums stay in registers.
template <class P, class B, int R, int C, class Read>
[[gnu::always_inline]] inline void add_vectors(Batch<typename Product<P>::Sum> (&sum)[R][C], const FewRun<P, B, C>& run,
                                               long p, const Read& read) {
  typename Product<P>::Vector y[C];
  unroll<C>([&](auto j) {
    y[j] = read(run.b[j] + p);
    __builtin_prefetch(run.ahead[j] + p * static_cast<long>(sizeof(B)), 0, 2);
  });
  unroll<R>([&](auto i) {
    const typename Product<P>::Vector x = kept_in_register(read(run.a + p * R + i * Neighbours<P>::kLanes));
    unroll<C>([&](auto j) { sum[i][j] = Product<P>::add(x, y[j], sum[i][j]); });
  });
}

// Where the sums of a run come from and go to: kept [R, C, w], or c[row .. row + R, column(0 .. columns)].
template <class T, int C>
struct FewSums {
  T* kept;
  bool first, last;  // of the runs of these sums
  long row;
  long column[C];
  int columns;
};

// Dot products of rows of a with rows of b^T: lanes run along k. Each sum has an order of its own, whatever R and C
// are.
template <class P, class B, int R, int C>
[[gnu::noinline]] inline void dot_products(const GemmProblem& g, const FewRun<P, B, C>& given,
                                           const FewSums<typename Product<P>::Sum, C>& s) {
  using T = typename Product<P>::Sum;
  constexpr int lanes = Neighbours<P>::kLanes, w = kWidth<T>;
  const FewRun<P, B, C> run = given;
  Batch<T> sum[R][C];
  unroll<R>([&](auto i) {
    unroll<C>([&](auto j) { sum[i][j] = s.first ? Batch<T>(T(0)) : load_aligned(s.kept + (i * C + j) * w); });
  });
  long p = 0;
  for (; p + lanes <= run.n; p += lanes)
    add_vectors<P, B, R, C>(sum, run, p, [](const auto* from) { return Neighbours<P>::read(from); });
  const int left = static_cast<int>(run.n - p);
  if (left > 0)
    add_vectors<P, B, R, C>(sum, run, p, [left](const auto* from) { return Neighbours<P>::read_part(from, left); });
  unroll<R>([&](auto i) {
    unroll<C>([&](auto j) {
      if (!s.last)
        store_aligned(s.kept + (i * C + j) * w, sum[i][j]);
      else if (j < s.columns)
        finish_few(g, s.row + i, s.column[j], reduce_add(sum[i][j]));
    });
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

// How rows of a are taken: evenly, as many at once as the registers allow.
template <class P>
inline long few_group(long m) {
  const long most = kFewGroup<typename Product<P>::Sum>, groups = ceil_div(m, most);
  return ceil_div(m, groups);
}

// The elements of a row of a, to whole vectors.
template <class P>
inline long few_depth(long k) {
  return ceil_div(k, Neighbours<P>::kLanes) * Neighbours<P>::kLanes;
}

// C columns at once that lie far apart: each is the next of a long run, which the processor fetches ahead. Of C
// neighbours it would only know that the run of one has ended. Where a is larger than the first cache, some such tiles
// are computed side by side, a part of k at a time.
template <class P, class B, int C, int R>
inline void dot_columns(const GemmProblem& g, long begin, long end, long group) {
  using A = typename Neighbours<P>::Element;
  using T = typename Product<P>::Sum;
  constexpr long size = sizeof(A), lanes = Neighbours<P>::kLanes;
  alignas(64) T kept[kFewTiles][R * C * kWidth<T>];
  const long groups = ceil_div(g.m, group), depth = few_depth<P>(g.k), apart = ceil_div(end - begin, C);
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
          sums.column[s] = column_of(j, s);  // beyond the end the last is repeated, and thrown away
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

// a is packed: see pack_few.
template <class P, class B>
inline void few_by_columns(const GemmProblem& g, long begin, long end) {
  using T = typename Product<P>::Sum;
  const long group = few_group<P>(g.m);
  if (group <= kFewByFour<T>)
    dot_columns<P, B, 4, kFewByFour<T>>(g, begin, end, group);
  else
    dot_columns<P, B, 3, kFewGroup<T>>(g, begin, end, group);
}

// out: a, as products P read it, in groups of rows, each [k / lanes, rows, lanes], the last lanes zeros. So what
// is read at once lies together, and never on few sets of the first cache.
template <class P, class S>
inline void pack_few(const GemmProblem& g, void* out) {
  using A = typename Neighbours<P>::Element;
  constexpr long lanes = Neighbours<P>::kLanes;
  const long group = few_group<P>(g.m), depth = few_depth<P>(g.k);
  for (long i = 0; i < g.m; ++i) {
    const long q = i / group, rows = g.m - q * group < group ? g.m - q * group : group;
    const S* from = static_cast<const S*>(g.a) + i * g.a_row;
    A* to = static_cast<A*>(out) + q * group * depth + (i - q * group) * lanes;
    for (long p = 0; p < g.k; p += lanes, to += rows * lanes)
      Neighbours<P>::copy(from + p * g.a_column, g.a_column, g.k - p < lanes ? g.k - p : lanes, to);
  }
}

}  // namespace heed::kernels::HEED_LEVEL
