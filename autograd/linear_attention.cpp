// Linear attention: the ops, how their work is split among threads, and features that ops compute.
#include <heed/autograd/linear_attention.hpp>
//
#include <algorithm>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/detail/poly2_attention.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/core/kernels/linear_attention/linear_attention.hpp>
#include <heed/core/kernels/linear_attention/log_attention.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/profiler.hpp>

namespace heed {
namespace {

using detail::AttentionInputs;
using detail::AttentionTargets;
using detail::pointer;
using detail::rows_of;
using kernels::HeadRows;
using kernels::LinearGradients;
using kernels::LinearKernels;
using kernels::LinearKind;
using kernels::LinearNext;
using kernels::LinearPlan;
using kernels::LinearProblem;

// The options on which forward and backward must agree, besides the inputs.
struct LinearForm {
  LinearKind kind;
  FeatureMap map;
  double eps;
};

// weight [B, H, S], contiguous: factors of f(k), or summands of the logarithms; or undefined.
template <class T, class S>
LinearProblem<T, S> linear_problem(const AttentionInputs& x, const Tensor& weight, const LinearForm& form) {
  LinearProblem<T, S> p{};
  set_rows<T>(p, x);
  p.map = form.map;
  p.eps = static_cast<T>(form.eps);
  p.causal = x.call.causal;
  p.weight = pointer<const T>(weight);
  return p;
}

// The results of forward that backward needs.
struct LinearKept {
  Tensor norm;    // [B, H, T]: the denominators
  Tensor states;  // sums over keys before each step of the work, in the layout of the kernels

