// What every mechanism does with the masks, lengths and biases of a call.
#include <heed/heed.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::close;
using test::contains;
using test::error_of;

TEST_CASE("every mechanism refuses masks, lengths and biases of other dtypes and sizes before it reads them") {
  Rng rng(1);
  const Tensor q = rng.normal({2, 2, 5, 4}), k = rng.normal({2, 2, 7, 4});
  const auto check_refused = [&](const AttentionMechanism& m) {
    CAPTURE(m.name());
    const auto refuses = [&](bool has, const AttentionCall& call, const char* sentence) {
      if (!has) return;
      CHECK(contains(error_of([&] { m.apply(q, k, k, call); }), sentence));
      if (m.capabilities().weights) CHECK(contains(error_of([&] { m.weights(q, k, call); }), sentence));
    };
    const AttentionCapabilities& can = m.capabilities();
    refuses(can.full_mask, {.mask = Tensor::ones({5, 7})}, "mask is [5, 7] float32; it must be bool8");
    refuses(can.full_mask, {.mask = Tensor::ones({5, 6}, DType::bool8)},
            "mask is [5, 6] bool8; it must broadcast to [batch, heads, queries, keys] [2, 2, 5, 7]");
    refuses(can.bias, {.bias = Tensor::ones({5, 7}, DType::float64)}, "bias is [5, 7] float64");
    refuses(can.bias, {.bias = Tensor::ones({4, 7})}, "bias is [4, 7] float32; it must broadcast to");
    refuses(can.key_mask, {.key_lengths = Tensor::from<std::int32_t>({7})}, "key_lengths is [1] int32");
    refuses(can.key_mask, {.key_lengths = Tensor::from({7, 7})}, "key_lengths is [2] float32");
    refuses(can.key_mask, {.key_mask = Tensor::ones({2, 5}, DType::bool8)}, "key_mask is [2, 5] bool8");
    refuses(can.key_mask, {.key_mask = Tensor::ones({2, 7})}, "key_mask is [2, 7] float32");
  };
  for (const bool causal : {true, false})
    for (const std::string& name : mechanism_names(causal))
      check_refused(
          mechanism_by_name(name, {.causal = causal, .heads = 2, .head_size = 4, .context = 8, .window = 2})(0, rng));
  check_refused(GenericAttention(similarity_by_name("softplus")));
  for (const LuongAlignment alignment : {LuongAlignment::monotonic, LuongAlignment::predictive})
    check_refused(LuongLocalAttention(2, 4, rng, {.alignment = alignment, .radius = 2}));
}

TEST_CASE("where scores are exponents, a bias of minus infinity forbids a pair as a mask does, in whole rows too") {
  Rng rng(1);
  const Tensor q = rng.normal({2, 2, 5, 4}), k = rng.normal({2, 2, 7, 4}), v = rng.normal({2, 2, 7, 3});
  Tensor allowed = Tensor::ones({5, 7}, DType::bool8);
  allowed[2].fill_(0);
  for (Index n = 0; n < 7; n += 3) allowed[3].slice(0, n, n + 1).fill_(0);
  const Tensor bias = where(allowed, Tensor::zeros({5, 7}), -detail::kInfinity);
  const auto check_forbidden = [&](const AttentionMechanism& m) {
    if (!m.capabilities().bias) return;
    CAPTURE(m.name());
    const auto run = [&](const AttentionCall& call) {
      Tape tape;
      const Tensor x = tape.watch(q), y = tape.watch(k), z = tape.watch(v), out = m.apply(x, y, z, call);
      tape.backward(sum(square(out)));
      std::vector<Tensor> results = {out.detach()};
      for (const Tensor& input : {x, y, z})
        if (tape.grad(input).defined()) results.push_back(tape.grad(input));  // luong-location does not read keys
      return results;
    };
    const std::vector<Tensor> got = run({.bias = bias}), wanted = run({.mask = allowed});
    REQUIRE(got.size() == wanted.size());
    // LSH chooses by buckets and masks, whatever the bias: its rows may have other keys.
    for (std::size_t i = 0; i < got.size() && m.name() != "lsh"; ++i) CHECK(close(got[i], wanted[i], 1e-5, 1e-6));
    CHECK(max(abs(got[0].select(2, 2))).item() == 0);
  };
  for (const std::string& name : mechanism_names(false))
    check_forbidden(mechanism_by_name(
        name, {.causal = false, .heads = 2, .head_size = 4, .context = 8, .window = 8, .stride = 2})(0, rng));
  check_forbidden(GenericAttention(similarity_by_name("embedded-gaussian")));
  for (const LuongAlignment alignment : {LuongAlignment::monotonic, LuongAlignment::predictive})
    check_forbidden(LuongLocalAttention(2, 4, rng, {.alignment = alignment, .radius = 2}));
}

namespace {

// Gives what it is told to, for any operands.
struct Gives {
  Tensor y;
  std::string name() const { return "gives"; }
  AttentionCapabilities capabilities() const { return {.causal = true, .cross = true}; }
  Tensor apply(In, In, In, const AttentionCall&) const { return y; }
  void members(auto&&) {}
};

}  // namespace

TEST_CASE("what a mechanism gives must have the shape and the dtype of its output") {
  const NoTape guard;
  const Tensor q = Tensor::ones({2, 4, 4, 3}), k = Tensor::ones({2, 4, 6, 3}), v = Tensor::ones({2, 4, 6, 5});
  const auto given = [&](const Tensor& y) {
    return error_of([&] { AttentionMechanism(Gives{y}).apply(q, k, v, {}); });
  };
  CHECK(given(Tensor::ones({2, 4, 4, 5})).empty());
  CHECK(contains(given(Tensor::ones({2, 4, 6, 5})),
                 "gives attention: it gave [2, 4, 6, 5] float32 for q [2, 4, 4, 3] float32 and v [2, 4, 6, 5] float32; "
                 "it must give [batch, heads, queries, size of v], in the dtype of q (mechanism_calls_test.cpp:"));
  CHECK(contains(given(Tensor::ones({2, 4, 4, 3})), "it gave [2, 4, 4, 3] float32"));
  CHECK(contains(given(Tensor::ones({2, 4, 4, 5}, DType::float64)), "it gave [2, 4, 4, 5] float64"));
  CHECK(contains(given(Tensor()), "it gave undefined"));
}
