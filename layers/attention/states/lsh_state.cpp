// The decode state of LSH attention.
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/detail/key_lists.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/attention/detail/lsh_state.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>

namespace heed {

LshState::LshState(const LshAttention& mechanism) : mechanism_(mechanism) {
  // Clones the rotations, because others may be loaded into the mechanism while the state is used.
  for (const NamedBuffer& b : named_buffers(mechanism_)) *b.buffer = b.buffer->clone();
}

Tensor LshState::apply(In q, In k, In v, const AttentionCall& call) {
  detail::check_heads("lsh attention", q, k, v);
  const LshAttentionOptions& o = mechanism_.options();
  check(!o.shared || q.dim(1) == k.dim(1), q.where(), "lsh attention: q is ", q.tensor(), " and k is ", k.tensor(),
        "; they must have the same number of heads, as queries and keys are shared");
  check(q.dim(3) == o.size, q.where(), "lsh attention: q is ", q.tensor(), "; its last axis must be ", o.size);
  const NoTape guard;  // no gradient passes through decoding
  return cache_.apply(q, mechanism_.keys_of(q, k), v, call, [&](In q1, In keys, In values, const AttentionCall& all) {
    // Checks the call before the buckets are written, so that an error leaves the state unchanged.
    detail::check_pairs("lsh attention", q1, keys, all);
    return sparse_attention(q1, keys, values, lists(q1, keys, all), all, o.scale);
  });
}

namespace {

// Calls f(c) for each round, where c is the bucket of token t of head h, counted through the buckets of all rounds.
// buckets [B, H, rounds, count].
template <class F>
void each_round(const LshAttentionOptions& o, const Tensor& buckets, Index count, Index h, Index t, const F& f) {
  for (Index r = 0; r < o.rounds; ++r) f(r * o.buckets + buckets.ptr<std::int32_t>()[(h * o.rounds + r) * count + t]);
}

}  // namespace

// The keys of the last `count` queries per row. Adds each new position to its buckets after its query.
KeyLists LshState::lists(In q, In keys, const AttentionCall& call) {
  const LshAttentionOptions& o = mechanism_.options();
  const Index batch = q.dim(0), heads = q.dim(1), groups = keys.dim(1), count = q.dim(2), shared = heads / groups;
  const Tensor& before = lengths();  // per row; [0] before the first step
  const Tensor new_keys = detail::rows_after(keys, before, count);
  const Tensor of_queries = mechanism_.hash(q), of_keys = o.shared ? of_queries : mechanism_.hash(new_keys);
  if (!places_.defined()) {
    places_ = Tensor::zeros({batch, groups, o.rounds, o.buckets, o.window}, DType::int32);
    counts_ = Tensor::zeros({batch, groups, o.rounds, o.buckets}, DType::int32);
  }
  using Positions = std::vector<std::int32_t>;
  std::vector<Positions> offsets(static_cast<std::size_t>(batch * heads), Positions{0}), seen(offsets.size());
  const Index work = std::max<Index>(1, count * shared * o.rounds * o.window);
  parallel_for_each(batch * groups, std::max<Index>(1, 20000 / work), [&](Index n) {
    const Index b = n / groups, seen_before = before.numel() == 0 ? 0 : before.ptr<std::int32_t>()[b];
    const Index new_count = call.key_lengths.defined() ? call.key_lengths.ptr<std::int32_t>()[b] - seen_before : count;
    std::int32_t* places = places_.ptr<std::int32_t>() + n * o.rounds * o.buckets * o.window;
    std::int32_t* counts = counts_.ptr<std::int32_t>() + n * o.rounds * o.buckets;
    for (Index t = 0; t < count; ++t) {
      for (Index h = n * shared; h < (n + 1) * shared; ++h) {
        Positions& mine = seen[static_cast<std::size_t>(h)];
        const std::size_t first = mine.size();
        each_round(o, of_queries, count, h, t, [&](Index c) {
          const std::int32_t* ring = places + c * o.window;
          mine.insert(mine.end(), ring, ring + std::min<Index>(counts[c], o.window));
        });
        detail::unite(mine, first, seen_before + t, [] { return true; });
        offsets[static_cast<std::size_t>(h)].push_back(detail::checked_pairs(mine.size()));
      }
      if (t >= new_count) continue;  // padding
      each_round(o, of_keys, count, n, t, [&](Index c) {
        places[c * o.window + counts[c]++ % o.window] = static_cast<std::int32_t>(seen_before + t);
      });
    }
  });
  return detail::joined_lists(offsets, seen, {batch, heads, count + 1});
}

}  // namespace heed
