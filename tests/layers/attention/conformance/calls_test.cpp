// Wrong mechanisms with faults that the checks of calls, weights, states, dropout, declarations and inputs find.
#include <algorithm>
#include <heed/heed.hpp>

#include "tests/layers/attention/conformance_zoo.hpp"
#include "tests/layers/attention/hooked_attention.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using Call = AttentionCall;

const std::vector<Fault<Hooks>> kDropout = {
    {"half the rate", "dropout",
     [](Hooks& h) {
       h.drop = [](const Tensor& w, double p) {
         return w * ge(default_rng().uniform(w.shape()), p / 2).to(w.dtype()) / (1 - p / 2);
       };
     }},
    {"the rate of what is kept", "dropout",
     [](Hooks& h) { h.drop = [](const Tensor& w, double p) { return keep_some(w, 1 - p, w.shape()); }; }},
    {"not raised by 1 / (1 - p)", "dropout",
     [](Hooks& h) { h.drop = [](const Tensor& w, double p) { return keep_some(w, p, w.shape()) * (1 - p); }; }},
    {"one mask for all sequences", "dropout",
     [](Hooks& h) { h.drop = [](const Tensor& w, double p) { return keep_some(w, p, w.shape().with(0, 1)); }; }},
    {"one mask for all queries", "dropout",
     [](Hooks& h) { h.drop = [](const Tensor& w, double p) { return keep_some(w, p, w.shape().with(2, 1)); }; }},
    {"one mask for all keys", "dropout",
     [](Hooks& h) { h.drop = [](const Tensor& w, double p) { return keep_some(w, p, w.shape().with(3, 1)); }; }},
    {"another mask in backward", "dropout",
     [](Hooks& h) {
       inputs(h, [](Tensor&, Tensor&, Tensor& v, Call& c) {
         if (c.dropout > 0 && is_training())
           v = regrad(v, [](const Tensor& d) { return d * ge(Rng(5).uniform(d.shape()), 0.3).to(d.dtype()); });
       });
     }},
    {"of the output, not of the weights", "dropout",
     [](Hooks& h) {
       h.drop = [](const Tensor& w, double) { return w; };
       h.output = [](const Tensor& y, const Tensor&, const Call& c) {
         return c.dropout > 0 && is_training() ? keep_some(y, c.dropout, y.shape()) : y;
       };
     }},
    {"normalised again", "dropout",
     [](Hooks& h) {
       h.drop = [](const Tensor& w, double p) {
         const Tensor left = keep_some(w, p, w.shape());
         return left / (sum(left, {-1}, true) + 1e-9);
       };
     }},
    {"none where it is causal", "dropout", with_changed_call([](Call& c) {
       if (c.causal) c.dropout = 0;
     })},
    {"none with a mask", "dropout", with_changed_call([](Call& c) {
       if (c.mask.defined()) c.dropout = 0;
     })},
    {"none where heads share keys", "dropout",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor& k, Tensor&, Call& c) {
         if (q.dim(1) != k.dim(1)) c.dropout = 0;
       });
     }},
    {"outside of training", "dropout",
     [](Hooks& h) {
       h.weights = [](const Tensor& w, const Call& c) {
         return c.dropout > 0 && !is_training() ? w * (1 - c.dropout) : w;
       };
     }},
};

const std::vector<Fault<Hooks>> kWeights = {
    {"told without the bias", "weights",
     [](Hooks& h) { h.reported = [](const Tensor& w, const Call& c) { return c.bias.defined() ? softmax(w) : w; }; }},
    {"told with T != S the other way round", "weights",
     [](Hooks& h) {
       h.reported = [](const Tensor& w, const Call&) { return w.dim(2) < w.dim(3) ? flip(w, {2}) : w; };
     }},
    {"told of other heads where they share keys", "weights",
     [](Hooks& h) {
       const auto shares = std::make_shared<bool>();
       inputs(h, [shares](Tensor& q, Tensor& k, Tensor&, Call&) { *shares = q.dim(1) != k.dim(1); });
       h.reported = [shares](const Tensor& w, const Call&) { return *shares ? flip(w, {1}) : w; };
     }},
    {"told in an empty row", "weights",
     [](Hooks& h) {
       h.reported = [](const Tensor& w, const Call&) {
         return where(eq(sum(w, {-1}, true), 0), 1 / static_cast<double>(w.dim(3)), w);
       };
     }},
    {"told in float64 always", "weights",
     [](Hooks& h) { h.reported = [](const Tensor& w, const Call&) { return w.to(DType::float64); }; }},
    {"told transposed", "weights",
     [](Hooks& h) { h.reported = [](const Tensor& w, const Call&) { return w.t().contiguous(); }; }},
    {"told before dropout's scale", "weights",
     [](Hooks& h) { h.reported = [](const Tensor& w, const Call&) { return w * 0.9; }; }},
    {"told a little of masked keys", "weights",
     [](Hooks& h) { h.reported = [](const Tensor& w, const Call&) { return maximum(w, 1e-12); }; }},
};

