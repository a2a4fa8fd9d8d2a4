// Reformer's attention: hashing by digits, the order of positions, and the keys of chunks.
#include <bit>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/detail/key_lists.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>
#include <heed/layers/attention/detail/hashing.hpp>
#include <heed/layers/attention/reformer.hpp>

namespace heed {
namespace {

using detail::Buckets;
using detail::PairMasks;
using detail::Rotations;
using ListedKeys = std::vector<std::int32_t>;

constexpr const char* kReformer = "reformer attention";
constexpr Index kDigitBits = 4, kDigitColumns = 8, kMaxDigits = 6;  // up to 2^24 buckets

Index log2_of(Index power) { return std::bit_width(static_cast<std::uint64_t>(power)) - 1; }
Index digits_for(Index buckets) { return (log2_of(buckets) + kDigitBits - 1) / kDigitBits; }

// The bucket of sums [8 per digit] of x with the rotations of a round. The last digit has the remaining values.
template <class T>
std::int32_t bucket_by_digits(const T* sums, Index buckets) {
  std::int32_t bucket = 0;
  for (Index bits = log2_of(buckets); bits > 0; bits -= kDigitBits, sums += kDigitColumns) {
    const Index values = Index{1} << std::min(bits, kDigitBits);
    bucket = bucket * static_cast<std::int32_t>(values) + detail::bucket_of(sums, values / 2);
  }
  return bucket;
}

// Writes the buckets of x [n, size] to y [rounds, n].
template <class T>
void hash_positions(const T* x, Index n, const Rotations<T>& rotations, Index buckets, std::int32_t* y) {
  std::vector<T> sums(static_cast<std::size_t>(rotations.columns));
  for (Index i = 0; i < n; ++i) {
    rotations.rotate(x + i * rotations.size, sums.data());
    for (Index r = 0; r < rotations.rounds; ++r)
      y[r * n + i] = bucket_by_digits(sums.data() + r * rotations.half, buckets);
  }
}

// Appends the keys of query i in one round.
template <class Allows>
void take_chunks(const Buckets& order, std::int32_t bucket, Index i, Index count, Index chunk, const Allows& allows,
                 ListedKeys& seen) {
  const std::int32_t *first = order.begin(bucket), *last = order.end(bucket);
  // A masked query has the place of the next unmasked position.
  const Index place = std::min(std::lower_bound(first, last, i) - order.begin(), count - 1), own = place / chunk;
  first = std::max(first, order.begin() + std::max<Index>(0, own - 1) * chunk);
  last = std::min(last, order.begin() + std::min(count, (own + 1) * chunk));
  for (; first < last; ++first)
    if (*first != i && allows(*first)) seen.push_back(*first);
}

Index unmasked_positions(const PairMasks& masks, Index b, Index n) {
  Index count = 0;
  for (Index j = 0; j < n; ++j) count += masks.unmasked(b, j) ? 1 : 0;
  return count;
}

}  // namespace

ReformerAttention::ReformerAttention(const ReformerOptions& o) : options_(o) {
  require(o.size > 0 && o.chunk > 0 && o.rounds > 0, kReformer, ": size is ", o.size, ", chunk is ", o.chunk,
          " and rounds is ", o.rounds, "; each must be 1 or more");
  const bool power = o.buckets > 1 && std::has_single_bit(static_cast<std::uint64_t>(o.buckets));
  require(o.buckets == 0 || (power && digits_for(o.buckets) <= kMaxDigits), kReformer, ": buckets is ", o.buckets,
          "; it must be a power of two from 2 to 2^24, or 0 for a number that follows from the length");
  rotations_ = Rng(o.seed).normal({o.rounds, o.size, kDigitColumns * kMaxDigits});
}

AttentionCapabilities ReformerAttention::capabilities() const {
  return {.key_mask = true,
          .bias = true,
          .key_bias = true,
          .dropout = true,
          .weights = true,
          .aligned = true,
          .discrete = true,
          .why = "queries are also keys, and the borders of its chunks depend on all positions"};
}

Index ReformerAttention::default_buckets(Index positions, Index chunk) {
  const Index least = std::clamp<Index>((2 * positions + chunk - 1) / chunk, 2, Index{1} << 24);
  return static_cast<Index>(std::bit_ceil(static_cast<std::uint64_t>(least)));
}
Index ReformerAttention::buckets(Index positions) const {
  return options_.buckets > 0 ? options_.buckets : default_buckets(positions, options_.chunk);
}

KeyLists ReformerAttention::lists(In q, const AttentionCall& call) const {
  detail::check_heads(kReformer, q, q, q);
  detail::check_pairs(kReformer, q, q, call);
  check(!call.causal, q.where(), kReformer, ": the call is causal, but the borders of chunks depend on later ",
        "positions; use LshAttention");
  check(q.dim(3) == options_.size, q.where(), kReformer, ": q is ", q.tensor(), "; its last axis must be ",
        options_.size);
  const Index batch = q.dim(0), heads = q.dim(1), n = q.dim(2), rounds = options_.rounds;
  const Tensor x = q->detach().dense();
  const Tensor used = rotations_.to(DType::float32).slice(2, 0, kDigitColumns * digits_for(buckets(n))).dense();
  const PairMasks masks(call, {batch, heads, n, n});
  std::vector<ListedKeys> offsets(static_cast<std::size_t>(batch * heads)), seen(offsets.size());
  detail::with_float(x.dtype(), [&]<class T>(T) {
    const Rotations<T> rotations(used);
    parallel_for_each(batch * heads, 1, [&](Index head) {
      const Index b = head / heads, h = head % heads, count = unmasked_positions(masks, b, n), own = buckets(count);
      ListedKeys bucket(static_cast<std::size_t>(rounds * n)), &mine = seen[static_cast<std::size_t>(head)];
      hash_positions(x.ptr<T>() + head * n * options_.size, n, rotations, own, bucket.data());
      std::vector<Buckets> orders;
      for (Index r = 0; r < rounds; ++r) orders.emplace_back(bucket.data() + r * n, own, n, masks, b);
      offsets[static_cast<std::size_t>(head)].push_back(0);
      for (Index i = 0; i < n; ++i) {
        const std::size_t before = mine.size();
        const auto allows = [&](Index j) { return masks.allows(b, h, i, j); };
        for (Index r = 0; r < rounds && count > 0; ++r)
          take_chunks(orders[static_cast<std::size_t>(r)], bucket[static_cast<std::size_t>(r * n + i)], i, count,
                      options_.chunk, allows, mine);
        detail::unite(mine, before, i, [&] { return masks.unmasked(b, i) && allows(i); });
        offsets[static_cast<std::size_t>(head)].push_back(detail::checked_pairs(mine.size()));
      }
    });
  });
  return detail::joined_lists(offsets, seen, {batch, heads, n + 1});
}

Tensor ReformerAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  detail::check_heads(kReformer, q, k, v);
  check(q.shape() == k.shape(), q.where(), kReformer, ": q is ", q.tensor(), " and k is ", k.tensor(),
        "; the shapes must be the same, as queries are also keys");
  const KeyLists chosen = lists(q, call);
  return sparse_attention(q, detail::keys_from_queries(q), v, chosen, call, options_.scale);
}

}  // namespace heed
