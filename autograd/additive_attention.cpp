// additive_attention(): the op, and how its work is split among threads. Derivation in
// core/kernels/additive_attention/additive_attention.hpp.
#include <heed/autograd/attention.hpp>
//
#include <algorithm>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/core/kernels/additive_attention/additive_attention.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>

namespace heed {
namespace {

using detail::AttentionInputs;
using detail::AttentionTargets;
using detail::pointer;
using detail::rows_of;
using kernels::AdditiveGradients;
using kernels::AdditiveKernels;
using kernels::AdditiveProblem;
using kernels::AttentionOutput;
using kernels::AttentionProblem;

// The maximum rows of a forward task, and the number of backward tasks to reach if there are few heads. They are
// constants, and not the number of threads, so that the split and its roundings are always the same.
constexpr Index kAdditiveRows = 32;
constexpr Index kAdditiveGroups = 16;
constexpr Index kCombinedKeys = 64;

template <class T>
AdditiveProblem<T> additive_problem(const AttentionInputs& x, const Tensor& u) {
  AdditiveProblem<T> p{};
  set_pairs<T>(p, x);
  p.causal = x.call.causal;
  p.u = pointer<const T>(u);
  return p;
}

template <class T>
Index grain_of(const AttentionProblem<T>& p, Index rows) {
  const double tanhs = static_cast<double>(rows) * static_cast<double>(p.keys) * static_cast<double>(p.width);
  return grain_for_flops(100 * tanhs);
}

template <class T>
void forward(const AttentionInputs& x, const Tensor& u, const AttentionOutput<T>& y) {
  const AdditiveKernels<T>& kernel = kernels::of<T>(kernels::additive_attention_table());
  const AdditiveProblem<T> p = additive_problem<T>(x, u);
  const Index blocks = (p.queries + kAdditiveRows - 1) / kAdditiveRows;
  ThreadScratch<T> scratch(static_cast<Index>(kernel.forward_scratch(p)));
  parallel_for_each(p.batch * p.heads * blocks, grain_of(p, std::min(p.queries, kAdditiveRows)), [&](Index n) {
    const Index head = n / blocks, first = n % blocks * kAdditiveRows;
    kernel.forward(p, y, head / p.heads, head % p.heads, first, std::min(first + kAdditiveRows, p.queries),
                   scratch.mine());
  });
}

template <class T>
void backward(const AttentionInputs& x, const Tensor& u, const Tensor& out, const Tensor& dout, const Tensor& lse,
              const AttentionTargets& d, const Tensor& du) {
  const AdditiveKernels<T>& kernel = kernels::of<T>(kernels::additive_attention_table());
  const AdditiveProblem<T> p = additive_problem<T>(x, u);
  AdditiveGradients<T> g{};
  detail::set_gradients<T>(g, out, dout, d);
  g.lse = pointer<const T>(lse), g.dbias = pointer<T>(d.bias), g.du = pointer<T>(du);
  const Index heads = p.batch * p.kv_heads, rows = kernel.rows;
  const Index tasks_per_head = (kAdditiveGroups + heads - 1) / std::max<Index>(heads, 1);
  g.group_rows = std::max<Index>(1, (p.queries + tasks_per_head * rows - 1) / (tasks_per_head * rows)) * rows;
  g.groups = std::max<Index>(1, (p.queries + g.group_rows - 1) / g.group_rows);
  const Tensor partial_keys = Tensor::empty({heads, g.groups, p.keys, kernel.key_size(p)}, x.q.dtype());
  const Tensor partial_u = Tensor::empty({p.batch, p.heads, g.groups, kernel.u_size(p)}, x.q.dtype());
  g.partial_keys = partial_keys.ptr<T>(), g.partial_u = partial_u.ptr<T>();
  ThreadScratch<T> scratch(static_cast<Index>(kernel.backward_scratch(p)));
  const Index grain = grain_of(p, std::min(p.queries, g.group_rows) * (p.heads / p.kv_heads));
  parallel_for_each(heads * g.groups, grain, [&](Index n) {
    const Index head = n / g.groups;
    kernel.backward(p, g, head / p.kv_heads, head % p.kv_heads, n % g.groups, scratch.mine());
  });
  const Index blocks = (p.keys + kCombinedKeys - 1) / kCombinedKeys;
  parallel_for_each(heads * blocks, 4, [&](Index n) {
    const Index head = n / blocks, first = n % blocks * kCombinedKeys;
    kernel.combine_keys(p, g, head / p.kv_heads, head % p.kv_heads, first, std::min(first + kCombinedKeys, p.keys));
  });
  if (g.du != nullptr)
    for (Index h = 0; h < p.heads; ++h) kernel.combine_u(p, g, h);
}

}  // namespace

Tensor additive_attention(In q, In k, In v, In u_in, const AttentionCall& call) {
  detail::check_heads("additive_attention", q, k, v);
  const Shape expected = {q.dim(1), q.dim(3)};
  check(u_in.shape() == expected && u_in.dtype() == q.dtype(), q.where(), "additive_attention: q is ", q.tensor(),
        " but u is ", u_in.tensor(), "; it must be [heads, width] ", expected, " ", q.dtype());
  detail::check_pairs("additive_attention", q, k, call);
  const AttentionInputs x = detail::attention_inputs(q, k, v, detail::with_document_mask(q, k, call));
  const Tensor u = u_in->dense();
  Tensor y = detail::attention_output(x), lse;
  if (needs_gradient({x.q, x.k, x.v, u_in, call.bias})) lse = Tensor::empty(x.grid().first(3), q.dtype());
  detail::with_float(q.dtype(), [&]<class T>(T) {
    forward<T>(x, u, {rows_of<T>(y.transpose(1, 2)), pointer<T>(lse), {}});
  });
  record("additive_attention", q.where(), y, {x.q, x.k, x.v, u_in, call.bias}, saved(x, u, y, lse),
         [](Grads& d, const Tensor& dy, const AttentionInputs& in, const Tensor& vector, const Tensor& out,
            const Tensor& sums) {
           AttentionTargets to = detail::attention_targets(d);
           if (in.call.bias.defined() && d.needs(4)) to.bias = Tensor::zeros(in.grid(), dy.dtype());
           const Tensor du = d.needs(3) ? Tensor::empty(vector.shape(), dy.dtype()) : Tensor();
           detail::with_float(dy.dtype(), [&]<class T>(T) {
             backward<T>(in, vector, out.transpose(1, 2), dy.transpose(1, 2), sums, to, du);
           });
           if (du.defined()) d.add(3, du);
           if (to.bias.defined()) d.add(4, to.bias);
         });
  return y.transpose(1, 2);
}

}  // namespace heed