  auto tensors() { return std::tie(norm, states); }
};
LinearKept kept_for_backward(const AttentionInputs& x, const Tensor& weight, const LinearForm& form) {
  LinearPlan plan{};
  detail::with_format(x.q.dtype(), [&]<class T, class S>(T, S) {
    plan = kernels::linear_kernels<T, S>(form.kind).plan(linear_problem<T, S>(x, weight, form));
  });
  const Index heads = x.q.dim(0) * x.q.dim(1);
  const DType dtype = detail::score_dtype(x.q.dtype());
  return {Tensor::empty(x.grid().first(3), dtype), Tensor::empty({heads * plan.kept * plan.state_size}, dtype)};
}

// Few heads are cut into spans of steps; a first pass computes the sums before each span. The cut depends on the shape
// only, so the bits do not depend on the threads.
constexpr Index kEnoughHeads = 8;
constexpr Index kSpanSteps = 16;  // minimum steps per span

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

// The states of all spans of all heads.
template <class T, class S>
class States {
 public:
  States(const LinearKernels<T, S>& kernel, const LinearProblem<T, S>& p, const LinearPlan& plan, const Spans& spans)
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

// Copies between a state and S [B, H, D, Dv], z [B, H, D] and maxima [B, H, D]. Undefined tensors are skipped.
template <class T, class S, class Copy>
void copy_sums(const LinearProblem<T, S>& p, const LinearPlan& plan, const LinearAttentionSums& sums, Index head,
               T* state, Copy&& copy) {
  if (!sums.sums.defined()) return;
  for (Index c = 0; c < p.width; ++c)
    copy(state + c * plan.state_row, sums.sums.ptr<T>() + (head * p.width + c) * p.value_width, p.value_width);
  T* z = state + p.width * plan.state_row;
  copy(z, sums.norms.ptr<T>() + head * p.width, p.width);
  if (sums.maxima.defined()) copy(z + plan.vector_size, sums.maxima.ptr<T>() + head * p.width, p.width);
}

// One span of each of the heads [first, last) of a sequence.
struct Task {
  Index batch, first, last, span;
};

// Calls f(task, step, next step or -1, scratch) for all steps of all spans, in order or, if `to_front`, in reverse
// order. Heads are adjacent in memory, so a task runs several heads together, step by step. `products`: operations per
// row and element of the state.
template <class T, class S, class F>
void each_step(const LinearProblem<T, S>& p, const LinearPlan& plan, const Spans& spans, Index heads, double products,
               bool to_front, F&& f) {
  const Index tasks = p.batch * spans.per_head * heads;
  const double rows = static_cast<double>(std::max(p.queries, p.keys)) / static_cast<double>(spans.per_head);
  const double flops = products * rows * static_cast<double>((64 + p.width) * p.value_width);
  // Within a chunk of 64 rows the causal triangle is half of a product.
  detail::count_flops(dtype_of<T>, products * rows * static_cast<double>(tasks) *
                                       static_cast<double>((p.width + (p.causal ? 32 : 0)) * p.value_width));
  const Index min_grain = grain_for_flops(flops), share = tasks / (2 * threads());
  parallel_for(tasks, std::max({min_grain, std::min(share, heads)}), [&](Index begin, Index end) {
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

// Starts from the sums `first` (undefined: none before) and writes the sums at the end to `last` (undefined: not
// needed).
template <class T, class S>
void forward(const AttentionInputs& x, const Tensor& weight, const LinearForm& form, const LinearAttentionSums& first,
             const LinearAttentionSums& last, const Tensor& out, const LinearKept& kept) {
  const LinearKernels<T, S>& kernel = kernels::linear_kernels<T, S>(form.kind);
  const LinearProblem<T, S> p = linear_problem<T, S>(x, weight, form);
  const LinearPlan plan = kernel.plan(p);
  const Spans spans = spans_of(p.batch * p.heads, plan.steps);
  States<T, S> states(kernel, p, plan, spans);
  const HeadRows<S> y = rows_of<S>(out);
  for (Index i = 0; i < spans.heads; ++i)
    copy_sums(p, plan, first, i, states.at(i, 0), [](T* to, const T* from, Index n) { std::copy_n(from, n, to); });
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
      kernel.forward(p, y, pointer<T>(kept.norm), pointer<T>(kept.states),
                     {t.batch, h, s, h + 1 < t.last ? LinearNext{h + 1, s} : LinearNext{t.first, after}},
                     states.at(t.batch * p.heads + h, t.span), scratch);
  });
  for (Index i = 0; i < spans.heads; ++i)
    copy_sums(p, plan, last, i, states.at(i, spans.per_head - 1),
              [](const T* from, T* to, Index n) { std::copy_n(from, n, to); });
}

struct LinearTargets {
  AttentionTargets inputs;
  Tensor weight;  // [B, H, S], zeros before; undefined: not needed
};

template <class T, class S>
void backward(const AttentionInputs& x, const Tensor& weight, const LinearForm& form, const Tensor& out,
              const Tensor& dout, const LinearKept& kept, const LinearTargets& to) {
  const LinearKernels<T, S>& kernel = kernels::linear_kernels<T, S>(form.kind);
  const LinearProblem<T, S> p = linear_problem<T, S>(x, weight, form);
  LinearGradients<T, S> g{};
  detail::set_gradients<T>(g, out, dout, to.inputs);
  g.norm = pointer<const T>(kept.norm), g.kept = pointer<const T>(kept.states), g.dweight = pointer<T>(to.weight);
  const LinearPlan plan = kernel.plan(p);
  const Spans spans = spans_of(p.batch * p.heads, plan.steps);
  States<T, S> states(kernel, p, plan, spans);
  if (spans.per_head > 1) {
    each_step(p, plan, spans, p.heads, 3, true, [&](const Task& t, Index s, Index, T* scratch) {
      for (Index h = t.first; h < t.last && t.span > 0; ++h)
        kernel.sum_queries(p, g, t.batch, h, s, states.at(t.batch * p.heads + h, t.span - 1), scratch);
    });
    for (Index i = 0; i < spans.heads; ++i)
      for (Index span = spans.per_head - 1; span > 0; --span)
        kernel.add_queries(p, states.at(i, span - 1), states.at(i, span));
  }
  // Heads that share keys add to the same gradients, one head after another.
  const Index shared = p.heads / p.kv_heads;
  each_step(p, plan, spans, p.kv_heads, 10 * static_cast<double>(shared), true,
            [&](const Task& t, Index s, Index after, T* scratch) {
              for (Index h = t.first * shared; h < t.last * shared; ++h)
                kernel.backward(p, g,
                                {t.batch, h, s,
                                 h + 1 < t.last * shared ? LinearNext{h + 1, s} : LinearNext{t.first * shared, after}},
                                states.at(t.batch * p.heads + h, t.span), scratch);
            });
}

// ---- The op ----

void check_call(const char* op, In q, In k, In v, const AttentionCall& call, double eps = 0) {
  const Where& at = q.where();
  detail::check_heads(op, q, k, v, true);
  detail::check_key_masks(op, k, call);
  check(eps >= 0 && eps < 1, at, op, ": eps is ", eps, "; it must be in [0, 1)");
  check(!call.mask.defined() && call.dropout == 0, at, op,
        ": mask or dropout is given; it supports neither, because it never computes weights of single pairs");
  if (!call.bias.defined()) return;
  const Shape grid = {q.dim(0), q.dim(1), 1, k.dim(2)};
  Shape both;
  const bool half = q.dtype() == DType::bfloat16;
  check(call.bias.dtype() == detail::score_dtype(q.dtype()) && broadcast(call.bias.shape(), grid, both) && both == grid,
        at, op, ": bias is ", call.bias, " and q is ", q.tensor(), "; it must ", half ? "be float32" : "have q's dtype",
        " and broadcast to [batch, heads, 1, keys] ", grid);
}

// exp(bias), or the bias itself for logarithms, per head and key: [B, H, S].
Tensor weight_of(LinearKind kind, const AttentionInputs& x) {
  if (!x.call.bias.defined()) return {};
  const NoTape guard;
  const Shape grid = x.grid();
  const Tensor all = x.call.bias.detach().expand({grid[0], grid[1], 1, grid[3]}).select(2, 0);
  return (kind == LinearKind::features ? exp(all) : all).contiguous();
}

// Derivation in linear_attention.hpp and log_attention.hpp in core/kernels/linear_attention/.
Tensor linear_attention_op(const char* op, In q, In k, In v, const AttentionCall& call, const LinearForm& form) {
  detail::check_heads(op, q, k, v, true);
  const AttentionInputs x = detail::attention_inputs(q, k, v, call);
  const Tensor weight = weight_of(form.kind, x);
  Tensor y = detail::attention_output(x);
  LinearKept kept;
  if (needs_gradient({x.q, x.k, x.v, call.bias})) kept = kept_for_backward(x, weight, form);
  detail::with_format(q.dtype(),
                      [&]<class T, class S>(T, S) { forward<T, S>(x, weight, form, {}, {}, y.transpose(1, 2), kept); });
  record(op, q.where(), y, {x.q, x.k, x.v, call.bias}, saved(x, weight, y, kept),
         [form](Grads& d, const Tensor& dy, const AttentionInputs& in, const Tensor& w, const Tensor& out,
                const LinearKept& of_forward) {
           const Tensor dweight = w.defined() && d.needs(3) ? Tensor::zeros(w.shape(), w.dtype()) : Tensor();
           const LinearTargets to{detail::attention_targets(d), dweight};
           detail::with_format(in.q.dtype(), [&]<class T, class S>(T, S) {
             backward<T, S>(in, w, form, out.transpose(1, 2), dy.transpose(1, 2), of_forward, to);
           });
           if (dweight.defined()) d.add(3, (form.kind == LinearKind::features ? dweight * w : dweight).unsqueeze(2));
         });
  return y.transpose(1, 2);
}

// A step of decoding: checks the arguments, then runs forward from the old state to the new one.
Tensor step(const char* op, In q, In k, In v, LinearAttentionSums& state, AttentionCall call, const LinearForm& form) {
  detail::check_heads(op, q, k, v, true);
  check(q.dim(2) == k.dim(2), q.where(), op, ": q is ", q.tensor(), " and k is ", k.tensor(),
        "; a step requires as many queries as keys");
  const NoTape guard;
  call.causal = true;
  const AttentionInputs x = detail::attention_inputs(q, k, v, call);
  const Shape norms{q.dim(0), q.dim(1), q.dim(3)}, sums = norms + Shape{v.dim(3)};
  const DType dtype = detail::score_dtype(q.dtype());
  const Tensor& at = state.sums;
  check(!at.defined() || (at.shape() == sums && at.dtype() == dtype && state.norms.shape() == norms), q.where(), op,
        ": q is ", q.tensor(), " and v is ", v.tensor(), " but the state holds ", at, "; it must be ", sums);
  check(!at.defined() || state.maxima.defined() == (form.kind != LinearKind::features), q.where(), op,
        ": the state was made with another feature map; all steps must use the same one");
  LinearAttentionSums next{Tensor::empty(sums, dtype), Tensor::empty(norms, dtype), {}};
  if (form.kind != LinearKind::features) next.maxima = Tensor::empty(norms, dtype);
  const Tensor y = detail::attention_output(x);
  detail::with_format(q.dtype(), [&]<class T, class S>(T, S) {
    forward<T, S>(x, weight_of(form.kind, x), form, state, next, y.transpose(1, 2), {});
  });
  state = next;
  return y.transpose(1, 2);
}

LinearForm form_of(FeatureMap map, double eps) {
  if (map == FeatureMap::exp) return {LinearKind::logs, FeatureMap::identity, 0};
  return {LinearKind::features, map, eps};
}
constexpr LinearForm kEfficient{LinearKind::efficient, FeatureMap::identity, 0};

// ---- Features that ops compute ----

Tensor features_of(const char* name, const FeatureFunction& map, In x) {
  const Tensor y = map(x);
  check(y.defined() && y.rank() == 4 && y.shape().first(3) == x.shape().first(3) && y.dtype() == x.dtype(), x.where(),
        "linear_attention: ", name, " returned ", y, " for ", x.tensor(), "; only the last axis may differ");
  return y;
}

void check_not_negative(const char* name, In x) {
  if (x.numel() == 0) return;
  const double min_value = min(x->detach()).item();
  check(!(min_value < 0), x.where(), "linear_attention: a feature from ", name, " is ", min_value,
        "; features must be 0 or more, or signed_features must be true (if no weight f(q) . g(k) is negative)");
}

bool has_maps(const LinearFeatures& f, In q) {
  const bool queries = f.query_map != nullptr, keys = f.key_map != nullptr;
  check(queries == keys, q.where(), "linear_attention: ", queries ? "query_map" : "key_map",
        " is given alone; give both query_map and key_map, or neither");
  return queries;
}

// Queries, keys and values as the kernels take them. Features that ops compute are computed already.
struct Mapped {
  Tensor q, k, v;  // features
  AttentionCall call;
  FeatureMap map;
};
Mapped mapped(In q, In k, In v, const AttentionCall& call, const LinearFeatures& f) {
  const bool own = has_maps(f, q), poly2 = !own && f.feature_map == FeatureMap::poly2;
  if (!own && !poly2 && (f.feature_map != FeatureMap::identity || f.signed_features))
    return {q, k, v, call, f.feature_map};
  const Tensor keys = without_padding(k, call);
  Mapped x{q, keys, v, call, FeatureMap::identity};
  if (poly2) {
    x.q = detail::products_of_two(q.tensor()), x.k = detail::products_of_two(keys), x.v = v->to(DType::float64);
    if (call.bias.defined()) x.call.bias = call.bias.to(DType::float64);
  } else if (own) {
    x.q = features_of("query_map", f.query_map, q), x.k = features_of("key_map", f.key_map, {keys, k.where()});
  }
  if (!poly2 && !f.signed_features) {
    const NoTape guard;
    check_not_negative(own ? "query_map" : "the identity of q", {x.q, q.where()});
    check_not_negative(own ? "key_map" : "the identity of k", {without_padding(x.k, call), k.where()});
  }
  return x;
}

Tensor wide(In x) { return x->to(DType::float32); }
bool must_widen(In q, const LinearFeatures& f) { return q.dtype() == DType::bfloat16 && !f.reads_bfloat16(); }

}  // namespace

bool LinearFeatures::reads_bfloat16() const {
  return query_map == nullptr && key_map == nullptr &&
         (feature_map == FeatureMap::elu || feature_map == FeatureMap::relu || feature_map == FeatureMap::softplus);
}

Tensor linear_attention(In q, In k, In v, const AttentionCall& call, const LinearFeatures& features) {
  check_call("linear_attention", q, k, v, call, features.eps);
  if (must_widen(q, features)) return linear_attention(wide(q), wide(k), wide(v), call, features).to(DType::bfloat16);
  if (features.feature_map == FeatureMap::poly2 && !has_maps(features, q))
    return detail::poly2_attention(q, k, v, call, features.eps);
  const Mapped x = mapped(q, k, v, call, features);
  return linear_attention_op("linear_attention", {x.q, q.where()}, x.k, x.v, x.call, form_of(x.map, features.eps))
      .to(q.dtype());
}

Tensor linear_attention_step(In q, In k, In v, LinearAttentionSums& state, const AttentionCall& call,
                             const LinearFeatures& features) {
  const NoTape guard;
  check_call("linear_attention", q, k, v, call, features.eps);
  if (must_widen(q, features))
    return linear_attention_step(wide(q), wide(k), wide(v), state, call, features).to(DType::bfloat16);
  const Mapped x = mapped(q, k, v, call, features);
  return step("linear_attention", {x.q, q.where()}, x.k, x.v, state, x.call, form_of(x.map, features.eps))
      .to(q.dtype());
}

Tensor efficient_attention(In q, In k, In v, const AttentionCall& call) {
  check_call("efficient_attention", q, k, v, call);
  if (q.dtype() == DType::bfloat16) return efficient_attention(wide(q), wide(k), wide(v), call).to(DType::bfloat16);
  return linear_attention_op("efficient_attention", {softmax(q, -1), q.where()}, k, v, call, kEfficient);
}

Tensor efficient_attention_step(In q, In k, In v, LinearAttentionSums& state, const AttentionCall& call) {
  const NoTape guard;
  check_call("efficient_attention", q, k, v, call);
  if (q.dtype() == DType::bfloat16)
    return efficient_attention_step(wide(q), wide(k), wide(v), state, call).to(DType::bfloat16);
  return step("efficient_attention", {softmax(q, -1), q.where()}, k, v, state, call, kEfficient);
}

}  // namespace heed
