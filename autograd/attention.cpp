// attention() and flex_attention(): the ops, and how their work is split among threads. Derivation in
// core/kernels/attention/attention.hpp.
#include <heed/autograd/attention.hpp>
//
#include <cmath>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/flex_attention.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/profiler.hpp>

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

// The minimum number of tasks, if there are enough rows. It is a constant, and not the number of threads, so that the
// split and its roundings are always the same.
constexpr Index kForwardTasks = 16;
constexpr Index kBackwardTasks = 16;
// The maximum number of copies in which backward sums gradients of a function's parameters; consecutive tasks share
// one.
constexpr Index kParameterSums = 64;

using Mods = detail::ScoreModAccess;

// The inputs of both ops. attention() leaves the options empty.
struct FlexInputs : AttentionInputs {
  FlexAttentionOptions flex = {};

  auto tensors() {
    auto& [a, b, c, d] = Mods::parameters(flex.score_mod);
    return std::tuple_cat(AttentionInputs::tensors(), std::tie(flex.sinks, flex.positions, a, b, c, d));
  }
};
constexpr int kSinksInput = 4, kParametersInput = 5;  // positions in the op's inputs

template <class T>
ScoreContext<T> context_of(const FlexInputs& x) {
  ScoreContext<T> c{Mods::context(x.flex.score_mod), {}};
  const auto& parameters = Mods::parameters(x.flex.score_mod);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& from = parameters[i];
    if (!from.defined()) continue;
    ScoreParameter<T>& to = c.parameters[i];
    to = {pointer<const T>(from), {1, 1, 1, 1}, from.numel(), nullptr};
    std::copy(from.shape().begin(), from.shape().end(), to.sizes);
  }
  return c;
}

// The context must outlive the problem. S: the type of q, k and v in memory.
template <class S, class T>
AttentionProblem<T, S> problem_of(const FlexInputs& x, const ScoreContext<T>& context) {
  AttentionProblem<T, S> p{};
  set_pairs<T>(p, x);
  p.causal = x.call.causal;
  p.rules.f = Mods::function<T>(x.flex.score_mod), p.rules.context = &context;
  p.rules.sinks = pointer<const T>(x.flex.sinks), p.rules.positions = pointer<const std::int32_t>(x.flex.positions);
  if (x.flex.block_mask.defined()) {
    const Shape& shape = x.flex.block_mask.shape();  // [B or 1, H or 1, T, S]
    const Index row = (p.keys + kBlockKeys - 1) / kBlockKeys,
                head = (p.queries + kBlockQueries - 1) / kBlockQueries * row;
    p.rules.blocks = Mods::blocks(x.flex.block_mask);
    p.rules.block_query = row, p.rules.block_head = shape[1] == 1 ? 0 : head;
    p.rules.block_batch = shape[0] == 1 ? 0 : shape[1] * head;
    p.rules.mask = Mods::function<T>(Mods::mask(x.flex.block_mask));
    p.rules.mask_function = Mods::context(Mods::mask(x.flex.block_mask));
  }
  return p;
}

// The gradients of a function's parameters, summed in float64. Consecutive tasks share a copy of the sums, to which
// they add in order, so that the order of a sum is the same for any number of threads. If each sequence and head has
// its own entries, there is one copy per group of key blocks, because tasks of one group never write to the same entry.
template <class T>
class ParameterSums {
 public:
  ParameterSums(const FlexInputs& x, const Grads& d, const ScoreContext<T>& context, Index tasks, Index groups)
      : context_(context),
        size_(size_of(x, d)),
        by_row_(Mods::by_row(x.flex.score_mod)),
        share_(by_row_ ? 1 : std::max<Index>(1, (tasks + kParameterSums - 1) / kParameterSums)),
        copies_(by_row_ ? groups : std::max<Index>(1, (tasks + share_ - 1) / share_)),
        sums_(static_cast<std::size_t>(size_ * copies_)) {
    std::fill_n(sums_.data(), sums_.size(), 0.0);
  }
  bool needed() const { return size_ > 0; }
  Index share() const { return share_; }  // consecutive tasks that one chunk must run

