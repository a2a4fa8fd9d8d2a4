// The conformance kit can fail: mechanisms that are wrong in one way each, and the checks that find them. Over 300 lines,
// as each case needs a mechanism.
#include <heed/core/parallel.hpp>

#include "tests/layers/naive_mechanisms.hpp"
#include "tests/layers/wrong_mechanisms.hpp"
#include "tests/support.hpp"
//
#include <heed/layers/attention/conformance_doctest.hpp>
#include <heed/layers/attention/linear.hpp>
#include <sstream>

using namespace heed;
using namespace heed::test;

namespace {

// Softmax attention over the pairs that `allowed` makes of a call.
template <class F>
Composed::Apply softmax_over(F allowed) {
  return [allowed](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
    return matmul(masked_softmax(scores_of(q, k, call), allowed(q, k, call)), select_keys(v, call));
  };
}

// A decode state of softmax attention with another way to attend to what it holds.
std::function<AttentionState()> state_of(KeyValueState::Attend attend) {
  return [attend] { return AttentionState(KeyValueState(attend)); };
}

}  // namespace

TEST_CASE("conformance finds: the future leaks") {
  const auto ahead = [](Index n, bool key_mask) {
    return Composed{{.causal = true, .key_mask = key_mask},
                    softmax_over([n](const Tensor& q, const Tensor& k, const AttentionCall& c) {
                      return allowed_pairs(q, k, c, n);
                    })};
  };
  CHECK(failed(ahead(0, true)) == Names{});
  CHECK(failed(ahead(1, false)) == Names{"causal"});
  // Where the first keys are padding, the last query that sees none of the others sees one.
  CHECK(failed(ahead(1, true)) == Names{"causal", "empty rows"});
}

TEST_CASE("conformance finds: sorted chunks whose borders move with future tokens") {
  const Composed chunks{{.causal = true, .discrete = true},
                        softmax_over([](const Tensor& q, const Tensor& k, const AttentionCall& c) {
                          return logical_and(allowed_pairs(q, k, c), same_chunk(q));
                        })};
  CHECK(failed(chunks) == Names{"causal"});
  // Less than any tolerance, but seen.
  const auto trace = [](bool shared_maximum) {
    return Composed{{.causal = true, .shared_maximum = shared_maximum},
                    [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                      return softmax_of(q, k, v, call) + mean(v.detach(), {2}, true) * 1e-13;
                    }};
  };
  CHECK(failed(trace(false)) == Names{"causal"});
  CHECK(failed(trace(true)) == Names{});  // as the rounding of a maximum would be
}

TEST_CASE("conformance finds: a gradient that forgets the normaliser, or a parameter") {
  const Composed forgets{{.causal = true, .key_mask = true, .cross = true}, [](const auto&... x) {
                           const Quotient parts = linear_parts(x...);
                           return Quotient{parts.numerator, parts.denominator.detach()}.value();
                         }};
  CHECK(failed(forgets) == Names{"gradient", "direction", "sizes"});
  CHECK(failed(learned_scale(false)) == Names{});
  CHECK(failed(learned_scale(true)) == Names{"gradient", "direction"});
}

TEST_CASE("conformance finds: masks that reach v but not the denominator, or that multiply") {
  // What a padded key holds changes the others. That the rows' sums lack its weight is no failure of another kind.
  const Composed denominator{
      {.key_mask = true}, [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
        return Quotient{linear_parts(q, k, v, call).numerator, linear_parts(q, k, v, {}).denominator}.value();
      }};
  CHECK(failed(denominator) == Names{"padding"});
  // 0 * NaN is NaN.
  const Composed multiplies{
      {.key_mask = true}, [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
        const Tensor keep = allowed_keys(k, call).transpose(2, 3).to(k.dtype());
        const Tensor s = masked_fill(matmul(q, (k * keep).t()), logical_not(allowed_pairs(q, k, call)), -1e30);
        const Tensor e = where(allowed_pairs(q, k, call), exp(s - max(s, {-1}, true).detach()), 0.0);
        const Tensor total = sum(e, {-1}, true);
        return matmul(e / where(eq(total, 0), 1.0, total), v * keep);
      }};
  CHECK(failed(multiplies) == Names{"padding", "empty tensors"});
}

TEST_CASE("conformance finds: NaN in a row without keys") {
  const Composed plain{{.causal = true, .key_mask = true, .full_mask = true},
                       [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                         const Tensor hidden = logical_not(allowed_pairs(q, k, call));
                         return matmul(softmax(masked_fill(scores_of(q, k, call), hidden, -INFINITY)),
                                       select_keys(v, call));
                       }};
  CHECK(failed(plain) == Names{"masks", "empty rows"});
}

