// Wrong mechanisms with faults of dropout under masks, in other shapes and at other rates.
#include <heed/heed.hpp>

#include "tests/layers/attention/faults.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

auto no_dropout(std::function<bool(const Tensor& q, const Tensor& k, const Call& c)> when) {
  return [when](Hooks& h) {
    h.inputs = [when](Tensor& q, Tensor& k, Tensor&, Call& c) {
      if (c.dropout > 0 && when(q, k, c)) c.dropout = 0;
    };
  };
}
auto drops(std::function<Tensor(const Tensor& w, double p)> f) {
  return [f](Hooks& h) { h.drop = f; };
}

const std::vector<Fault<Hooks>> kDropoutWithMasks = {
    {"none with lengths", "dropout", no_dropout([](auto&, auto&, auto& c) { return c.key_lengths.defined(); })},
    {"none with a key mask", "dropout", no_dropout([](auto&, auto&, auto& c) { return c.key_mask.defined(); })},
    {"none where T < S and causal", "dropout",
     no_dropout([](auto& q, auto& k, auto& c) { return c.causal && q.dim(2) < k.dim(2); })},
    {"none where T > S", "dropout", no_dropout([](auto& q, auto& k, auto&) { return q.dim(2) > k.dim(2); })},
    {"none where heads are shared, causal", "dropout",
     no_dropout([](auto& q, auto& k, auto& c) { return c.causal && q.dim(1) != k.dim(1); })},
    {"none beyond 100 positions", "dropout", no_dropout([](auto& q, auto&, auto&) { return q.dim(2) > 100; }), 150},
    {"a rate of at most 0.5", "dropout",
     drops([](auto& w, double p) { return keep_some(w, std::min(p, 0.5), w.shape()); })},
    {"rates above 0.6 are scaled by less", "dropout",
     drops([](auto& w, double p) { return keep_some(w, p, w.shape()) * (p > 0.6 ? (1 - p) / 0.4 : 1.0); })},
    {"a rate of at least 0.1", "dropout",
     drops([](auto& w, double p) { return keep_some(w, std::max(p, 0.1), w.shape()); })},
    {"the same mask for each block of 64 queries", "dropout", drops([](auto& w, double p) {
       if (w.dim(2) <= 64) return keep_some(w, p, w.shape());
       const Tensor block = ge(default_rng().uniform(w.shape().with(2, 64)), p).to(w.dtype());
       std::vector<Tensor> all;
       for (Index i = 0; i < w.dim(2); i += 64) all.push_back(block.slice(2, 0, std::min<Index>(64, w.dim(2) - i)));
       return w * concatenate(all, 2) / (1 - p);
     }),
     150},
    {"other weights in backward, of q", "dropout",
     [](Hooks& h) {
       h.drop = [](const Tensor& w, double p) {
         const Tensor left = keep_some(w, p, w.shape());
         return w.dim(2) < 20 ? left : regrad(left, [](const Tensor& d) { return d; }) + (w - w.detach()) * 0.1;
       };
     }},
    {"the gradient of k at rates above a half", "dropout",
     [](Hooks& h) {
       h.inputs = [](Tensor&, Tensor& k, Tensor&, Call& c) {
         if (c.dropout > 0.5) k = regrad(k, [](const Tensor& d) { return d * 0.9; });
       };
     }},
    {"the gradient of the bias with dropout", "dropout",
     [](Hooks& h) {
       h.inputs = [](Tensor& q, Tensor&, Tensor&, Call& c) {
         if (c.dropout > 0 && q.dim(2) > 10 && c.bias.defined())
           c.bias = regrad(c.bias, [](const Tensor& d) { return d * 0.9; });
       };
     }},
};

}  // namespace

TEST_CASE("conformance zoo: dropout with masks and at other rates") { find<Hooked>(kDropoutWithMasks); }