  // The context that task i is called with.
  ScoreContext<T> context(const FlexInputs& x, const Grads& d, Index i) {
    ScoreContext<T> c = context_;
    double* to = sums_.data() + (by_row_ ? i % copies_ : i / share_) * size_;
    each_trained(x, d, [&](std::size_t n, const Tensor& parameter) {
      c.parameters[n].sums = to;
      to += parameter.numel();
    });
    return c;
  }
  void give(const FlexInputs& x, Grads& d) {
    for (Index i = 1; i < copies_; ++i)
      for (Index n = 0; n < size_; ++n) sums_.data()[n] += sums_.data()[i * size_ + n];
    const double* from = sums_.data();
    each_trained(x, d, [&](std::size_t n, const Tensor& parameter) {
      Tensor gradient = Tensor::empty(parameter.shape(), parameter.dtype());
      std::transform(from, from + parameter.numel(), gradient.ptr<T>(), [](double y) { return static_cast<T>(y); });
      from += parameter.numel();
      d.add(kParametersInput + static_cast<int>(n), gradient);
    });
  }

 private:
  const ScoreContext<T>& context_;
  Index size_;
  bool by_row_;
  Index share_, copies_;
  Scratch<double> sums_;

  template <class F>
  static void each_trained(const FlexInputs& x, const Grads& d, const F& f) {
    const auto& parameters = Mods::parameters(x.flex.score_mod);
    for (std::size_t n = 0; n < parameters.size(); ++n)
      if (parameters[n].defined() && d.needs(kParametersInput + static_cast<int>(n))) f(n, parameters[n]);
  }
  static Index size_of(const FlexInputs& x, const Grads& d) {
    Index size = 0;
    each_trained(x, d, [&](std::size_t, const Tensor& parameter) { size += parameter.numel(); });
    return size;
  }
};

double flops_of(Index queries, Index keys, Index width, bool causal) {
  return 2.0 * static_cast<double>(queries) * static_cast<double>(keys) * static_cast<double>(width) *
         (causal ? 0.5 : 1);
}

// Reports one product of this width over all pairs to the profile. Masked pairs count as visible.
template <class Problem>
void count_pairs(const FlexInputs& x, const Problem& p, Index width) {
  const auto heads = static_cast<double>(p.batch * p.heads);
  detail::count_flops(x.q.dtype(), heads * flops_of(p.queries, p.keys, width, p.causal));
}

template <class T, class S>
void decode(const AttentionKernels<T, S>& kernel, const AttentionProblem<T, S>& p, const AttentionOutput<T, S>& y) {
  const Index heads = p.batch * p.kv_heads, shared = p.heads / p.kv_heads, size = kernel.partial_size(p);
  const Index chunks = (p.keys + kernel.sizes.decode_keys - 1) / kernel.sizes.decode_keys;
  const double flops = flops_of(shared, std::min(p.keys, kernel.sizes.decode_keys), p.width + p.value_width, false);
  Scratch<T> partial(static_cast<std::size_t>(heads * chunks * shared * size));
  parallel_for_each(heads * chunks, grain_for_flops(8 * flops), [&](Index i) {  // limited by memory bandwidth
    const Index head = i / chunks;
    kernel.decode(p, head / p.kv_heads, head % p.kv_heads, i % chunks, partial.data() + i * shared * size);
  });
  for (Index i = 0; i < heads * shared; ++i)
    kernel.join(p, y, i / p.heads, i % p.heads, chunks,
                partial.data() + (i / shared * chunks * shared + i % shared) * size, shared * size);
}

template <class T, class S>
void forward(const FlexInputs& x, const Tensor& out, const Tensor& lse, const Tensor& rest) {
  const AttentionKernels<T, S>& kernel = kernels::attention_kernels<T, S>();
  const ScoreContext<T> context = context_of<T>(x);
  const AttentionProblem<T, S> p = problem_of<S>(x, context);
  const AttentionOutput<T, S> y{rows_of<S>(out), pointer<T>(lse), rows_of<std::uint8_t>(rest)};
  count_pairs(x, p, p.width + p.value_width);
  if (p.queries == 1 && y.lse == nullptr && p.drop_below == 0) return decode(kernel, p, y);
  const Index heads = p.batch * p.heads, lanes = kernel.sizes.lanes;
  const Index tasks_per_head = (kForwardTasks + heads - 1) / std::max<Index>(heads, 1);
  const Index rows = std::min(kernel.sizes.max_rows, std::max<Index>(1, p.queries / lanes / tasks_per_head) * lanes);
  const Index blocks = (p.queries + rows - 1) / rows;
  const Index grain = grain_for_flops(flops_of(std::min(rows, p.queries), p.keys, p.width + p.value_width, p.causal));
  ThreadScratch<T> scratch(static_cast<Index>(kernel.forward_scratch(p)));
  parallel_for_each(heads * blocks, grain, [&](Index i) {
    const Index head = i / blocks, first = i % blocks * rows;
    kernel.forward(p, y, head / p.heads, head % p.heads, first, std::min(first + rows, p.queries), scratch.mine());
  });
}

