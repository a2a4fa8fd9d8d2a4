// Bahdanau's attention, and the base class that it shares with Luong's concat.
#include <cmath>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/luong.hpp>

namespace heed {
namespace detail {

AdditiveMechanism::AdditiveMechanism(const char* name, Exactly<Index> heads, Exactly<Index> size, Exactly<Index> units,
                                     Exactly<Index> fan_in, Rng& rng) {
  const Index sum = units == 0 ? size : units;
  require(heads > 0 && size > 0 && sum > 0, name, ": heads is ", heads, ", size is ", size, " and units is ", units,
          "; heads and size must be 1 or more, and units 0 (as size) or more");
  W = uniform_parameter({heads, sum, size}, fan_in, rng);
  U = uniform_parameter({heads, sum, size}, fan_in, rng);
}

Additive AdditiveMechanism::formula() const { return {W, U, score, gain, bias}; }

Tensor AdditiveMechanism::apply(In q, In k, In v, const AttentionCall& call) const {
  return apply_mapped(q, map_keys(k, call), v, call);
}
Tensor AdditiveMechanism::map_keys(In k, const AttentionCall& call) const { return formula().map_keys(k, call); }
Tensor AdditiveMechanism::apply_mapped(In q, In keys, In v, const AttentionCall& call) const {
  return formula().apply_mapped(q, keys, v, call);
}
AttentionState AdditiveMechanism::make_state() const {
  return KeyValueState(
      [x = formula()](In q, In keys, In v, const AttentionCall& call) { return x.apply_mapped(q, keys, v, call); },
      [x = formula()](In k) { return x.map_keys(k, {}); });
}

}  // namespace detail

BahdanauAttention::BahdanauAttention(Exactly<Index> heads, Exactly<Index> size, Rng& rng, const BahdanauOptions& o)
    : AdditiveMechanism("BahdanauAttention", heads, size, o.units, size, rng) {
  const Index units = W.dim(1);
  score = detail::uniform_parameter({heads, units}, units, rng);
  if (!o.normalized) return;
  gain = Parameter(Tensor::full({heads}, 1 / std::sqrt(static_cast<double>(units))));
  bias = Parameter(Tensor::zeros({heads, units}));
}

}  // namespace heed