// A fault in the keys visible to a step of a state: f decides whether the query at position i of S sees key j. T is the
// number of queries of the step.
auto state_sees(std::function<bool(Index i, Index j, Index T, Index S)> f) {
  return [f](Hooks& h) {
    h.step = [f](In q, In k, In v, const Call& call) {
      const Index T = q.dim(2), S = k.dim(2);
      Hooks own;
      own.allowed = [=](const Tensor& allowed, const Call&) {
        return decided(allowed, [=](bool was, Index, Index, Index i, Index j) { return was && f(i + S - T, j, T, S); });
      };
      return Hooked{own}.apply(q, k, v, call);
    };
  };
}
auto state_takes(std::function<Tensor(Tensor q, Tensor k, Tensor v, Call call)> f) {
  return [f](Hooks& h) { h.step = [f](In q, In k, In v, const Call& call) { return f(q, k, v, call); }; };
}
Tensor right(const Tensor& q, const Tensor& k, const Tensor& v, const Call& call) {
  return Hooked{}.apply(q, k, v, call);
}

const std::vector<Fault<Hooks>> kStates = {
    {"forgets what is 256 positions back", "state",
     state_sees([](Index i, Index j, Index, Index) { return i - j < 256; }), 600},
    {"forgets the first key beyond 512 positions", "state",
     state_sees([](Index i, Index j, Index, Index) { return i < 512 || j > 0; }), 600},
    {"chunks of more than 64 see half of themselves", "state",
     state_sees([](Index i, Index j, Index T, Index) { return T <= 64 || T == 150 || i - j < 32; }), 600},
    {"ignores the bias", "state", state_takes([](Tensor q, Tensor k, Tensor v, Call call) {
       call.bias = {};
       return right(q, k, v, call);
     })},
    {"the bias of the first head", "state", state_takes([](Tensor q, Tensor k, Tensor v, Call call) {
       if (call.bias.defined()) call.bias = call.bias.slice(0, 0, 1);
       return right(q, k, v, call);
     })},
    {"one head of keys of several", "state", state_takes([](Tensor q, Tensor k, Tensor v, Call call) {
       return k.dim(1) == 2 ? right(q, k.slice(1, 0, 1), v.slice(1, 0, 1), call) : right(q, k, v, call);
     })},
    {"one shared head is another", "state", state_takes([](Tensor q, Tensor k, Tensor v, Call call) {
       return k.dim(1) == 1 ? right(q, k, v, call) * 1.001 : right(q, k, v, call);
     })},
    {"values in bfloat16", "state", state_takes([](Tensor q, Tensor k, Tensor v, Call call) {
       return right(q, k, v.dtype() == DType::float32 ? in_bfloat16(v) : v, call);
     })},
    {"float32 inside", "state",
     state_takes([](Tensor q, Tensor k, Tensor v, Call call) { return right(q, k, in_float32(v * 1.1) / 1.1, call); })},
    {"holds its inputs and does not copy them", "state",
     [](Hooks& h) { h.state = [] { return AttentionState(HoldingState{.copies = false}); }; }},
    {"shares its keys with other states", "state",
     [](Hooks& h) { h.state = [shared = HoldingState{}] { return AttentionState(shared); }; }},
    {"names its lengths, and not its keys", "state resumed",
     [](Hooks& h) { h.state = [] { return AttentionState(HoldingState{}); }; }},
    {"a copy shares its keys", "state copies",
     [](Hooks& h) { h.state = [] { return AttentionState(HoldingState{}); }; }},
    {"rows in another order", "state rows", wrong_state({.pick = rolled})},
    {"the first row for all", "state rows", wrong_state({.pick = [](const Tensor& i) { return i * 0; }})},
    {"each row once", "state rows", wrong_state({.pick = [](const Tensor& i) { return i.slice(0, 0, 2); }})},
    {"all positions are there", "ragged state", wrong_state({.take = [](Call& call) { call.key_lengths = {}; }})},
    {"a row that stands still goes on", "ragged state",
     wrong_state({.take =
                      [](Call& call) {
                        if (call.key_lengths.defined() && max(call.key_lengths.to(DType::float32)).item() == 1)
                          call.key_lengths = Tensor::ones(call.key_lengths.shape(), DType::int32);
                      }})},
    {"the longest length for all rows", "ragged state",
     wrong_state({.report_lengths =
                      [](const Tensor& lengths) {
                        return Tensor::full(lengths.shape(), static_cast<double>(detail::longest_of(lengths)),
                                            DType::int32);
                      }})},
    {"sees what padding holds", "ragged state", state_takes([](Tensor q, Tensor k, Tensor v, Call call) {
       call.key_lengths = {};
       return right(q, k, v, call);
     })},
    {"rows of different length see keys of each other", "ragged state",
     state_takes([](Tensor q, Tensor k, Tensor v, Call call) {
       return right(q, k, call.key_lengths.defined() ? without_padding(v, call) + mean(v, {0}, true) * 1e-4 : v, call);
     })},
};