// dq of each tile of queries from the shares of all groups of keys.
template <class T, class S>
void combine_dq(const AttentionKernels<T, S>& kernel, const AttentionProblem<T, S>& p,
                const AttentionGradients<T, S>& g, Index tiles) {
  parallel_for_each(p.batch * p.heads * tiles, 16,
                    [&](Index i) { kernel.combine(p, g, i / tiles / p.heads, i / tiles % p.heads, i % tiles); });
}

template <class T, class S>
void backward(const FlexInputs& x, const Tensor& out, const Tensor& dout, const Tensor& lse, const Tensor& rest,
              const AttentionTargets& to, Grads& d) {
  const AttentionKernels<T, S>& kernel = kernels::attention_kernels<T, S>();
  const ScoreContext<T> context = context_of<T>(x);
  const AttentionProblem<T, S> p = problem_of<S>(x, context);
  AttentionGradients<T, S> g{};
  detail::set_gradients<T>(g, out, dout, to);
  g.lse = pointer<const T>(lse), g.rest = rows_of<const std::uint8_t>(rest);
  g.dbias = pointer<T>(to.bias), g.groups = 1;
  count_pairs(x, p, 3 * p.width + 2 * p.value_width);  // scores, dq and dk; dv and the weights' gradient
  const Index heads = p.batch * p.kv_heads, shared = p.heads / p.kv_heads, lanes = kernel.sizes.back_lanes;
  // Large blocks read the queries less often. Few heads need smaller blocks, which are divided more evenly.
  g.block_keys = 2 * heads < kBackwardTasks ? kernel.sizes.back_keys / 2 : kernel.sizes.back_keys;
  const Index blocks = (p.keys + g.block_keys - 1) / g.block_keys,
              tiles = (p.queries + lanes - 1) / lanes;
  g.groups = std::clamp<Index>((kBackwardTasks + heads - 1) / std::max<Index>(heads, 1), 1, std::max<Index>(blocks, 1));
  // With one block of keys, dq of a tile is complete at once. With more, each group sums its own share, to be combined.
  const bool split = blocks > 1 && to.q;
  Tensor partial;
  if (split) {
    const Shape shape = {g.groups, p.batch, p.heads, tiles, kernel.tile_size(p)};
    const DType dtype = detail::score_dtype(x.q.dtype());
    const bool skips = p.rules.blocks != nullptr || p.documents != nullptr;
    partial = skips ? Tensor::zeros(shape, dtype) : Tensor::empty(shape, dtype);
    g.partial_dq = partial.ptr<T>();
  }
  const double flops =
      2.5 * flops_of(p.queries * shared, p.keys, p.width + p.value_width, p.causal) / static_cast<double>(g.groups);
  ThreadScratch<T> scratch(static_cast<Index>(kernel.backward_scratch(p)));
  ParameterSums<T> sums(x, d, context, heads * g.groups, g.groups);
  const Index share = sums.needed() ? sums.share() : 1;
  parallel_for_each(heads * g.groups, (grain_for_flops(flops) + share - 1) / share * share, [&](Index i) {
    const Index head = i / g.groups;
    AttentionGradients<T, S> mine = g;
    const ScoreContext<T> with_sums = sums.needed() ? sums.context(x, d, i) : context;
    if (sums.needed()) mine.context = &with_sums;
    kernel.backward(p, mine, head / p.kv_heads, head % p.kv_heads, i % g.groups, scratch.mine());
  });
  sums.give(x, d);
  if (split) combine_dq(kernel, p, g, tiles);
}

// dz_h = -sum p delta, where p = e^(z - L) is the sink's share of a query's weights and delta = do . o
void backward_sinks(const FlexInputs& x, const Tensor& out, const Tensor& dout, const Tensor& lse, Grads& d) {
  if (!x.flex.sinks.defined() || !d.needs(kSinksInput)) return;
  const Tensor delta = sum(out.to(dout.dtype()) * dout, {3}).transpose(1, 2);  // [B, H, T]
  const Tensor taken = exp(x.flex.sinks.view({1, x.flex.sinks.dim(0), 1}) - lse * (1 / kScoreUnit));
  d.add(kSinksInput, -sum(taken * delta, {0, 2}));
}

