// Shared by the tests of sparse mechanisms.
#pragma once
#include <functional>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/random.hpp>

#include "tests/support.hpp"

namespace heed::test {

inline constexpr Index kLengths[][2] = {{1, 1}, {2, 9}, {13, 13}, {40, 40}, {5, 12}, {12, 5}, {30, 3}, {63, 63}};

struct Heads {
  Tensor q, k, v;
};
inline Heads random_heads(Index queries, Index keys, Index heads = 4, Index groups = 2, std::uint64_t seed = 1) {
  Rng rng(seed);
  return {rng.normal({2, heads, queries, 6}, 0, 1, DType::float64),
          rng.normal({2, groups, keys, 6}, 0, 1, DType::float64),
          rng.normal({2, groups, keys, 5}, 0, 1, DType::float64)};
}

using Sees = std::function<bool(Index p, Index j, bool causal)>;

inline Tensor mask_of(Index queries, Index keys, bool causal, const Sees& sees) {
  Tensor m = Tensor::zeros({queries, keys}, DType::bool8);
  for (Index i = 0; i < queries; ++i)
    for (Index j = 0; j < keys; ++j) {
      const Index p = i + keys - queries;
      m.ptr<bool>()[i * keys + j] = sees(p, j, causal) && (!causal || j <= p);
    }
  return m;
}

// Lists with offsets [T + 1] or [B, H, T + 1] as a mask [T, S] or [B, H, T, S].
inline Tensor mask_of(const KeyLists& lists, Index keys) {
  Shape shape = lists.offsets.shape();
  const Index queries = shape[shape.rank() - 1] - 1, heads = lists.offsets.numel() / (queries + 1);
  shape = shape.first(shape.rank() - 1) + Shape{queries, keys};
  Tensor m = Tensor::zeros(shape, DType::bool8);
  const std::int32_t* offsets = lists.offsets.ptr<std::int32_t>();
  for (Index row = 0; row < heads * queries; ++row) {
    const Index at = row / queries * (queries + 1) + row % queries;
    for (Index e = offsets[at]; e < offsets[at + 1]; ++e)
      m.ptr<bool>()[row * keys + lists.keys.ptr<std::int32_t>()[e]] = true;
  }
  return m;
}

// The output and the gradients of q, k and v.
inline std::vector<Tensor> run(const Heads& x, const std::function<Tensor(In, In, In)>& f) {
  Tape tape;
  const Tensor q = tape.watch(x.q), k = tape.watch(x.k), v = tape.watch(x.v);
  const Tensor y = f(q, k, v);
  tape.backward(y, Rng(99).normal(y.shape(), 0, 1, y.dtype()));
  return {y.detach().contiguous(), tape.grad(q), tape.grad(k), tape.grad(v)};
}
inline double distance(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double max_error = 0;
  for (std::size_t n = 0; n < a.size(); ++n) max_error = std::max(max_error, worst(a[n], b[n], 0, 1));
  return max_error;
}

}  // namespace heed::test
