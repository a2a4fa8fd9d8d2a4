// Wrong mechanisms: linear attention, whose faults are in its features, its norm and its prefix sums.
#include <heed/heed.hpp>

#include "tests/layers/conformance_zoo.hpp"
#include "tests/layers/hooked_linear.hpp"
#include "tests/layers/naive_mechanisms.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

auto features(decltype(LinearHooks::features) f) {
  return [f](LinearHooks& h) { h.features = f; };
}
auto carried(decltype(LinearHooks::carried) f) {
  return [f](LinearHooks& h) { h.carried = f; };
}
auto kept(decltype(LinearHooks::kept) f) {
  return [f](LinearHooks& h) { h.kept = f; };
}
auto divisor(decltype(LinearHooks::divisor) f) {
  return [f](LinearHooks& h) { h.divisor = f; };
}
auto set(auto LinearHooks::*member, auto value) {
  return [=](LinearHooks& h) { h.*member = value; };
}
Tensor as_it_is(const Tensor& x) { return x; }
Tensor exponential(const Tensor& x) { return exp(x); }
Tensor positive_part(const Tensor& x) { return maximum(x, 0.0); }

const std::vector<Fault<LinearHooks>> kLinearFeatures = {
    {"features of keys alone", "reference", [](LinearHooks& h) { h.query = as_it_is; }},
    {"features of queries alone", "reference", [](LinearHooks& h) { h.key = as_it_is; }},
    {"features of keys twice", "reference",
     [](LinearHooks& h) { h.key = [](const Tensor& x) { return elu_feature(elu_feature(x)); }; }},
    {"features of keys by a softmax over the positions", "causal",
     [](LinearHooks& h) { h.key = [](const Tensor& x) { return softmax(x, 2); }; }},
    {"features of keys by a maximum over the positions", "causal",
     [](LinearHooks& h) {
       h.key = [](const Tensor& x) { return x.dim(2) == 0 ? x : exp(x - max(x, {2}, true).detach()); };
     }},
    {"exp without a maximum", "spread", [](LinearHooks& h) { h.query = h.key = exponential; }},
    {"features of two heads are mixed", "sizes",
     [](LinearHooks& h) { h.key = [](const Tensor& x) { return elu_feature(x) + mean(x, {1}, true) * 1e-6; }; }},
    {"heads that share keys, in the other order", "grouped",
     [](LinearHooks& h) {
       h.repeat = [](const Tensor& x, Index heads) {
         return x.dim(1) == heads ? x : repeat(x, {1, heads / x.dim(1), 1, 1});
       };
     }},
    {"all pairs in memory", "cost",
     [](LinearHooks& h) {
       h.inputs = [](Tensor& q, Tensor& k, Tensor&, Call&) {
         if (q.dim(1) == k.dim(1)) q = q + sum(matmul(q, k.t()), {3}, true) * 0.0;
       };
     },
     1000},
};

const std::vector<Fault<LinearHooks>> kLinearNorm = {
    {"nothing is added to the norm", "empty rows", divisor(as_it_is)},
    {"nothing is added to the norm of features that may be 0", "zero vectors",
     [](LinearHooks& h) { h.query = h.key = positive_part, h.divisor = as_it_is; }},
    {"0.01 is added to the norm", "reference", divisor([](const Tensor& norm) { return norm + 0.01; })},
    {"the norm is at least 200", "rows sum to one", divisor([](const Tensor& norm) { return maximum(norm, 200.0); })},
    {"no gradient through the norm", "gradient", divisor([](const Tensor& norm) { return norm.detach() + 1e-6; })},
    {"no gradient through the keys of the norm", "gradient",
     features([](Tensor&, Tensor& norm, auto&&...) { norm = norm.detach(); })},
    {"no gradient through the keys of the numerator", "gradient",
     features([](Tensor& numerator, auto&&...) { numerator = numerator.detach(); })},
    {"padding in the norm alone", "padding",
     features([](Tensor&, Tensor& norm, Tensor&, const Tensor& k, auto&&...) { norm = elu_feature(k); })},
    {"padding in the norm as the feature of 0", "padding",
     features([](Tensor&, Tensor& norm, Tensor&, const Tensor& k, const Tensor&, const Call& call) {
       norm = elu_feature(without_padding(k, call));
     })},
    {"padding in the norm where it is causal", "rows sum to one",
     features([](Tensor&, Tensor& norm, Tensor&, const Tensor& k, const Tensor&, const Call& call) {
       if (call.causal) norm = elu_feature(without_padding(k, call));
     })},
    {"padding in the numerator alone", "padding",
     features([](Tensor& numerator, Tensor&, Tensor& values, const Tensor& k, const Tensor& v, const Call&) {
       numerator = elu_feature(k), values = v;
     })},
    {"padding taken away by a product", "padding",
     features([](Tensor& numerator, Tensor& norm, Tensor&, const Tensor& k, const Tensor&, const Call& call) {
       if (masks(call)) numerator = norm = multiplied(elu_feature(k), call);
     })},
};

