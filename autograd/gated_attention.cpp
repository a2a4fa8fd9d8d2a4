// Gated attention: checks, the split into heads, and gradients. A task computes all blocks of a head.
#include <heed/autograd/gated_attention.hpp>
//
#include <cmath>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/detail/recurrent.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/core/kernels/gated_attention/gated_attention.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/profiler.hpp>

namespace heed {
namespace {

using detail::pointer;
using detail::rows_of;
using kernels::GatedGradients;
using kernels::GatedKernels;
using kernels::GatedOutputs;
using kernels::GatedPlan;
using kernels::GatedProblem;

constexpr Index kKeptRows = 64;  // positions per kept state

// The inputs of one call, as kernels read them: the gate is [B, H, T, 1 or K], b is [B, H, T, 1]. Undefined: none.
struct GatedInputs {
  Tensor q, k, v, gate, beta, state, lengths, documents;
  double scale = 1;
  Index block = 0;

  auto tensors() { return std::tie(q, k, v, gate, beta, state, lengths, documents); }
  Index batch() const { return v.dim(0); }
  Index heads() const { return v.dim(1); }
  Index steps() const { return v.dim(2); }
  Index width() const { return q.dim(3); }
  Index value_width() const { return v.dim(3); }
};

template <class T>
GatedProblem<T> problem_of(const GatedInputs& x) {
  GatedProblem<T> p{};
  p.batch = x.batch(), p.heads = x.heads(), p.key_heads = x.q.dim(1), p.length = x.steps();
  p.width = x.width(), p.value_width = x.value_width();
  p.block = x.block, p.kept_blocks = kKeptRows / x.block;
  p.scale = static_cast<T>(x.scale);
  p.per_channel = x.gate.defined() && x.gate.dim(3) == x.width() && x.width() > 1;
  p.q = rows_of<const T>(x.q), p.k = rows_of<const T>(x.k), p.v = rows_of<const T>(x.v);
  p.gate = rows_of<const T>(x.gate), p.beta = rows_of<const T>(x.beta), p.first = rows_of<const T>(x.state);
  p.lengths = pointer<const std::int32_t>(x.lengths), p.documents = pointer<const std::int32_t>(x.documents);
  return p;
}

// The results of forward that backward needs.
struct GatedKept {
  Tensor states;    // the states before each kKeptRows positions, in the layout of the kernels
  Tensor residual;  // W [B, H, T, V], with the delta rule

