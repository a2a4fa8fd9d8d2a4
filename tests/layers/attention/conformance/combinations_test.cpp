// Wrong mechanisms with faults under two conditions together, with memory layouts, or in memory that they write to.
#include <heed/heed.hpp>

#include "tests/layers/attention/faults.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

const std::vector<Fault<FusedHooks>> kPairs = {
    {"T > S, causal, with shared heads", "combinations",
     larger([](auto& q, auto& k, auto&, auto& c) { return c.causal && q.dim(2) > k.dim(2) && shares(q, k); })},
    {"T < S, causal, with a key mask", "combinations",
     where_it_is(
         [](auto& q, auto& k, auto&, auto& c) { return c.causal && q.dim(2) < k.dim(2) && c.key_mask.defined(); },
         [](Tensor&, Tensor&, Tensor&, Call& c) { c.key_mask = {}; })},
    {"NaN in padding where T is not S, with shared heads", "combinations",
     [](FusedHooks& h) {
       h.output = [](const Tensor& y, const Tensor& q, const Tensor& v, const Call& c) {
         return masks(c) && q.dim(2) != v.dim(2) && q.dim(1) != v.dim(1) && q.dtype() != DType::bfloat16
                    ? y + sum(v.detach() * 0.0)
                    : y;
       };
     }},
    {"lengths, a key mask and a mask without causal", "combinations",
     where_it_is(
         [](auto&, auto&, auto&, auto& c) {
           return !c.causal && c.key_lengths.defined() && c.key_mask.defined() && c.mask.defined();
         },
         no_mask)},
    {"lengths and a bias without causal", "combinations",
     where_it_is([](auto&, auto&, auto&, auto& c) { return !c.causal && c.key_lengths.defined() && c.bias.defined(); },
                 no_bias)},
    {"the last of an odd number of heads", "combinations",
     [](FusedHooks& h) {
       h.output = [](const Tensor& y, const Tensor&, const Tensor&, const Call& c) {
         return y.dim(1) % 2 == 1 && c.mask.defined() && y.dtype() != DType::bfloat16
                    ? scaled_from(y, 1, y.dim(1) - 1, 1.1)
                    : y;
       };
     }},
    {"the last 8 of 40", "sizes",
     where_it_is([](auto& q, auto&&...) { return q.dim(3) == 40 && q.dtype() == DType::float32; },
                 [](Tensor& q, Tensor&, Tensor&, Call&) { q = scaled_from(q, 3, 32, 0); })},
    {"float32 of a size of 96", "sizes",
     where_it_is([](auto& q, auto&&...) { return q.dim(3) == 96 && q.dtype() == DType::float32; },
                 [](Tensor& q, Tensor&, Tensor&, Call&) { q = in_bfloat16(q); })},
    {"the gradient of a size of 100", "sizes", gradient('k', 0.9, [](auto& q, auto&&...) { return q.dim(3) == 100; })},
    {"values of 100 with lengths", "combinations",
     where_it_is([](auto&, auto&, auto& v, auto& c) { return v.dim(3) == 100 && c.key_lengths.defined(); },
                 no_lengths)},
    {"five sequences", "combinations",
     [](FusedHooks& h) {
       h.output = [](const Tensor& y, const Tensor&, const Tensor&, const Call&) {
         return y.dim(0) > 4 && y.dtype() != DType::bfloat16 ? scaled_from(y, 0, 4, 0.9) : y;
       };
     }},
    {"threads with a mask", "combinations",
     larger([](auto&, auto&, auto&, auto& c) { return c.mask.defined() && threads() == 3; })},
    {"threads where heads are shared", "combinations",
     larger([](auto& q, auto& k, auto&&...) { return shares(q, k) && threads() > 2; })},
    {"float64 is float32 with a mask where T < S", "combinations",
     where_it_is([](auto& q, auto& k, auto&,
                    auto& c) { return q.dtype() == DType::float64 && c.mask.defined() && q.dim(2) < k.dim(2); },
                 [](Tensor& q, Tensor&, Tensor&, Call&) { q = in_float32(q * 1.1) / 1.1; })},
    {"float32 with a bias where T > S", "combinations",
     where_it_is([](auto& q, auto& k, auto&,
                    auto& c) { return q.dtype() == DType::float32 && c.bias.defined() && q.dim(2) > k.dim(2); },
                 [](Tensor& q, Tensor&, Tensor&, Call&) { q = in_bfloat16(q); })},
    {"one query with a mask of heads", "combinations",
     where_it_is([](auto& q, auto& k, auto&,
                    auto& c) { return q.dim(2) == 1 && k.dim(2) > 1 && c.mask.defined() && c.mask.rank() == 3; },
                 no_mask)},
    {"a bias of all four axes where heads are shared", "combinations",
     where_it_is([](auto& q, auto& k, auto&,
                    auto& c) { return shares(q, k) && c.bias.defined() && c.bias.rank() == 4 && c.bias.dim(1) > 1; },
                 no_bias)},
    {"causal where only keys want a gradient", "combinations",
     where_it_is([](auto& q, auto& k, auto& v,
                    auto&) { return needs_gradient({k}) && !needs_gradient({q}) && !needs_gradient({v}); },
                 not_causal)},
    {"the gradient of a bias where q wants none", "gradient",
     where_it_is([](auto& q, auto&, auto&, auto& c) { return c.bias.defined() && !needs_gradient({q}); },
                 [](Tensor&, Tensor&, Tensor&, Call& c) { c.bias = c.bias.detach(); })},
    {"the gradient of a bias alone, with lengths", "combinations",
     where_it_is(
         [](auto& q, auto&, auto&, auto& c) {
           return c.bias.defined() && c.key_lengths.defined() && !needs_gradient({q});
         },
         [](Tensor&, Tensor&, Tensor&, Call& c) { c.bias = regrad(c.bias, [](const Tensor& d) { return d * 0.5; }); })},
    {"the gradient of v where only it is wanted, causal", "combinations",
     gradient(
         'v', 0.9,
         [](auto& q, auto&, auto& v, auto& c) { return c.causal && needs_gradient({v}) && !needs_gradient({q}); })},
    {"the gradient of k with infinities in padding of v", "combinations",
     [](FusedHooks& h) {
       h.inputs = [](Tensor& q, Tensor& k, Tensor& v, Call& c) {
         if (masks(c) && q.dim(2) == 1 && q.dtype() != DType::bfloat16) k = k + sum(v.detach() * 0.0).to(k.dtype());
       };
     }},
};

