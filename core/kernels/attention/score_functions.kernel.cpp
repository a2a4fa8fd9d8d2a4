// Biases by distance, soft caps and forget gates, on tiles [keys, lanes] of scores. In decoding, a tile has one lane.
#include "score_functions.hpp"
#include "../simd/lane_sums.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

inline constexpr int kMaxLanes = kBlockQueries, kDistances = kBlockKeys + kMaxLanes;

// The row of the parameter for head h: the parameter has one row per head, or one for all.
template <class T>
long row_of_head(const ScoreParameter<T>& p, long h) {
  return p.sizes[0] == 1 ? 0 : h;
}

// The entry of the table for a distance.
inline long entry_of(const DistanceTable& t, long d) {
  const long c = d < -t.clip ? 0 : d > t.clip ? 2 * t.clip : d + t.clip;
  return t.map == nullptr ? c : t.map[c];
}

// In a tile, the biases by distance are a vector `by` that shifts by one from key to key. The pair of key j and lane i
// has entry i - j + keys - 1, so row j starts at by[keys - 1 - j]. distance_of() returns the distance of entry n.
inline long distance_of(const ScoreTile& at, long n) { return long{at.key} - at.query + at.keys - 1 - n; }

// y = log2(e) (s + by), by [kDistances].
template <class T>
void add_distance(const ScoreContext<T>& x, const ScoreTile& at, T* s, T*) {
  const DistanceTable& table = *static_cast<const DistanceTable*>(x.function);
  const ScoreParameter<T>& p = x.parameters[0];
  const T* row = p.data + row_of_head(p, at.head) * p.sizes[1];
  alignas(64) T by[kDistances];
  const long count = at.keys + at.lanes - 1;
  for (long n = 0; n < count; ++n) {
    const long d = distance_of(at, n);
    by[n] = table.clip < 0 ? -row[0] * static_cast<T>(d < 0 ? -d : d) : row[entry_of(table, d)];
  }
  const T unit = static_cast<T>(kScoreUnit);
  if (at.lanes == 1) {
    for (long j = 0; j < at.keys; ++j) s[j] = (s[j] + by[at.keys - 1 - j]) * unit;
    return;
  }
  for (long j = 0; j < at.keys; ++j)
    for (long i = 0; i < at.lanes; i += kWidth<T>) {
      T* to = s + j * at.lanes + i;
      store_aligned(to, (load_aligned(to) + load(by + at.keys - 1 - j + i)) * Batch<T>(unit));
    }
}

// Adds to the sums of the entries, or of the slope, the sums of df over the pairs of one distance. Four copies of the
// sums take turns, since a vector that shifts by one reads numbers that were just written.
template <class T>
void sum_distance(const ScoreContext<T>& x, const ScoreTile& at, const T*, const T* df) {
  const DistanceTable& table = *static_cast<const DistanceTable*>(x.function);
  const ScoreParameter<T>& p = x.parameters[0];
  if (p.sums == nullptr) return;
  constexpr int w = kWidth<T>;
  alignas(64) T sums[4][kDistances + 16];
  const long count = at.keys + at.lanes - 1;
  for (auto& part : sums)
    for (long n = 0; n < count; n += w) store_aligned(part + n, Batch<T>(T(0)));
  for (long j = 0; j < at.keys; ++j)
    for (long i = 0; i < at.lanes; i += w) {
      T* to = sums[j % 4] + at.keys - 1 - j + i;
      store(to, load(to) + load_aligned(df + j * at.lanes + i));
    }
  double* row = p.sums + row_of_head(p, at.head) * p.sizes[1];
  for (long n = 0; n < count; ++n) {
    const double sum = static_cast<double>((sums[0][n] + sums[1][n]) + (sums[2][n] + sums[3][n]));
    const long d = distance_of(at, n);
    if (table.clip < 0)
      row[0] -= sum * static_cast<double>(d < 0 ? -d : d);
    else
      row[entry_of(table, d)] += sum;
  }
}

