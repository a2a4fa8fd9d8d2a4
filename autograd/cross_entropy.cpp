// cross_entropy() of logits and class indices.
#include <heed/autograd/detail/cross_entropy_rows.hpp>
#include <heed/autograd/detail/loss_weight.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/core/index.hpp>
#include <heed/core/parallel.hpp>
#include <numeric>

namespace heed {
namespace {

using detail::CrossEntropyRows;

template <class T>
void forward(const CrossEntropyRows& rows, const Tensor& logits, const Tensor& targets, const Tensor& weight,
             Tensor& loss, Tensor& lse) {
  const auto c = rows.of<T>(weight);
  parallel_for(targets.numel(), grain_for(4 * c.classes), [&](Index b, Index e) {
    detail::cross_entropy_table<T>().forward(c, logits.ptr<T>() + b * c.classes, targets.ptr<std::int32_t>() + b,
                                             loss.ptr<T>() + b, lse.ptr<T>() + 2 * b, e - b);
  });
}

template <class T>
void backward(const CrossEntropyRows& rows, const Target& dlogits, const Tensor& dy, const Tensor& logits,
              const Tensor& targets, const Tensor& weight, const Tensor& lse) {
  const auto c = rows.of<T>(weight);
  parallel_for(targets.numel(), grain_for(4 * c.classes), [&](Index b, Index e) {
    T* dx = dlogits.gradient.ptr<T>() + b * c.classes;
    detail::cross_entropy_table<T>().backward(c, logits.ptr<T>() + b * c.classes, targets.ptr<std::int32_t>() + b,
                                              lse.ptr<T>() + 2 * b, rows.gradient<T>(dy, b, dx, dlogits.accumulate),
                                              e - b);
  });
}

}  // namespace

namespace detail {

CrossEntropyRows::CrossEntropyRows(const char* op, const Where& where, const Tensor& targets, Index classes_,
                                   DType dtype, const CrossEntropyOptions& o)
    : classes(classes_),
      ignore_index(o.ignore_index),
      smoothing(o.label_smoothing),
      weight_sum(static_cast<double>(classes_)),
      weighted(o.weight.defined()) {
  check(targets.dtype() == DType::int32, where, op, ": targets are ", targets, "; they must be int32");
  check(classes > 0, where, op, ": there are no classes; there must be 1 or more");
  check(smoothing >= 0 && smoothing <= 1, where, op, ": label_smoothing is ", smoothing, "; it must be in [0, 1]");
  check(o.reduction != Reduction::batch_mean, where, op, ": the reduction is batch_mean; it must be none, mean or sum");
  check_indices(op, "targets", where, targets, classes, ignore_index);
  std::vector<double> weight;
  if (weighted) {
    check(o.weight.shape() == Shape{classes} && o.weight.dtype() == dtype, where, op, ": the class weights are ",
          o.weight, "; they must be ", Shape{classes}, " ", dtype);
    check(!needs_gradient({o.weight}), where, op,
          ": the class weights require a gradient, which is not defined; detach() them");
    weight = o.weight.to_vector<double>();
    weight_sum = std::accumulate(weight.begin(), weight.end(), 0.0);
  }
  const std::int32_t* t = targets.ptr<std::int32_t>();
  for (Index i = 0; i < targets.numel(); ++i)
    if (t[i] != ignore_index) counted += weighted ? weight[static_cast<std::size_t>(t[i])] : 1;
  if (o.reduction == Reduction::mean) scale = 1 / counted;
}

// Sums in float64, in order.
Tensor CrossEntropyRows::reduce(const Tensor& loss, Reduction reduction) const {
  if (reduction == Reduction::none) return loss;
  double sum = 0;
  with_float(loss.dtype(), [&]<class T>(T) {
    for (Index i = 0; i < loss.numel(); ++i) sum += static_cast<double>(loss.ptr<T>()[i]);
  });
  const Tensor y = Tensor::scalar(sum * scale, loss.dtype());
  if (reduction == Reduction::mean)
    note_loss_weight(y.item(), counted, weighted ? LossWeight::weights : LossWeight::count, true);
  return y;
}

}  // namespace detail

// loss = lse - x_t, where lse = log sum_c exp(x_c). Backward: dx_c = dy (exp(x_c - lse) - [c = t]). The weighted and
// smoothed forms are in core/kernels/losses/cross_entropy.kernel.cpp.
Tensor cross_entropy(In logits, In targets, const CrossEntropyOptions& options) {
  const Where& where = logits.where();
  check(logits->defined() && (logits.dtype() == DType::float32 || logits.dtype() == DType::float64), where,
        "cross_entropy: logits are ", logits.tensor(), "; they must be float32 or float64");
  check(logits.rank() > 0 && targets->defined() && targets.shape() == logits.shape().without(-1), where,
        "cross_entropy: logits are ", logits.tensor(), " but targets are ", targets.tensor(),
        "; targets must have the shape of logits without its last axis");
  note_reads({targets, options.weight});
  const Tensor x = logits->dense(), t = targets->dense();
  const CrossEntropyRows rows("cross_entropy", where, t, logits.dim(-1), logits.dtype(), options);
  const Tensor weight = options.weight.dense();
  Tensor loss = Tensor::empty(targets.shape(), logits.dtype()),
         lse = Tensor::empty({targets.numel(), 2}, logits.dtype());
  detail::with_float(x.dtype(), [&]<class T>(T) { forward<T>(rows, x, t, weight, loss, lse); });
  Tensor y = rows.reduce(loss, options.reduction);
  record("cross_entropy", where, y, {logits}, saved(x, t, weight, lse),
         [rows](Grads& d, const Tensor& dy, const Tensor& xs, const Tensor& ts, const Tensor& w, const Tensor& lses) {
           const Target dx = d.dense(0);
           if (!dx) return;
           detail::with_float(xs.dtype(), [&]<class T>(T) { backward<T>(rows, dx, dy, xs, ts, w, lses); });
         });
  return y;
}

}  // namespace heed
