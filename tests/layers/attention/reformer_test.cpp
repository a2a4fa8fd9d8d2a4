// Reformer's attention: the conformance kit against plain loops over rounds, the lists of keys, and errors.
#include <algorithm>
#include <cmath>
#include <heed/heed.hpp>

#include "tests/layers/attention/naive_row.hpp"
#include "tests/support.hpp"
//
#include <heed/layers/attention/conformance_doctest.hpp>

using namespace heed;
using namespace heed::test;

namespace {

// One head of one sequence, by the definitions of reformer.hpp.
struct NaiveReformer {
  const double* q;  // [n, size]
  Index n, size, chunk;
  const Tensor& rotations;     // [rounds, size, 48] float64
  std::vector<bool> unmasked;  // [n]
  std::function<bool(Index i, Index j)> allows;
  std::function<double(Index i, Index j)> bias;

  Index rounds() const { return rotations.dim(0); }
  Index count() const { return std::count(unmasked.begin(), unmasked.end(), true); }

  // The bucket of position i: digits of 4 bits, the last of the remaining bits.
  Index bucket(Index round, Index i) const {
    Index bits = 1, number = 0;
    while ((Index{1} << bits) * chunk < 2 * count()) ++bits;
    for (Index digit = 0; digit * 4 < bits; ++digit) {
      const Index values = Index{1} << std::min<Index>(4, bits - 4 * digit);
      std::vector<double> sums;
      for (Index sign = 1; sign >= -1; sign -= 2)
        for (Index m = 0; m < values / 2; ++m) {
          double s = 0;
          for (Index c = 0; c < size; ++c)
            s += q[i * size + c] * rotations.ptr<double>()[(round * size + c) * rotations.dim(2) + digit * 8 + m];
          sums.push_back(static_cast<double>(sign) * s);
        }
      number = number * values + (std::max_element(sums.begin(), sums.end()) - sums.begin());
    }
    return number;
  }
  // Whether j is in P_r(i), for all i and j.
  std::vector<char> pairs_of(Index round) const {
    std::vector<Index> buckets, chunks;
    for (Index i = 0; i < n; ++i) buckets.push_back(bucket(round, i));
    const auto of = [](const std::vector<Index>& list, Index i) { return list[static_cast<std::size_t>(i)]; };
    for (Index i = 0; i < n; ++i) {
      Index place = 0;
      for (Index j = 0; j < n; ++j)
        if (unmasked[static_cast<std::size_t>(j)] && std::pair(of(buckets, j), j) < std::pair(of(buckets, i), i))
          ++place;
      chunks.push_back(std::min(place, std::max<Index>(0, count() - 1)) / chunk);
    }
    std::vector<char> pairs;
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j) {
        const Index before = of(chunks, i) - of(chunks, j);
        pairs.push_back(i != j && unmasked[static_cast<std::size_t>(j)] && allows(i, j) &&
                        of(buckets, i) == of(buckets, j) && (before == 0 || before == 1));
      }
    return pairs;
  }
  double score(Index i, Index j) const {
    double dot = 0, squares = 0;
    for (Index c = 0; c < size; ++c)
      dot += q[i * size + c] * q[j * size + c], squares += q[j * size + c] * q[j * size + c];
    return (squares == 0 ? 0 : dot / std::sqrt(squares)) / std::sqrt(static_cast<double>(size)) + bias(i, j);
  }
  // The weights of query i: each round by itself, combined by the log-sums z_r.
  std::vector<double> weights(Index i, const std::vector<std::vector<char>>& rounds_of) const {
    const auto in = [&](std::size_t r, Index j) { return rounds_of[r][static_cast<std::size_t>(i * n + j)] != 0; };
    std::vector<double> w(static_cast<std::size_t>(n), 0.0), z;
    std::vector<std::vector<double>> of_round;
    double highest = -1e300;
    for (std::size_t r = 0; r < rounds_of.size(); ++r) {
      std::vector<double> logs(static_cast<std::size_t>(n), -1e300);
      double max_log = -1e300, sum = 0;
      for (Index j = 0; j < n; ++j) {
        if (!in(r, j)) continue;
        Index found = 0;  // N_ij
        for (std::size_t other = 0; other < rounds_of.size(); ++other) found += in(other, j) ? 1 : 0;
        max_log = std::max(max_log, logs[static_cast<std::size_t>(j)] = score(i, j) - std::log(found));
      }
      for (double& x : logs) sum += x = x == -1e300 ? 0 : std::exp(x - max_log);
      for (double& x : logs) x = sum == 0 ? 0 : x / sum;
      z.push_back(sum == 0 ? -1e300 : max_log + std::log(sum)), highest = std::max(highest, z.back());
      of_round.push_back(logs);
    }
    if (highest == -1e300) {
      if (unmasked[static_cast<std::size_t>(i)] && allows(i, i)) w[static_cast<std::size_t>(i)] = 1;
      return w;
    }
    double total = 0;
    for (const double log_sum : z) total += std::exp(log_sum - highest);
    for (std::size_t r = 0; r < z.size(); ++r)
      for (std::size_t j = 0; j < w.size(); ++j) w[j] += std::exp(z[r] - highest) / total * of_round[r][j];
    return w;
  }
};

