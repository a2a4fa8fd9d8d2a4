// Extreme integers for every op that takes sizes, counts, indices or offsets from a user.
#include <heed/autograd/embedding.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/random.hpp>
#include <sstream>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

constexpr Index kMinIndex = std::numeric_limits<Index>::min(), kMaxIndex = std::numeric_limits<Index>::max();

struct IntegerCase {
  std::string name;
  std::function<Tensor(Index)> f;
};

// Ops that take sizes, counts, indices and offsets from a user.
std::vector<IntegerCase> integer_cases() {
  const Tensor x = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3}), turned = x.t(), one = Tensor::scalar(1),
               none = Tensor::zeros({0, 5}), mask = Tensor::ones({1}, DType::bool8);
  const Tensor places = Tensor::from<std::int32_t>({0, 1});
  return {
      {"zeros", [](Index n) { return Tensor::zeros({n}); }},
      {"zeros, two sizes",
       [](Index n) {
         return Tensor::zeros({n, n});
       }},
      {"zeros, one size 0",
       [](Index n) {
         return Tensor::zeros({n, 0});
       }},
      {"zeros, 0 first",
       [](Index n) {
         return Tensor::zeros({0, n, n});
       }},
      {"zeros, 0 last",
       [](Index n) {
         return Tensor::zeros({n, n, 0}, DType::bool8);
       }},
      {"full",
       [](Index n) {
         return Tensor::full({2, n}, 3, DType::bfloat16);
       }},
      {"arange", [](Index n) { return Tensor::arange(n); }},
      {"from",
       [](Index n) {
         return Tensor::from({1, 2}, {2, n});
       }},
      {"from, two sizes",
       [](Index n) {
         return Tensor::from(std::vector<float>{}, {n, n});
       }},
      {"view", [=](Index n) { return x.view({n}); }},
      {"view, two sizes",
       [=](Index n) {
         return x.view({n, n});
       }},
      {"view, -1",
       [=](Index n) {
         return x.view({n, -1});
       }},
      {"view, -1 after two",
       [=](Index n) {
         return x.view({n, n, -1});
       }},
      {"view of nothing",
       [=](Index n) {
         return none.view({0, n});
       }},
      {"view of nothing, two sizes",
       [=](Index n) {
         return none.view({n, 0, n});
       }},
      {"view of nothing, four sizes",
       [=](Index n) {
         return none.view({n, n, n, n});
       }},
      {"view of nothing, -1",
       [=](Index n) {
         return none.view({n, n, -1});
       }},
      {"reshape",
       [=](Index n) {
         return turned.reshape({n, n, n, n});
       }},
      {"reshape, -1",
       [=](Index n) {
         return turned.reshape({-1, n});
       }},
      {"expand", [=](Index n) { return one.expand({n}); }},
      {"expand, two sizes",
       [=](Index n) {
         return one.expand({n, n});
       }},
      {"expand of an axis",
       [=](Index n) {
         return x.expand({n, 2, 3});
       }},
      {"expand of a mask",
       [=](Index n) {
         return mask.expand({n, 4, 1});
       }},
      {"expand of nothing",
       [=](Index n) {
         return none.expand({n, 0, 5});
       }},
      {"slice from", [=](Index n) { return x.slice(1, n, kMaxIndex); }},
      {"slice to", [=](Index n) { return x.slice(1, kMinIndex, n); }},
      {"slice by", [=](Index n) { return x.slice(1, 0, 3, n); }},
      {"slice from, to, by", [=](Index n) { return x.slice(1, n, n, n); }},
      {"select", [=](Index n) { return x.select(1, n); }},
      {"at",
       [=](Index n) {
         return Tensor::scalar(x.at({0, n}));
       }},
      {"uniform",
       [](Index n) {
         return Rng(1).uniform({n, n});
       }},
      {"normal",
       [](Index n) {
         return Rng(1).normal({n, 3});
       }},
      {"integers", [](Index n) { return Rng(1).integers({2}, n, kMaxIndex); }},
      {"integers below", [](Index n) { return Rng(1).integers({2}, kMinIndex, n); }},
      {"integer", [](Index n) { return Tensor::scalar(static_cast<double>(Rng(1).integer(n) >= 0)); }},
      {"permutation", [](Index n) { return Tensor::scalar(static_cast<double>(Rng(1).permutation(n).size())); }},
      {"tril", [=](Index n) { return tril(x, n); }},
      {"triu", [=](Index n) { return triu(turned, n); }},
      {"repeat",
       [=](Index n) {
         return repeat(x, {n, 1});
       }},
      {"repeat, two counts",
       [=](Index n) {
         return repeat(x, {n, n});
       }},
      {"repeat, more axes",
       [=](Index n) {
         return repeat(x, {n, 0, 1});
       }},
      {"repeat of nothing",
       [=](Index n) {
         return repeat(none, {n, n});
       }},
      {"split", [=](Index n) { return split(x, n, 1)[0]; }},
      {"split by sizes",
       [=](Index n) {
         return split(x, {n, n, 2, 3}, 1)[0];
       }},
      {"one_hot", [=](Index n) { return one_hot(places, n); }},
      {"top_k", [=](Index n) { return top_k(x, n).values; }},
      {"embedding", [=](Index n) { return embedding(places, x, n); }},
      {"rope, offset", [=](Index n) { return rope(x.slice(1, 0, 2), {.offset = n}); }},
      {"rope, dims", [=](Index n) { return rope(x, {.dims = n}); }},
      {"cross_entropy", [=](Index n) { return cross_entropy(x, places, {.ignore_index = n}); }},
  };
}

}  // namespace

