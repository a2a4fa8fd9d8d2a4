// Wrong mechanisms with faults in mapped keys only.
#include <heed/heed.hpp>

#include "tests/layers/attention/faults.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

auto mapped(const std::function<void(Tensor& q, Tensor& k, Tensor& v, Call& c)>& f) {
  return [f](FusedHooks& h) { h.mapped = f; };
}

const std::vector<Fault<FusedHooks>> kMapped = {
    {"keys three times", "mapped keys",
     [](FusedHooks& h) { h.map = [](const Tensor& k, const Call&) { return k * 3.0; }; }},
    {"no gradient of keys", "mapped keys",
     [](FusedHooks& h) { h.map = [](const Tensor& k, const Call&) { return k.detach(); }; }},
    {"keys of the first head", "mapped keys",
     [](FusedHooks& h) {
       h.map = [](const Tensor& k, const Call&) {
         return k.dim(1) == 2 ? k.slice(1, 0, 1).expand(k.shape()).contiguous() : k;
       };
     }},
    {"keys of few bits in float32", "mapped keys",
     [](FusedHooks& h) {
       h.map = [](const Tensor& k, const Call&) { return k.dtype() == DType::float32 ? in_bfloat16(k) : k; };
     }},
    {"keys beyond 64 are 0", "mapped keys",
     [](FusedHooks& h) { h.map = [](const Tensor& k, const Call&) { return scaled_from(k, 2, 64, 0); }; }, 150},
    {"no lengths", "mapped keys", mapped(no_lengths)},
    {"no mask", "mapped keys", mapped(no_mask)},
    {"no bias", "mapped keys", mapped(no_bias)},
    {"not causal where T < S", "mapped keys", mapped([](Tensor& q, Tensor& k, Tensor&, Call& c) {
       if (q.dim(2) < k.dim(2)) c.causal = false;
     })},
    {"values of one head", "mapped keys", mapped([](Tensor&, Tensor&, Tensor& v, Call&) {
       if (v.dim(1) == 2) v = v.slice(1, 1, 2).expand(v.shape()).contiguous();
     })},
    {"values of few bits in bfloat16", "mapped keys", mapped([](Tensor&, Tensor&, Tensor& v, Call&) {
       if (narrow(v)) v = scaled(v, 1.05);
     })},
    {"rows that were picked", "mapped keys", mapped([](Tensor& q, Tensor&, Tensor& v, Call&) {
       if (q.dim(0) == 3) v = flip(v, {0});
     })},
};

}  // namespace

TEST_CASE("conformance zoo: what is wrong with mapped keys alone") { find<Fused>(kMapped); }
