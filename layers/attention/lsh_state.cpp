#include <heed/autograd/attention_inputs.hpp>
#include <heed/autograd/key_lists.hpp>
#include <heed/core/parallel.hpp>
#include <heed/layers/attention/lsh_state.hpp>

namespace heed {

LshState::LshState(const LshAttention& mechanism)
    : mechanism_(std::make_shared<LshAttention>(mechanism)),
      rings_(std::make_shared<Rings>()),
      cache_([m = mechanism_, rings = rings_](In q, In k, In v, const Tensor& bias) {
        const AttentionCall call{.bias = bias};
        // Before the buckets take the new keys: what is refused changes nothing.
        detail::check_pairs("lsh attention", q, k, call);
        const Index before = k.dim(2) - q.dim(2);
        const KeyLists chosen = lists(*m, *rings, q, k->slice(2, before, k.dim(2)), before);
        return sparse_attention(q, k, v, chosen, call, m->options().scale);
      }) {
  // Its own: other rotations may be loaded into the mechanism while the state lives.
  for (const NamedBuffer& b : named_buffers(*mechanism_)) *b.buffer = b.buffer->clone();
}

Tensor LshState::apply(In q, In k, In v, const Tensor& bias) {
  detail::check_heads("lsh attention", q, k, v);
  const LshAttentionOptions& o = mechanism_->options();
  check(!o.shared || q.dim(1) == k.dim(1), q.where(), "lsh attention: q is ", q.tensor(), " and k is ", k.tensor(),
        "; they must have as many heads, as queries and keys are shared");
  check(q.dim(3) == o.size, q.where(), "lsh attention: q is ", q.tensor(), "; its last axis must be ", o.size);
  const NoTape guard;  // decoding is not trained through
  return cache_.apply(q, mechanism_->keys_of(q, k), v, bias);
}

// The keys of queries at positions `before`, ..., each of which then enters its buckets.
KeyLists LshState::lists(const LshAttention& mechanism, Rings& rings, In q, In new_keys, Index before) {
  const LshAttentionOptions& o = mechanism.options();
  const Tensor of_queries = mechanism.hash(q), of_keys = o.shared ? of_queries : mechanism.hash(new_keys);
  const Index batch = q.dim(0), heads = q.dim(1), groups = new_keys.dim(1), count = q.dim(2), shared = heads / groups;
  if (!rings.places.defined()) {
    rings.places = Tensor::zeros({batch, groups, o.rounds, o.buckets, o.window}, DType::int32);
    rings.counts = Tensor::zeros({batch, groups, o.rounds, o.buckets}, DType::int32);
  }
  using Positions = std::vector<std::int32_t>;
  std::vector<Positions> offsets(static_cast<std::size_t>(batch * heads), Positions{0}), seen(offsets.size());
  const Index work = std::max<Index>(1, count * shared * o.rounds * o.window);
  parallel_for(batch * groups, std::max<Index>(1, 20000 / work), [&](Index begin, Index end) {
    for (Index n = begin; n < end; ++n) {
      std::int32_t* places = rings.places.ptr<std::int32_t>() + n * o.rounds * o.buckets * o.window;
      std::int32_t* counts = rings.counts.ptr<std::int32_t>() + n * o.rounds * o.buckets;
      // Token t of head h has bucket c of all rounds' buckets.
      const auto each_round = [&](const Tensor& buckets, Index h, Index t, const auto& f) {
        for (Index r = 0; r < o.rounds; ++r)
          f(r * o.buckets + buckets.ptr<std::int32_t>()[(h * o.rounds + r) * count + t]);
      };
      for (Index t = 0; t < count; ++t) {
        for (Index h = n * shared; h < (n + 1) * shared; ++h) {
          Positions& mine = seen[static_cast<std::size_t>(h)];
          const std::size_t first = mine.size();
          each_round(of_queries, h, t, [&](Index c) {
            const std::int32_t* ring = places + c * o.window;
            mine.insert(mine.end(), ring, ring + std::min<Index>(counts[c], o.window));
          });
          detail::unite(mine, first, before + t, [] { return true; });
          offsets[static_cast<std::size_t>(h)].push_back(detail::checked_pairs(mine.size()));
        }
        each_round(of_keys, n, t, [&](Index c) {
          places[c * o.window + counts[c]++ % o.window] = static_cast<std::int32_t>(before + t);
        });
      }
    }
  });
  return detail::joined_lists(offsets, seen, {batch, heads, count + 1});
}

}  // namespace heed
