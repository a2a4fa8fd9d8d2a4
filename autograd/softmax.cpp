// Softmax and log-softmax over an axis.
#include <heed/autograd/norms.hpp>
#include <heed/core/reduce/reduce.hpp>

namespace heed {

// softmax: dx = y (dy - sum(dy y)); log_softmax: dx = dy - e^y sum(dy); sums over the axis.
static Tensor softmax_op(const char* op, bool log, In x, int axis) {
  detail::check_float(op, x);
  if (x.rank() == 0) return softmax_op(op, log, In(x->unsqueeze(0), x.where()), axis).squeeze(0);
  const int a = detail::axis_of(op, x, axis);
  const Tensor from = detail::widened(x).dense();
  Tensor y = Tensor::empty(x.shape(), from.dtype());
  detail::softmax(log, from, a, y);
  y = detail::cast(y, x.dtype());
  record(op, x.where(), y, {x}, saved(y), [log, a](Grads& d, const Tensor& dy, const Tensor& result) {
    if (Target t = d.dense(0)) detail::softmax_backward(log, detail::widened(result), dy, a, t.gradient, t.accumulate);
  });
  return y;
}

Tensor softmax(In x, Exactly<int> axis) { return softmax_op("softmax", false, x, axis); }
Tensor log_softmax(In x, Exactly<int> axis) { return softmax_op("log_softmax", true, x, axis); }

}  // namespace heed
