// What mechanisms of any name take beside q, k and v, for tests that call them without a layer.
#pragma once
#include <heed/layers/attention/mechanism.hpp>

#include "tests/support.hpp"

namespace heed::test {

// q [B, H, T, D], k [B, Hk, S, D]. For most mechanisms none.
inline std::vector<Tensor> inputs_for(const AttentionMechanism& m, const Tensor& q, const Tensor& k) {
  std::vector<Tensor> inputs;
  for (const MechanismInput& input : m.inputs())
    inputs.push_back(normal((input.of_queries() ? q : k).shape().with(-1, input.size), 9, q.dtype()));
  return inputs;
}

// Of positions [begin, end).
inline std::vector<Tensor> inputs_at(const std::vector<Tensor>& inputs, Index begin, Index end) {
  std::vector<Tensor> some;
  for (const Tensor& x : inputs) some.push_back(x.slice(2, begin, end));
  return some;
}

}  // namespace heed::test
