// Wrong mechanisms with faults at many positions, at few positions, or at the first position.
#include <heed/heed.hpp>

#include "tests/layers/attention/faults.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

auto always = [](auto&&...) { return true; };

const std::vector<Fault<FusedHooks>> kFar = {
    {"the mask of keys beyond 128", "borders",
     where_it_is(always,
                 [](Tensor&, Tensor&, Tensor&, Call& c) {
                   if (c.mask.defined()) c.mask = open_from(c.mask, 128);
                 }),
     300},
    {"the key mask of keys beyond 192", "combinations",
     where_it_is(always,
                 [](Tensor&, Tensor&, Tensor&, Call& c) {
                   if (c.key_mask.defined()) c.key_mask = open_from(c.key_mask, 192);
                 }),
     300},
    {"lengths beyond 96 are rounded to 16", "borders",
     where_it_is(always,
                 [](Tensor&, Tensor& k, Tensor&, Call& c) {
                   if (!c.key_lengths.defined()) return;
                   c.key_lengths = c.key_lengths.dense().clone();
                   for (Index b = 0; b < k.dim(0); ++b)
                     if (std::int32_t& n = c.key_lengths.ptr<std::int32_t>()[b]; n > 96)
                       n = static_cast<std::int32_t>(std::min<Index>(k.dim(2), (n + 15) / 16 * 16));
                 }),
     300},
    {"lengths beyond 128 are 128", "borders",
     where_it_is(always,
                 [](Tensor&, Tensor& k, Tensor&, Call& c) {
                   if (!c.key_lengths.defined()) return;
                   c.key_lengths = c.key_lengths.dense().clone();
                   for (Index b = 0; b < k.dim(0); ++b)
                     if (std::int32_t& n = c.key_lengths.ptr<std::int32_t>()[b]; n > 128) n = 128;
                 }),
     300},
    {"the mask of row 99 for later ones", "borders",
     where_it_is(always,
                 [](Tensor&, Tensor&, Tensor&, Call& c) {
                   if (!c.mask.defined() || c.mask.dim(-2) <= 100) return;
                   c.mask = c.mask.dense().clone();
                   for (Index i = 100; i < c.mask.dim(-2); ++i)
                     c.mask.slice(-2, i, i + 1).copy_(c.mask.slice(-2, 99, 100));
                 }),
     300},
    {"lengths with more than 96 keys, of the first sequence", "borders",
     where_it_is([](auto&, auto& k, auto&&...) { return k.dim(2) > 96; },
                 [](Tensor&, Tensor&, Tensor&, Call& c) {
                   if (c.key_lengths.defined())
                     c.key_lengths = c.key_lengths.slice(0, 0, 1).expand(c.key_lengths.shape()).contiguous();
                 }),
     300},
    {"the bias beyond 200 keys", "combinations",
     where_it_is(always,
                 [](Tensor&, Tensor&, Tensor&, Call& c) {
                   if (c.bias.defined() && c.bias.dim(-1) > 200)
                     c.bias = concatenate({c.bias.slice(-1, 0, 200), c.bias.slice(-1, 200, c.bias.dim(-1)) * 0.0}, -1);
                 }),
     300},
    {"a mask is read one key late beyond 150 keys", "borders",
     where_it_is([](auto&, auto& k, auto&&...) { return k.dim(2) > 150; },
                 [](Tensor&, Tensor& k, Tensor&, Call& c) {
                   if (c.mask.defined() && c.mask.dim(-1) > 1)
                     c.mask = concatenate({c.mask.slice(-1, 1, k.dim(2)), c.mask.slice(-1, 0, 1)}, -1);
                 }),
     300},
    {"the last query where T mod 64 is 1", "borders",
     [](FusedHooks& h) {
       h.output = [](const Tensor& y, const Tensor&, const Tensor&, const Call&) {
         return y.dim(2) > 1 && y.dim(2) % 64 == 1 ? scaled_from(y, 2, y.dim(2) - 1, 1.01) : y;
       };
       h.can.bfloat16 = false;
     },
     300},
    {"the last key of a length of 97", "borders",
     where_it_is([](auto&, auto&, auto&, auto& c) { return c.key_lengths.defined(); },
                 [](Tensor&, Tensor& k, Tensor&, Call& c) {
                   c.key_lengths = c.key_lengths.dense().clone();
                   for (Index b = 0; b < k.dim(0); ++b)
                     if (std::int32_t& n = c.key_lengths.ptr<std::int32_t>()[b]; n == 97) n = 96;
                 }),
     300},
};

const std::vector<Fault<FusedHooks>> kPlaces = {
    {"not causal", "causal", where_it_is(always, not_causal), 8},
    {"not causal", "causal", where_it_is(always, not_causal), 3},
    {"the first query of aligned ones", "borders",
     [](FusedHooks& h) {
       h.can = AttentionCapabilities::of_places();
       h.output = [](const Tensor& y, const Tensor&, const Tensor& v, const Call& c) {
         if (y.dim(2) != v.dim(2) || y.dim(2) < 20 || c.key_lengths.defined()) return y;
         return concatenate({y.slice(2, 1, 2), y.slice(2, 1, y.dim(2))}, 2);
       };
     },
     60},
};

}  // namespace

TEST_CASE("conformance zoo: what is wrong beyond 96 positions") { find<Fused>(kFar); }
TEST_CASE("conformance zoo: few positions, and the first of them") { find<Fused>(kPlaces); }
