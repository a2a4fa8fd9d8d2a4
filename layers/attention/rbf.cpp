// Attention by the Gaussian kernel: softmax attention on queries and keys with one more element.
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {
namespace {

constexpr const char* kRbf = "rbf attention";

// [k, -|k|^2 / 2]
Tensor with_norms(In k, const AttentionCall& call) {
  const Tensor x = without_padding(k, call, kRbf);
  return concatenate({x, sum(square(x), {-1}, true) * -0.5}, -1);
}

Tensor attend_by_distance(In q, In keys, In v, const AttentionCall& call, double width) {
  check(q.rank() == 4, q.where(), kRbf, ": q is ", q.tensor(), "; it must be [batch, heads, positions, size]");
  const Tensor one = Tensor::ones(q.shape().with(3, 1), q.dtype());
  const double squared = width > 0 ? width * width : std::sqrt(static_cast<double>(q.dim(3))) / 2;
  return attention({concatenate({q.tensor(), one}, -1), q.where()}, keys, v, call, 1 / squared);
}

}  // namespace

RbfAttention::RbfAttention(double kernel_width) : width(kernel_width) {
  require(width >= 0 && std::isfinite(width), "RbfAttention: width is ", width,
          "; it must be above 0, or 0 for its default");
}

Tensor RbfAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  detail::check_heads(kRbf, q, k, v);
  return attend_by_distance(q, with_norms(k, call), v, call, width);
}

Tensor RbfAttention::map_keys(In k, const AttentionCall& call) const { return with_norms(k, call); }

Tensor RbfAttention::apply_mapped(In q, In keys, In v, const AttentionCall& call) const {
  return attend_by_distance(q, keys, v, call, width);
}

AttentionState RbfAttention::make_state() const {
  return KeyValueState(
      [w = width](In q, In keys, In v, const AttentionCall& call) { return attend_by_distance(q, keys, v, call, w); },
      [](In k) { return with_norms(k, {}); });
}

}  // namespace heed
