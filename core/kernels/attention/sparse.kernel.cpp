// Attention over lists of keys at one level: forward, and backward by queries and by keys.
#include "sparse.hpp"

#include "../random/philox.hpp"
#include "masks.hpp"
#include "rows.hpp"

namespace heed::kernels::HEED_LEVEL::sparse {
namespace {

// The keys of a query that are not masked, with their scores and places.
template <class T>
struct Row {
  Row(const SparseProblem<T>& p, Pieces<T>& pieces)
      : score(pieces.take(p.longest)),
        dweight(pieces.take(p.longest)),
        key(pieces.template take_as<int32_t>(p.longest)),
        place(pieces.template take_as<int32_t>(p.longest)) {}

  T* score;    // then weights
  T* dweight;  // do . v
  int32_t *key, *place;
  long count = 0;
};

template <class T>
inline const int32_t* offsets_of(const SparseProblem<T>& p, long b, long h) {
  return p.offsets + (b * p.heads + h) * p.offsets_of_head;
}

// The keys that query i may attend to: those of its list that no length, document, mask or bias of -inf excludes.
template <class T>
inline void take_keys(const SparseProblem<T>& p, long b, long h, long i, Row<T>& row) {
  const int32_t* offsets = offsets_of(p, b, h);
  const uint8_t* mask = pairs_of(p.mask, b, h, i, 0);
  const T* bias = pairs_of(p.bias, b, h, i, 0);
  row.count = 0;
  for (long n = offsets[i]; n < offsets[i + 1]; ++n) {
    const int32_t j = p.listed[n];
    if (masked_key(p, b, j) || j < key_begin(p, b, i) || (mask != nullptr && mask[j * p.mask.key] == 0)) continue;
    if (bias != nullptr && bias[j * p.bias.key] == -kInfinity<T>) continue;
    row.key[row.count] = j;
    row.place[row.count++] = static_cast<int32_t>(n - offsets[0]);
  }
}

// x . y_j for the keys of a row.
template <class T>
inline void dots(const T* x, const HeadRows<const T>& y, long b, long h, const Row<T>& row, long width, T* to) {
  const auto at = [&](long n) { return row_of(y, b, h, row.key[n]); };
  long n = 0;
  for (; n + 4 <= row.count; n += 4) lane_dots<4>(x, {at(n), at(n + 1), at(n + 2), at(n + 3)}, width, to + n);
  for (; n < row.count; ++n) lane_dots<1>(x, {at(n)}, width, to + n);
}

// Dropout factors for the keys of a row in ascending order, from the words of philox(seed, position + ..., stream).
template <class T>
struct Dropout {
  const SparseProblem<T>& p;
  uint64_t first;  // counter of the row
  long block = -1;
  uint32_t words[4][1] = {};

  Dropout(const SparseProblem<T>& problem, long b, long h, long i) : p(problem), first(dropout_counter(p, b, h, i)) {}

