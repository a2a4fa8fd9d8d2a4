#include <heed/core/linear_attention.hpp>
//
#include <algorithm>
#include <heed/core/attention_problem.hpp>
#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/kernels/linear_attention.hpp>
#include <heed/core/kernels/log_attention.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/pool.hpp>

namespace heed::kernels {
HEED_KERNEL_TABLE(LinearTable, linear_attention_table)
HEED_KERNEL_TABLE(LogTable, log_attention_table)
}  // namespace heed::kernels

namespace heed::detail {
namespace {

using kernels::HeadRows;
using kernels::LinearGradients;
using kernels::LinearKernels;
using kernels::LinearNext;
using kernels::LinearPlan;
using kernels::LinearProblem;

constexpr double kGrainFlops = 2e6;  // some 10 microseconds

template <class T>
const LinearKernels<T>& kernels_of(LinearKind kind) {
  if constexpr (std::is_same_v<T, float>)
    return kind == LinearKind::features ? kernels::linear_attention_table().f32
           : kind == LinearKind::logs   ? kernels::log_attention_table().logs_f32
                                        : kernels::log_attention_table().efficient_f32;
  else
    return kind == LinearKind::features ? kernels::linear_attention_table().f64
           : kind == LinearKind::logs   ? kernels::log_attention_table().logs_f64
                                        : kernels::log_attention_table().efficient_f64;
}

template <class T>
LinearProblem<T> problem_of(const LinearCall& x) {
  LinearProblem<T> p{};
  set_rows<T>(p, x);
  p.map = static_cast<kernels::FeatureMap>(x.map);
  p.eps = static_cast<T>(x.eps);
  p.causal = x.causal;
  p.weight = pointer<const T>(x.weight);
  return p;
}

// Few heads are cut into spans of steps, which a first pass gives the sums before them. By the shape alone, so that the
// bits do not depend on the threads.
constexpr Index kEnoughHeads = 8;
constexpr Index kSpanSteps = 16;  // at least

struct Spans {
  Index heads, steps, per_head;

  Index first(Index span) const { return span * steps / per_head; }
  Index last(Index span) const { return first(span + 1); }
};

Spans spans_of(Index heads, Index steps) {
  Spans s{heads, steps, 1};
  if (heads > 0 && heads < kEnoughHeads)
    s.per_head = std::clamp<Index>((kEnoughHeads + heads - 1) / heads, 1, std::max<Index>(1, steps / kSpanSteps));
  return s;
}

// States of all spans of all heads.
template <class T>
class States {
 public:
  States(const LinearKernels<T>& kernel, const LinearProblem<T>& p, const LinearPlan& plan, const Spans& spans)
      : size_(plan.state_size),
        per_head_(spans.per_head),
        data_(static_cast<std::size_t>(spans.heads * spans.per_head * size_)) {
    for (Index i = 0; i < spans.heads * per_head_; ++i) kernel.clear(p, data_.data() + i * size_);
  }
  T* at(Index head, Index span) { return data_.data() + (head * per_head_ + span) * size_; }