auto naive_reformer(Index chunk) {
  return [chunk](const Tensor& q_any, const Tensor&, const Tensor& v_any, const AttentionCall& call,
                 const TensorsByName& values) {
    const Tensor q = q_any.dense(), v = v_any.dense(), rotations = values.at("rotations").to(DType::float64).dense();
    const Index B = q.dim(0), H = q.dim(1), n = q.dim(2), V = v.dim(3);
    const Tensor allowed = allowed_pairs(q, q, call).expand({B, H, n, n});
    const Tensor bias = call.bias.defined() ? call.bias.detach().expand({B, H, n, n}) : Tensor();
    const AttentionCall keys_only{.key_lengths = call.key_lengths, .key_mask = call.key_mask};
    const Tensor unmasked = allowed_pairs(q, q, keys_only).expand({B, H, n, n});
    Tensor y = Tensor::zeros({B, H, n, V}, DType::float64);
    for (Index head = 0; head < B * H; ++head) {
      const Index b = head / H, h = head % H;
      NaiveReformer one{q.ptr<double>() + head * n * q.dim(3), n, q.dim(3), chunk, rotations, {}, {}, {}};
      for (Index j = 0; j < n; ++j) one.unmasked.push_back(unmasked.at({b, h, 0, j}) != 0);
      one.allows = [&](Index i, Index j) { return allowed.at({b, h, i, j}) != 0; };
      one.bias = [&](Index i, Index j) { return bias.defined() ? bias.at({b, h, i, j}) : 0; };
      std::vector<std::vector<char>> rounds;
      for (Index r = 0; r < rotations.dim(0); ++r) rounds.push_back(one.pairs_of(r));
      for (Index i = 0; i < n; ++i) {
        const std::vector<double> w = one.weights(i, rounds);
        for (Index j = 0; j < n; ++j)
          for (Index c = 0; c < V && w[static_cast<std::size_t>(j)] != 0; ++c)
            y.ptr<double>()[(head * n + i) * V + c] +=
                w[static_cast<std::size_t>(j)] * v.ptr<double>()[(head * n + j) * V + c];
      }
    }
    return y;
  };
}

}  // namespace

TEST_CASE("conformance: Reformer's attention, against rounds that are combined by their log-sums") {
  for (const Index chunk : {5, 16}) {
    const auto of_sizes = [chunk](Index, Index size) {
      return [=](Index, Rng&) -> AttentionMechanism {
        return ReformerAttention({.size = size, .chunk = chunk, .rounds = 3, .seed = 2});
      };
    };
    ConformanceOptions kit = thinned({.shared = true, .reference = naive_reformer(chunk), .of_sizes = of_sizes});
    kit.longest = std::min<Index>(kit.longest, 200);  // the plain loops read all pairs in each round
    if (chunk == 16) kit.only = {"reference", "padding", "gradient"};
    CHECK(check_conformance_in_test(of_sizes(4, 8), kit).mechanism == "reformer");
  }
}

