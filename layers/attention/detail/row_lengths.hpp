// How many positions each row of a decode state has seen: int32 [B], or [0] before the first step. For sources that
// decode.
#pragma once
#include <algorithm>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <span>
#include <vector>

namespace heed::detail {

inline std::span<const std::int32_t> row_lengths(const Tensor& lengths) {
  return {lengths.ptr<std::int32_t>(), static_cast<std::size_t>(lengths.numel())};
}
inline Index longest_of(const Tensor& lengths) {
  return lengths.numel() == 0 ? 0 : *std::ranges::max_element(row_lengths(lengths));
}
inline Index shortest_of(const Tensor& lengths) {
  return lengths.numel() == 0 ? 0 : *std::ranges::min_element(row_lengths(lengths));
}
inline bool all_alike(const Tensor& lengths) { return longest_of(lengths) == shortest_of(lengths); }

// Those after a step of x [B, T] or [B, H, T, D], of whose positions key_lengths of the call say how many are there.
// Errors begin with `op`.
Tensor lengths_after(const char* op, const Tensor& lengths, In x, const AttentionCall& call);

// The greatest of them; where `call` has no key_lengths, without looking at rows.
Index end_of_rows(const char* op, const Tensor& lengths, In x, const AttentionCall& call);

// What stands at the positions of x [B, T], whose rows have seen `seen` before: at(first, count), [T, width], where
// rows are alike; else, as also where padding would reach behind `end`, of_places(int32 [B, T]), of which each is below
// `end`: [B, T, width].
template <class At, class OfPlaces>
Tensor at_positions(In x, const Tensor& seen, Index end, const At& at, const OfPlaces& of_places) {
  const Index first = longest_of(seen), count = x.dim(1);
  if (all_alike(seen) && first + count <= end) return at(first, count);
  const Tensor begin = seen.numel() > 0 ? seen.unsqueeze(1) : Tensor::zeros({x.dim(0), 1}, DType::int32);
  return of_places(minimum(begin + Tensor::arange(count), static_cast<double>(end - 1)));
}

// The last position that is there of each row of h [B, T, D]: [B, D].
Tensor last_of_rows(const Tensor& h, const AttentionCall& call);

// Writes x [B, Hk, T, D] to cache [B, Hk, capacity, D], in each row behind the positions that it has seen, of which the
// first stands at `start`.
void append_rows(Tensor& cache, const Tensor& x, const Tensor& lengths, Index start = 0);

// The `count` positions of cache [B, Hk, S, D] that stand there, [B, Hk, count, D]: a view where rows are alike.
Tensor rows_behind(const Tensor& cache, const Tensor& lengths, Index count);

// The columns of the first `keys` positions, and the row of query t, of a bias that broadcasts to [B, H, T, S].
Tensor bias_of_query(const Tensor& bias, Index t, Index keys);

// Where rows are of different length, T positions are taken one after another: step(q, k, v, call) of one position
// each.
template <class Step>
Tensor one_at_a_time(In q, In k, In v, const AttentionCall& call, Tensor lengths, const Step& step) {
  std::vector<Tensor> parts;
  for (Index t = 0; t < k.dim(2); ++t) {
    const Tensor q1 = q->slice(2, t, t + 1), k1 = k->slice(2, t, t + 1), v1 = v->slice(2, t, t + 1);
    AttentionCall one{.bias = bias_of_query(call.bias, t, longest_of(lengths) + 1)};
    if (call.key_lengths.defined()) one.key_lengths = (call.key_lengths > t).to(DType::int32);
    parts.push_back(step(In(q1, q.where()), In(k1, k.where()), In(v1, v.where()), one));
    lengths = lengths_after("one_at_a_time", lengths, {k1, k.where()}, one);
  }
  return concatenate(parts, 2);
}

}  // namespace heed::detail