 private:
  Index size_, per_head_;
  Scratch<T> data_;
};

// Between a state in memory and S [B, H, D, Dv], z [B, H, D] and maxima [B, H, D]. Undefined tensors are left alone.
template <class T, class Copy>
void copy_sums(const LinearProblem<T>& p, const LinearPlan& plan, const Tensor& sums, const Tensor& norms,
               const Tensor& maxima, Index head, T* state, Copy&& copy) {
  if (!sums.defined()) return;
  for (Index c = 0; c < p.width; ++c)
    copy(state + c * plan.state_row, sums.ptr<T>() + (head * p.width + c) * p.value_width, p.value_width);
  T* z = state + p.width * plan.state_row;
  copy(z, norms.ptr<T>() + head * p.width, p.width);
  if (maxima.defined()) copy(z + plan.vector_size, maxima.ptr<T>() + head * p.width, p.width);
}

// Heads [first, last) of a batch, one span of each.
struct Task {
  Index batch, first, last, span;
};

// f(task, step, the step that follows or -1, scratch) for all steps of all spans, from the front or from the back.
// Heads lie side by side in memory, so a task takes some at once and goes from step to step with all of them.
// `products`: operations a row and element of the state.
template <class T, class F>
void each_step(const LinearProblem<T>& p, const LinearPlan& plan, const Spans& spans, Index heads, double products,
               bool to_front, F&& f) {
  const Index tasks = p.batch * spans.per_head * heads;
  const double rows = static_cast<double>(std::max(p.queries, p.keys)) / static_cast<double>(spans.per_head);
  const double flops = products * rows * static_cast<double>((64 + p.width) * p.value_width);
  const Index least = static_cast<Index>(kGrainFlops / std::max(flops, 1.0)), share = tasks / (2 * threads());
  parallel_for(tasks, std::max<Index>({1, least, std::min(share, heads)}), [&](Index begin, Index end) {
    Scratch<T> scratch(plan.scratch);
    while (begin < end) {
      const Index group = begin / heads, first = begin % heads, last = std::min(heads, first + end - begin);
      const Task task{group / spans.per_head, first, last, group % spans.per_head};
      const Index from = spans.first(task.span), steps = spans.last(task.span) - from;
      for (Index i = 0; i < steps; ++i) {
        const Index s = to_front ? from + steps - 1 - i : from + i;
        f(task, s, i + 1 == steps ? -1 : to_front ? s - 1 : s + 1, scratch.data());
      }
      begin += last - first;
    }
  });
}

template <class T>
void forward(const LinearCall& x, const LinearSums& sums, Tensor& out, LinearKept& kept) {
  const LinearKernels<T>& kernel = kernels_of<T>(x.kind);
  const LinearProblem<T> p = problem_of<T>(x);
  const LinearPlan plan = kernel.plan(p);
  const Spans spans = spans_of(p.batch * p.heads, plan.steps);
  States<T> states(kernel, p, plan, spans);
  const HeadRows<T> y = rows_of<T>(out);
  for (Index i = 0; i < spans.heads; ++i)
    copy_sums(p, plan, sums.before, sums.norms_before, sums.maxima_before, i, states.at(i, 0),
              [](T* to, const T* from, Index n) { std::copy_n(from, n, to); });
  if (spans.per_head > 1) {
    each_step(p, plan, spans, p.heads, 2, false, [&](const Task& t, Index s, Index, T* scratch) {
      for (Index h = t.first; h < t.last && t.span + 1 < spans.per_head; ++h)
        kernel.sum_keys(p, t.batch, h, s, states.at(t.batch * p.heads + h, t.span + 1), scratch);
    });
    for (Index i = 0; i < spans.heads; ++i)
      for (Index span = 1; span < spans.per_head; ++span)
        kernel.add_keys(p, states.at(i, span), states.at(i, span - 1));
  }
  each_step(p, plan, spans, p.heads, 4, false, [&](const Task& t, Index s, Index after, T* scratch) {
    for (Index h = t.first; h < t.last; ++h)
      kernel.forward(p, y, pointer<T>(kept.norm), pointer<T>(kept.states), t.batch, h, s,
                     h + 1 < t.last ? LinearNext{h + 1, s} : LinearNext{t.first, after},
                     states.at(t.batch * p.heads + h, t.span), scratch);
  });
  for (Index i = 0; i < spans.heads; ++i)
    copy_sums(p, plan, sums.after, sums.norms_after, sums.maxima_after, i, states.at(i, spans.per_head - 1),
              [](const T* from, T* to, Index n) { std::copy_n(from, n, to); });
}

template <class T>
void backward(const LinearCall& x, const Tensor& out, const Tensor& dout, const LinearKept& kept, LinearSinks& d) {
  const LinearKernels<T>& kernel = kernels_of<T>(x.kind);
  const LinearProblem<T> p = problem_of<T>(x);
  const LinearGradients<T> g{rows_of<const T>(out),
                             rows_of<const T>(dout),
                             pointer<const T>(kept.norm),
                             pointer<const T>(kept.states),
                             rows_of<T>(d.dq),
                             rows_of<T>(d.dk),
                             rows_of<T>(d.dv),
                             d.add_dq,
                             d.add_dk,
                             d.add_dv,
                             pointer<T>(d.dweight)};
  const LinearPlan plan = kernel.plan(p);
  const Spans spans = spans_of(p.batch * p.heads, plan.steps);
  States<T> states(kernel, p, plan, spans);
  if (spans.per_head > 1) {
    each_step(p, plan, spans, p.heads, 3, true, [&](const Task& t, Index s, Index, T* scratch) {
      for (Index h = t.first; h < t.last && t.span > 0; ++h)
        kernel.sum_queries(p, g, t.batch, h, s, states.at(t.batch * p.heads + h, t.span - 1), scratch);
    });
    for (Index i = 0; i < spans.heads; ++i)
      for (Index span = spans.per_head - 1; span > 0; --span)
        kernel.add_queries(p, states.at(i, span - 1), states.at(i, span));
  }
  // Heads that share keys add to the same gradients, one after another.
  const Index shared = p.heads / p.kv_heads;
  each_step(p, plan, spans, p.kv_heads, 10 * static_cast<double>(shared), true,
            [&](const Task& t, Index s, Index after, T* scratch) {
              for (Index h = t.first * shared; h < t.last * shared; ++h)
                kernel.backward(p, g, t.batch, h, s,
                                h + 1 < t.last * shared ? LinearNext{h + 1, s} : LinearNext{t.first * shared, after},
                                states.at(t.batch * p.heads + h, t.span), scratch);
            });
}

}  // namespace

LinearKept linear_attention_keeps(const LinearCall& x) {
  const auto plan = [&]<class T>(T) { return kernels_of<T>(x.kind).plan(problem_of<T>(x)); };
  const LinearPlan steps = x.q.dtype() == DType::float32 ? plan(float{}) : plan(double{});
  const Index heads = x.q.dim(0) * x.q.dim(1);
  return {Tensor::empty({x.q.dim(0), x.q.dim(1), x.q.dim(2)}, x.q.dtype()),
          Tensor::empty({heads * steps.kept * steps.state_size}, x.q.dtype())};
}

void linear_attention_forward(const LinearCall& x, const LinearSums& sums, Tensor& out, LinearKept& kept) {
  x.q.dtype() == DType::float32 ? forward<float>(x, sums, out, kept) : forward<double>(x, sums, out, kept);
}

void linear_attention_backward(const LinearCall& x, const Tensor& out, const Tensor& dout, const LinearKept& kept,
                               LinearSinks& d) {
  x.q.dtype() == DType::float32 ? backward<float>(x, out, dout, kept, d) : backward<double>(x, out, dout, kept, d);
}

}  // namespace heed::detail
