#include <heed/core/additive_attention.hpp>
//
#include <algorithm>
#include <heed/core/attention_problem.hpp>
#include <heed/core/kernels/additive_attention.hpp>
#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/pool.hpp>

namespace heed::kernels {
HEED_KERNEL_TABLE(AdditiveTable, additive_attention_table)
}

namespace heed::detail {
namespace {

using kernels::AdditiveGradients;
using kernels::AdditiveKernels;
using kernels::AdditiveOutput;
using kernels::AdditiveProblem;
using kernels::AttentionProblem;

// Rows of a forward task at most, and tasks of backward that are wanted where there are few heads. Constants, and not
// the number of threads, so that the split and its roundings are the same for all.
constexpr Index kTaskRows = 32;
constexpr Index kGroupTasks = 16;
constexpr Index kCombinedKeys = 64;
constexpr double kGrainTanhs = 2e4;  // some 10 microseconds

template <class T>
const AdditiveKernels<T>& kernels_of() {
  if constexpr (std::is_same_v<T, float>)
    return kernels::additive_attention_table().f32;
  else
    return kernels::additive_attention_table().f64;
}

template <class T>
AdditiveProblem<T> problem_of(const AdditiveCall& call) {
  AdditiveProblem<T> problem{};
  set_pairs<T>(problem.pairs, call.pairs);
  problem.pairs.causal = call.pairs.causal;
  problem.u = pointer<const T>(call.u);
  return problem;
}

template <class T>
Index grain_of(const AttentionProblem<T>& p, Index rows) {
  const double tanhs = static_cast<double>(rows) * static_cast<double>(p.keys) * static_cast<double>(p.width);
  return std::max<Index>(1, static_cast<Index>(kGrainTanhs / std::max(tanhs, 1.0)));
}

template <class T>
void forward(const AdditiveCall& x, const AdditiveOutput<T>& y) {
  const AdditiveKernels<T>& kernel = kernels_of<T>();
  const AdditiveProblem<T> problem = problem_of<T>(x);
  const AttentionProblem<T>& p = problem.pairs;
  const Index blocks = (p.queries + kTaskRows - 1) / kTaskRows;
  ThreadScratch<T> scratch(static_cast<Index>(kernel.forward_scratch(p)));
  parallel_for(p.batch * p.heads * blocks, grain_of(p, std::min(p.queries, kTaskRows)), [&](Index begin, Index end) {
    for (Index n = begin; n < end; ++n) {
      const Index head = n / blocks, first = n % blocks * kTaskRows;
      kernel.forward(problem, y, head / p.heads, head % p.heads, first, std::min(first + kTaskRows, p.queries),
                     scratch.mine());
    }
  });
}

template <class T>
AdditiveGradients<T> gradients_of(const Tensor& out, const Tensor& dout, const Tensor& lse, const AdditiveSinks& d) {
  AdditiveGradients<T> g{};
  g.out = rows_of<const T>(out), g.dout = rows_of<const T>(dout), g.lse = pointer<const T>(lse);
  g.dq = rows_of<T>(d.pairs.dq), g.dk = rows_of<T>(d.pairs.dk), g.dv = rows_of<T>(d.pairs.dv);
  g.add_dq = d.pairs.add_dq, g.add_dk = d.pairs.add_dk, g.add_dv = d.pairs.add_dv;
  g.dbias = pointer<T>(d.pairs.dbias), g.du = pointer<T>(d.du);
  return g;
}

template <class T>
void backward(const AdditiveCall& x, const Tensor& out, const Tensor& dout, const Tensor& lse, const AdditiveSinks& d) {
  const AdditiveKernels<T>& kernel = kernels_of<T>();
  const AdditiveProblem<T> problem = problem_of<T>(x);
  const AttentionProblem<T>& p = problem.pairs;
  AdditiveGradients<T> g = gradients_of<T>(out, dout, lse, d);
  const Index heads = p.batch * p.kv_heads, rows = kernel.sizes.rows;
  const Index wanted = (kGroupTasks + heads - 1) / std::max<Index>(heads, 1);
  g.group_rows = std::max<Index>(1, (p.queries + wanted * rows - 1) / (wanted * rows)) * rows;
  g.groups = std::max<Index>(1, (p.queries + g.group_rows - 1) / g.group_rows);
  const Tensor partial_keys = Tensor::empty({heads, g.groups, p.keys, kernel.key_size(p)}, x.pairs.q.dtype());
  const Tensor partial_u = Tensor::empty({p.batch, p.heads, g.groups, kernel.u_size(p)}, x.pairs.q.dtype());
  g.partial_keys = partial_keys.ptr<T>(), g.partial_u = partial_u.ptr<T>();
  ThreadScratch<T> scratch(static_cast<Index>(kernel.backward_scratch(p)));
  const Index grain = grain_of(p, std::min(p.queries, g.group_rows) * (p.heads / p.kv_heads));
  parallel_for(heads * g.groups, grain, [&](Index begin, Index end) {
    for (Index n = begin; n < end; ++n) {
      const Index head = n / g.groups;
      kernel.backward(problem, g, head / p.kv_heads, head % p.kv_heads, n % g.groups, scratch.mine());
    }
  });
  const Index blocks = (p.keys + kCombinedKeys - 1) / kCombinedKeys;
  parallel_for(heads * blocks, 4, [&](Index begin, Index end) {
    for (Index n = begin; n < end; ++n) {
      const Index head = n / blocks, first = n % blocks * kCombinedKeys;
      kernel.combine_keys(problem, g, head / p.kv_heads, head % p.kv_heads, first,
                          std::min(first + kCombinedKeys, p.keys));
    }
  });
  if (g.du != nullptr)
    for (Index h = 0; h < p.heads; ++h) kernel.combine_u(problem, g, h);
}

}  // namespace

void additive_attention_forward(const AdditiveCall& x, Tensor& out, Tensor& lse) {
  if (x.pairs.q.dtype() == DType::float32)
    forward<float>(x, {rows_of<float>(out), pointer<float>(lse), nullptr});
  else
    forward<double>(x, {rows_of<double>(out), pointer<double>(lse), nullptr});
}

void additive_attention_backward(const AdditiveCall& x, const Tensor& out, const Tensor& dout, const Tensor& lse,
                                 AdditiveSinks& d) {
  x.pairs.q.dtype() == DType::float32 ? backward<float>(x, out, dout, lse, d) : backward<double>(x, out, dout, lse, d);
}

Tensor additive_attention_weights_of(const AdditiveCall& x) {
  const Tensor &q = x.pairs.q, &k = x.pairs.k;
  Tensor y = Tensor::empty({q.dim(0), q.dim(1), q.dim(2), k.dim(2)}, q.dtype());
  if (q.dtype() == DType::float32)
    forward<float>(x, {{nullptr, 0, 0, 0}, nullptr, y.ptr<float>()});
  else
    forward<double>(x, {{nullptr, 0, 0, 0}, nullptr, y.ptr<double>()});
  return y;
}

}  // namespace heed::detail