  auto tensors() { return std::tie(states, residual); }
};
GatedKept kept_for_backward(const GatedInputs& x) {
  GatedKept kept;
  detail::with_float(x.v.dtype(), [&]<class T>(T) {
    const GatedPlan plan = kernels::of<T>(kernels::gated_attention_table()).plan(problem_of<T>(x), false);
    kept.states = Tensor::empty({x.batch() * x.heads() * plan.kept * plan.state_size}, x.v.dtype());
  });
  if (x.beta.defined()) kept.residual = Tensor::empty(x.v.shape(), x.v.dtype());
  return kept;
}

// The products of a pass: of the size of a state per position, and of half the size of a block of pairs.
struct GatedWork {
  double states, pairs;
};

// Calls f(b, h, scratch) for all heads, `shared` neighbours one after another in the same task.
template <class T, class F>
void each_head(const GatedProblem<T>& p, const GatedPlan& plan, Index shared, const GatedWork& work, const F& f) {
  const double per_position = work.states * static_cast<double>(p.width * p.value_width) +
                              work.pairs * static_cast<double>(p.block * (p.width + p.value_width)) / 4;
  const double flops = 2 * per_position * static_cast<double>(shared * p.length);
  const Index groups = p.heads / shared, tasks = p.batch * groups;
  detail::count_flops(dtype_of<T>, flops * static_cast<double>(tasks));
  parallel_for(tasks, grain_for_flops(flops), [&](Index begin, Index end) {
    Scratch<T> scratch(plan.scratch);
    for (Index task = begin; task < end; ++task)
      for (Index h = task % groups * shared; h < (task % groups + 1) * shared; ++h) f(task / groups, h, scratch.data());
  });
}

template <class T>
void forward(const GatedInputs& x, const Tensor& out, const Tensor& last, const GatedKept& kept) {
  const GatedKernels<T>& kernel = kernels::of<T>(kernels::gated_attention_table());
  const GatedProblem<T> p = problem_of<T>(x);
  const GatedOutputs<T> to{rows_of<T>(out), rows_of<T>(last), pointer<T>(kept.states), pointer<T>(kept.residual)};
  each_head(p, kernel.plan(p, false), 1, x.beta.defined() ? GatedWork{3, 4} : GatedWork{2, 2},
            [&](Index b, Index h, T* scratch) { kernel.forward(p, to, b, h, scratch); });
}

// Replaces the state by the one after the rows.
template <class T>
void step(const GatedInputs& x, const Tensor& out, const Tensor& state) {
  const GatedKernels<T>& kernel = kernels::of<T>(kernels::gated_attention_table());
  const GatedProblem<T> p = problem_of<T>(x);
  const kernels::HeadRows<T> to = rows_of<T>(out), sums = rows_of<T>(state);
  each_head(p, kernel.plan(p, false), 1, {x.beta.defined() ? 3.0 : 2.0, 0},
            [&](Index b, Index h, T* scratch) { kernel.step(p, to, sums, b, h, scratch); });
}

// ---- Backward ----

// The gradients of one call; undefined ones are not needed. The gate's and those of b have the shapes of GatedInputs.
struct GatedTargets {
  Target q, k, v;
  Tensor gate, beta, state;
  // The gradients of q and k per value head, [B, H, T, K], if heads that share them are computed in parallel.
  Tensor queries, keys;
};

// Tasks that share keys write to the same gradients. With few groups of heads, each head is a task with gradients of
// its own, which are added afterwards. The choice depends on the shape only.
constexpr Index kEnoughGroups = 8;
bool has_own_gradients(const GatedInputs& x) {
  return x.q.dim(1) < x.heads() && x.batch() * x.q.dim(1) < kEnoughGroups;
}

GatedTargets targets_of(Grads& d, const GatedInputs& x) {
  const DType type = x.v.dtype();
  GatedTargets to;
  if (has_own_gradients(x)) {
    const Shape all{x.batch(), x.heads(), x.steps(), x.width()};
    if (d.needs(0)) to.queries = Tensor::empty(all, type);
    if (d.needs(1)) to.keys = Tensor::empty(all, type);
  } else {
    to.q = d.strided(0), to.k = d.strided(1);
  }
  to.v = d.strided(2);
  if (d.needs(3)) to.gate = Tensor::empty(x.gate.shape(), type);
  if (d.needs(4)) to.beta = Tensor::empty(x.beta.shape(), type);
  if (d.needs(5)) to.state = Tensor::empty(x.state.shape(), type);
  return to;
}

template <class T>
void backward(const GatedInputs& x, const Tensor& dout, const Tensor& dlast, const GatedKept& kept,
              const GatedTargets& to) {
  const GatedKernels<T>& kernel = kernels::of<T>(kernels::gated_attention_table());
  const GatedProblem<T> p = problem_of<T>(x);
  const bool own = has_own_gradients(x);
  GatedGradients<T> g{};
  g.dout = rows_of<const T>(dout), g.dlast = rows_of<const T>(dlast);
  g.kept = pointer<const T>(kept.states), g.residual = pointer<const T>(kept.residual);
  g.key_heads = own ? p.heads : p.key_heads;
  g.dq = rows_of<T>(own ? to.queries : to.q.gradient), g.add_dq = to.q.accumulate;
  g.dk = rows_of<T>(own ? to.keys : to.k.gradient), g.add_dk = to.k.accumulate;
  g.dv = rows_of<T>(to.v.gradient), g.add_dv = to.v.accumulate;
  g.dgate = rows_of<T>(to.gate), g.dbeta = rows_of<T>(to.beta), g.dfirst = rows_of<T>(to.state);
  each_head(p, kernel.plan(p, true), p.heads / g.key_heads, x.beta.defined() ? GatedWork{6, 10} : GatedWork{4, 5},
            [&](Index b, Index h, T* scratch) { kernel.backward(p, g, b, h, scratch); });
}

// The sum over the heads that share a key head.
Tensor shared_sum(const Tensor& x, Index key_heads) {
  return sum(x.reshape({x.dim(0), key_heads, x.dim(1) / key_heads, x.dim(2), x.dim(3)}), {2});
}

// dy [B, T or T + K, H, V]: of the result, and of the state after it.
void add_gradients(Grads& d, const Tensor& dy, const GatedInputs& x, const GatedKept& kept, bool per_channel) {
  const Index steps = x.steps();
  const Tensor dout = dy.slice(1, 0, steps).transpose(1, 2),
               dlast = dy.dim(1) > steps ? dy.slice(1, steps, dy.dim(1)).transpose(1, 2) : Tensor();
  const GatedTargets to = targets_of(d, x);
  detail::with_float(x.v.dtype(), [&]<class T>(T) { backward<T>(x, dout, dlast, kept, to); });
  if (to.queries.defined()) d.add(0, shared_sum(to.queries, x.q.dim(1)));
  if (to.keys.defined()) d.add(1, shared_sum(to.keys, x.k.dim(1)));
  if (to.gate.defined()) d.add(3, per_channel ? to.gate : to.gate.select(3, 0));
  if (to.beta.defined()) d.add(4, to.beta.select(3, 0));
  if (to.state.defined()) d.add(5, to.state);
}

// ---- Checks ----

void check_option(In v, const char* name, const Tensor& x, const Shape& shape, bool exact = false) {
  if (!x.defined()) return;
  Shape both;
  const bool fits = exact ? x.shape() == shape : broadcast(x.shape(), shape, both) && both == shape;
  check(fits && x.dtype() == v->dtype(), v.where(), "gated_attention: ", name, " is ", x, " and v is ", v.tensor(),
        "; it must have v's dtype and ", exact ? "be " : "broadcast to ", shape);
}

void check_inputs(In q, In k, In v, const GatedAttentionOptions& o) {
  constexpr const char* op = "gated_attention";
  const auto is_floating = [](DType t) { return t == DType::float32 || t == DType::float64 || t == DType::bfloat16; };
  check(q->rank() == 4 && k->shape() == q->shape() && v->rank() == 4 && q.dim(0) == v.dim(0) && q.dim(2) == v.dim(2) &&
            q.dim(3) > 0,
        q.where(), op, ": q is ", q.tensor(), ", k is ", k.tensor(), " and v is ", v.tensor(),
        "; they must be [batch, key heads, steps, width], twice, and [batch, heads, steps, value width]");
  check(q->dtype() == v->dtype() && k->dtype() == v->dtype() && is_floating(v->dtype()), q.where(), op, ": q is ",
        q.tensor(), ", k is ", k.tensor(), " and v is ", v.tensor(),
        "; they must all be float32, all float64 or all bfloat16");
  check(q.dim(1) > 0 && v.dim(1) % q.dim(1) == 0, q.where(), op, ": q is ", q.tensor(), " and v is ", v.tensor(),
        "; the heads of q must divide the heads of v");
  check(o.block == 0 || o.block == 16 || o.block == 32 || o.block == 64, q.where(), op, ": block is ", o.block,
        "; it must be 16, 32 or 64, or 0 for the default");
  const Shape rows{v.dim(0), v.dim(1), v.dim(2)};
  const bool per_channel = o.log_gate.defined() && o.log_gate.rank() == 4;
  check_option(v, "log_gate", o.log_gate, per_channel ? rows + Shape{q.dim(3)} : rows);
  check_option(v, "beta", o.beta, rows);
  check_option(v, "state", o.state, {v.dim(0), v.dim(1), q.dim(3), v.dim(3)}, true);
  detail::check_steps(op, {v->detach().transpose(1, 2), v.where()}, o.lengths);
  if (o.documents.defined()) detail::check_documents(op, q, k, {.causal = true, .documents = o.documents});
}

// [B, H, T, 1] or [B, H, T, K] of a tensor that broadcasts to it, with rows of stride 1.
Tensor rows_of_option(const Tensor& x, const GatedInputs& in, bool per_channel) {
  if (!x.defined()) return {};
  const Shape rows{in.batch(), in.heads(), in.steps()};
  if (!per_channel) return x.detach().expand(rows).unsqueeze(3);
  const Shape width{in.width()};
  return detail::unit_rows(x.detach().expand(x.shape().first(3) + width)).expand(rows + width);
}

GatedInputs inputs_of(const Tensor& q, const Tensor& k, const Tensor& v, const GatedAttentionOptions& o) {
  GatedInputs x;
  x.q = detail::unit_rows(q), x.k = detail::unit_rows(k), x.v = detail::unit_rows(v);
  x.scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(q.dim(3))));
  const bool per_channel = o.log_gate.defined() && o.log_gate.rank() == 4;
  x.block = o.block != 0 ? o.block : per_channel ? 16 : 32;
  x.gate = rows_of_option(o.log_gate, x, per_channel), x.beta = rows_of_option(o.beta, x, false);
  if (o.state.defined()) x.state = detail::unit_rows(o.state.detach());
  x.lengths = o.lengths.dense(), x.documents = o.documents.dense();
  return x;
}

