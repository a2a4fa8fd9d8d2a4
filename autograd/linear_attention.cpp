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
using kernels::LinearStep;

// The options on which forward and backward must agree, besides the inputs.
struct LinearForm {
  LinearKind kind;
  FeatureMap map;
  double alpha, eps;
};

// weight [B, H, S], contiguous: factors of f(k), or summands of the logarithms; or undefined.
template <class T, class S>
LinearProblem<T, S> linear_problem(const AttentionInputs& x, const Tensor& weight, const LinearForm& form) {
  LinearProblem<T, S> p{};
  set_rows<T>(p, x);
  p.map = form.map;
  p.alpha = static_cast<T>(form.alpha);
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

// A problem with its kernels, its spans, and the states of all spans of all heads.
template <class T, class S>
struct LinearWork {
  const LinearKernels<T, S>& kernel;
  const LinearProblem<T, S> p;
  const LinearPlan plan;
  const Spans spans;
  Scratch<T> states;

  LinearWork(const AttentionInputs& x, const Tensor& weight, const LinearForm& form)
      : kernel(kernels::linear_kernels<T, S>(form.kind)),
        p(linear_problem<T, S>(x, weight, form)),
        plan(kernel.plan(p)),
        spans(spans_of(p.batch * p.heads, plan.steps)),
        states(static_cast<std::size_t>(spans.heads * spans.per_head * plan.state_size)) {
    for (Index head = 0; head < spans.heads; ++head)
      for (Index span = 0; span < spans.per_head; ++span) kernel.clear(p, state(head, span));
  }
  T* state(Index head, Index span) { return states.data() + (head * spans.per_head + span) * plan.state_size; }

  // Copies between the states of a span and S [B, H, D, Dv], z [B, H, D] and maxima [B, H, D]. Undefined tensors are
  // skipped.
  template <class Copy>
  void copy_sums(const LinearAttentionSums& sums, Index span, Copy&& copy) {
    for (Index head = 0; sums.sums.defined() && head < spans.heads; ++head) {
      T *s = state(head, span), *z = s + p.width * plan.state_row;
      for (Index c = 0; c < p.width; ++c)
        copy(s + c * plan.state_row, sums.sums.ptr<T>() + (head * p.width + c) * p.value_width, p.value_width);
      copy(z, sums.norms.ptr<T>() + head * p.width, p.width);
      if (sums.maxima.defined()) copy(z + plan.vector_size, sums.maxima.ptr<T>() + head * p.width, p.width);
    }
  }

  // Calls f(step, head, span, scratch) for all steps of all heads, those of a span in order or, if `to_front`, in
  // reverse order. Heads are adjacent in memory, so a task runs several heads together, step by step. `shared`
  // neighbouring heads run one after another in the same task. `products`: operations per row and element of the state.
  template <class F>
  void each_step(Index shared, double products, bool to_front, F&& f) {
    const Index groups = p.heads / shared, tasks = p.batch * spans.per_head * groups;
    const double rows = static_cast<double>(std::max(p.queries, p.keys)) / static_cast<double>(spans.per_head);
    const double rows_of_heads = products * static_cast<double>(shared) * rows;
    const double flops = rows_of_heads * static_cast<double>((64 + p.width) * p.value_width);
    // Within a chunk of 64 rows the causal triangle is half of a product.
    detail::count_flops(dtype_of<T>, rows_of_heads * static_cast<double>(tasks) *
                                         static_cast<double>((p.width + (p.causal ? 32 : 0)) * p.value_width));
    const Index min_grain = grain_for_flops(flops), share = tasks / (2 * threads());
    parallel_for(tasks, std::max({min_grain, std::min(share, groups)}), [&](Index begin, Index end) {
      Scratch<T> scratch(plan.scratch);
      while (begin < end) {
        const Index part = begin / groups, b = part / spans.per_head, span = part % spans.per_head;
        const Index group = begin % groups, count = std::min(groups - group, end - begin);
        const Index first = group * shared, last = (group + count) * shared;
        const Index from = spans.first(span), steps = spans.last(span) - from;
        for (Index i = 0; i < steps; ++i) {
          const Index s = to_front ? from + steps - 1 - i : from + i;
          const Index after = i + 1 == steps ? -1 : to_front ? s - 1 : s + 1;
          for (Index h = first; h < last; ++h)
            f(LinearStep{b, h, s, h + 1 < last ? LinearNext{h + 1, s} : LinearNext{first, after}}, b * p.heads + h,
              span, scratch.data());
        }
        begin += count;
      }
    });
  }
};

// Starts from the sums `first` (undefined: none before) and writes the sums at the end to `last` (undefined: not
// needed).
template <class T, class S>
void forward(const AttentionInputs& x, const Tensor& weight, const LinearForm& form, const LinearAttentionSums& first,
             const LinearAttentionSums& last, const Tensor& out, const LinearKept& kept) {
  LinearWork<T, S> work(x, weight, form);
  const LinearProblem<T, S>& p = work.p;
  const HeadRows<S> y = rows_of<S>(out);
  const Index last_span = work.spans.per_head - 1;
  work.copy_sums(first, 0, [](T* to, const T* from, Index n) { std::copy_n(from, n, to); });
  if (last_span > 0) {
    work.each_step(1, 2, false, [&](const LinearStep& at, Index head, Index span, T* scratch) {
      if (span < last_span) work.kernel.sum_keys(p, at, work.state(head, span + 1), scratch);
    });
    for (Index head = 0; head < work.spans.heads; ++head)
      for (Index span = 1; span <= last_span; ++span)
        work.kernel.add_keys(p, work.state(head, span), work.state(head, span - 1));
  }
  work.each_step(1, 4, false, [&](const LinearStep& at, Index head, Index span, T* scratch) {
    work.kernel.forward(p, y, pointer<T>(kept.norm), pointer<T>(kept.states), at, work.state(head, span), scratch);
  });
  work.copy_sums(last, last_span, [](const T* from, T* to, Index n) { std::copy_n(from, n, to); });
}

// to.bias: memory for the gradient of the weight, zeros before; undefined: not needed.
template <class T, class S>
void backward(const AttentionInputs& x, const Tensor& weight, const LinearForm& form, const Tensor& out,
              const Tensor& dout, const LinearKept& kept, const AttentionTargets& to) {
  LinearWork<T, S> work(x, weight, form);
  const LinearProblem<T, S>& p = work.p;
  LinearGradients<T, S> g{};
  detail::set_gradients<T>(g, out, dout, to);
  g.norm = pointer<const T>(kept.norm), g.kept = pointer<const T>(kept.states), g.dweight = pointer<T>(to.bias);
  if (work.spans.per_head > 1) {
    work.each_step(1, 3, true, [&](const LinearStep& at, Index head, Index span, T* scratch) {
      if (span > 0) work.kernel.sum_queries(p, g, at, work.state(head, span - 1), scratch);
    });
    for (Index head = 0; head < work.spans.heads; ++head)
      for (Index span = work.spans.per_head - 1; span > 0; --span)
        work.kernel.add_queries(p, work.state(head, span - 1), work.state(head, span));
  }
  // Heads that share keys add to the same gradients, one head after another.
  const Index shared = std::max<Index>(p.heads / p.kv_heads, 1);
  work.each_step(shared, 10, true, [&](const LinearStep& at, Index head, Index span, T* scratch) {
    work.kernel.backward(p, g, at, work.state(head, span), scratch);
  });
}

// ---- The op ----

void check_call(const char* op, In q, In k, In v, const AttentionCall& call, const LinearFeatures& f = {}) {
  const Where& at = q.where();
  const double eps = f.eps, alpha = f.alpha;
  detail::check_heads(op, q, k, v, true);
  detail::check_key_masks(op, k, call);
  check(eps >= 0 && eps < 1, at, op, ": eps is ", eps, "; it must be in [0, 1)");
  check(alpha > 0 && alpha <= 1, at, op, ": alpha is ", alpha, "; it must be above 0 and at most 1");
  check(!call.mask.defined() && call.dropout == 0, at, op,
        ": mask or dropout is given; it supports neither, because it never computes weights of single pairs");
  check(!call.documents.defined(), at, op,
        ": documents are given; its sums over keys do not end with a document. Give each document a row");
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
           AttentionTargets to = detail::attention_targets(d);
           if (w.defined() && d.needs(3)) to.bias = Tensor::zeros(w.shape(), w.dtype());
           detail::with_format(in.q.dtype(), [&]<class T, class S>(T, S) {
             backward<T, S>(in, w, form, out.transpose(1, 2), dy.transpose(1, 2), of_forward, to);
           });
           if (to.bias.defined()) d.add(3, (form.kind == LinearKind::features ? to.bias * w : to.bias).unsqueeze(2));
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

LinearForm form_of(FeatureMap map, const LinearFeatures& f) {
  if (map == FeatureMap::exp) return {LinearKind::logs, FeatureMap::identity, 1, 0};
  return {LinearKind::features, map, f.alpha, f.eps};
}
constexpr LinearForm kEfficient{LinearKind::efficient, FeatureMap::identity, 1, 0};

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
  check_call("linear_attention", q, k, v, call, features);
  if (must_widen(q, features)) return linear_attention(wide(q), wide(k), wide(v), call, features).to(DType::bfloat16);
  if (features.feature_map == FeatureMap::poly2 && !has_maps(features, q))
    return detail::poly2_attention(q, k, v, call, features.eps);
  const Mapped x = mapped(q, k, v, call, features);
  return linear_attention_op("linear_attention", {x.q, q.where()}, x.k, x.v, x.call, form_of(x.map, features))
      .to(q.dtype());
}

Tensor linear_attention_step(In q, In k, In v, LinearAttentionSums& state, const AttentionCall& call,
                             const LinearFeatures& features) {
  const NoTape guard;
  check_call("linear_attention", q, k, v, call, features);
  if (must_widen(q, features))
    return linear_attention_step(wide(q), wide(k), wide(v), state, call, features).to(DType::bfloat16);
  const Mapped x = mapped(q, k, v, call, features);
  return step("linear_attention", {x.q, q.where()}, x.k, x.v, state, x.call, form_of(x.map, features)).to(q.dtype());
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