// Faults that keep results from call to call.
const std::vector<Fault<Hooks>> kCalls = {
    {"the result of the same memory", "calls",
     [](Hooks& h) {
       h.output = [last = std::make_shared<std::pair<const void*, Tensor>>()](const Tensor& y, const Tensor& v,
                                                                              const Call&) {
         if (is_training()) return y;
         if (last->first != v.raw() || last->second.shape() != y.shape() || last->second.dtype() != y.dtype())
           *last = {v.raw(), y.detach().clone()};
         return last->second;
       };
     }},
    {"a maximum over calls", "calls",
     [](Hooks& h) {
       h.scores = [max_score = std::make_shared<double>(-1e9)](const Tensor& s, const Call&) {
         *max_score = std::max(*max_score, max(s.detach()).item());
         return s * (1 + 1e-9 * *max_score);
       };
     }},
    {"the length of the first call", "calls",
     [](Hooks& h) {
       h.output = [first = std::make_shared<Index>(0)](const Tensor& y, const Tensor&, const Call&) {
         if (*first == 0 || y.dim(2) < *first) *first = y.dim(2);
         return scaled_from(y, 2, *first, 0.5);
       };
     }},
    {"a count of calls", "calls",
     [](Hooks& h) {
       h.output = [count = std::make_shared<int>(0)](const Tensor& y, const Tensor&, const Call&) {
         return y * (1 + 1e-6 * ++*count);
       };
     }},
    {"what backward needs, of the last call alone", "calls",
     [](Hooks& h) {
       h.output = [last = std::make_shared<Tensor>()](const Tensor& y, const Tensor&, const Call&) {
         *last = y.detach();
         return regrad(y, [last](const Tensor& d) {
           return last->shape() == d.shape()
                      ? d * (1 + 1e-3 * mean(*last).item()) / (1 + 1e-3 * mean(*last).item() * 1.0) + *last * 1e-6
                      : d * 2;
         });
       };
     }},
    {"the mask of the first call of its shape", "calls",
     [](Hooks& h) {
       h.weights = [kept = std::make_shared<Tensor>()](const Tensor& w, const Call&) {
         if (!kept->defined() || kept->shape() != w.shape() || kept->dtype() != w.dtype()) *kept = w.detach().clone();
         return w + (*kept - w.detach()) * 1e-3;
       };
     }},
    {"q is scaled in place", "calls",
     [](Hooks& h) {
       inputs(h, [](Tensor& q, Tensor&, Tensor&, Call&) {
         if (is_training()) return;
         Tensor written = q.detach();
         written.copy_(q.detach() * 1.0000001);
       });
     }},
    {"v is written to in padding", "calls",
     [](Hooks& h) {
       inputs(h, [](Tensor&, Tensor&, Tensor& v, Call& c) {
         Tensor written = v.detach();
         if (!is_training() && masks(c) && v.dim(1) == 4) written.copy_(multiplied(v.detach(), c));
       });
     }},
    {"the key mask is written to", "calls", with_changed_call([](Call& c) {
       if (c.key_mask.defined() && c.key_lengths.defined())
         c.key_mask.slice(1, c.key_mask.dim(1) - 1, c.key_mask.dim(1)).fill_(c.key_mask.dim(1) > 30 ? 0 : 1);
     })},
    {"the bias is written to", "calls", with_changed_call([](Call& c) {
       if (c.bias.defined() && !is_training()) c.bias.detach().fill_(0);
     })},
};

