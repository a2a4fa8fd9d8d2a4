// Parts of mechanisms that are composed of ops: projections per head, and additive scores.
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/linear.hpp>

namespace heed::detail {

Parameter uniform_parameter(const Shape& shape, Index fan_in, Rng& rng) {
  Parameter p(Tensor::empty(shape));
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  init::uniform_(p, rng, -bound, bound);
  return p;
}

Tensor project_heads(const char* name, In x, In W) {
  check(x.rank() == 4 && W.rank() == 3 && W.dim(0) == x.dim(1) && W.dim(2) == x.dim(3) && W.dtype() == x.dtype(),
        x.where(), name, ": x is ", x.tensor(), " and its projection is ", W.tensor(),
        "; they must be [batch, heads, positions, size] and [heads, any size, size] of one dtype");
  // With one head, the rows of all sequences are one product, for which WeightReuse packs the weight once.
  if (W.dim(0) == 1) return linear(x, W->select(0, 0), Tensor());
  return matmul(x, W->transpose(1, 2));
}

Tensor project_keys(const char* name, In k, In W) {
  if (k.rank() != 4 || W.rank() != 3 || k.dim(1) == 0 || W.dim(0) % k.dim(1) != 0 || W.dim(0) == k.dim(1))
    return project_heads(name, k, W);
  check(W.dim(2) == k.dim(3) && W.dtype() == k.dtype(), k.where(), name, ": k is ", k.tensor(),
        " and its projection is ", W.tensor(), "; they must have one size and one dtype");
  const Index groups = k.dim(1), heads = W.dim(0);
  const Tensor of_groups = W->reshape({groups, heads / groups, W.dim(1), W.dim(2)});
  return matmul(k->unsqueeze(2), of_groups.transpose(2, 3)).reshape({k.dim(0), heads, k.dim(2), W.dim(1)});
}

Tensor repeat_heads(In x, Index heads) {
  if (x.dim(1) == heads) return x;
  check(x.dim(1) > 0 && heads % x.dim(1) == 0, x.where(), "attention: there are ", heads, " heads and x is ",
        x.tensor(), "; the heads of x must divide ", heads);
  const Index batch = x.dim(0), groups = x.dim(1), rows = x.dim(2), size = x.dim(3);
  return x->unsqueeze(2).expand({batch, groups, heads / groups, rows, size}).reshape({batch, heads, rows, size});
}

// ---- Additive scores ----

namespace {

constexpr const char* kAdditive = "additive attention";

// W q + b
Tensor projected_queries(In q, In W, In bias) {
  const Tensor y = project_heads(kAdditive, q, W);
  if (!bias->defined()) return y;
  const Shape expected = {W.dim(0), W.dim(1)};
  check(bias.shape() == expected && bias.dtype() == W.dtype(), q.where(), kAdditive, ": W is ", W.tensor(),
        " but bias is ", bias.tensor(), "; it must be [heads, units] ", expected, " ", W.dtype());
  return y + bias->unsqueeze(1);
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

Tensor Additive::map_keys(In k, const AttentionCall& call) const {
  return project_keys(kAdditive, {without_padding(k, call, kAdditive), k.where()}, U);
}

Tensor Additive::apply_mapped(In q, In keys, In v, const AttentionCall& call) const {
  const Tensor a = projected_queries(q, W, bias), u = score_vector(score, gain);
  return additive_attention({a, q.where()}, keys, repeat_heads(v, keys.dim(1)), u, call);
}

}  // namespace heed::detail
