#include <heed/autograd/linear_attention.hpp>
//
#include <heed/autograd/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/softmax.hpp>
#include <heed/core/linear_attention.hpp>

namespace heed {
namespace {

using detail::heads_of;
using detail::LinearCall;
using detail::LinearKind;
using detail::LinearSums;
using detail::unit_rows;

void check_options(const char* op, In q, In k, const LinearAttentionOptions& o) {
  const Where& at = q.where();
  detail::check_key_masks(op, k, o.key_lengths, o.key_mask);
  check(o.eps >= 0 && o.eps < 1, at, op, ": eps is ", o.eps, "; it must be in [0, 1)");
  if (!o.key_bias.defined()) return;
  const Shape grid = {q.dim(0), q.dim(1), k.dim(2)};
  Shape both;
  check(o.key_bias.dtype() == q.dtype() && broadcast(o.key_bias.shape(), grid, both) && both == grid, at, op,
        ": key_bias is ", o.key_bias, " and q is ", q.tensor(),
        "; it must have q's dtype and broadcast to [batch, heads, keys] ", grid);
}

// What forward and backward must agree upon.
struct Recipe {
  LinearKind kind;
  FeatureMap map;
  double eps;
  bool causal, merged;
  Index heads;
};

LinearCall call_of(const Recipe& r, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& lengths,
                   const Tensor& key_mask, const Tensor& weight) {
  LinearCall x;
  x.q = q, x.k = k, x.v = v, x.weight = weight;
  x.lengths = lengths.defined() ? lengths.dense() : lengths;
  x.key_mask = key_mask.defined() ? key_mask.dense() : key_mask;
  x.kind = r.kind;
  if (r.kind == LinearKind::features) x.map = static_cast<detail::LinearMap>(r.map);
  x.eps = r.eps, x.causal = r.causal;
  return x;
}

// x (x) x: [..., D] -> [..., D * D].
Tensor products_of_two(In x) {
  const Tensor all = x->unsqueeze(-1) * x->unsqueeze(-2);
  return all.reshape(x.shape().with(-1, x.dim(-1) * x.dim(-1)));
}

Tensor features_of(const char* name, const FeatureFunction& map, In x) {
  const Tensor y = map(x);
  check(y.defined() && y.rank() == 4 && y.shape().first(3) == x.shape().first(3) && y.dtype() == x.dtype(), x.where(),
        "linear_attention: ", name, " made ", y, " of ", x.tensor(), "; all but the last axis must stay the same");
  return y;
}

// Whether features are computed by ops, before the kernel.
bool maps_before(const LinearAttentionOptions& o, In q) {
  const bool own_query = o.query_map != nullptr, own_key = o.key_map != nullptr;
  check(own_query == own_key, q.where(), "linear_attention: ", own_query ? "query_map" : "key_map",
        " is given alone; there must be both of query_map and key_map, or none");
  return own_query || o.feature_map == FeatureMap::poly2;
}

struct Mapped {
  Tensor q, k;  // features
  LinearAttentionOptions options;
};
Mapped mapped(In q, In k, In v, const LinearAttentionOptions& o) {
  detail::check_heads("linear_attention", q, k, v);
  detail::check_key_masks("linear_attention", k, o.key_lengths, o.key_mask);
  const Tensor keys = detail::without_padding(k, o.key_lengths, o.key_mask);
  LinearAttentionOptions features = o;
  features.feature_map = FeatureMap::identity;
  features.query_map = features.key_map = nullptr;
  if (!o.query_map) return {products_of_two(q), products_of_two({keys, k.where()}), features};
  return {features_of("query_map", o.query_map, q), features_of("key_map", o.key_map, {keys, k.where()}), features};
}

LinearKind kind_of(FeatureMap map) { return map == FeatureMap::exp ? LinearKind::logs : LinearKind::features; }

// exp(key_bias), or itself for logarithms, for every head and key.
Tensor weight_of(LinearKind kind, const Tensor& key_bias, In q, In k) {
  if (!key_bias.defined()) return {};
  const NoTape guard;
  const Tensor all = key_bias.expand({q.dim(0), q.dim(1), k.dim(2)});
  return (kind == LinearKind::features ? exp(all) : all).contiguous();
}

void gradients(const Recipe& r, Grads& d, const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
               const Tensor& y, const Tensor& norm, const Tensor& states, const Tensor& lengths, const Tensor& key_mask,
               const Tensor& weight) {
  detail::LinearSinks sinks;
  if (Target t = d.strided(0)) sinks.dq = t.gradient, sinks.add_dq = t.accumulate;
  if (Target t = d.strided(1)) sinks.dk = t.gradient, sinks.add_dk = t.accumulate;
  if (Target t = d.strided(2)) sinks.dv = t.gradient, sinks.add_dv = t.accumulate;
  const bool wants_bias = weight.defined() && d.wants(3);
  if (wants_bias) sinks.dweight = Tensor::zeros(weight.shape(), weight.dtype());
  detail::linear_attention_backward(call_of(r, q, k, v, lengths, key_mask, weight), heads_of(y, r.merged, r.heads),
                                    heads_of(dy, r.merged, r.heads), {norm, states}, sinks);
  if (wants_bias) d.add(3, r.kind == LinearKind::features ? sinks.dweight * weight : sinks.dweight);
}

// Derivation in core/kernels/linear_attention.hpp.
Tensor linear_attention_op(const char* op, LinearKind kind, In q_in, In k_in, In v_in, const LinearAttentionOptions& o,
                           bool merged) {
  detail::check_heads(op, q_in, k_in, v_in);
  check_options(op, q_in, k_in, o);
  const Tensor q = unit_rows(q_in), k = unit_rows(k_in), v = unit_rows(v_in),
               weight = weight_of(kind, o.key_bias, q, k);
  const Index batch = q.dim(0), heads = q.dim(1), queries = q.dim(2), width = v.dim(3);
  const Recipe recipe{kind, o.feature_map, o.eps, o.causal, merged, heads};
  Tensor y =
      Tensor::empty(merged ? Shape{batch, queries, heads * width} : Shape{batch, heads, queries, width}, q.dtype());
  const LinearCall call = call_of(recipe, q, k, v, o.key_lengths, o.key_mask, weight);
  detail::LinearKept kept;
  if (wants_gradient({q, k, v, o.key_bias})) kept = detail::linear_attention_keeps(call);
  Tensor out = heads_of(y, merged, heads);
  detail::linear_attention_forward(call, LinearSums(), out, kept);
  record(op, q_in.where(), y, {q, k, v, o.key_bias},
         saved(q, k, v, y, kept.norm, kept.states, o.key_lengths, o.key_mask, weight),
         [recipe](Grads& d, const Tensor& dy, const auto&... all) { gradients(recipe, d, dy, all...); });
  return y;
}

// A step of decoding: checks, then forward from state to state.
Tensor step(const char* op, LinearKind kind, In q_in, In k_in, In v_in, LinearAttentionSums& state,
            const LinearAttentionOptions& o) {
  detail::check_heads(op, q_in, k_in, v_in);
  check_options(op, q_in, k_in, o);
  check(q_in.dim(2) == k_in.dim(2), q_in.where(), op, ": q is ", q_in.tensor(), " and k is ", k_in.tensor(),
        "; a step takes as many queries as keys");
  const NoTape guard;
  const Tensor q = unit_rows(q_in), k = unit_rows(k_in), v = unit_rows(v_in);
  const Index batch = q.dim(0), heads = q.dim(1), width = q.dim(3), value_width = v.dim(3);
  const Shape sums{batch, heads, width, value_width}, norms{batch, heads, width};
  const Tensor& at = state.sums;
  check(!at.defined() || (at.shape() == sums && at.dtype() == q.dtype() && state.norms.shape() == norms), q_in.where(),
        op, ": q is ", q, " and v is ", v, " but the state holds ", at, "; it must be ", sums);
  check(!at.defined() || state.maxima.defined() == (kind != LinearKind::features), q_in.where(), op,
        ": the state is of another feature map; it must be the one that it began with");
  LinearAttentionSums next{Tensor::empty(sums, q.dtype()), Tensor::empty(norms, q.dtype()), {}};
  if (kind != LinearKind::features) next.maxima = Tensor::empty(norms, q.dtype());
  Tensor out = Tensor::empty({batch, heads, q.dim(2), value_width}, q.dtype());
  detail::LinearKept nothing;
  const Recipe recipe{kind, o.feature_map, o.eps, true, false, heads};
  detail::linear_attention_forward(
      call_of(recipe, q, k, v, o.key_lengths, o.key_mask, weight_of(kind, o.key_bias, q, k)),
      {.before = state.sums,
       .norms_before = state.norms,
       .maxima_before = state.maxima,
       .after = next.sums,
       .norms_after = next.norms,
       .maxima_after = next.maxima},
      out, nothing);
  state = next;
  return out;
}

}  // namespace

Tensor linear_attention(In q, In k, In v, const LinearAttentionOptions& options) {
  if (maps_before(options, q)) {
    const Mapped x = mapped(q, k, v, options);
    return linear_attention({x.q, q.where()}, x.k, v, x.options);
  }
  return linear_attention_op("linear_attention", kind_of(options.feature_map), q, k, v, options, false);
}

Tensor linear_attention_merged(In q, In k, In v, const LinearAttentionOptions& options) {
  if (maps_before(options, q)) {
    const Mapped x = mapped(q, k, v, options);
    return linear_attention_merged({x.q, q.where()}, x.k, v, x.options);
  }
  return linear_attention_op("linear_attention", kind_of(options.feature_map), q, k, v, options, true);
}

Tensor linear_attention_step(In q, In k, In v, LinearAttentionSums& state, const LinearAttentionOptions& o) {
  const NoTape guard;
  if (maps_before(o, q)) {
    const Mapped x = mapped(q, k, v, o);
    return linear_attention_step({x.q, q.where()}, x.k, v, state, x.options);
  }
  return step("linear_attention", kind_of(o.feature_map), q, k, v, state, o);
}

Tensor efficient_attention(In q, In k, In v, const LinearAttentionOptions& options) {
  return linear_attention_op("efficient_attention", LinearKind::efficient, {softmax(q, -1), q.where()}, k, v, options,
                             false);
}

Tensor efficient_attention_step(In q, In k, In v, LinearAttentionSums& state, const LinearAttentionOptions& o) {
  const NoTape guard;
  return step("efficient_attention", LinearKind::efficient, {softmax(q, -1), q.where()}, k, v, state, o);
}

}  // namespace heed
