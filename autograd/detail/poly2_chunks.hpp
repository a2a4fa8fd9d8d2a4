// Chunks of attention with the weights (q . k)^2: how the work is split, features of rows, sums over earlier keys, and
// the scores with a chunk's own keys. For autograd/poly2_attention.cpp only.
#pragma once
#include <algorithm>
#include <heed/core/gemm/gemm.hpp>
#include <heed/core/kernels/attention/head_rows.hpp>
#include <heed/core/kernels/linear_attention/products_of_two.hpp>
#include <heed/core/kernels/reduce/norm.hpp>
#include <heed/core/kernels/reduce/reduce.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/profiler.hpp>

namespace heed::detail::poly2 {

using kernels::HeadRows;

constexpr Index kRows = 64;         // rows whose features are in the cache at once
constexpr Index kMaxChunk = 512;    // maximum rows per chunk, if there are several chunks
constexpr Index kSlice = 4096;      // numbers of a state that a task of a scan adds up

struct Range {
  Index first, count;
};

// How the work is split, from the shapes only. Queries before `keyless` see no key. Keys before `prefix` are visible to
// all other queries. Heads that share keys are a group.
struct Plan {
  Index batch, heads, groups, queries, keys, width, value_width, features;
  bool causal;
  Index prefix, keyless, prefix_chunk, chunk, prefix_chunks, query_chunks;

  Plan(const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal)
      : batch(q.dim(0)),
        heads(q.dim(1)),
        groups(k.dim(1)),
        queries(q.dim(2)),
        keys(k.dim(2)),
        width(q.dim(3)),
        value_width(v.dim(3)),
        features(kernels::products_of_width(width)),
        causal(is_causal),
        prefix(causal ? causal_sides(queries, keys).prefix : keys),
        keyless(causal ? causal_sides(queries, keys).keyless : 0),
        prefix_chunk(std::clamp<Index>(features / 2 / kRows * kRows, kRows, kMaxChunk)),
        chunk(is_one_triangle() ? std::max<Index>(queries - keyless, 1) : prefix_chunk),
        prefix_chunks((prefix + prefix_chunk - 1) / prefix_chunk),
        query_chunks((queries - keyless + chunk - 1) / chunk) {}

  // Whether squaring the scores of a whole triangle takes less time than features and chunks. As measured, both take
  // about the same time for n queries if n = 9/4 of the number of features.
  bool is_one_triangle() const { return causal && 4 * std::min(queries, keys) <= 9 * features; }
  Index shared() const { return heads / groups; }
  Index state_size() const { return features * (value_width + 1); }  // S or P by row, then z or r
  // Number of states: one before each prefix chunk, and one before each query chunk, or only one without causal.
  Index states() const { return prefix_chunks + (causal ? std::max<Index>(query_chunks, 1) : 1); }
  Index state_of_queries(Index c) const { return causal ? c : 0; }  // index among the states of queries
  bool has_earlier(Index c) const { return prefix > 0 || (causal && c > 0); }
  Range queries_of(Index c) const {
    const Index first = keyless + c * chunk;
    return {first, std::min(chunk, queries - first)};
  }
  // The keys of chunk i: first the chunks of the prefix, then the queries' own chunks.
  Range keys_of(Index i) const {
    if (i < prefix_chunks) return {i * prefix_chunk, std::min(prefix_chunk, prefix - i * prefix_chunk)};
    const Index first = prefix + (i - prefix_chunks) * chunk;
    return {first, std::min(chunk, keys - first)};
  }
};

template <class T>
struct Problem {
  Plan plan;
  HeadRows<const T> q, k, v;
  double eps;
};

template <class T>
T* row_of(const HeadRows<T>& x, Index b, Index h, Index i) {
  return x.data + b * x.batch + h * x.head + i * x.row;
}

// Zeroes the rows of the queries that see no key.
template <class T>
void clear_keyless(const Plan& p, const HeadRows<T>& x, Index width) {
  parallel_for_each(p.batch * p.heads, grain_for(p.keyless * width + 1), [&](Index n) {
    for (Index i = 0; i < p.keyless; ++i) std::fill_n(row_of(x, n / p.heads, n % p.heads, i), width, T(0));
  });
}

// A matrix in scratch or in a state, whose rows are `row` elements apart.
template <class T>
MatrixIn by_row(const T* data, Index row) {
  return {data, dtype_of<std::remove_const_t<T>>, row, 1};
}
template <class T>
MatrixIn by_column(const T* data, Index row) {  // transposed
  return {data, dtype_of<std::remove_const_t<T>>, 1, row};
}

struct ProductSizes {
  Index m, n, k;
};

// c [m, n] = (or +=) a b, on this thread.
template <class T>
void product(const ProductSizes& s, const MatrixIn& a, const MatrixIn& b, T* c, Index ldc, bool add = false) {
  gemm_here({.m = s.m, .n = s.n, .k = s.k, .a = a, .b = b, .c = c, .ldc = ldc, .accumulate = add});
}

// to [n, width] = rows [first, first + n) of a head, as float64.
template <class T>
void widen(const HeadRows<const T>& x, Index b, Index h, Index first, Index n, Index width, double* to) {
  for (Index i = 0; i < n; ++i) std::copy_n(row_of(x, b, h, first + i), width, to + i * width);
}

// Rows of a head and their features.
struct Features {
  Index width, features;
  Scratch<double> rows, f, df, dx;  // [kRows, width]; f and df [kRows, features]; dx [kRows, width]