// [B, T, H, V], with `with_state` followed by the state: [B, T + K, H, V].
Tensor packed(In q, In k, In v, const GatedAttentionOptions& o, bool with_state) {
  const GatedInputs x = inputs_of(q, k, v, o);
  const Index steps = x.steps(), all = steps + (with_state ? x.width() : 0);
  Tensor y = Tensor::empty({x.batch(), all, x.heads(), x.value_width()}, x.v.dtype());
  GatedKept kept;
  if (needs_gradient({q, k, v, o.log_gate, o.beta, o.state})) kept = kept_for_backward(x);
  const Tensor out = y.slice(1, 0, steps).transpose(1, 2),
               last = with_state ? y.slice(1, steps, all).transpose(1, 2) : Tensor();
  detail::with_float(x.v.dtype(), [&]<class T>(T) { forward<T>(x, out, last, kept); });
  const bool per_channel = o.log_gate.defined() && o.log_gate.rank() == 4;
  record("gated_attention", q.where(), y, {x.q, x.k, x.v, o.log_gate, o.beta, o.state}, saved(x, kept),
         [per_channel](Grads& d, const Tensor& dy, const GatedInputs& in, const GatedKept& of_forward) {
           add_gradients(d, dy, in, of_forward, per_channel);
         });
  return y;
}

