// Losses of the elements of two tensors of one shape, and their reductions.
#include <algorithm>
#include <heed/autograd/detail/loss_weight.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/kernels/losses/pointwise.hpp>
#include <heed/core/parallel.hpp>
#include <numeric>

namespace heed {
namespace {

using kernels::Pointwise;

constexpr Index kSummed = 8192;  // losses summed per chunk

// The operands of a loss of elements, all contiguous and of one shape; the weights may be undefined.
struct LossOperands {
  Tensor x, target, weight, pos_weight;
  double delta = 1;
};

template <class T>
const kernels::PointwiseKernels<T>& pointwise_table() {
  return kernels::of<T>(kernels::pointwise_table());
}

template <class T>
kernels::PointwiseInputs<T> inputs_at(const LossOperands& o, Index i) {
  const auto at = [i](const Tensor& x) { return x.defined() ? x.ptr<T>() + i : nullptr; };
  return {at(o.x), at(o.target), at(o.weight), at(o.pos_weight), static_cast<T>(o.delta)};
}

template <class T>
Tensor each(Pointwise loss, const LossOperands& o) {
  Tensor y = Tensor::empty(o.x.shape(), o.x.dtype());
  parallel_for(o.x.numel(), grain_for(4),
               [&](Index b, Index e) { pointwise_table<T>().each(loss, inputs_at<T>(o, b), e - b, y.ptr<T>() + b); });
  return y;
}

// Sums chunks of a fixed size, then their sums in order, all in float64.
template <class T>
double sum(Pointwise loss, const LossOperands& o) {
  const Index n = o.x.numel(), chunks = (n + kSummed - 1) / kSummed;
  const Tensor sums = Tensor::empty({chunks}, DType::float64);
  parallel_for_each(chunks, 1, [&](Index c) {
    sums.ptr<double>()[c] =
        pointwise_table<T>().sum(loss, inputs_at<T>(o, c * kSummed), std::min(kSummed, n - c * kSummed));
  });
  return std::accumulate(sums.ptr<double>(), sums.ptr<double>() + chunks, 0.);
}

template <class T>
void backward(Pointwise loss, const LossOperands& o, const Target& dx, const Target& dt, const Tensor& dy,
              double scale) {
  const Index stride = dy.rank() == 0 ? 0 : 1;
  const auto at = [](const Target& t, Index i) { return t ? t.gradient.ptr<T>() + i : nullptr; };
  parallel_for(o.x.numel(), grain_for(4), [&](Index b, Index e) {
    pointwise_table<T>().backward(loss, inputs_at<T>(o, b), e - b,
                                  {.dy = dy.ptr<T>() + b * stride,
                                   .dy_stride = stride,
                                   .scale = static_cast<T>(scale),
                                   .dx = at(dx, b),
                                   .accumulate_dx = dx.accumulate,
                                   .dt = at(dt, b),
                                   .accumulate_dt = dt.accumulate});
  });
}

// All losses of elements: y = reduce(loss(x_i, target_i)), with gradients of x and of the target.
Tensor pointwise(const char* op, Pointwise loss, In x, In target, Reduction reduction, LossOperands o = {}) {
  check(x->defined() && target->defined() && (x.dtype() == DType::float32 || x.dtype() == DType::float64), x.where(),
        op, ": x is ", x.tensor(), " and the target is ", target.tensor(), "; both must be float32 or float64");
  check(x.shape() == target.shape() && x.dtype() == target.dtype(), x.where(), op, ": x is ", x.tensor(),
        " but the target is ", target.tensor(), "; they must have the same shape and dtype");
  check(reduction != Reduction::batch_mean || loss == Pointwise::kl || loss == Pointwise::kl_log, x.where(), op,
        ": the reduction is batch_mean; it must be none, mean or sum");
  check(reduction != Reduction::batch_mean || x.rank() > 0, x.where(), op, ": x is ", x.tensor(),
        "; batch_mean needs a first axis");
  o.x = x->dense();
  o.target = target->dense();
  const bool wide = x.dtype() == DType::float64;
  double scale = 1;
  if (reduction == Reduction::mean) scale = 1 / static_cast<double>(x.numel());
  if (reduction == Reduction::batch_mean) scale = 1 / static_cast<double>(x.dim(0));
  Tensor y;
  if (reduction == Reduction::none)
    y = wide ? each<double>(loss, o) : each<float>(loss, o);
  else
    y = Tensor::scalar(scale * (wide ? sum<double>(loss, o) : sum<float>(loss, o)), x.dtype());
  if (reduction == Reduction::mean && o.weight.defined())
    detail::note_loss_weight(y.item(), static_cast<double>(x.numel()), detail::LossWeight::count);
  record(op, x.where(), y, {x, target}, saved(o.x, o.target, o.weight, o.pos_weight),
         [loss, scale, delta = o.delta](Grads& d, const Tensor& dy, const Tensor& xs, const Tensor& ts, const Tensor& w,
                                        const Tensor& p) {
           const Target dx = d.dense(0), dt = d.dense(1);
           const LossOperands kept = {xs, ts, w, p, delta};
           detail::with_float(xs.dtype(), [&]<class T>(T) { backward<T>(loss, kept, dx, dt, dy, scale); });
         });
  return y;
}

// A constant weight, broadcast to the shape of x; undefined if it was not given.
Tensor weight_for(const char* name, In x, const Tensor& weight) {
  if (!weight.defined()) return {};
  Shape shape;
  check(broadcast(weight.shape(), x.shape(), shape) && shape == x.shape() && weight.dtype() == x.dtype(), x.where(),
        "binary_cross_entropy_with_logits: x is ", x.tensor(), " but ", name, " is ", weight,
        "; it must have x's dtype and broadcast to x's shape");
  check(!needs_gradient({weight}), x.where(), "binary_cross_entropy_with_logits: ", name,
        " requires a gradient, which is not defined; detach() it");
  note_reads({weight});
  return weight.detach().expand(x.shape()).dense();
}

}  // namespace

Tensor mse_loss(In x, In target, Reduction reduction) {
  return pointwise("mse_loss", Pointwise::mse, x, target, reduction);
}

Tensor l1_loss(In x, In target, Reduction reduction) {
  return pointwise("l1_loss", Pointwise::l1, x, target, reduction);
}

Tensor huber_loss(In x, In target, const HuberOptions& options) {
  check(options.delta > 0, x.where(), "huber_loss: delta is ", options.delta, "; it must be greater than 0");
  LossOperands o;
  o.delta = options.delta;
  return pointwise("huber_loss", Pointwise::huber, x, target, options.reduction, o);
}

Tensor binary_cross_entropy_with_logits(In x, In target, const BinaryCrossEntropyOptions& options) {
  LossOperands o;
  if (x->defined()) {
    o.weight = weight_for("the weight", x, options.weight);
    o.pos_weight = weight_for("pos_weight", x, options.pos_weight);
  }
  return pointwise("binary_cross_entropy_with_logits", Pointwise::binary_cross_entropy, x, target, options.reduction,
                   o);
}

Tensor kl_div(In x, In target, const KlDivOptions& options) {
  return pointwise("kl_div", options.log_target ? Pointwise::kl_log : Pointwise::kl, x, target, options.reduction);
}

}  // namespace heed
