// The checks "gradient" (every element of a small problem) and "direction" (random directions of larger ones).
#include <algorithm>
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

void gradcheck_of(Subject& s, Finding& f, const Trial& t) {
  f.about(t);
  AttentionMechanism& m = s.mechanism(DType::float64);
  Trial x = t;
  const std::vector<NamedBuffer> checked = parts_and_bias(x);
  std::vector<Tensor> values;
  for (const NamedBuffer& p : checked) values.push_back(*p.buffer);
  const auto apply = [&](const std::vector<Tensor>& given) {
    for (std::size_t i = 0; i < given.size(); ++i) *checked[i].buffer = given[i];
    return applied(m, x);
  };
  const std::vector<NamedParameter> parameters = named_parameters(m);
  const auto failure = [&](double step) -> std::string {
    const GradcheckOptions options{.step = step, .min_samples = 40};
    try {
      gradcheck(apply, values, options);
      if (!parameters.empty()) gradcheck([&] { return apply(values); }, parameters, options);
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  std::string text = failure(1e-6);  // mentions «input 0»
  // Near a denominator of 0 or a kink, a difference quotient needs a step much smaller than the distance to the kink.
  if (!text.empty() && failure(5e-8).empty()) text.clear();
  for (std::size_t i = 0; i < checked.size(); ++i)
    if (const auto at = text.find("input " + std::to_string(i)); at != std::string::npos) {
      text.replace(at, 7, checked[i].name);
      break;
    }
  f.expect(text.empty(), text);
}

// Checks that the gradient of each input is the same if the other inputs are constants.
void check_alone(Subject& s, Finding& f, Trial t) {
  f.about(t);
  const Outcome all = s.run(t);
  for (const NamedBuffer& p : parts_and_bias(t))
    f.close("the gradient of " + p.name + " alone", s.run(t, DType::float64, applied, p.name).gradients.at(p.name),
            all.gradients.at(p.name), kRounding);
}

// Random directions by the names of the gradients. If `only` is not empty, for that input or parameter alone.
// Parameters, and inputs that they multiply, may move the scores of a discrete mechanism by much more than the step.
// For a discrete mechanism with parameters, only v and the bias move.
TensorsByName directions(const Subject& s, const Outcome& o, Rng& rng, const std::string& only) {
  const bool has_parameters = std::any_of(o.gradients.begin(), o.gradients.end(),
                                          [](const auto& g) { return g.first.rfind("parameter ", 0) == 0; });
  TensorsByName all;
  for (const auto& [name, gradient] : o.gradients) {
    if (s.can().discrete && has_parameters && name != "v" && name != "bias") continue;
    if (only.empty() || name == only) all[name] = rng.normal(gradient.shape(), 0, 1, DType::float64);
  }
  return all;
}

// sum(dy * y) with each input and parameter moved by `step` in its direction. `out` computes y.
double moved(Subject& s, const Trial& t, const TensorsByName& along, double step, const Output& out) {
  Trial x = t;
  for (const NamedBuffer& p : parts_and_bias(x))
    if (const auto u = along.find(p.name); u != along.end()) *p.buffer = *p.buffer + u->second * step;
  std::vector<std::pair<Parameter*, Tensor>> before;
  for (const NamedParameter& p : named_parameters(s.mechanism(DType::float64)))
    if (const auto u = along.find("parameter " + p.name); u != along.end()) {
      before.emplace_back(p.parameter, p.parameter->detach().clone());
      p.parameter->copy_(before.back().second + u->second * step);
    }
  const double y = sum(out(x) * t.dy).item();
  for (const auto& [parameter, values] : before) parameter->copy_(values);
  return y;
}

}  // namespace

bool Slopes::agree(double tolerance) const { return std::fabs(numeric - analytic) <= tolerance * std::max(size, 1e-3); }

Slopes slopes(Subject& s, const Trial& t, const Outcome& o, Rng& rng, const std::string& only, const Output& out) {
  // Small enough to rarely cross a discrete choice or the kink of a relu; rounding of sums is then about 1e-8.
  constexpr double kStep = 1e-7;
  const TensorsByName along = directions(s, o, rng, only);
  Slopes y;
  for (const auto& [name, u] : along) {
    const Tensor products = o.gradients.at(name) * u;
    y.analytic += sum(products).item(), y.size += sum(products * products).item();
  }
  y.size = std::sqrt(y.size);
  y.numeric = (moved(s, t, along, kStep, out) - moved(s, t, along, -kStep, out)) / (2 * kStep);
  return y;
}

void compare_direction(Subject& s, Finding& f, const Trial& t) {
  f.about(t);
  const Outcome o = s.run(t);
  Rng rng(s.options.seed, 94);
  const auto of = [&](const std::string& only) {
    return slopes(s, t, o, rng, only, [&](const Trial& x) { return s.out(x); });
  };
  constexpr double kTolerance = 2e-6;
  // Try a second direction, because the first may have crossed a discrete choice.
  if (of("").agree(kTolerance) || of("").agree(kTolerance)) return f.expect(true, "");
  std::string text;
  for (const auto& [name, gradient] : o.gradients)
    if (const Slopes one = of(name); !one.agree(kTolerance))
      text += (text.empty() ? "" : ", ") + name + " (" + std::to_string(one.analytic) + " by the gradient, " +
              std::to_string(one.numeric) + " by a difference quotient)";
  f.expect(false, "the gradient does not match the derivative in a random direction of " +
                      (text.empty() ? "all inputs and parameters together" : text));
}

void check_gradient(Subject& s, Finding& f) {
  const auto check = [&](const Sizes& sizes, const std::vector<Variant>& variants) {
    const Trial t = s.separated_trial(sizes);
    for (const Variant& v : variants) gradcheck_of(s, f, s.with_call(t, v));
  };
  const Index n = s.at_most(6);
  std::vector<Variant> square = s.variants({n, n});
  if (s.can().dropout) square.push_back({"dropout", {.dropout = 0.4}});
  check({n, n}, square);
  for (const Variant& v : s.variants({n, n})) check_alone(s, f, s.with_call(s.trial({n, n}), v));
  if (s.can().grouped) check({n, n, 2, 2}, {{"grouped heads", {}}});
  if (!s.can().cross || n < 3) return;
  std::vector<Variant> fewer_queries = {{"T < S", {}}};
  if (s.can().causal) fewer_queries.push_back({"causal, T < S", {.causal = true}});
  check({n - 2, n}, fewer_queries);
  check({n, n - 2}, {{"T > S", {}}});
}

void check_direction(Subject& s, Finding& f) {
  const auto check = [&](const Sizes& sizes, const std::vector<Variant>& variants) {
    Subject& of = sizes.keys < 300 ? s : s.of_few_heads();
    const Trial t = of.separated_trial(sizes);
    for (const Variant& v : variants) compare_direction(of, f, of.with_call(t, v));
  };
  for (const Index n : s.lengths({1, 130}, f)) check({n, n, 1}, s.variants({n, n, 1}));
  if (s.takes(300, f)) check({300, 300, 1}, s.of_few_heads().ends({300, 300, 1}));
  // Also finds float64 calls that compute in float32: the difference quotient is then noise.
  if (s.takes(600, f)) check({600, 600, 1}, {{s.can().causal ? "causal" : "plain", {.causal = s.can().causal}}});
  const Index n = s.at_most(100), fewer = n * 2 / 3;
  for (const Index shared : s.sharings())
    if (shared > 1) check({n, n, 2, shared}, s.ends({n, n, 2, shared}));
  if (!s.can().cross || fewer < 1 || fewer == n) return;
  check({fewer, n, 1}, s.ends({fewer, n, 1}));
  check({n, fewer, 1}, s.ends({n, fewer, 1}));
}

}  // namespace heed::detail::conformance