Tensor attention_op(const char* op, const Where& where, const FlexInputs& x) {
  const auto& p = Mods::parameters(x.flex.score_mod);
  const Inputs inputs = {x.q, x.k, x.v, x.call.bias, x.flex.sinks, p[0], p[1], p[2], p[3]};
  Tensor y = detail::attention_output(x), lse, rest;
  if (needs_gradient(inputs.list())) {
    const Shape rows = x.grid().first(3);
    lse = Tensor::empty(rows, detail::score_dtype(x.q.dtype()));
    if (x.q.dtype() == DType::bfloat16)  // used as bytes
      rest = Tensor::empty({rows[0], rows[1], rows[2], kernels::rest_width(x.v.dim(3))}, DType::bool8);
  }
  detail::with_format(x.q.dtype(), [&]<class T, class S>(T, S) { forward<T, S>(x, y.transpose(1, 2), lse, rest); });
  record(op, where, y, inputs, saved(x, y, lse, rest),
         [](Grads& d, const Tensor& dy, const FlexInputs& in, const Tensor& out, const Tensor& sums,
            const Tensor& more) {
           AttentionTargets to = detail::attention_targets(d);
           if (in.call.bias.defined() && d.needs(3)) to.bias = Tensor::zeros(in.grid(), dy.dtype());
           detail::with_format(in.q.dtype(), [&]<class T, class S>(T, S) {
             backward<T, S>(in, out.transpose(1, 2), dy.transpose(1, 2), sums, more, to, d);
           });
           if (to.bias.defined()) d.add(3, to.bias);
           backward_sinks(in, out, dy, sums, d);
         });
  return y.transpose(1, 2);
}

double scale_of(const char* op, In q, In k, In v, const AttentionCall& call, std::optional<double> given) {
  detail::check_heads(op, q, k, v, true);
  const double scale = given.value_or(1 / std::sqrt(static_cast<double>(q.dim(3))));
  detail::check_pairs(op, q, k, call, scale);
  return scale;
}

void check_options(In q, In k, const FlexAttentionOptions& o) {
  const Where& at = q.where();
  const Index batch = q.dim(0), heads = q.dim(1), queries = q.dim(2), keys = k.dim(2);
  const auto one_or = [](Index n, Index of) { return n == 1 || n == of; };
  check(std::max(queries, keys) < Index{1} << 30, at, "flex_attention: q is ", q.tensor(), " and k is ", k.tensor(),
        "; both must have fewer than 2^30 positions");
  if (o.block_mask.defined()) {
    const Shape& mask = o.block_mask.shape();
    check(one_or(mask[0], batch) && one_or(mask[1], heads) && mask[2] == queries && mask[3] == keys, at,
          "flex_attention: block_mask has shape ", mask, " but [batch, heads, queries, keys] is ",
          Shape{batch, heads, queries, keys}, "; it must be the same, except that batch and heads may be 1");
  }
  const DType scores = detail::score_dtype(q.dtype());
  check(!o.sinks.defined() || (o.sinks.shape() == Shape{heads} && o.sinks.dtype() == scores), at,
        "flex_attention: sinks is ", o.sinks, " and q is ", q.tensor(), "; it must be ", Shape{heads},
        q.dtype() == DType::bfloat16 ? " float32" : " of q's dtype");
  check(!o.positions.defined() || (o.positions.shape() == Shape{batch} && o.positions.dtype() == DType::int32), at,
        "flex_attention: positions is ", o.positions, "; it must be ", Shape{batch}, " int32");
  const Tensor& first = Mods::parameters(o.score_mod)[0];
  check(!Mods::by_head(o.score_mod) || one_or(first.dim(0), heads), at, "flex_attention: the score_mod's parameter is ",
        first, " and q is ", q.tensor(), "; it must have one row per head, or one for all heads");
}

}  // namespace

Tensor attention(In q, In k, In v, const AttentionCall& call, std::optional<double> given) {
  const double scale = scale_of("attention", q, k, v, call, given);
  return attention_op("attention", q.where(), {detail::attention_inputs(q, k, v, call, scale)});
}

Tensor flex_attention(In q, In k, In v, const FlexAttentionOptions& options, const AttentionCall& call) {
  const double scale = scale_of("flex_attention", q, k, v, call, options.scale);
  check_options(q, k, options);
  FlexInputs x{detail::attention_inputs(q, k, v, call, scale), options};
  if (options.sinks.defined()) x.flex.sinks = options.sinks.contiguous();
  if (options.positions.defined()) x.flex.positions = options.positions.dense();
  for (Tensor& p : Mods::parameters(x.flex.score_mod))
    if (p.defined()) p = p.to(detail::score_dtype(q.dtype())).contiguous();
  return attention_op("flex_attention", q.where(), x);
}

}  // namespace heed
