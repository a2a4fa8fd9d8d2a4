// Cosine attention: softmax attention on normalised queries and keys.
#include <heed/autograd/attention.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {
namespace {

constexpr const char* kCosine = "cosine attention";

// beta q / |q|
Tensor directions(In q, In beta) {
  check(q.rank() == 4 && beta.shape() == Shape{q.dim(1)} && beta.dtype() == q.dtype(), q.where(), kCosine, ": q is ",
        q.tensor(), " and beta is ", beta.tensor(),
        "; they must be [batch, heads, positions, size] and [heads] of one dtype");
  return normalize(q) * beta->unsqueeze(1).unsqueeze(2);
}

Tensor key_directions(In k, const AttentionCall& call) {
  return normalize({without_padding(k, call, kCosine), k.where()});
}

Tensor attend_by_directions(In q, In keys, In v, const AttentionCall& call, In log_beta) {
  return attention({directions(q, exp(log_beta)), q.where()}, keys, v, call, 1.0);
}

}  // namespace

CosineAttention::CosineAttention(Exactly<Index> heads, Exactly<Index>, Rng&) {
  require(heads > 0, "CosineAttention: heads is ", heads, "; it must be 1 or more");
  log_beta = Parameter(Tensor::zeros({heads}));
}

Tensor CosineAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  return apply_mapped(q, map_keys(k, call), v, call);
}

Tensor CosineAttention::map_keys(In k, const AttentionCall& call) const { return key_directions(k, call); }

Tensor CosineAttention::apply_mapped(In q, In keys, In v, const AttentionCall& call) const {
  return attend_by_directions(q, keys, v, call, log_beta);
}

AttentionState CosineAttention::make_state() const {
  const Tensor log = log_beta;
  return KeyValueState(
      [log](In q, In keys, In v, const AttentionCall& call) { return attend_by_directions(q, keys, v, call, log); },
      [](In k) { return key_directions(k, {}); });
}

}  // namespace heed
