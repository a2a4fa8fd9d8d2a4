// Helpers for authors of mechanisms, against plain loops.
#include <heed/heed.hpp>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

constexpr Index B = 2, H = 2, T = 3, S = 5;

struct Pairs {
  Tensor q = Rng(1).normal({B, H, T, 4}), k = Rng(2).normal({B, 1, S, 4});
  Tensor lengths = Tensor::from<std::int32_t>({5, 3});
  Tensor keys = Tensor::ones({B, S}, DType::bool8), mask = Tensor::ones({H, T, S}, DType::bool8);
  Tensor bias = Rng(3).normal({H, T, S});

  Pairs() {
    keys[0].slice(0, 1, 2).fill_(0);
    mask[1][2].fill_(0);  // the last query of the second head has no keys
    mask[0][1].slice(0, 0, 1).fill_(0);
  }
  AttentionCall everything() const {
    return {.causal = true, .key_lengths = lengths, .key_mask = keys, .mask = mask, .bias = bias};
  }
  bool allowed(const AttentionCall& c, Index b, Index h, Index i, Index j) const {
    return !(c.causal && j > i + S - T) && !(c.key_lengths.defined() && j >= static_cast<Index>(lengths.at({b}))) &&
           !(c.key_mask.defined() && keys.at({b, j}) == 0) && !(c.mask.defined() && mask.at({h, i, j}) == 0);
  }
  // a tensor of f(b, h, i, j) for all pairs
  template <class F>
  Tensor all(F&& f) const {
    Tensor y = Tensor::zeros({B, H, T, S});
    for (Index n = 0; n < y.numel(); ++n)
      y.ptr<float>()[n] = static_cast<float>(f(n / S / T / H, n / S / T % H, n / S % T, n % S));
    return y;
  }
};

std::vector<AttentionCall> calls_of(const Pairs& p) {
  return {{},
          {.causal = true},
          {.key_lengths = p.lengths},
          {.key_mask = p.keys},
          {.mask = p.mask},
          {.bias = p.bias},
          {.causal = true, .bias = p.bias},
          p.everything()};
}

bool same(const Tensor& a, const Tensor& b) { return a.to_vector<double>() == b.to_vector<double>(); }

}  // namespace

TEST_CASE("allowed pairs: all masks of a call in one") {
  const Pairs p;
  for (const AttentionCall& c : calls_of(p)) {
    const Tensor expected = p.all([&](auto... at) { return p.allowed(c, at...); });
    CHECK(same(allowed_pairs(p.q, p.k, c).expand({B, H, T, S}), expected));
  }
}

TEST_CASE("allowed pairs: as numbers to add to scores") {
  const Pairs p;
  for (const AttentionCall& c : calls_of(p)) {
    const auto added = [&](Index b, Index h, Index i, Index j) {
      if (!p.allowed(c, b, h, i, j)) return -std::numeric_limits<double>::infinity();
      return c.bias.defined() ? p.bias.at({h, i, j}) : 0;
    };
    CHECK(same(additive_mask(p.q, p.k, c).expand({B, H, T, S}), p.all(added)));
    CHECK(additive_mask(p.q, p.k, c).dtype() == DType::float32);
    // Softmax of scores plus the mask equals masked_softmax in rows that have a key.
    const Tensor scores = matmul(p.q, p.k.t()), bias = c.bias.defined() ? c.bias : Tensor::zeros({});
    const Tensor allowed = allowed_pairs(p.q, p.k, c);
    const Tensor got = softmax(scores + additive_mask(p.q, p.k, c)), expected = masked_softmax(scores + bias, allowed);
    const Tensor seen = sum(allowed.expand({B, H, T, S}).to(DType::float32), {3}, true) > 0;
    CHECK(close(where(seen, got, 0.0), expected, 1e-6, 1e-6));
  }
  const Tensor wide = p.q.to(DType::float64);
  CHECK(additive_mask(wide, wide, {.causal = true}).dtype() == DType::float64);
  // The bias of a masked pair has no effect and gets no gradient.
  Tensor infinite = p.bias.clone();
  infinite[1][2].fill_(std::numeric_limits<double>::infinity());
  const Tensor y = additive_mask(p.q, p.k, {.mask = p.mask, .bias = infinite});
  CHECK(max(y).item() < 10);
  Tape tape;
  const Tensor bias = tape.watch(infinite);
  tape.backward(sum(masked_softmax(additive_mask(p.q, p.k, {.mask = p.mask, .bias = bias}), p.mask)));
  CHECK(same(tape.grad(bias)[1][2], Tensor::zeros({S})));
}

TEST_CASE("allowed pairs: a softmax over a row without allowed pairs is 0 and passes no gradient on") {
  const Pairs p;
  Tape tape;
  const Tensor scores = tape.watch(Rng(4).normal({B, H, T, S}));
  const Tensor w = masked_softmax(scores, allowed_pairs(p.q, p.k, {.mask = p.mask}));
  CHECK(same(w.detach().slice(1, 1, 2).slice(2, 2, 3), Tensor::zeros({B, 1, 1, S})));
  CHECK(close(sum(w.detach().slice(2, 0, 2), {3}), Tensor::ones({B, H, 2}), 1e-6, 1e-6));
  tape.backward(w, Rng(5).normal({B, H, T, S}));
  const Tensor d = tape.grad(scores);
  CHECK(same(d.slice(1, 1, 2).slice(2, 2, 3), Tensor::zeros({B, 1, 1, S})));
  CHECK(d.at({0, 0, 1, 0}) == 0);  // a masked pair
  CHECK(d.at({0, 0, 1, 1}) != 0);
}

TEST_CASE("allowed pairs: values of padding affect neither results nor gradients") {
  Pairs p;
  const auto padding = [&](Index b, Index j) { return b == 1 ? j >= 3 : j == 1; };
  p.k[0].slice(1, 1, 2).fill_(NAN), p.k[1].slice(1, 3, 5).fill_(NAN);
  Tape tape;
  const Tensor x = tape.watch(p.k), y = without_padding(x, p.everything());
  tape.backward(y, Tensor::ones(y.shape()));
  const Tensor d = tape.grad(x);
  for (Index b = 0; b < B; ++b)
    for (Index j = 0; j < S; ++j) {
      CHECK(y.at({b, 0, j, 2}) == (padding(b, j) ? 0 : p.k.at({b, 0, j, 2})));
      CHECK(d.at({b, 0, j, 2}) == (padding(b, j) ? 0 : 1));
    }
  CHECK(without_padding(p.k, {.mask = p.mask}).raw() == p.k.raw());  // x itself: no lengths and no key mask
}

TEST_CASE("allowed pairs: lengths and key masks of other shapes are refused by the helper that gets them") {
  const Pairs p;
  const Tensor three = Tensor::ones({3}, DType::int32), narrow = Tensor::ones({B, S - 1}, DType::bool8);
  CHECK(contains(error_of([&] { allowed_pairs(p.q, p.k, {.key_lengths = three}); }), "allowed_pairs: key_lengths"));
  CHECK(contains(error_of([&] { additive_mask(p.q, p.k, {.key_mask = narrow}); }), "allowed_pairs: key_mask"));
  CHECK(contains(error_of([&] { without_padding(p.k, {.key_mask = narrow}); }), "without_padding: key_mask"));
}
