// Wrong mechanisms with faults in bfloat16 only.
#include <heed/heed.hpp>

#include "tests/layers/attention/faults.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

const std::vector<Fault<FusedHooks>> kBfloat16 = {
    {"half of the output", "bfloat16", larger([](auto& q, auto&&...) { return narrow(q); })},
    {"the gradient of q", "bfloat16", gradient('q', 0.95, [](auto& q, auto&&...) { return narrow(q); })},
    {"the gradient of k", "bfloat16", gradient('k', 1.05, [](auto& q, auto&&...) { return narrow(q); })},
    {"the gradient of v with shared heads", "bfloat16",
     gradient('v', 0.9, [](auto& q, auto& k, auto&&...) { return narrow(q) && shares(q, k); })},
    {"no mask", "bfloat16", where_it_is([](auto& q, auto&&...) { return narrow(q); }, no_mask)},
    {"no lengths where it is causal", "bfloat16",
     where_it_is([](auto& q, auto&, auto&, auto& c) { return narrow(q) && c.causal; }, no_lengths)},
    {"no bias", "bfloat16", where_it_is([](auto& q, auto&&...) { return narrow(q); }, no_bias)},
    {"not causal where T < S", "combinations",
     where_it_is([](auto& q, auto& k, auto&&...) { return narrow(q) && q.dim(2) < k.dim(2); }, not_causal), 100},
    {"no bias where T > S", "bfloat16",
     where_it_is([](auto& q, auto& k, auto&&...) { return narrow(q) && q.dim(2) > k.dim(2); }, no_bias)},
    {"values of few bits", "bfloat16",
     where_it_is([](auto& q, auto&&...) { return narrow(q); },
                 [](Tensor&, Tensor&, Tensor& v, Call&) {
                   v = (in_bfloat16(v.to(DType::float32) + 64.0) - 64.0).to(v.dtype());
                 })},
    {"more than 96 positions", "bfloat16",
     larger([](auto& q, auto& k, auto&&...) { return narrow(q) && k.dim(2) > 96; }), 150},
    {"a state", "bfloat16",
     larger([](auto& q, auto& k, auto&&...) { return narrow(q) && q.dim(2) == 1 && k.dim(2) > 40; })},
    {"three sequences", "combinations", larger([](auto& q, auto&&...) { return narrow(q) && q.dim(0) == 3; })},
    {"an odd number of heads", "combinations",
     larger([](auto& q, auto&&...) { return narrow(q) && q.dim(1) % 2 == 1; })},
};

}  // namespace

TEST_CASE("conformance zoo: what is wrong in bfloat16 alone") { find<Fused>(kBfloat16); }
