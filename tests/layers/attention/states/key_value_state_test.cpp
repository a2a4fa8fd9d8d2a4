// The cache of keys and values: the calls that it makes, its growth, and errors.
#include <heed/heed.hpp>
#include <set>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

TEST_CASE("KeyValueState: keys and values that do not fit the cache are refused and change nothing") {
  const Tensor x = Tensor::zeros({2, 4, 3, 5});
  KeyValueState cache([](In q, In k, In v, const AttentionCall& call) { return attention(q, k, v, call); });
  cache.apply(x, x, x);
  const auto adds = [&](const Tensor& k, const Tensor& v) { return [&cache, k, v] { cache.apply(k, k, v); }; };
  check_errors({
      {"KeyValueState: k is [4, 3, 5] float32 and v is [2, 4, 3, 5] float32; they must be [batch, heads, positions, "
       "size] and may differ only in size",
       adds(Tensor::zeros({4, 3, 5}), x)},
      {"KeyValueState: k is [2, 4, 3, 5] float32 and v is [2, 4, 2, 5] float32; they must be",
       adds(x, Tensor::zeros({2, 4, 2, 5}))},
      {"KeyValueState: k is [2, 2, 3, 5] float32 and v is [2, 2, 3, 5] float32 but the cache holds [2, 4, 64, 5] "
       "float32 and [2, 4, 64, 5] float32; only the positions may differ",
       adds(x.slice(1, 0, 2), x.slice(1, 0, 2))},
      {"only the positions may differ", adds(x, Tensor::zeros({2, 4, 3, 6}))},
      {"only the positions may differ", adds(x.to(DType::float64), x.to(DType::float64))},
  });
  CHECK(!error_of([&] { cache.apply(Tensor::zeros({2, 4, 3, 6}), x, x); }).empty());
  CHECK(cache.lengths().to_vector<double>() == std::vector<double>{3, 3});
}

TEST_CASE("KeyValueState: the inner call is causal, and has key_lengths only if rows differ in length") {
  const NoTape guard;
  struct Applied {
    Index queries, keys;
    bool causal, bias;
    std::vector<double> lengths;
    bool operator==(const Applied&) const = default;
  };
  std::vector<Applied> applied;
  KeyValueState state([&](In q, In k, In v, const AttentionCall& call) {
    applied.push_back({q.dim(2), k.dim(2), call.causal, call.bias.defined(),
                       call.key_lengths.defined() ? call.key_lengths.to_vector<double>() : std::vector<double>{}});
    return attention(q, k, v, call);
  });
  const auto step = [&](Index count, const std::vector<std::int32_t>& lengths, const Shape& bias = {}) {
    const Tensor x = Rng(1).normal({2, 1, count, 4});
    applied.clear();
    AttentionCall call;
    if (!lengths.empty()) call.key_lengths = Tensor::from(lengths, {2});
    if (bias.rank() > 0) call.bias = Tensor::zeros(bias);
    const Tensor y = state.apply(x, x, x, call);
    CHECK(y.shape() == Shape{2, 1, count, 4});
    return applied;
  };
  using All = std::vector<Applied>;
  CHECK(step(5, {}) == All{{5, 5, true, false, {}}});
  CHECK(step(3, {3, 3}, {3, 8}) == All{{3, 8, true, true, {}}});  // the bias covers all cached keys
  CHECK(step(4, {4, 1}) == All{{4, 12, true, false, {12, 9}}});
  CHECK(step(1, {}) == All{{1, 13, true, false, {13, 10}}});
  CHECK(step(1, {0, 1}) == All{{1, 14, true, false, {13, 11}}});
  // Several positions of rows with different lengths are computed one after another.
  CHECK(step(2, {1, 2}, {2, 1, 2, 15}) == All{{1, 14, true, true, {14, 12}}, {1, 15, true, true, {14, 13}}});
  CHECK(step(1, {0, 1}) == All{{1, 15, true, false, {14, 14}}});
  CHECK(step(2, {}) == All{{2, 16, true, false, {}}});  // equal lengths again
}

TEST_CASE("KeyValueState maps each key once, when the key is added") {
  const NoTape guard;
  Index keys = 0;
  KeyValueState state([](In q, In k, In v, const AttentionCall& call) { return attention(q * 2.0, k, v, call, 1.0); },
                      [&](In x) {
                        keys += x.dim(2);
                        return x * 3.0;
                      });
  const Tensor q = Rng(1).normal({2, 4, 6, 3}), k = Rng(2).normal({2, 4, 6, 3}), v = Rng(3).normal({2, 2, 6, 3});
  const auto part = [](const Tensor& x, Index from, Index to) { return x.slice(2, from, to); };
  state.apply(part(q, 0, 4), part(k, 0, 4), part(v, 0, 4));
  const Tensor y = state.apply(part(q, 4, 6), part(k, 4, 6), part(v, 4, 6));
  CHECK(keys == 6);
  const Tensor values = v.unsqueeze(2).expand({2, 2, 2, 6, 3}).reshape({2, 4, 6, 3});
  CHECK(close(y, part(attention(q * 2.0, k * 3.0, values, {.causal = true}, 1.0), 4, 6)));
}

TEST_CASE("KeyValueState: the cache grows by doubling, and keeps its contents") {
  const NoTape guard;
  const Index length = 300;
  const Tensor q = normal({2, 4, length, 6}, 1), k = normal({2, 2, length, 6}, 2), v = normal({2, 2, length, 5}, 3);
  const Tensor whole = attention(q, k, v, {.causal = true});
  AttentionState state = SoftmaxAttention{}.make_state();
  std::set<const void*> places;  // addresses of the keys
  double worst = 0;
  for (Index t = 0; t < length; ++t) {
    const auto at = [&](const Tensor& x) { return x.slice(2, t, t + 1); };
    const Tensor y = state.apply(at(q), at(k), at(v));
    worst = std::max(worst, max(abs(y - at(whole))).item());
    for (const NamedBuffer& b : named_buffers(state))
      if (b.name == "keys") places.insert(b.buffer->raw());
  }
  CHECK(worst < 1e-12);
  CHECK(places.size() == 4);  // capacities of 64, 128, 256 and 512 positions
}
