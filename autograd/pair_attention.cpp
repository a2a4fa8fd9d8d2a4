#include <heed/autograd/pair_attention.hpp>
//
#include <cmath>
#include <heed/core/random.hpp>

namespace heed::detail {

static void check_grid(const char* op, In q, const char* name, const Tensor& x, const Shape& grid) {
  Shape both;
  check(broadcast(x.shape(), grid, both) && both == grid, q.where(), op, ": ", name, " is ", x,
        "; it must broadcast to [batch, heads, queries, keys] ", grid);
}

void check_pairs(const char* op, In q, In k, const PairOptions& o) {
  const Where& at = q.where();
  const Shape grid = {q.dim(0), q.dim(1), q.dim(2), k.dim(2)};
  check_key_masks(op, k, o.key_lengths, o.key_mask);
  if (o.mask.defined()) {
    check(o.mask.dtype() == DType::bool8, at, op, ": mask is ", o.mask,
          "; it must be bool8 (a bias is added to scores)");
    check_grid(op, q, "mask", o.mask, grid);
  }
  if (o.bias.defined()) {
    check(o.bias.dtype() == q.dtype(), at, op, ": bias is ", o.bias, " and q is ", q.tensor(),
          "; the dtypes must be the same");
    check_grid(op, q, "bias", o.bias, grid);
  }
  check(o.dropout >= 0 && o.dropout <= 1, at, op, ": dropout is ", o.dropout, "; it must be in [0, 1]");
  check(std::isfinite(o.scale), at, op, ": scale is ", o.scale, "; it must be a finite number");
}

AttentionCall pair_call(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lengths,
                        const Tensor& key_mask, const Tensor& mask, const Tensor& bias, const PairRecipe& r) {
  AttentionCall x;
  x.q = q, x.k = k, x.v = v, x.mask = mask, x.bias = bias;
  x.lengths = lengths.defined() ? lengths.dense() : lengths;
  x.key_mask = key_mask.defined() ? key_mask.dense() : key_mask;
  x.scale = r.scale, x.causal = r.causal, x.dropout = r.dropout;
  x.seed = r.seed, x.stream = r.stream, x.position = r.position;
  return x;
}

AttentionCall pair_call(const Tensor& q, const Tensor& k, const Tensor& v, const PairOptions& o, double scale) {
  return pair_call(q, k, v, o.key_lengths, o.key_mask, o.mask, o.bias, {.scale = scale, .causal = o.causal});
}

void draw_dropout(AttentionCall& call, double dropout) {
  if (!is_training() || dropout <= 0) return;
  call.dropout = dropout;
  call.seed = default_rng().seed(), call.stream = default_rng().stream();
  call.position = default_rng().advance(attention_counters(call));
}

PairRecipe recipe_of(const AttentionCall& call, bool merged) {
  return {call.scale, call.dropout, call.causal, merged, call.q.dim(1), call.seed, call.stream, call.position};
}

Tensor pair_output(const AttentionCall& call, bool merged) {
  const Index batch = call.q.dim(0), heads = call.q.dim(1), queries = call.q.dim(2), width = call.v.dim(3);
  return Tensor::empty(merged ? Shape{batch, queries, heads * width} : Shape{batch, heads, queries, width},
                       call.q.dtype());
}

AttentionSinks pair_sinks(Grads& d) {
  AttentionSinks sinks;
  if (Target t = d.strided(0)) sinks.dq = t.gradient, sinks.add_dq = t.accumulate;
  if (Target t = d.strided(1)) sinks.dk = t.gradient, sinks.add_dk = t.accumulate;
  if (Target t = d.strided(2)) sinks.dv = t.gradient, sinks.add_dv = t.accumulate;
  return sinks;
}

}  // namespace heed::detail
