// LSH attention: hashing, the choice of keys from buckets, and the decode state.
#include <algorithm>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/detail/key_lists.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <heed/layers/attention/detail/hashing.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {
namespace {

using detail::bucket_of;
using detail::Buckets;
using detail::PairMasks;
using detail::Rotations;
using detail::unite;
using Keys = std::vector<std::int32_t>;

template <class T>
void hash_rows(const Tensor& x, const Rotations<T>& rotations, Tensor& y) {
  const Index n = x.dim(2), size = x.dim(3), rounds = rotations.rounds;
  const Index grain = std::max<Index>(1, 100000 / (size * rotations.columns));
  parallel_for(x.rows(), grain, [&](Index begin, Index end) {
    std::vector<T> sums(static_cast<std::size_t>(rotations.columns));
    for (Index row = begin; row < end; ++row) {
      rotations.rotate(x.ptr<T>() + row * size, sums.data());
      for (Index r = 0; r < rounds; ++r)
        y.ptr<std::int32_t>()[(row / n * rounds + r) * n + row % n] =
            bucket_of(sums.data() + r * rotations.half, rotations.half);
    }
  });
}

// Appends the `window` nearest allowed positions of a bucket other than `p`; of two equally near the earlier one first.
template <class Allows>
void take_near(const std::int32_t* first, const std::int32_t* last, Index p, bool causal, Index window,
               const Allows& allows, Keys& seen) {
  const std::int32_t *left = std::lower_bound(first, last, p), *right = left;
  if (right != last && *right == p) ++right;
  if (causal) right = last;
  for (Index taken = 0; taken < window && (left != first || right != last);) {
    const bool back = right == last || (left != first && p - left[-1] <= *right - p);
    const std::int32_t j = back ? *--left : *right++;
    if (!allows(j)) continue;
    seen.push_back(j);
    ++taken;
  }
}

}  // namespace

LshAttention::LshAttention(const LshAttentionOptions& o) : options_(o) {
  require(o.size > 0 && o.rounds > 0 && o.window > 0, "lsh attention: size is ", o.size, ", rounds is ", o.rounds,
          " and window is ", o.window, "; each must be 1 or more");
  require(o.buckets > 0 && o.buckets % 2 == 0, "lsh attention: buckets is ", o.buckets, "; it must be even, 2 or more");
  rotations_ = Rng(o.seed).normal({o.rounds, o.size, o.buckets / 2});
}

Tensor LshAttention::hash(In x) const {
  check(x.rank() == 4 && x.dim(3) == options_.size, x.where(), "lsh attention: x is ", x.tensor(),
        "; it must be [batch, heads, positions, ", options_.size, "]");
  Tensor y = Tensor::empty({x.dim(0), x.dim(1), options_.rounds, x.dim(2)}, DType::int32);
  const Tensor rows = x->detach().dense(), rotations = rotations_.to(DType::float32);  // float64 in a float64 model
  detail::with_float(x.dtype(), [&]<class T>(T) { hash_rows(rows, Rotations<T>(rotations), y); });
  return y;
}

KeyLists LshAttention::lists(In q, In k, const AttentionCall& call) const {
  detail::check_heads("lsh attention", q, k, k);
  detail::check_pairs("lsh attention", q, k, call);
  const Tensor of_queries = hash(q), of_keys = options_.shared ? of_queries : hash(k);
  const Index batch = q.dim(0), heads = q.dim(1), queries = q.dim(2), keys = k.dim(2), rounds = options_.rounds;
  const PairMasks masks(call, {batch, heads, queries, keys});
  std::vector<Keys> offsets(static_cast<std::size_t>(batch * heads)), seen(offsets.size());
  parallel_for_each(batch * heads, 1, [&](Index n) {
    const Index b = n / heads, h = n % heads, group = b * k.dim(1) + h / (heads / k.dim(1));
    const std::int32_t* query_bucket = of_queries.ptr<std::int32_t>() + n * rounds * queries;
    std::vector<Buckets> tables;
    for (Index r = 0; r < rounds; ++r)
      tables.emplace_back(of_keys.ptr<std::int32_t>() + (group * rounds + r) * keys, options_.buckets, keys, masks, b);
    Keys &row_offsets = offsets[static_cast<std::size_t>(n)], &mine = seen[static_cast<std::size_t>(n)];
    row_offsets.push_back(0);
    for (Index i = 0; i < queries; ++i) {
      const Index p = query_position(i, queries, keys);
      const std::size_t before = mine.size();
      const auto allows = [&](Index j) { return masks.allows(b, h, i, j); };
      for (Index r = 0; r < rounds; ++r) {
        const Buckets& table = tables[static_cast<std::size_t>(r)];
        const std::int32_t c = query_bucket[r * queries + i];
        take_near(table.begin(c), table.end(c), p, call.causal, options_.window, allows, mine);
      }
      unite(mine, before, p, [&] { return p < masks.length(b) && allows(p); });
      row_offsets.push_back(detail::checked_pairs(mine.size()));
    }
  });
  return detail::joined_lists(offsets, seen, {batch, heads, queries + 1});
}

