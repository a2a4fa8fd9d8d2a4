#include <cmath>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/luong.hpp>

namespace heed {
BahdanauAttention::BahdanauAttention(Index heads, Index size, Rng& rng, const BahdanauOptions& o) {
  const Index units = o.units == 0 ? size : o.units;
  require(heads > 0 && size > 0 && units > 0, "BahdanauAttention: heads is ", heads, ", size is ", size,
          " and units is ", o.units, "; heads and size must be 1 or more, and units 0 (as size) or more");
  W = detail::uniform_parameter({heads, units, size}, size, rng);
  U = detail::uniform_parameter({heads, units, size}, size, rng);
  score = detail::uniform_parameter({heads, units}, units, rng);
  if (!o.normalized) return;
  gain = Parameter(Tensor::full({heads}, 1 / std::sqrt(static_cast<double>(units))));
  bias = Parameter(Tensor::zeros({heads, units}));
}

AttentionCapabilities BahdanauAttention::capabilities() const { return AttentionCapabilities::of_pairs(); }

Tensor BahdanauAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  return detail::Additive{W, U, score, gain, bias}.apply(q, k, v, call);
}
Tensor BahdanauAttention::map_keys(In k, const AttentionCall& call) const {
  return detail::Additive{W, U, score, gain, bias}.map_keys(k, call);
}
Tensor BahdanauAttention::apply_mapped(In q, In keys, In v, const AttentionCall& call) const {
  return detail::Additive{W, U, score, gain, bias}.apply_mapped(q, keys, v, call);
}

AttentionState BahdanauAttention::make_state() const { return detail::Additive{W, U, score, gain, bias}.make_state(); }

}  // namespace heed