// y = log2(e) c tanh(s / c), slope = 1 - tanh(s / c)^2. A tile is one run of numbers.
template <class T>
void cap(const ScoreContext<T>& x, const ScoreTile& at, T* s, T* slope) {
  const ScoreParameter<T>& p = x.parameters[0];
  const T c = p.data[row_of_head(p, at.head)];
  const Batch<T> inverse(T(1) / c), limit(c * static_cast<T>(kScoreUnit)), one(T(1));
  sweep<T>(long{at.keys} * at.lanes, [=](int64_t n, auto lanes) {
    const Batch<T> t = tanh(lanes.load(s + n) * inverse);
    lanes.store(s + n, limit * t);
    if (slope != nullptr) lanes.store(slope + n, fnma(t, t, one));
  });
}

template <class T>
void sum_cap(const ScoreContext<T>& x, const ScoreTile& at, const T* s, const T* df) {
  const ScoreParameter<T>& p = x.parameters[0];
  if (p.sums == nullptr) return;
  const long row = row_of_head(p, at.head);
  const Batch<T> inverse(T(1) / p.data[row]), one(T(1)), zero(T(0));
  p.sums[row] += static_cast<double>(lane_sum<T>(long{at.keys} * at.lanes, [=](int64_t n, auto) {
    const Batch<T> d = load_aligned(df + n), u = load_aligned(s + n) * inverse, t = tanh(u);
    return select(d == zero, zero, d * fnma(u, fnma(t, t, one), t));
  }));
}

// y = log2(e) (s + (c_last - c_key)), or -inf for keys that a gate of 0 hides. The difference is computed in float64:
// it is large only where the weight is small, although both c may be large.
template <class T>
void forget(const ScoreContext<T>& x, const ScoreTile& at, T* s, T*) {
  const ForgetGates& g = *static_cast<const ForgetGates*>(x.function);
  const long head = at.batch * g.heads + at.head, query = at.query - (g.keys - g.queries);
  // per query of the tile: c, and how many of the tile's keys are hidden; lanes without a query use the last query
  alignas(64) double row_whole[kMaxLanes], row_part[kMaxLanes];
  alignas(64) T hidden[kMaxLanes], c[kMaxLanes];
  for (long i = 0; i < at.lanes; ++i) {
    const long row = head * g.queries + query + (i < at.queries ? i : at.queries - 1);
    const long n = g.start[row] - at.key;
    row_whole[i] = g.row_whole[row], row_part[i] = g.row_part[row];
    hidden[i] = static_cast<T>(n < 0 ? 0 : n < at.keys ? n : at.keys);
  }
  const double *whole = g.whole + head * g.keys + at.key, *part = g.part + head * g.keys + at.key;
  const T unit = static_cast<T>(kScoreUnit);
  for (long j = 0; j < at.keys; ++j) {
    for (long i = 0; i < at.lanes; ++i)
      c[i] = static_cast<T>((row_whole[i] - whole[j]) + (row_part[i] - part[j]));
    T* row = s + j * at.lanes;
    for (long i = 0; i < at.lanes; ++i) row[i] = static_cast<T>(j) < hidden[i] ? -kInfinity<T> : (row[i] + c[i]) * unit;
  }
}

// sums of c_key -= sum of df over queries. c_last has no gradient, since it changes all scores of its query equally.
template <class T>
void sum_forget(const ScoreContext<T>& x, const ScoreTile& at, const T*, const T* df) {
  const ForgetGates& g = *static_cast<const ForgetGates*>(x.function);
  if (x.parameters[0].sums == nullptr) return;
  double* sums = x.parameters[0].sums + (at.batch * g.heads + at.head) * g.keys + at.key;
  for (long j = 0; j < at.keys; ++j) {
    double part[8] = {};
    for (long i = 0; i < at.lanes; i += 8)
      for (long n = 0; n < 8; ++n) part[n] += static_cast<double>(df[j * at.lanes + i + n]);
    sums[j] -= ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
  }
}

template <class T>
constexpr ScoreFunctions<T> functions_of = {
    {add_distance<T>, sum_distance<T>, false}, {cap<T>, sum_cap<T>, true}, {forget<T>, sum_forget<T>, false}};

}  // namespace

extern const ScoreFunctionTable score_function_table;
const ScoreFunctionTable score_function_table = {functions_of<float>, functions_of<double>};

}  // namespace heed::kernels::HEED_LEVEL
