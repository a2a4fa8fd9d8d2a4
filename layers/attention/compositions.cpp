#include <cmath>
#include <heed/autograd/attention_inputs.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/layers/attention/compositions.hpp>
#include <heed/layers/init.hpp>

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
        x.tensor(), "; its heads must divide them");
  const Index batch = x.dim(0), groups = x.dim(1), rows = x.dim(2), size = x.dim(3);
  return x->unsqueeze(2).expand({batch, groups, heads / groups, rows, size}).reshape({batch, heads, rows, size});
}

}  // namespace heed::detail
