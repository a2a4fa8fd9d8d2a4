// Attention by additive scores, score = sum(u * tanh(q + k)), at one level: forward, and the table.
#include "backward.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

using namespace additive;

// ---- Forward: the scores of kRows queries against all keys, then the softmax in two passes over each row. ----

template <class T>
struct ForwardScratch {
  T *scores, *factors;  // [kRows, stride], [stride]
  long stride;

  ForwardScratch(const AttentionProblem<T>& p, Pieces<T>& from) {
    stride = (p.keys + kKeys - 1) / kKeys * kKeys;
    scores = from.take(kRows * stride);
    factors = from.take(p.drop_below != 0 ? stride : 0);
  }
};

// s becomes e^(s - top), or -0 where s is -inf, whatever the others are. Returns the sum. The sign distinguishes masked
// keys from keys whose weight rounds to 0.
template <class T>
T exponentials(T* s, long keys, T& top) {
  constexpr int w = kWidth<T>;
  Batch<T> high = minus_infinity<T>();
  for (long j = 0; j < keys; j += w) high = max(high, load_aligned(s + j));
  top = reduce_max(high);
  const Batch<T> minus_inf = minus_infinity<T>(), zero(-T(0)), shift(top);
  return lane_sum<T>(whole_vectors<T>(keys), [=](int64_t j, auto) {
    const Batch<T> x = load_aligned(s + j), e = select(x == minus_inf, zero, exp(x - shift));
    store_aligned(s + j, e);
    return e;
  });
}

// The softmax of row r of the tile, whose keys are all keys, and the row of the output.
template <class T>
void finish_row(const AdditiveProblem<T>& p, const AttentionOutput<T>& y, const Tile& at, long r,
                const ForwardScratch<T>& to) {
  constexpr int w = kWidth<T>;
  const long b = at.b, h = at.h, i = at.query + r, keys = at.keys;
  const long row = (b * p.heads + h) * p.queries + i, kv_head = h / (p.heads / p.kv_heads);
  T *s = to.scores + r * to.stride, top;
  mask_row(p, at, r, s);
  const T sum = exponentials(s, keys, top), inverse = sum == T(0) ? T(0) : T(1) / sum;
  if (y.lse != nullptr) y.lse[row] = sum == T(0) ? kInfinity<T> : top + first_lane(log(Batch<T>(sum)));
  if (p.drop_below != 0) {
    dropout_row(p, at, r, to.factors);
    for (long j = 0; j < keys; j += w) store_aligned(s + j, load_aligned(s + j) * load_aligned(to.factors + j));
  }
  // out = inverse * sum_j e_j v_j, over the keys whose e is not -0; other values may be anything
  weighted_sum(row_of(y.out, b, h, i), p.value_width, inverse, false, [&](const auto& add) {
    for (long j = 0; j < keys; ++j)
      if (!__builtin_signbit(s[j])) add(s[j], row_of(p.v, b, kv_head, j));
  });
}

template <class T, int R>
void forward_rows(const AdditiveProblem<T>& p, const AttentionOutput<T>& y, long b, long h, long i,
                  const ForwardScratch<T>& to) {
  const Tile at{b, h, i, 0, key_end(p, b, i + R - 1)};
  score_rows<T, R, false>(p, at, to.scores, to.stride, nullptr);
  for (long r = 0; r < R; ++r) finish_row(p, y, at, r, to);
}

template <class T>
void forward(const AdditiveProblem<T>& p, const AttentionOutput<T>& y, int64_t b, int64_t h, int64_t begin, int64_t end,
             T* scratch) {
  Pieces<T> pieces{scratch};
  const ForwardScratch<T> to(p, pieces);
  long i = begin;
  for (; i + kRows <= end; i += kRows) forward_rows<T, kRows>(p, y, b, h, i, to);
  for (; i < end; ++i) forward_rows<T, 1>(p, y, b, h, i, to);
}

template <class T>
constexpr AdditiveKernels<T> kernels_of = {kRows,
                                           key_size<T>,
                                           u_size<T>,
                                           scratch_size<T, ForwardScratch<T>>,
                                           scratch_size<T, BackwardScratch<T>>,
                                           forward<T>,
                                           backward<T>,
                                           combine_keys<T>,
                                           combine_u<T>};

}  // namespace

extern const AdditiveTable additive_attention_table;
const AdditiveTable additive_attention_table = {kernels_of<float>, kernels_of<double>};

}  // namespace heed::kernels::HEED_LEVEL
