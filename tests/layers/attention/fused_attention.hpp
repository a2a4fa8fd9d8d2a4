// Softmax attention by the fused op with all capabilities, including bfloat16 and mapped keys. It is correct without
// hooks; a hook adds one fault.
#pragma once
#include "tests/layers/attention/hooked_attention.hpp"

namespace heed::test {

struct FusedHooks {
  AttentionCapabilities can = [] {
    AttentionCapabilities all = AttentionCapabilities::of_pairs();
    all.bfloat16 = true;
    return all;
  }();
  // Hooks change the inputs, the output, the keys before mapping, and the inputs of apply_mapped().
  std::function<void(Tensor& q, Tensor& k, Tensor& v, AttentionCall& call)> inputs = {};
  std::function<Tensor(const Tensor& y, const Tensor& q, const Tensor& v, const AttentionCall& call)> output = {};
  std::function<Tensor(const Tensor& k, const AttentionCall& call)> map = {};
  std::function<void(Tensor& q, Tensor& mapped, Tensor& v, AttentionCall& call)> mapped = {};
  std::function<AttentionState()> state = {};
};

// Softmax attention that maps keys to twice their value.
struct Fused {
  FusedHooks h = {};

  std::string name() const { return "fused"; }
  AttentionCapabilities capabilities() const { return h.can; }
  Tensor apply(In q_in, In k_in, In v_in, const AttentionCall& original) const {
    Tensor q = q_in, k = k_in, v = v_in;
    AttentionCall call = original;
    if (h.inputs) h.inputs(q, k, v, call);
    const Tensor y = attention(q, k, v, call);
    return h.output ? h.output(y, q, v, call) : y;
  }
  Tensor map_keys(In k, const AttentionCall& call) const { return (h.map ? h.map(k, call) : k.tensor()) * 2.0; }
  Tensor apply_mapped(In q_in, In mapped_in, In v_in, const AttentionCall& original) const {
    Tensor q = q_in, mapped = mapped_in, v = v_in;
    AttentionCall call = original;
    if (h.mapped) h.mapped(q, mapped, v, call);
    return attention(q, mapped * 0.5, v, call);
  }
  AttentionState make_state() const {
    if (h.state) return h.state();
    return KeyValueState(*this);
  }
  void members(auto&&) {}
};

}  // namespace heed::test