const std::vector<Fault<LinearHooks>> kLinearSums = {
    {"a chunk sees the sums behind it", "causal",
     set(&LinearHooks::used, [](const LinearSums&, const LinearSums& after) { return after; })},
    {"a chunk sees the norm behind it", "causal",
     set(&LinearHooks::used, [](const LinearSums& before, const LinearSums& after) {
       return LinearSums{before.values, after.keys};
     })},
    {"the next key is seen within a chunk", "causal", set(&LinearHooks::diagonal, 1)},
    {"its own key is not seen within a chunk", "reference", set(&LinearHooks::diagonal, -1)},
    {"the last key of a chunk is not carried", "reference", set(&LinearHooks::left_out, 1)},
    {"the norm begins anew in every chunk", "rows sum to one",
     carried([](LinearSums& sums, Index) { sums.keys = Tensor::zeros(sums.keys.shape(), sums.keys.dtype()); })},
    {"an epsilon for every chunk", "reference",
     carried([](LinearSums& sums, Index) { sums.keys = sums.keys + 1e-4; })},
    {"sums go on in the next sequence", "batch",
     carried([](LinearSums& sums, Index) {
       const Index batch = sums.values.dim(0);
       if (batch < 2) return;
       const Tensor& x = sums.values;
       sums.values = x + concatenate({x.slice(0, 0, 1) * 0.0, x.slice(0, 0, batch - 1)}, 0);
     })},
    {"one norm for all heads", "sizes",
     carried([](LinearSums& sums, Index) { sums.keys = sums.keys * 0.0 + mean(sums.keys, {1}, true); })},
    {"no gradient through the sums", "direction",
     carried([](LinearSums& sums, Index) { sums = {sums.values.detach(), sums.keys.detach()}; }), 130},
    {"no gradient through the norm of earlier chunks", "direction",
     carried([](LinearSums& sums, Index) { sums.keys = sums.keys.detach(); }), 130},
    {"sums in bfloat16", "lengths",
     carried([](LinearSums& sums, Index) {
       if (sums.values.dtype() == DType::float32) sums.values = in_bfloat16(sums.values);
     }),
     500},
    {"float64 has sums in float32", "direction",
     carried([](LinearSums& sums, Index) { sums.values = in_float32(sums.values); }), 130},
    {"sums begin anew after 512 positions", "state",
     carried([](LinearSums& sums, Index end) {
       if (end == 512) sums = {sums.values * 0.0, sums.keys * 0.0};
     }),
     600},
    {"the beginnings are aligned where T < S", "cross lengths",
     set(&LinearHooks::ahead, [](Index T, Index S) { return std::min<Index>(0, S - T); })},
    {"sums of the last call", "calls",
     [](LinearHooks& h) {
       h.carried = [last = std::make_shared<Tensor>()](LinearSums& sums, Index) {
         if (last->defined() && last->shape() == sums.values.shape() && last->dtype() == sums.values.dtype())
           sums.values = sums.values + *last * 1e-9;
         *last = sums.values.detach().clone();
       };
     }},
};

const std::vector<Fault<LinearHooks>> kLinearStates = {
    {"a state drops the token at position 64", "state",
     kept([](LinearSums& sums, const LinearSums& before, Index seen) {
       if (seen == 65) sums = before;
     })},
    {"a state fades", "state",
     kept([](LinearSums& sums, auto&&...) { sums = {sums.values * 0.999, sums.keys * 0.999}; })},
    {"the norm of a state fades", "state", kept([](LinearSums& sums, auto&&...) { sums.keys = sums.keys * 0.999; })},
    {"a state in float32", "state", kept([](LinearSums& sums, auto&&...) { sums.values = in_float32(sums.values); })},
    {"a state in bfloat16", "state",
     kept([](LinearSums& sums, auto&&...) {
       if (sums.values.dtype() == DType::float32) sums.values = in_bfloat16(sums.values);
     })},
    {"a state for all sequences", "state",
     kept([](LinearSums& sums, auto&&...) { sums.values = sums.values * 0.0 + mean(sums.values, {0}, true); })},
    {"tokens that a state gets at once see one another", "state", set(&LinearHooks::diagonal_of_state, 100)},
    {"a state forgets a chunk that is not full", "state",
     kept([](LinearSums& sums, const LinearSums& before, Index seen) {
       if (seen % 7 == 0 && seen % 16 != 0) sums.keys = before.keys;
     })},
    {"padding enters the sums of a state", "ragged state",
     set(&LinearHooks::of_state, [](Call& new_keys) { new_keys = {}; })},
    {"the last key of each row is padding for a state", "ragged state",
     set(&LinearHooks::of_state,
         [](Call& new_keys) {
           if (new_keys.key_lengths.defined()) new_keys.key_lengths = new_keys.key_lengths - (new_keys.key_lengths > 1).to(DType::int32);
         })},
    {"a state does not name its norm", "state resumed", set(&LinearHooks::state_names_norm, false)},
};

const ConformanceOptions kWithReference{.reference = naive_mechanism("linear", {})};

}  // namespace

TEST_CASE("conformance zoo: linear attention without a fault passes, at several seeds") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    ConformanceOptions options = kWithReference;
    options.longest = seed == 1 ? 1000 : 150, options.seed = seed;
    check_fails<HookedLinear, LinearHooks>({"no fault", "", {}}, options, {});
  }
}
TEST_CASE("conformance zoo: features of linear attention") { find<HookedLinear>(kLinearFeatures, kWithReference); }
TEST_CASE("conformance zoo: the norm of linear attention") { find<HookedLinear>(kLinearNorm, kWithReference); }
TEST_CASE("conformance zoo: prefix sums of linear attention") { find<HookedLinear>(kLinearSums, kWithReference); }
TEST_CASE("conformance zoo: states of linear attention") { find<HookedLinear>(kLinearStates, kWithReference); }
