// The zoo of mechanisms with one fault each (conformance_zoo.hpp): mechanisms without a fault pass, each check finds a
// fault that no other check finds, and the faults of linear attention are found.
#include <algorithm>
#include <heed/heed.hpp>

#include "tests/layers/attention/conformance_zoo.hpp"
#include "tests/layers/attention/faults.hpp"
#include "tests/layers/attention/hooked_attention.hpp"
#include "tests/layers/attention/naive_mechanisms.hpp"
#include "tests/layers/hooked_linear.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

// A fault that multiplies the output y by f(y).
auto factor(std::function<double(const Tensor& y)> f) {
  return outputs([f](const Tensor& y, const Tensor&, const Call&) { return y * f(y); });
}

// One fault per check, in the order of the checks.
const std::vector<Fault<Hooks>> kFoundByOne = {
    {"no gradient for k where q wants none", "gradient",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call&) {
         if (!needs_gradient({q})) k = k.detach();
       });
     }},
    {"the gradient of q at the last of 130 positions", "direction",
     gradient_of('q', [](const Tensor& d) { return scaled_from(d, 2, 129, 0); }), 130},
    {"130 positions have another temperature", "reference",
     [](Hooks& h) {
       h.scores = [](const Tensor& s, const Call&) { return s.dim(2) == 130 && s.dim(3) == 130 ? s * 1.01 : s; };
     },
     150},
    {"weights are told of other heads", "weights",
     [](Hooks& h) { h.reported = [](const Tensor& w, const Call&) { return flip(w, {1}); }; }},
    {"any bias loses the scale", "masks",
     [](Hooks& h) { h.scores = [](const Tensor& s, const Call& call) { return call.bias.defined() ? s * 1.5 : s; }; }},
    {"a trace of later values beyond 200 positions", "causal",
     outputs([](const Tensor& y, const Tensor& v, const Call& c) {
       return c.causal && v.dim(2) > 200 ? y + mean(v, {2, 1}, true).detach() * 1e-13 : y;
     }),
     600},
    {"infinities in padding are replaced, NaN is not", "padding",
     [](Hooks& h) {
       h.can.state = false;
       h.values = [](const Tensor& v, const Call& c) {
         return masks(c) ? multiplied(where(logical_or(isfinite(v), isnan(v)), v, 0.0), c) : v;
       };
     }},
    {"sums are divided by the number of all keys, though later ones are hidden", "rows sum to one",
     [](Hooks& h) {
       h.can = {.causal = true};
       h.output = [](const Tensor& y, const Tensor&, const Call& c) {
         const Index n = y.dim(2);
         return c.causal && n > 0 ? y * mean(tril(Tensor::ones({n, n}, y.dtype())), {1}, true) : y;
       };
     }},
    {"a length and a key mask that together leave no key", "empty rows",
     [](Hooks& h) {
       h.can = {.causal = true, .key_mask = true, .grouped = true};
       h.output = [](const Tensor& y, const Tensor&, const Call& c) {
         return c.key_lengths.defined() && c.key_mask.defined()
                    ? where(eq(sum(abs(y.detach()), {-1}, true), 0), 1e-3, y)
                    : y;
       };
     }},
    {"the middles are aligned where T < S", "cross lengths",
     [](Hooks& h) {
       h.can = {.causal = true, .cross = true};
       sees([](bool was, Index i, Index j, Index T, Index S) { return T < S ? j <= i + (S - T) / 2 : was; })(h);
     }},
    {"heads that share keys forget the bias", "grouped",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call& c) {
         if (k.dim(1) < q.dim(1)) c.bias = {};
       });
     }},
    {"strides of 0 are read in order", "views",
     [](Hooks& h) {
       inputs(h, [](Tensor&, Tensor&, Tensor& v, Call&) {
         if (v.strides()[0] == 0 && v.dim(0) > 1) v = flip(v, {2});
       });
     }},
    {"columns of v beyond 64 are 0", "batch",
     [](Hooks& h) {
       h.can.dropout = false;
       h.output = [](const Tensor& y, const Tensor&, const Call&) {
         return y.dim(3) > 64 ? scaled_from(y, 3, 64, 0) : y;
       };
     }},
    {"heads beyond 8 are the first", "sizes", outputs([](const Tensor& y, const Tensor&, const Call&) {
       return y.dim(1) > 8 ? concatenate({y.slice(1, 0, 8), y.slice(1, 0, y.dim(1) - 8)}, 1) : y;
     })},
    {"the gradient of the length of a zero vector", "zero vectors",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor&, Tensor&, Call&) {
         const Tensor squares = sum(q * q, {-1}, true);
         q = q * (pow(squares, 0.5) * 0.1 + 1.0);
       });
     }},
    {"no keys give NaN", "empty tensors",
     outputs([](const Tensor& y, const Tensor& v, const Call&) { return v.dim(2) == 0 ? y + NAN : y; })},
    {"dropout has one mask for all heads", "dropout",
     [](Hooks& h) { h.drop = [](const Tensor& w, double p) { return keep_some(w, p, w.shape().with(1, 1)); }; }},
    {"one output for all calls", "calls",
     [](Hooks& h) {
       h.can.state = false;
       h.output = [last = std::make_shared<Tensor>()](const Tensor& y, const Tensor&, const Call&) {
         if (is_training()) return y;
         if (!last->defined() || last->shape() != y.shape() || last->dtype() != y.dtype())
           *last = Tensor::empty_like(y);
         last->copy_(y.detach());
         return *last;
       };
     }},
    {"documents are not read", "documents",
     [](Hooks& h) {
       h.can.documents = true;
       inputs(h, [](Tensor&, Tensor&, Tensor&, Call& c) { c.documents = {}; });
     }},
    {"a state shifts the bias of more than 60 keys", "state",
     [](Hooks& h) {
       h.step = [](In q, In k, In v, Call call) {
         const Tensor bias = call.bias;
         const Index S = k.dim(2);
         if (bias.defined() && S > 60) call.bias = concatenate({bias.slice(-1, 1, S), bias.slice(-1, 0, 1)}, -1);
         return Hooked{}.apply(q, k, v, call);
       };
     }},
    {"a copy of a state shares what it keeps", "state copies",
     [](Hooks& h) { h.state = [] { return AttentionState(SharedState{}); }; }},
    {"more than two rows, in another order", "state rows",
     wrong_state({.pick = [](const Tensor& rows) { return rows.numel() > 2 ? rolled(rows) : rows; }})},
    {"key lengths of another row", "ragged state",
     wrong_state({.take =
                      [](Call& call) {
                        if (call.key_lengths.defined()) call.key_lengths = rolled(call.key_lengths);
                      }})},
    {"a state names its keys, and not its lengths", "state resumed",
     [](Hooks& h) { h.state = [] { return AttentionState(UncountedState{}); }; }},
    {"float32 at 63 positions", "lengths",
     factor([](const Tensor& y) { return y.dtype() == DType::float32 && y.dim(2) == 63 ? 0.99 : 1.0; })},
    {"scores beyond 100 are cut in float32", "spread",
     [](Hooks& h) {
       h.scores = [](const Tensor& s, const Call&) { return s.dtype() == DType::float32 ? minimum(s, 100.0) : s; };
     }},
    {"bfloat16 where heads share keys", "float32",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call&) {
         if (q.dim(1) > k.dim(1) && k.dtype() == DType::float32) k = in_bfloat16(k);
       });
     }},
    {"the number of threads shows in float32", "threads",
     factor([](const Tensor& y) { return y.dtype() == DType::float32 ? 1 + 1e-6 * threads() : 1.0; })},
    {"a name of two lines", "members", [](Hooks& h) { h.name = "my\nattention"; }},
    {"a cost that falls", "cost",
     [](Hooks& h) { h.cost = [](Index n, Index) { return 1e6 / static_cast<double>(n); }; }},
};

}  // namespace

