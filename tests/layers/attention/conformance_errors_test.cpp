// The faults that the conformance kit finds, and the text of its reports.
#include <algorithm>
#include <heed/layers/attention/linear.hpp>
#include <sstream>

#include "tests/layers/attention/wrong_mechanisms.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// A decode state of keys and values that attends with the given function.
std::function<AttentionState()> state_of(KeyValueState::Attend attend) {
  return [attend] { return AttentionState(KeyValueState(attend)); };
}

}  // namespace

RELEASE_TEST_CASE("conformance finds: sorted chunks whose borders move with future tokens") {
  const Composed chunks{{.causal = true, .discrete = true},
                        [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                          const Tensor allowed = logical_and(allowed_pairs(q, k, call), same_chunk(q));
                          return matmul(masked_softmax(scores_of(q, k, call), allowed), v);
                        }};
  CHECK(failed(chunks) == Names{"causal"});
  // An effect below any tolerance is found.
  const auto trace = [](bool shared_maximum) {
    return Composed{{.causal = true, .shared_maximum = shared_maximum},
                    [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                      return softmax_of(q, k, v, call) + mean(v.detach(), {2}, true) * 1e-13;
                    }};
  };
  CHECK(failed(trace(false)) == Names{"causal"});
  CHECK(failed(trace(true)) == Names{});  // allowed like the rounding of a maximum
}

RELEASE_TEST_CASE("conformance finds: a gradient that forgets a parameter") {
  CHECK(failed(learned_scale(false)) == Names{});
  CHECK(failed(learned_scale(true)) == Names{"gradient", "direction"});
}

TEST_CASE("conformance finds: a mask after the normalisation") {
  // First-order Taylor weights, normalised over all keys and then masked: the normaliser includes later keys.
  const Composed late{{.causal = true},
                      [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                        const auto unit = [](const Tensor& x) { return x / norm(x, {-1}, {.keepdim = true}); };
                        const Tensor m = matmul(unit(q), unit(k).t()) + 1;
                        return matmul(where(allowed_pairs(q, k, call), m / sum(m, {-1}, true), 0.0), v);
                      }};
  CHECK(failed(late) == Names{"causal", "zero vectors"});
}

RELEASE_TEST_CASE("conformance finds: decode states that are wrong") {
  const auto exp_features = [](bool rescales) {
    return Composed{{.causal = true, .state = true}, exp_feature_of, [rescales] {
                      return AttentionState(ExpFeatureState{.rescales = rescales});
                    }};
  };
  CHECK(failed(exp_features(true), {.longest = 70}) == Names{});
  CHECK(failed(exp_features(false), {.longest = 70}) == Names{"state"});
  const auto softmax_state = [](KeyValueState::Attend attend) {
    return Composed{{.causal = true, .state = true}, softmax_of, state_of(attend)};
  };
  CHECK(failed(softmax_state(softmax_of)) == Names{});
  // Correct token by token, but not in chunks.
  CHECK(failed(softmax_state([](In q, In k, In v, const AttentionCall&) { return softmax_of(q, k, v, {}); })) ==
        Names{"state"});
  // Counts positions, but no buffer holds the count.
  CHECK(failed(Composed{{.causal = true, .state = true}, softmax_of, [] {
                          return AttentionState(ForgetfulState{});
                        }}) == Names{"state resumed"});
  // Names values as shared by all rows.
  CHECK(failed(Composed{{.causal = true, .state = true}, softmax_of, [] {
                          return AttentionState(MisnamedState{.shares_values = true});
                        }}) == Names{"state rows"});
  // Names a tensor that all rows share as a buffer.
  CHECK(failed(Composed{{.causal = true, .state = true}, softmax_of, [] { return AttentionState(MisnamedState{}); }}) ==
        Names{"state rows"});
  // Declares a state, but make_state() returns an empty one.
  CHECK(failed(Composed{{.causal = true, .state = true}, softmax_of, [] { return AttentionState(); }}) ==
        Names{"state", "state copies", "state rows", "state resumed"});
}

