// Softmax attention: the op, and how its work is split among threads. Derivation in core/kernels/attention.hpp.
#include <heed/autograd/attention.hpp>
//
#include <algorithm>
#include <cmath>
#include <heed/autograd/attention_inputs.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/pool.hpp>

namespace heed {
namespace {

using detail::AttentionInputs;
using detail::AttentionTargets;
using detail::pointer;
using detail::rows_of;
using kernels::AttentionGradients;
using kernels::AttentionKernels;
using kernels::AttentionOutput;
using kernels::AttentionProblem;

// At least this many tasks, where the rows allow it, for the threads to share. It is a constant, and not the number of
// threads, so that the split and its roundings are the same for all.
constexpr Index kForwardTasks = 32;
constexpr Index kBackwardTasks = 16;
constexpr double kAttentionGrain = 2e6;  // some 10 microseconds

template <class T>
AttentionProblem<T> problem_of(const AttentionInputs& x) {
  AttentionProblem<T> p{};
  set_pairs<T>(p, x);
  p.causal = x.call.causal;
  return p;
}

// Tasks of this many operations each make one chunk of the parallel loop.
Index grain_of(double flops_of_task) {
  return std::max<Index>(1, static_cast<Index>(kAttentionGrain / std::max(flops_of_task, 1.0)));
}

double flops_of(Index queries, Index keys, Index width, bool causal) {
  return 2.0 * static_cast<double>(queries) * static_cast<double>(keys) * static_cast<double>(width) *
         (causal ? 0.5 : 1);
}

template <class T>
void decode(const AttentionKernels<T>& kernel, const AttentionProblem<T>& p, const AttentionOutput<T>& y) {
  const Index heads = p.batch * p.kv_heads, shared = p.heads / p.kv_heads, size = kernel.partial_size(p);
  const Index chunks = (p.keys + kernel.sizes.decode_keys - 1) / kernel.sizes.decode_keys;
  const double flops = flops_of(shared, std::min(p.keys, kernel.sizes.decode_keys), p.width + p.value_width, false);
  Scratch<T> partial(static_cast<std::size_t>(heads * chunks * shared * size));
  parallel_for(heads * chunks, grain_of(8 * flops), [&](Index begin, Index end) {  // limited by memory
    for (Index i = begin; i < end; ++i) {
      const Index head = i / chunks;
      kernel.decode(p, head / p.kv_heads, head % p.kv_heads, i % chunks, partial.data() + i * shared * size);
    }
  });
  for (Index i = 0; i < heads * shared; ++i)
    kernel.join(p, y, i / p.heads, i % p.heads, chunks,
                partial.data() + (i / shared * chunks * shared + i % shared) * size, shared * size);
}

template <class T>
void forward(const AttentionInputs& x, const Tensor& out, const Tensor& lse) {
  const AttentionKernels<T>& kernel = kernels::of<T>(kernels::attention_table());
  const AttentionProblem<T> p = problem_of<T>(x);
  const AttentionOutput<T> y{rows_of<T>(out), pointer<T>(lse)};
  if (p.queries == 1 && y.lse == nullptr && p.drop_below == 0) return decode(kernel, p, y);
  const Index heads = p.batch * p.heads, lanes = kernel.sizes.lanes;
  const Index wanted = (kForwardTasks + heads - 1) / std::max<Index>(heads, 1);
  const Index rows = std::min(kernel.sizes.most_rows, std::max<Index>(1, p.queries / lanes / wanted) * lanes);
  const Index blocks = (p.queries + rows - 1) / rows;
  const Index grain = grain_of(flops_of(std::min(rows, p.queries), p.keys, p.width + p.value_width, p.causal));
  ThreadScratch<T> scratch(static_cast<Index>(kernel.forward_scratch(p)));
  parallel_for(heads * blocks, grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const Index head = i / blocks, first = i % blocks * rows;
      kernel.forward(p, y, head / p.heads, head % p.heads, first, std::min(first + rows, p.queries), scratch.mine());
    }
  });
}

template <class T>
void backward(const AttentionInputs& x, const Tensor& out, const Tensor& dout, const Tensor& lse,
              const AttentionTargets& d) {
  const AttentionKernels<T>& kernel = kernels::of<T>(kernels::attention_table());
  const AttentionProblem<T> p = problem_of<T>(x);
  AttentionGradients<T> g{};
  detail::set_gradients<T>(g, out, dout, d);
  g.lse = pointer<const T>(lse), g.dbias = pointer<T>(d.bias), g.groups = 1;
  const Index heads = p.batch * p.kv_heads, shared = p.heads / p.kv_heads, lanes = kernel.sizes.back_lanes;
  const Index blocks = (p.keys + kernel.sizes.back_keys - 1) / kernel.sizes.back_keys,
              tiles = (p.queries + lanes - 1) / lanes;
  g.groups = std::clamp<Index>((kBackwardTasks + heads - 1) / std::max<Index>(heads, 1), 1, std::max<Index>(blocks, 1));
  // With one block of keys, dq is complete when its tile is; otherwise each group adds up its own share.
  const bool split = blocks > 1 && d.q;
  Tensor partial;
  if (split) {
    partial = Tensor::empty({g.groups, p.batch, p.heads, tiles, p.width * lanes}, x.q.dtype());
    g.partial_dq = partial.ptr<T>();
  }
  const double flops =
      2.5 * flops_of(p.queries * shared, p.keys, p.width + p.value_width, p.causal) / static_cast<double>(g.groups);
  ThreadScratch<T> scratch(static_cast<Index>(kernel.backward_scratch(p)));
  parallel_for(heads * g.groups, grain_of(flops), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const Index head = i / g.groups;
      kernel.backward(p, g, head / p.kv_heads, head % p.kv_heads, i % g.groups, scratch.mine());
    }
  });
  if (!split) return;
  parallel_for(p.batch * p.heads * tiles, 16, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) kernel.combine(p, g, i / tiles / p.heads, i / tiles % p.heads, i % tiles);
  });
}

}  // namespace

Tensor attention(In q, In k, In v, const AttentionCall& call, std::optional<double> given) {
  detail::check_heads("attention", q, k, v);
  const double scale = given.value_or(1 / std::sqrt(static_cast<double>(q.dim(3))));
  detail::check_pairs("attention", q, k, call, scale);
  const AttentionInputs x = detail::attention_inputs(q, k, v, call, scale);
  Tensor y = detail::attention_output(x), lse;
  if (wants_gradient({x.q, x.k, x.v, call.bias})) lse = Tensor::empty(x.grid().first(3), q.dtype());
  detail::with_float(q.dtype(), [&](auto t) { forward<decltype(t)>(x, y.transpose(1, 2), lse); });
  record("attention", q.where(), y, {x.q, x.k, x.v, call.bias}, saved(x, y, lse),
         [](Grads& d, const Tensor& dy, const AttentionInputs& in, const Tensor& out, const Tensor& sums) {
           AttentionTargets to = detail::attention_targets(d);
           if (in.call.bias.defined() && d.wants(3)) to.bias = Tensor::zeros(in.grid(), dy.dtype());
           detail::with_float(dy.dtype(), [&](auto t) {
             backward<decltype(t)>(in, out.transpose(1, 2), dy.transpose(1, 2), sums, to);
           });
           if (to.bias.defined()) d.add(3, to.bias);
         });
  return y.transpose(1, 2);
}

}  // namespace heed