TEST_CASE("conformance finds: epsilon inside the cumulative sum, by the reference") {
  const auto linear = [](double inside, double outside) {
    return Composed{{.causal = true},
                    [=](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                      const Tensor key = elu_feature(k) + inside;
                      const Tensor keys = call.causal ? cumsum(key, 2) : sum(key, {2}, true);
                      const Tensor total = sum(elu_feature(q) * keys, {-1}, true) + outside;
                      return linear_parts(q, k, v, call).numerator / total;
                    }};
  };
  const ConformanceOptions options{
      .longest = 150,
      .reference = [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call,
                      const NamedTensors&) { return linear_parts(q, k, v, call).value(); }};
  CHECK(failed(linear(0, 1e-6), options) == Names{});
  CHECK(failed(linear(1e-6, 0), options) == Names{"reference", "sizes"});
}

TEST_CASE("conformance finds: a mask after the normalisation") {
  // First-order Taylor weights normalised over all keys, then masked: the normaliser sees later keys.
  const Composed late{{.causal = true},
                      [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                        const auto unit = [](const Tensor& x) { return x / norm(x, {-1}, {.keepdim = true}); };
                        const Tensor m = matmul(unit(q), unit(k).t()) + 1;
                        return matmul(where(allowed_pairs(q, k, call), m / sum(m, {-1}, true), 0.0), v);
                      }};
  CHECK(failed(late) == Names{"causal", "zero vectors"});
}

TEST_CASE("conformance finds: sums divided by the number of all keys, though some are hidden") {
  const auto by_all = [](const AttentionCapabilities& can) {
    return Composed{can, [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                      const Tensor seen = allowed_pairs(q, k, call).to(q.dtype());
                      return softmax_of(q, k, v, call) * mean(seen, {-1}, true);
                    }};
  };
  CHECK(failed(by_all({.causal = true})) == Names{"rows sum to one"});
  CHECK(failed(by_all({.full_mask = true})) == Names{"rows sum to one"});
}

TEST_CASE("conformance finds: a bias or a mask that does nothing, or another thing, by the reference") {
  const auto with = [](auto change) {
    return Composed{{.causal = true, .full_mask = true, .bias = true},
                    [change](const Tensor& q, const Tensor& k, const Tensor& v, AttentionCall call) {
                      change(q, k, call);
                      return softmax_of(q, k, v, call);
                    }};
  };
  const ConformanceOptions options{.longest = 40, .reference = naive_mechanism("softmax", {})};
  CHECK(failed(with([](const auto&...) {}), options) == Names{});
  const auto ignored = [](const Tensor&, const Tensor&, AttentionCall& call) { call.bias = {}; };
  CHECK(failed(with(ignored), options) == Names{"reference", "sizes"});
  const auto subtracted = [](const Tensor&, const Tensor&, AttentionCall& call) {
    if (call.bias.defined()) call.bias = -call.bias;
  };
  CHECK(failed(with(subtracted), options) == Names{"reference", "sizes"});
  const auto scaled_too = [](const Tensor& q, const Tensor&, AttentionCall& call) {
    if (call.bias.defined()) call.bias = call.bias / std::sqrt(static_cast<double>(q.dim(3)));
  };
  CHECK(failed(with(scaled_too), options) == Names{"reference", "sizes"});
  const auto of_empty_rows_alone = [](const Tensor& q, const Tensor& k, AttentionCall& call) {
    if (!call.mask.defined()) return;
    const Tensor seen = sum(allowed_pairs(q, k, call).to(q.dtype()), {-1}, true) > 0;
    call.mask = logical_or(call.mask, seen);
  };
  CHECK(failed(with(of_empty_rows_alone), options) == Names{"reference", "sizes"});
}

TEST_CASE("conformance finds: decode states that are wrong") {
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
  CHECK(failed(softmax_state([](In q, In k, In v) { return softmax_of(q, k, v, {.causal = true}); })) == Names{});
  // Right token by token, but not in chunks.
  CHECK(failed(softmax_state([](In q, In k, In v) { return softmax_of(q, k, v, {}); })) == Names{"state"});
  // It counts positions where no buffer holds the count.
  CHECK(failed(Composed{{.causal = true, .state = true}, softmax_of, [] {
                          return AttentionState(ForgetfulState{});
                        }}) == Names{"state resumed"});
  // Declared, but not there.
  CHECK(failed(Composed{{.causal = true, .state = true}, softmax_of, [] { return AttentionState(); }}) ==
        Names{"state", "state resumed"});
}

TEST_CASE("conformance finds: the beginnings aligned where T != S") {
  // Queries before the ends' alignment see keys, though by the alignment of the ends they have none.
  const Composed beginnings{{.causal = true, .cross = true},
                            softmax_over([](const Tensor& q, const Tensor& k, const AttentionCall& c) {
                              return allowed_pairs(q, k, c, q.dim(2) - k.dim(2));
                            })};
  CHECK(failed(beginnings) == Names{"causal", "empty rows", "cross lengths"});
}

TEST_CASE("conformance finds: heads that share the wrong keys") {
  const auto grouped = [](bool side_by_side) {
    return Composed{
        {.causal = true, .grouped = true},
        [=](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
          const Index times = q.dim(1) / k.dim(1);
          const auto spread = [&](const Tensor& x) {
            if (!side_by_side) return repeat(x, {1, times, 1, 1});
            const Shape s = x.shape();
            return x.unsqueeze(2).expand({s[0], s[1], times, s[2], s[3]}).reshape({s[0], q.dim(1), s[2], s[3]});
          };
          return softmax_of(q, spread(k), spread(v), call);
        }};
  };
  CHECK(failed(grouped(true)) == Names{});
  CHECK(failed(grouped(false)) == Names{"grouped"});
}