TEST_CASE("conformance: an Error of the mechanism fails the checks that meet it") {
  const Composed throws{{.key_mask = true},
                        [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                          require(!call.key_mask.defined(), "composed: no key mask today");
                          return softmax_of(q, k, v, call);
                        }};
  const ConformanceReport report = check_conformance(factory(throws), {.longest = 20});
  CHECK(report.failed().size() >= 4);
  CHECK(report.failed().front() == "gradient");
  CHECK(contains(report.checks[0].detail, "composed: no key mask today"));
  std::ostringstream text;
  text << report;
  CHECK(contains(text.str(), "composed attention: "));
  CHECK(contains(text.str(), "FAILED"));
  CHECK(contains(error_of([&] { check_conformance(factory(throws), {.heads = 0}); }),
                 "conformance: heads is 0, size 8, value_size 6 and longest 1000; all must be 1 or more"));
}

TEST_CASE("conformance: checks by name, what is left out, and where a difference is") {
  Composed halves{{.causal = true, .key_mask = true},
                  [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                    return softmax_of(q, k, v, call) * (call.key_lengths.defined() && k.dim(2) == 40 ? 0.5 : 1.0);
                  }};
  const ConformanceReport report =
      check_conformance(factory(halves), {.longest = 150, .only = {"masks", "causal", "weights"}});
  CHECK(report.failed() == Names{"masks"});
  CHECK(report.checks.size() == 2);
  CHECK(contains(report.checks[0].detail, "full key lengths added to the call: ["));
  CHECK(contains(report.checks[0].detail, "] is "));
  CHECK(contains(report.checks[0].detail, ", it must be "));
  CHECK(contains(report.checks[0].detail, "(plain, q [2, 4, 40, 8], k [2, 4, 40, 8], v [2, 4, 40, 6])"));
  CHECK(report.left_out == Names{"weights: it declares no weights", "causal: 600 positions, as longest is 150"});
  // Slow checks run only if all others pass.
  const ConformanceReport all = check_conformance(factory(halves), {.longest = 40});
  CHECK(!all.passed());
  CHECK(std::count(all.left_out.begin(), all.left_out.end(), "combinations: other checks failed") == 1);
  CHECK(std::count(all.left_out.begin(), all.left_out.end(), "borders: other checks failed") == 1);
  std::ostringstream text;
  text << report;
  CHECK(contains(text.str(), "left out:\n  weights: it declares no weights\n"));
  CHECK(contains(error_of([&] { check_conformance(factory(halves), {.only = {"mask"}}); }),
                 "conformance: only contains «mask», but no check has that name"));
}

TEST_CASE("conformance: what fails under many conditions is told by those that it needs") {
  const Composed halves{{.causal = true, .key_mask = true, .full_mask = true, .cross = true},
                        [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                          const bool both = call.mask.defined() && call.mask.rank() == 2 && q.dim(2) > k.dim(2);
                          return softmax_of(q, k, v, call) * (both ? 0.5 : 1.0);
                        }};
  const ConformanceReport report = check_conformance(factory(halves), {.longest = 40});
  REQUIRE(report.failed() == Names{"combinations"});
  const std::string& detail = report.checks.back().detail;
  CHECK(contains(detail, "against the plain form of the call: ["));
  CHECK(contains(detail, "(float64; not causal; a mask [T, S]; keys: 17; queries: more than keys)"));
}

RELEASE_TEST_CASE("conformance: a mechanism that is causal only is asked for nothing else") {
  Composed causal_only{{.causal = true, .causal_only = true, .key_mask = true, .full_mask = true, .cross = true},
                       [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                         require(call.causal, "causal only: what is not causal was asked for");
                         return softmax_of(q, k, v, call);
                       }};
  causal_only.can.why = "it is a recurrence";
  CHECK(failed(causal_only) == Names{});
  const AttentionMechanism m = causal_only;
  const Tensor x = Tensor::ones({1, 1, 2, 3});
  CHECK(contains(error_of([&] { m.apply(x, x, x, {}); }),
                 "composed attention does not support attention to later positions (it is causal only): it is a "
                 "recurrence"));
  CHECK(m.apply(x, x, x, {.causal = true}).shape() == x.shape());
}

TEST_CASE("conformance finds: parameters and buffers that members() does not name, or names twice") {
  using Kind = NamedBadly::Kind;
  const auto find = [](Kind kind) {
    return check_conformance([kind](Index, Rng& rng) { return NamedBadly(kind, rng); },
                             {.longest = 40, .only = {"members"}})
        .failed();
  };
  CHECK(find(Kind::right) == Names{});
  for (const Kind kind :
       {Kind::parameter_unnamed, Kind::constant_unnamed, Kind::buffer_unnamed, Kind::twice, Kind::slash})
    CHECK(find(kind) == Names{"members"});
}
