// Each check of the conformance kit finds a wrong mechanism that no other check finds: with one check less, it would
// pass. Wrong mechanisms by kind: conformance_zoo_*_test.cpp.
#include <heed/heed.hpp>

#include "tests/layers/conformance_zoo.hpp"
#include "tests/layers/hooked_attention.hpp"
#include "tests/layers/naive_mechanisms.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

// What the output is raised by, of the queries.
auto factor(std::function<double(const Tensor& y)> f) {
  return outputs([f](const Tensor& y, const Tensor&, const Call&) { return y * f(y); });
}

// In the order of the checks.
const std::vector<Fault<Hooks>> kFoundByOne = {
    {"no gradient for k where q wants none", "gradient",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call&) {
         if (!wants_gradient({q})) k = k.detach();
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
     [](Hooks& h) { h.told = [](const Tensor& w, const Call&) { return flip(w, {1}); }; }},
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
     outputs([](const Tensor& y, const Tensor&, const Call&) { return y.dim(3) > 64 ? scaled_from(y, 3, 64, 0) : y; })},
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
     [](Hooks& h) {
       h.state = [] { return AttentionState(SharedState{}); };
     }},
    {"more than two rows, in another order", "state rows", wrong_state({.pick = [](const Tensor& rows) {
       return rows.numel() > 2 ? rolled(rows) : rows;
     }})},
    {"key lengths of another row", "ragged state", wrong_state({.take = [](Call& call) {
       if (call.key_lengths.defined()) call.key_lengths = rolled(call.key_lengths);
     }})},
    {"a state names its keys, and not its lengths", "state resumed",
     [](Hooks& h) {
       h.state = [] { return AttentionState(UncountedState{}); };
     }},
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

TEST_CASE("conformance zoo: the mechanism without a fault passes, at several seeds") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    check_fails<Hooked, Hooks>(
        {"no fault", "", {}},
        {.longest = seed == 1 ? 600 : 150, .seed = seed, .reference = naive_mechanism("softmax", {})}, {});
  }
}

TEST_CASE("conformance zoo: each check finds what no other check finds") {
  std::vector<std::string> proved;
  for (const Fault<Hooks>& fault : kFoundByOne) {
    proved.emplace_back(fault.check);
    ConformanceOptions options{.longest = fault.longest};
    if (proved.back() == "reference") options.reference = naive_mechanism("softmax", {});
    check_fails<Hooked>(fault, options, {fault.check});
  }
  // What is not declared AttentionMechanism refuses, whatever the mechanism: only what contradicts itself fails
  // "refuses", and that fails others too.
  proved.emplace_back("refuses");
  CHECK(proved == conformance_checks());
}
