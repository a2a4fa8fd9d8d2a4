#include <cmath>
#include <heed/autograd/additive_attention.hpp>
#include <heed/autograd/allowed_pairs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/layers/attention/bahdanau.hpp>
#include <heed/layers/attention/compositions.hpp>
#include <heed/layers/attention/states/key_value_state.hpp>

namespace heed {
namespace {

constexpr const char* kAdditive = "additive attention";

// W q + b
Tensor projected_queries(In q, In W, In bias) {
  const Tensor y = detail::project_heads(kAdditive, q, W);
  if (!bias->defined()) return y;
  const Shape wanted = {W.dim(0), W.dim(1)};
  check(bias.shape() == wanted && bias.dtype() == W.dtype(), q.where(), kAdditive, ": W is ", W.tensor(),
        " but bias is ", bias.tensor(), "; it must be [heads, units] ", wanted, " ", W.dtype());
  return y + bias->unsqueeze(1);
}

Tensor projected_keys(In k, In U, const AttentionCall& call) {
  return detail::project_keys(kAdditive, {without_padding(k, call, kAdditive), k.where()}, U);
}

// u = v, or g v / |v|
Tensor score_vector(In score, In gain) {
  if (!gain->defined()) return score;
  check(score.rank() == 2 && gain.shape() == Shape{score.dim(0)} && gain.dtype() == score.dtype(), score.where(),
        kAdditive, ": score is ", score.tensor(), " and gain is ", gain.tensor(),
        "; they must be [heads, units] and [heads]");
  return gain->unsqueeze(1) * normalize(score);
}

}  // namespace

Tensor bahdanau_attention(In q, In k, In v, In W, In U, In score, In gain, In bias, const AttentionCall& call) {
  const Tensor a = projected_queries(q, W, bias), c = projected_keys(k, U, call), u = score_vector(score, gain);
  return additive_attention({a, q.where()}, c, detail::repeat_heads(v, c.dim(1)), u, call);
}

AttentionState bahdanau_state(const Tensor& W, const Tensor& U, const Tensor& score, const Tensor& gain,
                              const Tensor& bias) {
  return MappedKeyState(
      [W, bias](In q) { return projected_queries(q, W, bias); }, [U](In k) { return projected_keys(k, U, {}); },
      [score, gain](In a, In c, In v, const AttentionCall& call) {
        return additive_attention(a, c, v, score_vector(score, gain), call);
      });
}

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
  return bahdanau_attention(q, k, v, W, U, score, gain, bias, call);
}

AttentionState BahdanauAttention::make_state() const { return bahdanau_state(W, U, score, gain, bias); }

}  // namespace heed