TEST_CASE("conformance finds: values read as if they had no gaps, and a gradient that needs others to be wanted") {
  const Composed no_gaps{
      {.causal = true}, [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& c) {
        return softmax_of(q, k, v.as_strided(v.shape(), contiguous_strides(v.shape()), v.offset()), c);
      }};
  CHECK(failed(no_gaps) == Names{"views"});
  const Composed with_q{{.causal = true},
                        [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& c) {
                          return softmax_of(q, k, wants_gradient({q}) ? v : v.detach(), c);
                        }};
  CHECK(failed(with_q) == Names{"gradient"});
}

TEST_CASE("conformance finds: dropout and weights that are not those of the output") {
  const auto drops = [](bool raised) {
    return Composed{
        {.dropout = true}, [=](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
          Tensor w = softmax_weights(q, k, call);
          if (call.dropout > 0 && is_training())
            w = w * ge(default_rng().uniform(w.shape()), call.dropout).to(w.dtype()) / (raised ? 1 - call.dropout : 1);
          return matmul(w, v);
        }};
  };
  CHECK(failed(drops(true)) == Names{});
  CHECK(failed(drops(false)) == Names{"dropout"});  // the rest is not raised by 1 / (1 - p)
  const Composed scores{{.causal = true, .weights = true}, softmax_of, {}, scores_of};
  CHECK(failed(scores) == Names{"weights"});
}

TEST_CASE("conformance finds: numbers that are wrong in float32, at some lengths or spreads, or on many threads") {
  const auto softmax_times = [](auto factor) {
    return Composed{{.causal = true},
                    [factor](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& c) {
                      return softmax_of(q, k, v, c) * factor(q);
                    }};
  };
  CHECK(failed(softmax_times([](const Tensor&) { return 1 + 1e-6 * threads(); })) == Names{"threads"});
  // A tail of a vector is forgotten.
  CHECK(failed(softmax_times([](const Tensor& q) {
          return q.dtype() == DType::float32 && q.dim(2) % 8 == 7 ? 0.99 : 1.0;
        })) == Names{"lengths"});
  // A bias of few bits.
  CHECK(failed(Composed{{.bias = true}, [](const Tensor& q, const Tensor& k, const Tensor& v, AttentionCall call) {
                          if (call.bias.defined() && q.dtype() == DType::float32)
                            call.bias = call.bias.to(DType::bfloat16).to(DType::float32);
                          return softmax_of(q, k, v, call);
                        }}) == Names{"sizes", "zero vectors", "float32"});
  // Few bits are too few at every length and spread.
  CHECK(failed(softmax_times([](const Tensor& q) { return q.dtype() == DType::float32 ? 1.01 : 1.0; })) ==
        Names{"sizes", "zero vectors", "lengths", "spread", "float32"});
  const Composed overflows{{}, [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                             const Tensor e = exp(scores_of(q, k, call));
                             return matmul(e / sum(e, {-1}, true), v);
                           }};
  CHECK(failed(overflows) == Names{"spread"});
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
  CHECK(contains(error_of([] { check_conformance([](Index, Rng&) { return LinearAttention(); }, {.heads = 3}); }),
                 "conformance: heads is 3; it must be even for a mechanism whose heads may share keys"));
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
  CHECK(report.left_out == Names{"weights: it declares no weights", "causal: 600 positions, longest is 150"});
  std::ostringstream text;
  text << report;
  CHECK(contains(text.str(), "left out:\n  weights: it declares no weights\n"));
  CHECK(contains(error_of([&] { check_conformance(factory(halves), {.only = {"mask"}}); }),
                 "conformance: only names «mask»; no check has that name"));
}

TEST_CASE("conformance: a mechanism that is causal only is asked for nothing else") {
  Composed causal_only{{.causal = true, .causal_only = true, .key_mask = true, .full_mask = true, .cross = true},
                       [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
                         require(call.causal, "causal only: what is not causal was asked for");
                         return softmax_of(q, k, v, call);
                       }};
  causal_only.can.why = "it is a recurrence";
  CHECK(failed(causal_only) == Names{});
  const AttentionMechanism m = causal_only;
  const Tensor x = Tensor::ones({1, 1, 2, 3});
  CHECK(
      contains(error_of([&] { m.apply(x, x, x, {}); }),
               "composed attention: attention to later positions (it is causal only) was asked for, which it does not "
               "have: it is a recurrence"));
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

TEST_CASE("conformance: a failed check fails a doctest case" * doctest::should_fail()) {
  const Composed unmasked{
      {.causal = true},
      [](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall&) { return softmax_of(q, k, v, {}); }};
  check_conformance_in_test(factory(unmasked), {.longest = 20});
}
