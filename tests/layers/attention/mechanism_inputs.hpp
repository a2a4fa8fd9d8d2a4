// Which mechanisms have a state, and inputs that mechanisms take in addition to q, k and v, for tests that call a
// mechanism without a layer.
#pragma once
#include <algorithm>
#include <heed/layers/attention/mechanism.hpp>
#include <heed/layers/model_config.hpp>

#include "tests/support.hpp"

namespace heed::test {

// Rules with a state (layers/attention/gated.hpp): all of them have the option value-heads, and no other mechanism has.
inline bool is_state_rule(const std::string& name) {
  const std::vector<MechanismOption>& all = mechanism_options();
  return std::any_of(all.begin(), all.end(), [&](const auto& o) { return o.name == "value-heads" && o.of(name); });
}

// Random inputs of m for q [B, H, T, D] and k [B, Hk, S, D]. Most mechanisms have none.
inline std::vector<Tensor> inputs_for(const AttentionMechanism& m, const Tensor& q, const Tensor& k) {
  std::vector<Tensor> inputs;
  for (const MechanismInput& input : m.inputs())
    inputs.push_back(normal((input.of_queries() ? q : k).shape().with(-1, input.size), 9, q.dtype()));
  return inputs;
}

// The inputs at positions [begin, end).
inline std::vector<Tensor> inputs_at(const std::vector<Tensor>& inputs, Index begin, Index end) {
  std::vector<Tensor> some;
  for (const Tensor& x : inputs) some.push_back(x.slice(2, begin, end));
  return some;
}

}  // namespace heed::test
