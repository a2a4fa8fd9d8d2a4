// Subject::properties: properties that a mechanism's plain calls show and that must then hold in all other calls.
#include <algorithm>
#include <heed/autograd/attention.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <heed/layers/model.hpp>

namespace heed::detail::conformance {
namespace {

bool same(const Tensor& a, const Tensor& b) {
  Finding f;
  f.close("", a, b, kRounding);
  return f.ok();
}

bool heads_alike(Subject& s, const Trial& t) {
  // Members have a fixed number of heads, and so has a mechanism that is made for other numbers by a function.
  if (!members_of(s.mechanism(DType::float64)).empty() || s.options.of_sizes) return false;
  const Tensor whole = s.out(t);
  return same(s.out(heads_apart(t)).view(whole.shape()), whole);
}

bool keys_unordered(Subject& s, const Trial& t) {
  Trial other = t;
  permute_keys(other, Rng(s.options.seed, 105));
  return same(s.out(other), s.out(t));
}

bool lengths_are_masks(Subject& s, const Trial& t) {
  const Index n = t.k.dim(2), batch = t.k.dim(0);
  Trial cut = t, masked = t;
  cut.call.key_lengths = Tensor::full({batch}, static_cast<double>(n - n / 3), DType::int32);
  masked.call.key_mask = Tensor::ones({batch, n}, DType::bool8);
  masked.call.key_mask.slice(1, n - n / 3, n).fill_(0);
  return same(s.out(masked), s.out(cut));
}

bool causal_is_mask(Subject& s, const Trial& t) {
  Trial causal = t, masked = t;
  causal.call.causal = true;
  masked.call.mask = allowed_pairs(t.q, t.k, {.causal = true}).clone();
  return same(s.out(masked), s.out(causal));
}

}  // namespace

bool Subject::folds_key_masks() const {
  const std::vector<MechanismInput>& inputs = in64_.inputs();
  return std::all_of(inputs.begin(), inputs.end(), [](const auto& i) { return i.of_queries(); });
}

const Properties& Subject::properties() {
  if (properties_) return *properties_;
  Properties& found = properties_.emplace();
  const Index n = at_most(24);
  const Trial t = trial({n, n});
  found.heads_alike = heads_alike(*this, t);
  if (n < 3 || can().causal_only || can().aligned) return found;
  // A window may cover all keys of a short sequence, so try a longer one too.
  const Index longer = at_most(200);
  found.keys_unordered = keys_unordered(*this, t) && keys_unordered(*this, trial({longer, longer, 1}));
  found.lengths_are_masks = !can().key_mask || lengths_are_masks(*this, t);
  found.causal_is_mask = can().causal && can().full_mask && causal_is_mask(*this, t);
  return found;
}

}  // namespace heed::detail::conformance