const std::vector<Fault<Hooks>> kClaims = {
    {"no cost", "cost", [](Hooks& h) { h.cost = [](Index, Index) { return 0.0; }; }},
    {"a cost that is no number", "cost", [](Hooks& h) { h.cost = [](Index, Index) { return NAN; }; }},
    {"all pairs in memory for the cost of a few", "cost",
     [](Hooks& h) { h.cost = [](Index, Index size) { return static_cast<double>(size); }; }, 1000},
    {"all pairs in memory for the cost of n to 3 / 2", "cost",
     [](Hooks& h) { h.cost = [](Index n, Index) { return std::pow(static_cast<double>(n), 0.25); }; }, 1000},
    {"no name", "members", [](Hooks& h) { h.name = ""; }},
    {"causal only, and not causal", "refuses",
     [](Hooks& h) { h.can.causal = h.can.state = false, h.can.causal_only = true; }},
    {"random numbers of its own", "members",
     [](Hooks& h) {
       static std::uint64_t made = 0;
       h.output = [by = Rng(++made).uniform()](const Tensor& y, const Tensor&, const Call&) { return y * (1 + by); };
     }},
};

}  // namespace

TEST_CASE("conformance zoo: dropout") { find<Hooked>(kDropout); }

TEST_CASE("conformance zoo: weights") { find<Hooked>(kWeights); }

TEST_CASE("conformance zoo: states") { find<Hooked>(kStates); }

TEST_CASE("conformance zoo: calls") { find<Hooked>(kCalls); }

TEST_CASE("conformance zoo: claims") { find<Hooked>(kClaims); }

namespace {

// Attention with a forget gate whose gate is changed: by `change` in parallel calls, by `in_state` in its state.
struct ChangedGate {
  using Change = std::function<Tensor(const Tensor& gate, const AttentionCall& call)>;
  Change change, in_state;
  ForgettingAttention right = {};

  struct State {
    AttentionState right;
    Change change;
    Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) {
      return right.apply(q, k, v, call, std::vector{change(inputs[0], call)});
    }
    Tensor lengths() const { return right.lengths(); }
    void members(auto&& visit) { right.members(visit); }
  };

  std::string name() const { return "changed"; }
  AttentionCapabilities capabilities() const { return right.capabilities(); }
  std::vector<MechanismInput> inputs() const { return right.inputs(); }
  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> given) const {
    return right.apply(q, k, v, call, std::vector{change(given[0], call)});
  }
  AttentionState make_state() const { return AttentionState(State{right.make_state(), in_state}, inputs()); }
  void members(auto&&) {}
};

Tensor unchanged(const Tensor& gate, const AttentionCall&) { return gate; }

// The checks in `only` that fail for an attention with changed gates.
std::vector<std::string> failed(const ChangedGate::Change& change, const std::vector<std::string>& only,
                                const ChangedGate::Change& in_state = unchanged) {
  return check_conformance(
             [&](Index, Rng&) {
               return ChangedGate{change, in_state};
             },
             {.longest = 40, .only = only})
      .failed();
}

}  // namespace

RELEASE_TEST_CASE("conformance: what is wrong with the inputs of a mechanism is found, by the check that is meant to") {
  using Names = std::vector<std::string>;
  const Names all = {"gradient", "causal", "padding", "grouped", "views",
                     "batch",    "sizes",  "calls",   "state",   "threads"};
  CHECK(failed(unchanged, all) == Names{});
  CHECK(failed([](const Tensor& gate, const AttentionCall&) { return gate.detach(); }, {"gradient"}) ==
        Names{"gradient"});
  const auto next = [](const Tensor& gate, const AttentionCall&) {  // gate of the next position
    if (gate.dim(2) < 2) return gate;
    return concatenate({gate.slice(2, 1, gate.dim(2)), gate.slice(2, 0, 1)}, 2);
  };
  CHECK(failed(next, {"causal"}) == Names{"causal"});
  const auto mean_of_all = [](const Tensor& gate, const AttentionCall&) { return gate + mean(gate, {0}, true); };
  CHECK(failed(mean_of_all, {"batch"}) == Names{"batch"});
  // A sum over positions includes the NaN of padding.
  const auto of_padding = [](const Tensor& gate, const AttentionCall& call) {
    return call.causal && !call.key_lengths.defined() ? gate : gate + 0 * sum(gate, {2}, true);
  };
  CHECK(failed(of_padding, {"padding"}) == Names{"padding"});
  const auto first_head = [](const Tensor& gate, const AttentionCall&) {
    return gate.slice(1, 0, 1).expand(gate.shape());
  };
  CHECK(failed(first_head, {"sizes"}) == Names{"sizes"});
  CHECK(failed(unchanged, {"state"}, first_head) == Names{"state"});
  const auto written = [](const Tensor& gate, const AttentionCall&) {
    const NoTape guard;
    Tensor same = gate;
    same.fill_(1);
    return same;
  };
  CHECK(failed(written, {"calls"}) == Names{"calls"});
}
