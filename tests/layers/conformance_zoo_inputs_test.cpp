// Mechanisms that treat what they take beside q, k and v wrongly, and the checks that find them.
#include <algorithm>
#include <heed/heed.hpp>

#include "tests/support.hpp"

using namespace heed;

namespace {

// Attention with a forget gate, given inputs that `change` made, in parallel and in its state.
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
    State rows(const Tensor& indices) const { return {right.rows(indices), change}; }
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

// The first of these checks fails, and those that are named alone.
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

TEST_CASE("conformance: what is wrong with the inputs of a mechanism is found, by the check that is meant to") {
  using Names = std::vector<std::string>;
  const Names all = {"gradient", "causal", "padding", "grouped", "views",
                     "batch",    "sizes",  "calls",   "state",   "threads"};
  CHECK(failed(unchanged, all) == Names{});
  CHECK(failed([](const Tensor& gate, const AttentionCall&) { return gate.detach(); }, {"gradient"}) ==
        Names{"gradient"});
  const auto next = [](const Tensor& gate, const AttentionCall&) {  // of the position behind
    if (gate.dim(2) < 2) return gate;
    return concatenate({gate.slice(2, 1, gate.dim(2)), gate.slice(2, 0, 1)}, 2);
  };
  CHECK(failed(next, {"causal"}) == Names{"causal"});
  const auto mean_of_all = [](const Tensor& gate, const AttentionCall&) { return gate + mean(gate, {0}, true); };
  CHECK(failed(mean_of_all, {"batch"}) == Names{"batch"});
  // A sum over positions meets the NaN of padding.
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