const std::vector<Fault<FusedHooks>> kLayouts = {
    {"a mask whose last stride is not 1", "combinations",
     where_it_is([](auto&, auto&, auto&, auto& c) { return c.mask.defined() && last_strided(c.mask); },
                 [](Tensor&, Tensor&, Tensor&, Call& c) { c.mask = as_stored(c.mask); })},
    {"lengths whose stride is not 1", "combinations",
     where_it_is([](auto&, auto&, auto&, auto& c) { return c.key_lengths.defined() && last_strided(c.key_lengths); },
                 [](Tensor&, Tensor&, Tensor&, Call& c) { c.key_lengths = as_stored(c.key_lengths); })},
    {"a transposed key mask", "combinations",
     where_it_is([](auto&, auto&, auto&,
                    auto& c) { return c.key_mask.defined() && last_strided(c.key_mask) && c.key_mask.dim(0) > 1; },
                 [](Tensor&, Tensor&, Tensor&, Call& c) { c.key_mask = as_stored(c.key_mask); })},
    {"a bias whose last stride is not 1", "combinations",
     where_it_is([](auto&, auto&, auto&, auto& c) { return c.bias.defined() && last_strided(c.bias); },
                 [](Tensor&, Tensor&, Tensor&, Call& c) { c.bias = as_stored(c.bias); })},
    {"keys whose last stride is not 1", "combinations",
     where_it_is([](auto&, auto& k, auto&&...) { return last_strided(k); },
                 [](Tensor&, Tensor& k, Tensor&, Call&) { k = k + as_stored(k).detach() * 0.1; })},
    {"values with heads side by side with lengths", "combinations",
     where_it_is(
         [](auto&, auto&, auto& v, auto& c) {
           return c.key_lengths.defined() && v.dim(1) > 1 && v.dim(2) > 1 && v.strides()[1] < v.strides()[2];
         },
         no_lengths)},
    {"queries that are broadcast, with a mask", "combinations",
     where_it_is([](auto& q, auto&, auto&, auto& c) { return c.mask.defined() && q.dim(0) > 1 && q.strides()[0] == 0; },
                 no_mask)},
};

// Replaces values that are not finite by 0 in the memory of the caller.
void clean(const Tensor& x) {
  Tensor own = x.detach();
  if (x.dtype() != DType::bfloat16) own.copy_(where(isfinite(own), own, 0.0));
}

const std::vector<Fault<FusedHooks>> kWritten = {
    {"NaN of the caller's keys become 0", "combinations",
     where_it_is([](auto&, auto&, auto&, auto& c) { return masks(c); },
                 [](Tensor&, Tensor& k, Tensor&, Call&) {
                   if (!needs_gradient({k})) clean(k);
                 })},
    {"NaN of the caller's values become 0 where heads are shared", "combinations",
     where_it_is([](auto& q, auto& k, auto&, auto& c) { return masks(c) && shares(q, k); },
                 [](Tensor&, Tensor&, Tensor& v, Call&) {
                   if (!needs_gradient({v})) clean(v);
                 })},
    {"the caller's lengths are cut to the keys that are seen", "combinations",
     where_it_is(
         [](auto& q, auto& k, auto&, auto& c) { return c.causal && c.key_lengths.defined() && q.dim(2) > k.dim(2); },
         [](Tensor&, Tensor&, Tensor&, Call& c) { c.key_lengths.fill_(1); })},
    {"what lies between the elements of q", "combinations",
     where_it_is([](auto& q, auto&&...) { return last_strided(q) && q.strides()[3] == 2 && !needs_gradient({q}); },
                 [](Tensor& q, Tensor&, Tensor&, Call&) {
                   Tensor between = q.detach().as_strided(q.shape(), q.strides(), q.offset() + 1);
                   between.fill_(0);
                 })},
    {"the output is v where there is one key", "calls",
     [](FusedHooks& h) {
       h.output = [](const Tensor& y, const Tensor& q, const Tensor& v, const Call& c) {
         return v.dim(2) == 1 && q.dim(2) == 1 && v.dim(1) == q.dim(1) && !masks(c) && !c.mask.defined() ? v : y;
       };
     }},
    {"the first call of float64 beyond 40 positions with a bias", "combinations",
     [](FusedHooks& h) {
       h.output = [seen = std::make_shared<bool>(false)](const Tensor& y, const Tensor& q, const Tensor&,
                                                         const Call& c) {
         if (q.dtype() != DType::float64 || q.dim(2) <= 40 || !c.bias.defined()) return y;
         const bool again = std::exchange(*seen, true);
         return again ? y : y * 1.01;
       };
     }},
};

}  // namespace

TEST_CASE("conformance zoo: two conditions together") { find<Fused>(kPairs); }
TEST_CASE("conformance zoo: layouts in memory") { find<Fused>(kLayouts); }
TEST_CASE("conformance zoo: memory that is written to or shared") { find<Fused>(kWritten); }