  Features(const Plan& p, bool with_gradients)
      : width(p.width),
        features(p.features),
        rows(static_cast<std::size_t>(kRows * width)),
        f(static_cast<std::size_t>(kRows * features)),
        df(static_cast<std::size_t>(with_gradients ? kRows * features : 0)),
        dx(static_cast<std::size_t>(kRows * width)) {}

  template <class T>
  void load(const HeadRows<const T>& x, Index b, Index h, Index first, Index n) {
    widen(x, b, h, first, n, width, rows.data());
    kernels::products_of_two_table().forward(rows.data(), n, width, f.data());
  }
  // dx = the derivative of f, times df + factor shared^T; factor null means ones.
  void back(Index n, const double* factor, const double* shared) {
    std::fill_n(dx.data(), n * width, 0.0);
    kernels::products_of_two_table().backward(rows.data(), n, width, df.data(), factor, shared, dx.data());
  }
};

// ---- Sums over earlier keys ----

// state = the sums S and z over the keys [first, first + count).
template <class T>
void sum_keys(const Problem<T>& p, Index b, Index g, Range keys, double* state) {
  const Plan& s = p.plan;
  Features x(s, false);
  Scratch<double> values(static_cast<std::size_t>(kRows * s.value_width));
  double* z = state + s.features * s.value_width;
  for (Index i = 0; i < keys.count; i += kRows) {
    const Index n = std::min(kRows, keys.count - i), first = keys.first + i;
    x.load(p.k, b, g, first, n);
    widen(p.v, b, g, first, n, s.value_width, values.data());
    product({s.features, s.value_width, n}, by_column(x.f.data(), s.features), by_row(values.data(), s.value_width),
            state, s.value_width, i > 0);
    kernels::of<double>(kernels::norm_table()).sum_rows(x.f.data(), n, s.features, s.features, z, i > 0);
  }
}

// For each of `heads`, with `count` consecutive states: each state becomes the sum of the states before it, or, if
// `backwards`, the sum of itself and the states after it.
inline void scan(double* states, Index heads, Index count, Index size, bool backwards) {
  const Index slices = (size + kSlice - 1) / kSlice;
  parallel_for_each(heads * slices, grain_for(count * kSlice), [&](Index task) {
    const Index from = task % slices * kSlice, n = std::min(kSlice, size - from);
    double* const first = states + task / slices * count * size + from;
    if (backwards) {
      for (Index i = count - 2; i >= 0; --i)
        for (Index j = 0; j < n; ++j) first[i * size + j] += first[(i + 1) * size + j];
      return;
    }
    double sum[kSlice] = {};
    for (Index i = 0; i < count; ++i)
      for (Index j = 0; j < n; ++j) {
        const double before = sum[j];
        if (i + 1 < count) sum[j] += first[i * size + j];
        first[i * size + j] = before;
      }
  });
}

// Calls f(b, g, i) for i in [0, count) of all groups, on all threads. `flops`: of one call, in float64 products.
template <class F>
void each_chunk(const Plan& p, Index count, double flops, const F& f) {
  count_flops(DType::float64, flops * static_cast<double>(p.batch * p.groups * count));
  parallel_for(p.batch * p.groups * count, grain_for_flops(2 * flops), [&](Index begin, Index end) {
    // the products of f are counted above
    const ModeScope aside([](Mode& m, void*) { m.profiler = nullptr; });
    for (; begin < end; ++begin) f(begin / count / p.groups, begin / count % p.groups, begin % count);
  });
}
inline double flops_of(const Plan& p, Index rows, double products) {
  return 2 * products * static_cast<double>(rows * p.features * p.value_width);
}

// ---- The queries' own keys ----

// Scores of some queries with the visible keys of their own chunk: [kRows, chunk].
template <class T>
struct Triangle {
  const Problem<T>& p;
  Index b, g, first_key, ld;
  bool finite = true;  // all values of the chunk are finite
  Index seen = 0;      // number of keys visible to the last query
  Scratch<T> s, w;     // scores; W in backward

