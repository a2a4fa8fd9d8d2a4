#include <heed/core/attention.hpp>
//
#include <algorithm>
#include <cmath>
#include <heed/core/attention_problem.hpp>
#include <heed/core/kernels/dispatch.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/pool.hpp>

namespace heed::kernels {
HEED_KERNEL_TABLE(AttentionTable, attention_table)
}

namespace heed::detail {
namespace {

using kernels::AttentionGradients;
using kernels::AttentionKernels;
using kernels::AttentionOutput;
using kernels::AttentionProblem;

// At least this many tasks, where the rows allow it, for the threads to share. It is a constant, and not the number of
// threads, so that the split and its roundings are the same for all.
constexpr Index kTasks = 32;
constexpr Index kGroupTasks = 16;
constexpr double kGrainFlops = 2e6;  // some 10 microseconds

template <class T>
const AttentionKernels<T>& kernels_of() {
  if constexpr (std::is_same_v<T, float>)
    return kernels::attention_table().f32;
  else
    return kernels::attention_table().f64;
}

template <class T>
AttentionProblem<T> problem_of(const AttentionCall& x) {
  AttentionProblem<T> p{};
  set_pairs<T>(p, x);
  p.causal = x.causal;
  return p;
}

// Tasks of this many operations each make one chunk of the parallel loop.
Index grain_of(double flops_of_task) {
  return std::max<Index>(1, static_cast<Index>(kGrainFlops / std::max(flops_of_task, 1.0)));
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
void forward(const AttentionCall& x, Tensor& out, Tensor& lse) {
  const AttentionKernels<T>& kernel = kernels_of<T>();
  const AttentionProblem<T> p = problem_of<T>(x);
  const AttentionOutput<T> y{rows_of<T>(out), lse.defined() ? lse.ptr<T>() : nullptr};
  if (p.queries == 1 && y.lse == nullptr && p.drop_below == 0) return decode(kernel, p, y);
  const Index heads = p.batch * p.heads, lanes = kernel.sizes.lanes;
  const Index wanted = (kTasks + heads - 1) / std::max<Index>(heads, 1);
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
void backward(const AttentionCall& x, const Tensor& out, const Tensor& dout, const Tensor& lse, AttentionSinks& d) {
  const AttentionKernels<T>& kernel = kernels_of<T>();
  const AttentionProblem<T> p = problem_of<T>(x);
  AttentionGradients<T> g{rows_of<const T>(out),
                          rows_of<const T>(dout),
                          lse.ptr<T>(),
                          rows_of<T>(d.dq),
                          rows_of<T>(d.dk),
                          rows_of<T>(d.dv),
                          d.add_dq,
                          d.add_dk,
                          d.add_dv,
                          d.dbias.defined() ? d.dbias.ptr<T>() : nullptr,
                          nullptr,
                          1};
  const Index heads = p.batch * p.kv_heads, shared = p.heads / p.kv_heads, lanes = kernel.sizes.back_lanes;
  const Index blocks = (p.keys + kernel.sizes.back_keys - 1) / kernel.sizes.back_keys,
              tiles = (p.queries + lanes - 1) / lanes;
  g.groups = std::clamp<Index>((kGroupTasks + heads - 1) / std::max<Index>(heads, 1), 1, std::max<Index>(blocks, 1));
  // With one block of keys, dq is complete when its tile is; otherwise each group adds up its own share.
  const bool split = blocks > 1 && d.dq.defined();
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

template <class T>
void weights(const AttentionCall& x, Tensor& y) {
  const AttentionProblem<T> p = problem_of<T>(x);
  parallel_for(p.batch * p.heads * p.queries, 16, [&](Index begin, Index end) {
    for (Index n = begin; n < end; ++n) {
      const Index i = n % p.queries, h = n / p.queries % p.heads, b = n / p.queries / p.heads;
      const T* q = p.q.data + b * p.q.batch + h * p.q.head + i * p.q.row;
      T* row = y.ptr<T>() + n * p.keys;
      T top = -INFINITY, sum = 0;
      for (Index j = 0; j < p.keys; ++j) {
        const T* k = p.k.data + b * p.k.batch + h / (p.heads / p.kv_heads) * p.k.head + j * p.k.row;
        const bool allowed = (!p.causal || j <= i + p.keys - p.queries) && (p.lengths == nullptr || j < p.lengths[b]) &&
                             (p.alive == nullptr || p.alive[b * p.keys + j]) &&
                             (p.mask.data == nullptr ||
                              p.mask.data[b * p.mask.batch + h * p.mask.head + i * p.mask.query + j * p.mask.key]);
        T s = 0;
        for (Index c = 0; c < p.width; ++c) s += q[c] * k[c];
        s *= p.scale;
        if (p.bias.data != nullptr)
          s += p.bias.data[b * p.bias.batch + h * p.bias.head + i * p.bias.query + j * p.bias.key];
        row[j] = allowed ? s : -INFINITY;
        if (row[j] > top) top = row[j];
      }
      if (top == -INFINITY) top = 0;
      for (Index j = 0; j < p.keys; ++j) sum += row[j] = std::exp(row[j] - top);
      for (Index j = 0; j < p.keys; ++j) row[j] = sum == 0 ? 0 : row[j] / sum;
    }
  });
}

}  // namespace

std::uint64_t attention_counters(const AttentionCall& x) {
  return static_cast<std::uint64_t>(x.q.dim(0) * x.q.dim(1) * x.q.dim(2) * ((x.k.dim(2) + 3) / 4));
}

void attention_forward(const AttentionCall& x, Tensor& out, Tensor& lse) {
  x.q.dtype() == DType::float32 ? forward<float>(x, out, lse) : forward<double>(x, out, lse);
}

void attention_backward(const AttentionCall& x, const Tensor& out, const Tensor& dout, const Tensor& lse,
                        AttentionSinks& d) {
  x.q.dtype() == DType::float32 ? backward<float>(x, out, dout, lse, d) : backward<double>(x, out, dout, lse, d);
}

Tensor attention_weights_of(const AttentionCall& x) {
  Tensor y = Tensor::empty({x.q.dim(0), x.q.dim(1), x.q.dim(2), x.k.dim(2)}, x.q.dtype());
  x.q.dtype() == DType::float32 ? weights<float>(x, y) : weights<double>(x, y);
  return y;
}

}  // namespace heed::detail
