// References for the conformance kit: mechanisms with gates and delta rules in plain loops in float64.
#pragma once
#include <heed/layers/attention/conformance.hpp>
#include <heed/layers/attention/gated.hpp>

namespace heed::test {

bool naive_has_delta(StateRule rule);

// The whole mechanism; the arguments after the options are those of ConformanceOptions::reference.
Tensor naive_state_attention(StateRule rule, const StateAttentionOptions& o, Tensor q, Tensor k, Tensor v,
                             const AttentionCall& call, TensorsByName values);

}  // namespace heed::test