RELEASE_TEST_CASE("conformance zoo: the fused op passes, with bfloat16 and mapped keys") {
  check_fails<Fused, FusedHooks>({"no fault", "", {}}, {.longest = 700}, {});
}

RELEASE_TEST_CASE("conformance zoo: the mechanism without a fault passes, at several seeds") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    if (!is_taken(static_cast<long>(seed) - 1, 3)) continue;
    check_fails<Hooked, Hooks>(
        {"no fault", "", {}},
        {.longest = seed == 1 ? 600 : 150, .seed = seed, .reference = naive_mechanism("softmax", {})}, {});
  }
}

TEST_CASE("conformance zoo: queries whose place counts, though the mechanism does not say so") {
  const auto warmer_by_place = [](Hooks& h) {
    h.can = {.cross = true};
    h.scores = [](const Tensor& s, const Call&) {
      const Tensor places = Tensor::arange(s.dim(2)).to(s.dtype()) + static_cast<double>(s.dim(3) - s.dim(2));
      return s * (places * 0.01 + 1.0).unsqueeze(1);
    };
  };
  check_fails<Hooked, Hooks>({"places count", "cross lengths", warmer_by_place}, {.longest = 100}, {"cross lengths"});
}

TEST_CASE("conformance zoo: each check finds what no other check finds") {
  std::vector<std::string> proved;
  for (const Fault<Hooks>& fault : kFoundByOne) {
    proved.emplace_back(fault.check);
    if (!is_taken(static_cast<long>(proved.size()), 4)) continue;
    ConformanceOptions options{.longest = fault.longest};
    if (kSanitized) options.only = {fault.check};  // the other checks give the same in every build
    if (proved.back() == "reference") options.reference = naive_mechanism("softmax", {});
    check_fails<Hooked>(fault, options, {fault.check});
  }
  for (const Fault<FusedHooks>& fault : kFoundByOneOfFused) {
    proved.emplace_back(fault.check);
    if (!is_taken(static_cast<long>(proved.size()), 4)) continue;
    ConformanceOptions options{.longest = fault.longest};
    if (kSanitized) options.only = {fault.check};
    check_fails<Fused>(fault, options, {fault.check});
  }
  // AttentionMechanism refuses undeclared features of every mechanism. Only contradictory declarations fail "refuses",
  // and they fail other checks too.
  proved.emplace_back("refuses");
  std::vector<std::string> all = conformance_checks();
  std::sort(proved.begin(), proved.end()), std::sort(all.begin(), all.end());
  CHECK(proved == all);
}

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
    {"a chunk sees the sums after it", "causal",
     set(&LinearHooks::used, [](const LinearSums&, const LinearSums& after) { return after; })},
    {"a chunk sees the norm after it", "causal",
     set(&LinearHooks::used,
         [](const LinearSums& before, const LinearSums& after) {
           return LinearSums{before.values, after.keys};
         })},
    {"the next key is seen within a chunk", "causal", set(&LinearHooks::diagonal, 1)},
    {"its own key is not seen within a chunk", "reference", set(&LinearHooks::diagonal, -1)},
    {"the last key of a chunk is not carried", "reference", set(&LinearHooks::left_out, 1)},
    {"the norm begins anew in every chunk", "rows sum to one",
     carried([](LinearSums& sums, Index) { sums.keys = Tensor::zeros(sums.keys.shape(), sums.keys.dtype()); })},
    {"an epsilon for every chunk", "reference", carried([](LinearSums& sums, Index) { sums.keys = sums.keys + 1e-4; })},
    {"sums go on in the next sequence", "batch", carried([](LinearSums& sums, Index) {
       const Index batch = sums.values.dim(0);
       if (batch < 2) return;
       const Tensor& x = sums.values;
       sums.values = x + concatenate({x.slice(0, 0, 1) * 0.0, x.slice(0, 0, batch - 1)}, 0);
     })},
    {"one norm for all heads", "sizes",
     carried([](LinearSums& sums, Index) { sums.keys = sums.keys * 0.0 + mean(sums.keys, {1}, true); })},
    {"no gradient through the sums", "direction", carried([](LinearSums& sums, Index) {
       sums = {sums.values.detach(), sums.keys.detach()};
     }),
     130},
    {"no gradient through the norm of earlier chunks", "direction",
     carried([](LinearSums& sums, Index) { sums.keys = sums.keys.detach(); }), 130},
    {"sums in bfloat16", "lengths", carried([](LinearSums& sums, Index) {
       if (sums.values.dtype() == DType::float32) sums.values = in_bfloat16(sums.values);
     }),
     500},
    {"float64 has sums in float32", "direction",
     carried([](LinearSums& sums, Index) { sums.values = in_float32(sums.values); }), 130},
    {"sums begin anew after 512 positions", "state", carried([](LinearSums& sums, Index end) {
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
    {"a state fades", "state", kept([](LinearSums& sums, auto&&...) {
       sums = {sums.values * 0.999, sums.keys * 0.999};
     })},
    {"the norm of a state fades", "state", kept([](LinearSums& sums, auto&&...) { sums.keys = sums.keys * 0.999; })},
    {"a state in float32", "state", kept([](LinearSums& sums, auto&&...) { sums.values = in_float32(sums.values); })},
    {"a state in bfloat16", "state", kept([](LinearSums& sums, auto&&...) {
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
           if (new_keys.key_lengths.defined())
             new_keys.key_lengths = new_keys.key_lengths - (new_keys.key_lengths > 1).to(DType::int32);
         })},
    {"a state does not name its norm", "state resumed", set(&LinearHooks::state_names_norm, false)},
};

const ConformanceOptions kWithReference{.reference = naive_mechanism("linear", {})};

}  // namespace

RELEASE_TEST_CASE("conformance zoo: linear attention without a fault passes, at several seeds") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    if (!is_taken(static_cast<long>(seed) - 1, 3)) continue;
    ConformanceOptions options = kWithReference;
    options.longest = seed == 1 ? 1000 : 150, options.seed = seed;
    check_fails<HookedLinear, LinearHooks>({"no fault", "", {}}, options, {});
  }
}

TEST_CASE("conformance zoo: features of linear attention") { find<HookedLinear>(kLinearFeatures, kWithReference); }

TEST_CASE("conformance zoo: the norm of linear attention") { find<HookedLinear>(kLinearNorm, kWithReference); }

TEST_CASE("conformance zoo: prefix sums of linear attention") { find<HookedLinear>(kLinearSums, kWithReference); }

TEST_CASE("conformance zoo: states of linear attention") { find<HookedLinear>(kLinearStates, kWithReference); }