Tensor LshAttention::keys_of(In q, In k) const { return options_.shared ? detail::keys_from_queries(q) : k.tensor(); }

Tensor LshAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  const KeyLists chosen = lists(q, k, call);
  return sparse_attention(q, keys_of(q, k), v, chosen, call, options_.scale);
}

// ---- The decode state ----

namespace {

// Calls f(c) for each round, where c is the bucket of token t of head h, counted through the buckets of all rounds.
// buckets [B, H, rounds, count].
template <class F>
void each_round(const LshAttentionOptions& o, const Tensor& buckets, Index count, Index h, Index t, const F& f) {
  for (Index r = 0; r < o.rounds; ++r) f(r * o.buckets + buckets.ptr<std::int32_t>()[(h * o.rounds + r) * count + t]);
}

// Keys and values, and the last positions of each bucket. A token takes O(rounds * (buckets * D + window)) time for its
// buckets, for any length.
class LshState {
 public:
  explicit LshState(const LshAttention& mechanism) : mechanism_(mechanism) {
    // Clones the rotations, because others may be loaded into the mechanism while the state is used.
    for (const NamedBuffer& b : named_buffers(mechanism_)) *b.buffer = b.buffer->clone();
  }
  // Appends k [B, Hk, T, D] and v [B, Hk, T, Dv], and attends: [B, H, T, Dv]. No gradient.
  Tensor apply(In q, In k, In v, const AttentionCall& call) {
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
  const Tensor& lengths() const { return cache_.lengths(); }
  void members(auto&& visit) {
    cache_.members(visit);
    visit.buffer("places", places_);
    visit.buffer("counts", counts_);
    for (const NamedBuffer& b : named_buffers(mechanism_)) visit.shared(b.name, *b.buffer);  // the rotations
  }

 private:
  LshAttention mechanism_;
  KeyValueState cache_{nullptr};
  Tensor places_;  // int32 [B, Hk, rounds, buckets, window]: the n-th position of a bucket is at index n % window
  Tensor counts_;  // int32 [B, Hk, rounds, buckets]: positions that each bucket has received

  // The keys of the last `count` queries per row. Adds each new position to its buckets after its query.
  KeyLists lists(In q, In keys, const AttentionCall& call) {
    const LshAttentionOptions& o = mechanism_.options();
    const Index batch = q.dim(0), heads = q.dim(1), groups = keys.dim(1), count = q.dim(2), shared = heads / groups;
    const Tensor& before = lengths();  // per row; [0] before the first step
    const Tensor new_keys = detail::rows_after(keys, before, count);
    const Tensor of_queries = mechanism_.hash(q), of_keys = o.shared ? of_queries : mechanism_.hash(new_keys);
    if (!places_.defined()) {
      places_ = Tensor::zeros({batch, groups, o.rounds, o.buckets, o.window}, DType::int32);
      counts_ = Tensor::zeros({batch, groups, o.rounds, o.buckets}, DType::int32);
    }
    std::vector<Keys> offsets(static_cast<std::size_t>(batch * heads), Keys{0}), seen(offsets.size());
    const Index work = std::max<Index>(1, count * shared * o.rounds * o.window);
    parallel_for_each(batch * groups, std::max<Index>(1, 20000 / work), [&](Index n) {
      const Index b = n / groups, seen_before = before.numel() == 0 ? 0 : before.ptr<std::int32_t>()[b];
      const Index new_count =
          call.key_lengths.defined() ? call.key_lengths.ptr<std::int32_t>()[b] - seen_before : count;
      std::int32_t* places = places_.ptr<std::int32_t>() + n * o.rounds * o.buckets * o.window;
      std::int32_t* counts = counts_.ptr<std::int32_t>() + n * o.rounds * o.buckets;
      for (Index t = 0; t < count; ++t) {
        for (Index h = n * shared; h < (n + 1) * shared; ++h) {
          Keys& mine = seen[static_cast<std::size_t>(h)];
          const std::size_t first = mine.size();
          each_round(o, of_queries, count, h, t, [&](Index c) {
            const std::int32_t* ring = places + c * o.window;
            mine.insert(mine.end(), ring, ring + std::min<Index>(counts[c], o.window));
          });
          unite(mine, first, seen_before + t, [] { return true; });
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
};

}  // namespace

AttentionState LshAttention::make_state() const { return LshState(*this); }

}  // namespace heed