// bfloat16 as float32.
GatedAttentionResult apply(In q, In k, In v, const GatedAttentionOptions& o, bool with_state) {
  check_inputs(q, k, v, o);
  if (v->dtype() == DType::bfloat16) {
    const auto wide = [](const Tensor& x) { return x.defined() ? x.to(DType::float32) : x; };
    GatedAttentionOptions options = o;
    options.log_gate = wide(o.log_gate), options.beta = wide(o.beta), options.state = wide(o.state);
    const GatedAttentionResult y = apply({wide(q), q.where()}, wide(k), wide(v), options, with_state);
    return {y.out.to(DType::bfloat16), with_state ? y.state.to(DType::bfloat16) : y.state};
  }
  const Tensor y = packed(q, k, v, o, with_state);
  const Index steps = v.dim(2);
  if (!with_state) return {y.transpose(1, 2), {}};
  return {y.slice(1, 0, steps).transpose(1, 2), y.slice(1, steps, y.dim(1)).transpose(1, 2)};
}

constexpr Index kFewSteps = 8;  // positions that are computed by the recurrence in decoding

}  // namespace

Tensor gated_attention(In q, In k, In v, const GatedAttentionOptions& options) {
  return apply(q, k, v, options, false).out;
}

GatedAttentionResult gated_attention_states(In q, In k, In v, const GatedAttentionOptions& options) {
  return apply(q, k, v, options, true);
}

Tensor gated_attention_step(In q, In k, In v, Tensor& state, const GatedAttentionOptions& options) {
  const NoTape guard;
  GatedAttentionOptions o = options;
  const bool half = v->dtype() == DType::bfloat16;
  o.state = {};
  check_inputs(q, k, v, o);
  const Shape shape{v.dim(0), v.dim(1), q.dim(3), v.dim(3)};
  const DType type = half ? DType::float32 : v->dtype();
  check(!state.defined() || (state.shape() == shape && state.dtype() == type), v.where(),
        "gated_attention: the state is ", state, " and v is ", v.tensor(), "; it must be ", shape, " ", name_of(type));
  if (half) {
    const auto wide = [](const Tensor& x) { return x.defined() ? x.to(DType::float32) : x; };
    o.log_gate = wide(o.log_gate), o.beta = wide(o.beta);
    return gated_attention_step(wide(q), wide(k), wide(v), state, o).to(DType::bfloat16);
  }
  if (v.dim(2) > kFewSteps) {
    o.state = state;
    const GatedAttentionResult y = gated_attention_states(q, k, v, o);
    state = y.state.clone();
    return y.out.contiguous();
  }
  if (!state.defined()) state = Tensor::zeros(shape, type);
  state = state.contiguous();
  const GatedInputs x = inputs_of(q, k, v, o);
  const Tensor y = Tensor::empty({x.batch(), x.steps(), x.heads(), x.value_width()}, type).transpose(1, 2);
  detail::with_float(type, [&]<class T>(T) { step<T>(x, y, state); });
  state.bump_version();
  return y;
}

}  // namespace heed
