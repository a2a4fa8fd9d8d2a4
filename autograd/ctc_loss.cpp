// ctc_loss(): the loss of label sequences without alignment.
#include <algorithm>
#include <cmath>
#include <heed/autograd/losses.hpp>
#include <heed/core/index.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/kernels/losses/ctc.hpp>
#include <heed/core/parallel.hpp>
#include <limits>
#include <vector>

namespace heed {
namespace {

constexpr const char* kOp = "ctc_loss";

// The sequences: their lengths, and the place of their labels.
struct Sequences {
  Index steps, classes, labels;  // of the tensors
  std::vector<Index> input, target;
  std::int32_t blank;

  Index count() const { return static_cast<Index>(input.size()); }
  template <class T>
  kernels::CtcSequence<T> at(Index i, const Tensor& log_probs, const Tensor& targets) const {
    const auto n = static_cast<std::size_t>(i);
    return {.log_probs = log_probs.ptr<T>() + i * steps * classes,
            .steps = input[n],
            .classes = classes,
            .labels = targets.ptr<std::int32_t>() + i * labels,
            .count = target[n],
            .blank = blank};
  }
  Index work(bool backward) const {
    const Index max_labels = input.empty() ? 0 : *std::max_element(target.begin(), target.end());
    const Index max_steps = input.empty() ? 0 : *std::max_element(input.begin(), input.end());
    return backward ? kernels::ctc_backward_work(max_steps, max_labels) : kernels::ctc_forward_work(max_labels);
  }
};

std::vector<Index> lengths_of(const char* name, const Where& where, const Tensor& lengths, Index count, Index limit) {
  if (!lengths.defined()) return std::vector<Index>(static_cast<std::size_t>(count), limit);
  check(lengths.dtype() == DType::int32 && lengths.shape() == Shape{count}, where, kOp, ": ", name, " are ", lengths,
        "; they must be ", Shape{count}, " int32");
  const std::vector<std::int32_t> given = lengths.to_vector<std::int32_t>();
  for (std::size_t i = 0; i < given.size(); ++i)
    check(given[i] >= 0 && given[i] <= limit, where, kOp, ": ", name, "[", i, "] is ", given[i], "; it must be in [0, ",
          limit, "]");
  return {given.begin(), given.end()};
}

Sequences check_sequences(In log_probs, In targets, const Tensor& input_lengths, const Tensor& target_lengths,
                          const CtcOptions& o) {
  const Where& where = log_probs.where();
  check(log_probs->defined() && log_probs.rank() == 3 &&
            (log_probs.dtype() == DType::float32 || log_probs.dtype() == DType::float64),
        where, kOp, ": log_probs are ", log_probs.tensor(), "; they must be [N, T, C], float32 or float64");
  const Index n = log_probs.dim(0), classes = log_probs.dim(2);
  check(targets->defined() && targets.rank() == 2 && targets.dim(0) == n && targets.dtype() == DType::int32, where, kOp,
        ": log_probs are ", log_probs.tensor(), " but targets are ", targets.tensor(), "; they must be [", n,
        ", S] int32");
  check(o.blank >= 0 && o.blank < classes, where, kOp, ": blank is ", o.blank, "; it must be one of the ", classes,
        " classes");
  check(o.reduction != Reduction::batch_mean, where, kOp,
        ": the reduction is batch_mean; it must be none, mean or sum");
  Sequences all{log_probs.dim(1),
                classes,
                targets.dim(1),
                lengths_of("input_lengths", where, input_lengths, n, log_probs.dim(1)),
                lengths_of("target_lengths", where, target_lengths, n, targets.dim(1)),
                static_cast<std::int32_t>(o.blank)};
  const Tensor t = targets->dense();
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < all.target[static_cast<std::size_t>(i)]; ++j) {
      const std::int32_t label = t.ptr<std::int32_t>()[i * all.labels + j];
      check(label >= 0 && label < classes && label != all.blank, where, kOp, ": targets[", i, ", ", j, "] is ", label,
            "; it must be in [0, ", classes, ") and not the blank, ", all.blank);
    }
  return all;
}

// The factor of each sequence's loss in the result.
std::vector<double> shares(const Sequences& s, Reduction reduction) {
  std::vector<double> share(s.input.size(), 1);
  if (reduction == Reduction::mean)
    for (std::size_t i = 0; i < share.size(); ++i)
      share[i] = 1 / static_cast<double>(std::max<Index>(1, s.target[i]) * s.count());
  return share;
}

template <class T>
void forward(const Sequences& s, const Tensor& log_probs, const Tensor& targets, std::vector<double>& losses) {
  ThreadScratch<double> work(s.work(false));
  parallel_for_each(s.count(), 1, [&](Index i) {
    losses[static_cast<std::size_t>(i)] =
        kernels::of<T>(kernels::ctc_table()).forward(s.at<T>(i, log_probs, targets), work.mine());
  });
}

// scale[i]: the gradient of the loss of sequence i; none where `skipped` is true.
template <class T>
void backward(const Sequences& s, const Tensor& log_probs, const Tensor& targets, const std::vector<double>& scale,
              const std::vector<bool>& skipped, const Target& gradient) {
  ThreadScratch<double> work(s.work(true));
  parallel_for_each(s.count(), 1, [&](Index i) {
    const auto n = static_cast<std::size_t>(i);
    const Index done = skipped[n] ? 0 : s.input[n];
    T* to = gradient.gradient.ptr<T>() + i * s.steps * s.classes;
    if (done > 0)
      kernels::of<T>(kernels::ctc_table())
          .backward(s.at<T>(i, log_probs, targets), scale[n], to, gradient.accumulate, work.mine());
    if (!gradient.accumulate) std::fill(to + done * s.classes, to + s.steps * s.classes, T(0));
  });
}

}  // namespace

Tensor ctc_loss(In log_probs, In targets, const Tensor& input_lengths, const Tensor& target_lengths,
                const CtcOptions& options) {
  const Sequences s = check_sequences(log_probs, targets, input_lengths, target_lengths, options);
  note_reads({targets, input_lengths, target_lengths});
  const Tensor x = log_probs->dense(), t = targets->dense();
  std::vector<double> losses(s.input.size());
  detail::with_float(x.dtype(), [&]<class T>(T) { forward<T>(s, x, t, losses); });
  std::vector<bool> skipped(losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (options.zero_infinity && std::isinf(losses[i])) skipped[i] = true, losses[i] = 0;
  const std::vector<double> share = shares(s, options.reduction);
  Tensor y;
  if (options.reduction == Reduction::none) {
    y = Tensor::from(losses, {s.count()}).to(x.dtype());
  } else {
    double sum = 0;
    for (std::size_t i = 0; i < losses.size(); ++i) sum += share[i] * losses[i];
    if (losses.empty() && options.reduction == Reduction::mean) sum = std::numeric_limits<double>::quiet_NaN();
    y = Tensor::scalar(sum, x.dtype());
  }
  record(kOp, log_probs.where(), y, {log_probs}, saved(x, t),
         [s, share, skipped](Grads& d, const Tensor& dy, const Tensor& xs, const Tensor& ts) {
           const Target dx = d.dense(0);
           if (!dx) return;
           const std::vector<double> dys = dy.to_vector<double>();
           std::vector<double> scale = share;
           for (std::size_t i = 0; i < scale.size(); ++i) scale[i] *= dys[dy.rank() == 0 ? 0 : i];
           detail::with_float(xs.dtype(), [&]<class T>(T) { backward<T>(s, xs, ts, scale, skipped, dx); });
         });
  return y;
}

}  // namespace heed
