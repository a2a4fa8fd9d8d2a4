// Faults for Fused that act only if a condition on the call holds.
#pragma once
#include <heed/autograd/reductions.hpp>

#include "tests/layers/attention/conformance_zoo.hpp"
#include "tests/layers/attention/fused_attention.hpp"

namespace heed::test {

using When = std::function<bool(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& c)>;
using Change = std::function<void(Tensor& q, Tensor& k, Tensor& v, AttentionCall& c)>;

inline auto where_it_is(const When& when, const Change& change) {
  return [=](FusedHooks& h) {
    h.inputs = [=](Tensor& q, Tensor& k, Tensor& v, AttentionCall& c) {
      if (when(q, k, v, c)) change(q, k, v, c);
    };
  };
}
inline Tensor scaled(const Tensor& x, double by) { return (x.to(DType::float32) * by).to(x.dtype()); }
// Multiplies the output by 1.05.
inline auto larger(const When& when) {
  return [=](FusedHooks& h) {
    const auto is = std::make_shared<bool>();
    h.inputs = [=](Tensor& q, Tensor& k, Tensor& v, AttentionCall& c) { *is = when(q, k, v, c); };
    h.output = [=](const Tensor& y, const Tensor&, const Tensor&, const AttentionCall&) {
      return !*is ? y : y.dtype() == DType::float64 ? y * 1.05 : scaled(y, 1.05);
    };
  };
}
// Multiplies the gradient of q, k or v by a factor.
inline auto gradient(char which, double factor, const When& when) {
  return where_it_is(when, [=](Tensor& q, Tensor& k, Tensor& v, AttentionCall&) {
    Tensor& x = which == 'q' ? q : which == 'k' ? k : v;
    x = regrad(x, [=](const Tensor& d) { return d * factor; });
  });
}
inline bool narrow(const Tensor& q) { return q.dtype() == DType::bfloat16; }
inline bool shares(const Tensor& q, const Tensor& k) { return q.dim(1) != k.dim(1); }
inline bool last_strided(const Tensor& x) { return x.rank() > 0 && x.dim(-1) > 1 && x.strides()[x.rank() - 1] != 1; }
// The elements in their order in memory.
inline Tensor as_stored(const Tensor& x) {
  return x.as_strided(x.shape(), contiguous_strides(x.shape()), x.offset()).clone();
}
inline void no_mask(Tensor&, Tensor&, Tensor&, AttentionCall& c) { c.mask = {}; }
inline void no_lengths(Tensor&, Tensor&, Tensor&, AttentionCall& c) { c.key_lengths = {}; }
inline void no_bias(Tensor&, Tensor&, Tensor&, AttentionCall& c) { c.bias = {}; }
inline void not_causal(Tensor&, Tensor&, Tensor&, AttentionCall& c) { c.causal = false; }
// A mask that allows every key from position `from` on.
inline Tensor open_from(const Tensor& mask, Index from) {
  Tensor y = mask.dense().clone();
  if (y.dim(-1) > from) y.slice(-1, from, y.dim(-1)).fill_(1);
  return y;
}

// Each fault is found by one check only.
inline const std::vector<Fault<FusedHooks>> kFoundByOneOfFused = {
    {"the gradient of q in bfloat16", "bfloat16",
     gradient('q', 0.95, [](auto& q, auto&&...) { return q.dtype() == DType::bfloat16; })},
    {"mapped keys are three times too large", "mapped keys",
     [](FusedHooks& h) { h.map = [](const Tensor& k, const AttentionCall&) { return k * 3.0; }; }},
    {"lengths beyond 128 are 128", "borders",
     where_it_is([](auto&, auto&, auto&, auto& c) { return c.key_lengths.defined(); },
                 [](Tensor&, Tensor& k, Tensor&, AttentionCall& c) {
                   c.key_lengths = c.key_lengths.dense().clone();
                   for (Index b = 0; b < k.dim(0); ++b)
                     if (std::int32_t& n = c.key_lengths.ptr<std::int32_t>()[b]; n > 128) n = 128;
                 }),
     300},
    {"the last key of a state of more than five rows", "state programs",
     [](FusedHooks& h) {
       h.state = [] {
         return AttentionState(KeyValueState([](In q, In k, In v, const AttentionCall& call) {
           return Fused{}.apply(q, k, q.dim(0) > 5 ? scaled_from(v, 2, v.dim(2) - 1, 0.9) : v.tensor(), call);
         }));
       };
     }},
    {"T > S, causal, with heads that share keys", "combinations", larger([](auto& q, auto& k, auto&, auto& c) {
       return c.causal && q.dim(2) > k.dim(2) && shares(q, k) && c.mask.defined();
     })},
};

}  // namespace heed::test