  Triangle(const Problem<T>& problem, Index batch, Index group, Range keys, bool with_gradients)
      : p(problem),
        b(batch),
        g(group),
        first_key(keys.first),
        ld(p.plan.chunk),
        s(static_cast<std::size_t>(kRows * ld)),
        w(static_cast<std::size_t>(with_gradients ? kRows * ld : 0)) {
    for (Index j = 0; j < keys.count; ++j) {
      const T* v = row_of(p.v, b, g, keys.first + j);
      for (Index c = 0; c < p.plan.value_width; ++c) finite = finite && v[c] - v[c] == T(0);
    }
  }
  MatrixIn keys_by_column() const { return by_column(row_of(p.k, b, g, first_key), p.k.row); }
  MatrixIn keys() const { return by_row(row_of(p.k, b, g, first_key), p.k.row); }
  const T* values_row() const { return row_of(p.v, b, g, first_key); }
  MatrixIn values() const { return by_row(row_of(p.v, b, g, first_key), p.v.row); }

  // s = q k^T for queries [first, first + n) of head h. The first of them sees i + 1 keys of the chunk.
  void score(Index h, Index first, Index n, Index i) {
    seen = i + n;
    product({n, seen, p.plan.width}, by_row(row_of(p.q, b, h, first), p.q.row), keys_by_column(), s.data(), ld);
  }
  // s becomes tril(s^2). sums [n] are the sums of its rows, unless null.
  void square(Index n, Index i, T* sums) {
    for (Index r = 0; r < n; ++r) {
      T* row = s.data() + r * ld;
      for (Index j = 0; j <= i + r; ++j) row[j] *= row[j];
      std::fill(row + i + r + 1, row + seen, T(0));
    }
    if (sums != nullptr)
      kernels::of<T>(kernels::reduce_table()).rows(kernels::Reduction::sum, s.data(), ld, n, seen, nullptr, sums);
  }
  // to [n, value_width] = s v. Values of keys that a query does not see may be NaN or infinite.
  void weigh_values(Index n, Index i, T* to) {
    const Index columns = p.plan.value_width;
    if (finite) return product({n, columns, seen}, by_row(s.data(), ld), values(), to, columns);
    for (Index r = 0; r < n; ++r)
      for (Index c = 0; c < columns; ++c) {
        T sum = 0;
        for (Index j = 0; j <= i + r; ++j) sum += s.data()[r * ld + j] * row_of(p.v, b, g, first_key + j)[c];
        to[r * columns + c] = sum;
      }
  }
};

}  // namespace heed::detail::poly2