TEST_CASE("reformer: queries see their own bucket in two chunks, and the number of buckets follows the length") {
  const ReformerAttention m({.size = 6, .chunk = 8, .rounds = 1, .seed = 1});
  CHECK(m.buckets(0) == 2);
  CHECK(m.buckets(8) == 2);
  CHECK(m.buckets(16) == 4);
  CHECK(m.buckets(17) == 8);
  CHECK(m.buckets(1024) == 256);
  CHECK(ReformerAttention({.size = 6, .buckets = 32}).buckets(1000) == 32);
  const Tensor q = normal({1, 1, 200, 6});
  const KeyLists lists = m.lists(q, {});
  const std::int32_t* offsets = lists.offsets.ptr<std::int32_t>();
  Index most = 0, others = 0;
  for (Index i = 0; i < 200; ++i) {
    const Index keys = offsets[i + 1] - offsets[i];
    CHECK(keys >= 1);
    most = std::max(most, keys), others += keys > 1 ? 1 : 0;
  }
  CHECK(most < 16);
  CHECK(others > 100);  // a bucket has four positions on average
  // Equal queries are in one bucket, in the order of their positions.
  const Tensor same = q.slice(2, 0, 1).expand({1, 1, 20, 6});
  const KeyLists all = m.lists(same, {});
  const auto keys_of = [&](Index i) {
    const Index begin = all.offsets.ptr<std::int32_t>()[i], end = all.offsets.ptr<std::int32_t>()[i + 1];
    return all.keys.slice(0, begin, end).to_vector<std::int32_t>();
  };
  CHECK(keys_of(3) == std::vector<std::int32_t>{0, 1, 2, 4, 5, 6, 7});
  CHECK(keys_of(9) == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15});
  CHECK(keys_of(17) == std::vector<std::int32_t>{8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19});
}

TEST_CASE("reformer: more rounds come closer to attention to all keys but the query's own") {
  const Tensor q = normal({1, 2, 60, 4}) * 3, v = normal({1, 2, 60, 3}, 2);
  const Tensor keys = q * rsqrt(sum(square(q), {-1}, true));
  const Tensor at = Tensor::arange(60), not_self = logical_not(eq(at.unsqueeze(1), at.unsqueeze(0)));
  const Tensor exact = attention(q, keys, v, {.mask = not_self});
  double before = 1e300;
  for (const Index rounds : {1, 4, 64}) {
    const Tensor y = ReformerAttention({.size = 4, .chunk = 16, .rounds = rounds}).apply(q, q, v, {});
    const double far = mean(abs(y - exact)).item();
    CHECK(far < 0.7 * before);
    before = far;
  }
}

TEST_CASE("reformer: causal calls and options out of range are refused") {
  Rng rng(1);
  const ReformerAttention m({.size = 4});
  const Tensor x = rng.normal({1, 1, 5, 4}), y = rng.normal({1, 1, 6, 4});
  check_errors({
      {"reformer attention: the call is causal, but the borders of chunks depend on later positions; use LshAttention",
       [&] { m.apply(x, x, x, {.causal = true}); }},
      {"reformer attention: q is [1, 1, 5, 4] float32 and k is [1, 1, 6, 4] float32", [&] { m.apply(x, y, y, {}); }},
      {"its last axis must be 4",
       [&] {
         m.lists(rng.normal({1, 1, 5, 3}), {});
       }},
      {"buckets is 6; it must be a power of two", [] { ReformerAttention({.size = 4, .buckets = 6}); }},
      {"chunk is 0 and rounds is 4; each must be 1 or more", [] { ReformerAttention({.size = 4, .chunk = 0}); }},
      {"attention: reformer has no causal form: queries are also keys, and the borders of its chunks depend on all "
       "positions; it is for encoders",
       [] { mechanism_by_name("reformer", {.head_size = 4}); }},
  });
}