TEST_CASE("extreme integers give a tensor that can be read and printed, or an Error") {
  for (const IntegerCase& c : integer_cases()) {
    CAPTURE(c.name);
    for (const Index n : {kMinIndex, kMinIndex + 1, -(Index{1} << 62), -(Index{1} << 32), Index{1} << 60,
                          (Index{1} << 61) + 1, Index{1} << 62, (Index{1} << 62) + 1, kMaxIndex - 1, kMaxIndex}) {
      CAPTURE(n);
      Tensor y;
      try {
        y = c.f(n);
      } catch (const Error&) {
        continue;
      }
      REQUIRE(y.numel() >= 0);
      for (const Index size : y.shape()) CHECK(size >= 0);
      std::ostringstream text;
      text << y;
      CHECK(text.str().size() < 2000);
      if (y.numel() <= 1000) CHECK(static_cast<Index>(y.to_vector<double>().size()) == y.numel());
    }
  }
}

TEST_CASE("extreme integers that are valid have their effect") {
  const Tensor x = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  using Values = std::vector<double>;
  const auto values = [](const Tensor& y) { return y.to_vector<double>(); };
  for (const Index far : {kMaxIndex, kMaxIndex - 1}) {
    CHECK(same_bits(tril(x, far), x));
    CHECK(same_bits(triu(x, far), Tensor::zeros({2, 3})));
    CHECK(same_bits(tril(x, -far), Tensor::zeros({2, 3})));
    CHECK(same_bits(triu(x, -far), x));
    CHECK(same_bits(triu(x, kMinIndex), x));
    CHECK(values(x.slice(1, 0, 3, far)) == Values{1, 4});
    CHECK(values(x.slice(1, 1, far, far)) == Values{2, 5});
    CHECK(values(x.slice(0, 0, 2, far).contiguous()) == Values{1, 2, 3});
    CHECK(values(x.slice(1, kMinIndex, far)) == values(x));
    CHECK(x.slice(1, far, far).numel() == 0);
    CHECK(split(x, far).size() == 1);
  }
  std::ostringstream text;
  text << Tensor::zeros({Index{1} << 40, 0});
  CHECK(text.str() == "[[],\n [],\n [],\n ..., [],\n [],\n []]  [1099511627776, 0] float32");
  CHECK(Tensor::zeros({Index{1} << 40, 0}).view({0, Index{1} << 40}).numel() == 0);
  CHECK(Tensor::scalar(1).expand({Index{1} << 40}).numel() == Index{1} << 40);
}

TEST_CASE("extreme integers: errors") {
  const Tensor x = Tensor::zeros({2, 3}), none = Tensor::zeros({0, 5}), one = Tensor::scalar(1);
  constexpr Index big = Index{1} << 32;
  check_errors({
      {"view: shape is [4294967296, 4294967296]; it has more elements than can be counted",
       [&] {
         none.view({big, big});
       }},
      {"reshape: shape is [4294967296, 4294967296, -1]; it has more elements than can be counted",
       [&] {
         x.t().reshape({big, big, -1});
       }},
      {"expand: shape is [4294967296, 4294967296]; it has more elements than can be counted",
       [&] {
         one.expand({big, big});
       }},
      {"view: x is [0, 5] float32 and shape is [0, -1]; with a size of 0, -1 is ambiguous: give the size",
       [&] {
         none.view({0, -1});
       }},
      {"view: x is [2, 3] float32 with 6 elements and shape is [0, -1]; the number of elements must be the same",
       [&] {
         x.view({0, -1});
       }},
      {"repeat: the counts are [4294967296, 4294967296] and x is [2, 3] float32; the result has more elements than",
       [&] {
         repeat(x, {big, big});
       }},
      {"split: the sizes add up to 9223372036854775807 but x is [0, 5] float32",
       [&] {
         split(none, {kMaxIndex, kMaxIndex, 2});
       }},
      {"concatenate: the sizes along axis 0 add up to 2^63 or more",
       [] {
         concatenate(std::vector<Tensor>(8, Tensor::zeros({Index{1} << 60, 0})));
       }},
      {"rope: x is [2, 2] float32 and offset is 4611686018427387904; offset must be 0 or more, and all positions below",
       [&] { rope(x.slice(1, 0, 2), {.offset = Index{1} << 62}); }},
      {"permutation: n is 9223372036854775807; it must be in [0, 2^48)", [] { Rng(1).permutation(kMaxIndex); }},
  });
}
