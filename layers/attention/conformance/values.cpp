// The checks of outputs: "reference", "rows sum to one" and "weights".
#include <algorithm>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

// Parameters, buffers and inputs in float64, for the reference.
TensorsByName values_of(Subject& s, const Trial& t) {
  TensorsByName all;
  for (std::size_t i = 0; i < t.inputs.size(); ++i) all["input " + t.declared[i].name] = t.inputs[i];
  for (const NamedParameter& p : named_parameters(s.mechanism(DType::float64))) all[p.name] = p.parameter->detach();
  for (const NamedBuffer& b : named_buffers(s.mechanism(DType::float64))) all[b.name] = *b.buffer;
  return all;
}

// Whether the call has masks or a bias, other than causal.
bool has_mask_or_bias(const AttentionCall& c) {
  return c.key_lengths.defined() || c.key_mask.defined() || c.mask.defined() || c.bias.defined();
}

}  // namespace

void compare_reference(Subject& s, Finding& f, const Trial& t) {
  const NoTape guard;
  f.about(t);
  f.close("against the reference", s.out(t),
          s.options.reference(t.q, t.k, t.v, t.call, values_of(s, t)).to(DType::float64), 1e-9);
}

void check_reference(Subject& s, Finding& f) {
  if (!s.options.reference) return f.leave_out("options.reference is undefined");
  const auto compare = [&](const Sizes& sizes) {
    const Trial drawn = s.separated_trial(sizes);
    for (const Variant& variant : s.variants(sizes)) {
      if (sizes.queries > 100 && has_mask_or_bias(variant.call)) continue;  // a reference is slow
      compare_reference(s, f, s.with_call(drawn, variant));
    }
  };
  for (const Index n : s.lengths({1, 7, 40, 130}, f)) compare({n, n, n == 130 ? 1 : 2});
  const Index n = s.at_most(24), few = n * 2 / 3;
  for (const Index shared : s.sharings())
    if (shared > 1) compare({n, n, 2, shared});
  if (!s.can().cross || few < 1 || few == n) return;
  compare({few, n});
  compare({n, few});
}

void check_rows(Subject& s, Finding& f) {
  if (!s.options.normalised) return f.leave_out("options.normalised is false");
  const Index n = s.at_most(40), few = std::min<Index>(5, n - 1);
  for (const Variant& variant : s.variants({n, n})) {
    // A mask that fails its own check would fail here too, so skip it.
    if (variant.call.causal && s.failed.count("causal") > 0) continue;
    if (masks_keys(variant.call) && s.failed.count("padding") > 0) continue;
    Trial t = s.with_call(s.trial({n, n}), variant);
    t.v.fill_(1);
    f.about(t);
    Tensor y = s.out(t);
    // With few keys all weights may be small compared with the 1e-6 that a mechanism may add to their sum.
    const Tensor keys = sum(allowed_pairs(t.q, t.k, t.call).to(DType::float64), {-1}, true).expand(y.shape());
    y = where(keys > static_cast<double>(few), y, 1.0);
    // Rows without weights are 0: all keys are masked, or no feature is above 0.
    const Tensor expected = ne(y, 0).to(DType::float64);
    // Masks may leave few rows with a key, e.g. with windows.
    if (!has_mask_or_bias(variant.call))
      f.expect(sum(expected).item() >= 0.5 * static_cast<double>(y.numel()), "more than half of the output is 0");
    f.close("values of 1 (if weights need not add up to 1, set options.normalised to false)", y, expected, 1e-4);
  }
}

void check_weights(Subject& s, Finding& f) {
  if (!f.declared(s.can().weights, "weights")) return;
  const auto check = [&](const Trial& trial, DType dtype) {
    const Trial t = in_dtype(trial, dtype);
    f.about(t);
    const Tensor w = s.mechanism(dtype).weights(t.q, t.k, t.call, t.inputs).detach();
    const Shape shape = {t.q.dim(0), t.q.dim(1), t.q.dim(2), t.k.dim(2)};
    const bool fits = w.shape() == shape && w.dtype() == dtype;
    f.expect(fits,
             "weights are " + describe(w) + "; they must be " + to_string(shape) + " " + std::string(name_of(dtype)));
    if (!fits) return;
    f.zeros("the weights of masked pairs", where(allowed_pairs(t.q, t.k, t.call), 0.0, w));
    const Tensor values = detail::repeat_heads(t.v, t.q.dim(1));
    f.close("weights times v, " + std::string(name_of(dtype)), matmul(w, values), s.out(t, dtype),
            dtype == DType::float64 ? 1e-9 : s.options.float32_tolerance);
  };
  const Index n = s.at_most(30);
  for (const Sizes& sizes : s.shapes(n))
    for (const Variant& v : s.variants(sizes)) check(s.with_call(s.trial(sizes), v), DType::float64);
  for (const Variant& v : s.variants({n, n})) check(s.with_call(s.trial({n, n}), v), DType::float32);
  if (!s.can().key_mask) return;
  // Rows without a key.
  const Tensor lengths = Tensor::from<std::int32_t>({static_cast<double>(n), 0});
  check(s.with_call(s.trial({n, n}), {"a length of 0", {.key_lengths = lengths}}), DType::float64);
}

}  // namespace heed::detail::conformance
