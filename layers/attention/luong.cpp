// Luong's scores as mechanisms: softmax attention on transformed queries or keys.
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/luong.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {
namespace {

// q^T W per head, whose dot product with k is the score q^T W k.
Tensor through(In q, In W) {
  check(W.rank() == 3 && W.dim(1) == W.dim(2), q.where(), "luong-general attention: W is ", W.tensor(),
        "; it must be [heads, size, size]");
  return detail::project_heads("luong-general attention", q, W->transpose(1, 2));
}

Tensor attend_general(In q, In k, In v, In W, const AttentionCall& call) {
  const Tensor query = through(q, W);
  return attention({query, q.where()}, k, v, call, 1.0);
}

// The rows of W at the positions of the keys, used as keys: [B, H, S, D].
Tensor position_keys(In q, In k, In v, In W) {
  constexpr const char* name = "luong-location attention";
  detail::check_heads(name, q, k, v);
  check(W.rank() == 3 && W.dim(0) == q.dim(1) && W.dim(2) == q.dim(3) && W.dtype() == q.dtype(), q.where(), name,
        ": q is ", q.tensor(), " and W is ", W.tensor(),
        "; they must be [batch, heads, positions, size] and [heads, max keys, size] of one dtype");
  check(k.dim(2) <= W.dim(1), q.where(), name, ": k is ", k.tensor(), " but W is ", W.tensor(),
        "; it has rows for at most ", W.dim(1), " keys");
  return W->slice(1, 0, k.dim(2)).unsqueeze(0).expand({q.dim(0), q.dim(1), k.dim(2), q.dim(3)});
}

Tensor attend_location(In q, In k, In v, In W, const AttentionCall& call) {
  const Tensor keys = position_keys(q, k, v, W), values = detail::repeat_heads(v, q.dim(1));
  return attention(q, keys, {values, v.where()}, call, 1.0);
}

}  // namespace

// ---- general ----

LuongGeneral::LuongGeneral(Exactly<Index> heads, Exactly<Index> size, Rng& rng) {
  require(heads > 0 && size > 0, "LuongGeneral: heads is ", heads, " and size is ", size, "; both must be 1 or more");
  W = detail::uniform_parameter({heads, size, size}, size, rng);
}
Tensor LuongGeneral::apply(In q, In k, In v, const AttentionCall& call) const {
  return attend_general(q, k, v, W, call);
}
AttentionState LuongGeneral::make_state() const {
  const Tensor w = W;
  return KeyValueState([w](In q, In k, In v, const AttentionCall& call) { return attend_general(q, k, v, w, call); });
}

// ---- concat ----

LuongConcat::LuongConcat(Exactly<Index> heads, Exactly<Index> size, Rng& rng, const LuongConcatOptions& o)
    : AdditiveMechanism("LuongConcat", heads, size, o.units, 2 * size, rng) {
  bias = detail::uniform_parameter({heads, W.dim(1)}, 2 * size, rng);
  score = detail::uniform_parameter({heads, W.dim(1)}, W.dim(1), rng);
}

// ---- location ----

LuongLocation::LuongLocation(Exactly<Index> heads, Exactly<Index> size, Rng& rng, const LuongLocationOptions& o) {
  require(heads > 0 && size > 0 && o.positions > 0, "LuongLocation: heads is ", heads, ", size is ", size,
          " and positions is ", o.positions, "; all must be 1 or more");
  W = detail::uniform_parameter({heads, o.positions, size}, size, rng);
}
Tensor LuongLocation::apply(In q, In k, In v, const AttentionCall& call) const {
  return attend_location(q, k, v, W, call);
}
AttentionState LuongLocation::make_state() const {
  const Tensor w = W;
  return KeyValueState([w](In q, In k, In v, const AttentionCall& call) { return attend_location(q, k, v, w, call); });
}
}  // namespace heed
