// The check "bfloat16": outputs, gradients and states in bfloat16 against the same problem in float64.
#include <heed/layers/attention/detail/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

void compare(Subject& s, Finding& f, const Trial& original) {
  const Trial t = rounded_to_bfloat16(original);
  f.about(t);
  const Outcome got = s.run(t, DType::bfloat16);
  close_in(s, f, "bfloat16 against float64", {DType::bfloat16, got, s.run(t)}, t);
  f.close("bfloat16, the output without a tape", s.out(t, DType::bfloat16), got.out, s.options.bfloat16_tolerance);
}

// Compares a decode state with all positions at once.
void compare_state(Subject& s, Finding& f, const Trial& original, Index step) {
  const Trial t = rounded_to_bfloat16(original);
  f.about(t);
  const Tensor whole = s.out(t);
  AttentionState state = s.mechanism(DType::bfloat16).make_state();
  const Tensor y = steps(state, t, DType::bfloat16, 0, t.q.dim(2), step);
  f.expect(y.dtype() == DType::bfloat16,
           "a state returns " + describe(y) + " for bfloat16; it must return the dtype of q");
  close_in(s, f, "bfloat16, steps of " + std::to_string(step) + " against all at once in float64",
           {DType::bfloat16, {y, {}}, {whole, {}}}, t);
}

}  // namespace

void check_bfloat16(Subject& s, Finding& f) {
  if (!f.declared(s.can().bfloat16, "bfloat16")) return;
  for (const Sizes& sizes : s.shapes(s.at_most(40)))
    for (const Variant& v : s.variants(sizes)) compare(s, f, s.with_call(s.trial(sizes), v));
  for (const Index n : {Index{1}, s.at_most(130)})
    for (const Variant& v : s.ends({n, n})) compare(s, f, s.with_call(s.trial({n, n}), v));
  if (!s.can().state) return;
  const Index n = s.at_most(70);
  for (const Index shared : s.sharings())
    for (const Index step : {Index{1}, Index{16}})
      compare_state(s, f, s.with_call(s.trial({n, n, 2, shared}), {"causal", {.causal = true}}), step);
}

}  // namespace heed::detail::conformance
