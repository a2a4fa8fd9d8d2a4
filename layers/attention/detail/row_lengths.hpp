// Lengths of the rows of a decode state, the number of positions that each row has seen: int32 [B], or [0] before the
// first step. For sources that implement decoding.
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

// The lengths after a step of x [B, T] or [B, H, T, D]. key_lengths of the call, if defined, is the number of new
// positions per row. Throws Error that begins with `op`.
Tensor lengths_after(const char* op, const Tensor& lengths, In x, const AttentionCall& call);

// The longest length after the step, or with documents, the length of the longest document. Builds no tensor if the
// call has neither key_lengths nor documents.
Index end_of_rows(const char* op, const Tensor& lengths, In x, const AttentionCall& call);

// Calls a function of the positions of x [B, T], whose rows have seen `seen` positions before. If rows have the same
// length and all positions are below `end`: at(first, count), [T, width]. Otherwise, for documents, ragged rows or
// padding beyond `end`: of_places(positions), [B, T, width], with positions int32 [B, T] limited to end - 1.
template <class At, class OfPlaces>
Tensor at_positions(In x, const Tensor& seen, const AttentionCall& call, Index end, const At& at,
                    const OfPlaces& of_places) {
  if (call.documents.defined()) return of_places(positions_in_documents(call.documents));
  const Index first = longest_of(seen), count = x.dim(1);
  if (all_alike(seen) && first + count <= end) return at(first, count);
  const Tensor begin = seen.numel() > 0 ? seen.unsqueeze(1) : Tensor::zeros({x.dim(0), 1}, DType::int32);
  return of_places(minimum(begin + Tensor::arange(count), static_cast<double>(end - 1)));
}

// The last position of each row of h [B, T, D], without padding: [B, D].
Tensor last_of_rows(const Tensor& h, const AttentionCall& call);

// x [B, T, C] with 0 in the padding, the positions of row b from lengths[b] on; lengths int32 [B], or undefined for
// none. A convolution that is not causal reads padding, so models call this before each one. Throws Error that begins
// with `op`.
Tensor rows_without_padding(const char* op, In x, const Tensor& lengths);

// Whether x [B, Hk, T, D] can be appended to a cache [B, Hk, capacity, D], which is undefined before the first step.
bool follows(const Tensor& cache, const Tensor& x);

// Writes x [B, Hk, T, D] to cache [B, Hk, capacity, D], in each row after the positions that it has seen. Position 0 is
// at index `start` of the cache.
void append_rows(Tensor& cache, const Tensor& x, const Tensor& lengths, Index start = 0);

// The `count` positions of cache [B, Hk, S, D] that follow the lengths: [B, Hk, count, D]. A view if rows have the same
// length.
Tensor rows_after(const Tensor& cache, const Tensor& lengths, Index count);

// Row t of a bias that broadcasts to [B, H, T, S], with its first `keys` columns.
Tensor bias_of_query(const Tensor& bias, Index t, Index keys);

// Runs a step of T positions as T calls step(q, k, v, call) of one position each, for rows of different lengths.
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