  T factor(long j) {
    if (p.drop_below == 0) return T(1);
    if (j / 4 != block) {
      block = j / 4;
      philox_words(
          p.seed, p.stream, [this](int) { return first + static_cast<uint64_t>(block); }, words);
    }
    return words[j % 4][0] < p.drop_below ? T(0) : p.keep;
  }
};

template <class T>
inline void take_scores(const SparseProblem<T>& p, long b, long h, long i, Row<T>& row) {
  take_keys(p, b, h, i, row);
  dots(row_of(p.q, b, h, i), p.k, b, h / (p.heads / p.kv_heads), row, p.width, row.score);
  const T* bias = pairs_of(p.bias, b, h, i, 0);
  for (long n = 0; n < row.count; ++n) {
    row.score[n] *= p.scale;
    if (bias != nullptr) row.score[n] += bias[row.key[n] * p.bias.key];
  }
}

// Scores become e^(s - base). Returns their sum.
template <class T>
inline T exponentials(Row<T>& row, T& base) {
  Batch<T> top(-kInfinity<T>);
  sweep<T>(row.count, [&](long n, auto at) { top = quick_max(at.load(row.score + n, -kInfinity<T>), top); });
  base = reduce_max(top);
  if (base == -kInfinity<T>) base = T(0);
  return lane_sum<T>(row.count, [score = row.score, b = Batch<T>(base)](int64_t n, auto at) {
    const Batch<T> e = exp(at.load(score + n, -kInfinity<T>) - b);
    at.store(score + n, e);
    return at.keep(e);
  });
}

template <class T>
void forward(const SparseProblem<T>& p, const HeadRows<T>& out, T* lse, int64_t b, int64_t h, int64_t i, T* scratch) {
  Pieces<T> pieces{scratch};
  Row<T> row(p, pieces);
  take_scores(p, b, h, i, row);
  T base;
  const T sum = exponentials(row, base);
  if (lse != nullptr)
    lse[(b * p.heads + h) * p.queries + i] = sum == T(0) ? kInfinity<T> : base + first_lane(log(Batch<T>(sum)));
  if (sum == T(0)) row.count = 0;
  if (p.drop_below != 0) {
    Dropout<T> dropout(p, b, h, i);
    for (long n = 0; n < row.count; ++n) {
      const T factor = dropout.factor(row.key[n]);
      row.score[n] = factor == T(0) ? T(0) : row.score[n] * factor;
    }
  }
  const long g = h / (p.heads / p.kv_heads);
  weighted_sum(row_of(out, b, h, i), p.value_width, row.count == 0 ? T(0) : T(1) / sum, false, [&](const auto& add) {
    for (long n = 0; n < row.count; ++n) add(row.score[n], row_of(p.v, b, g, row.key[n]));
  });
}

template <class T>
void backward_query(const SparseProblem<T>& p, const SparseGradients<T>& d, int64_t b, int64_t h, int64_t i,
                    int64_t base, T* scratch) {
  Pieces<T> pieces{scratch};
  Row<T> row(p, pieces);
  take_scores(p, b, h, i, row);
  const long g = h / (p.heads / p.kv_heads);
  const T* dout = row_of(d.dout, b, h, i);
  dots(dout, p.v, b, g, row, p.value_width, row.dweight);
  const T delta = lane_dot(dout, row_of(d.out, b, h, i), p.value_width);
  const Batch<T> lse(d.lse[(b * p.heads + h) * p.queries + i]);
  sweep<T>(row.count, [&](long n, auto at) { at.store(row.score + n, exp(at.load(row.score + n) - lse)); });

  const int32_t* offsets = offsets_of(p, b, h);
  T *weight = d.weight + base, *dscore = d.dscore + base;
  for (long n = offsets[i] - offsets[0]; n < offsets[i + 1] - offsets[0]; ++n) weight[n] = dscore[n] = T(0);
  Dropout<T> dropout(p, b, h, i);
  for (long n = 0; n < row.count; ++n) {
    const T factor = dropout.factor(row.key[n]), share = row.score[n];
    weight[row.place[n]] = factor == T(0) ? T(0) : factor * share;
    dscore[row.place[n]] = share * ((factor == T(0) ? T(0) : factor * row.dweight[n]) - delta);
  }
  if (d.dq.data == nullptr) return;
  weighted_sum(row_of(d.dq, b, h, i), p.width, p.scale, d.add_dq, [&](const auto& add) {
    for (long n = 0; n < row.count; ++n) add(dscore[row.place[n]], row_of(p.k, b, g, row.key[n]));
  });
}

template <class T>
void backward_key(const SparseProblem<T>& p, const SparseGradients<T>& d, const SparseColumns& columns, int64_t b,
                  int64_t kv_head, int64_t j, const int64_t* bases) {
  const long shared = p.heads / p.kv_heads;
  const bool none = masked_key(p, b, j);
  // Pairs with a factor of 0 are left out: masked pairs may have rows that are not finite.
  const auto rows_with = [&](const T* factors, const HeadRows<const T>& rows) {
    return [&, factors](const auto& add) {
      for (long s = 0; s < shared && !none; ++s) {
        const int64_t* starts = columns.starts + s * columns.starts_of_head;
        for (int64_t e = starts[j]; e < starts[j + 1]; ++e) {
          const T factor = factors[bases[s] + columns.places[e]];
          if (!(factor == T(0))) add(factor, row_of(rows, b, kv_head * shared + s, columns.queries[e]));
        }
      }
    };
  };
  if (d.dv.data != nullptr)
    weighted_sum(row_of(d.dv, b, kv_head, j), p.value_width, T(1), d.add_dv, rows_with(d.weight, d.dout));
  if (d.dk.data != nullptr)
    weighted_sum(row_of(d.dk, b, kv_head, j), p.width, p.scale, d.add_dk, rows_with(d.dscore, p.q));
}

template <class T>
constexpr SparseKernels<T> kernels_of = {scratch_size<T, Row<T>>, forward<T>, backward_query<T>, backward_key<T>};

}  // namespace
}  // namespace heed::kernels::HEED_LEVEL::sparse

namespace heed::kernels::HEED_LEVEL {
extern const SparseTable sparse_attention_table;
const SparseTable sparse_attention_table = {sparse::kernels_of<float>, sparse::kernels_of<double>};
}  // namespace heed::kernels::HEED_LEVEL
