#include <heed/autograd/linear_attention.hpp>
//
#include <cmath>
#include <heed/autograd/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/extrema.hpp>
#include <heed/autograd/generic_attention.hpp>
#include <heed/autograd/indexing.hpp>
#include <heed/autograd/softmax.hpp>
#include <heed/core/linear_attention.hpp>

namespace heed {
namespace {

using detail::heads_of;
using detail::LinearCall;
using detail::LinearKind;
using detail::LinearSums;
using detail::unit_rows;

void check_call(const char* op, In q, In k, In v, const LinearAttentionOptions& o) {
  const Where& at = q.where();
  detail::check_heads(op, q, k, v);
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

// The products of two elements of x, [..., D]: D squares, and the other D (D - 1) / 2 times the root of 2, as each
// stands for two. So the features of q and of k have the product (q . k)^2. It is a sum of terms of both signs, which
// may cancel to a small part of them: features are float64, whatever x is.
Index count_of_products(Index width) { return width * (width + 1) / 2; }
Tensor products_of_two(In x) {
  const Index width = x.dim(-1);
  std::vector<std::int32_t> first, second;
  std::vector<double> factors;
  for (Index a = 0; a < width; ++a)
    for (Index b = a; b < width; ++b) {
      first.push_back(static_cast<std::int32_t>(a)), second.push_back(static_cast<std::int32_t>(b));
      factors.push_back(a == b ? 1 : std::sqrt(2.0));
    }
  const Shape all = {count_of_products(width)};
  const Tensor wide = x->to(DType::float64);
  return index_select(wide, -1, Tensor::from(first, all)) * Tensor::from(factors, all) *
         index_select(wide, -1, Tensor::from(second, all));
}

Tensor features_of(const char* name, const FeatureFunction& map, In x) {
  const Tensor y = map(x);
  check(y.defined() && y.rank() == 4 && y.shape().first(3) == x.shape().first(3) && y.dtype() == x.dtype(), x.where(),
        "linear_attention: ", name, " made ", y, " of ", x.tensor(), "; all but the last axis must stay the same");
  return y;
}

void check_not_negative(const char* name, In x) {
  if (x.numel() == 0) return;
  const double least = min(x->detach()).item();
  check(!(least < 0), x.where(), "linear_attention: ", name, " made the feature ", least,
        "; features must be 0 or more, or signed_features true where no weight f(q) . g(k) is negative");
}

bool has_maps(const LinearAttentionOptions& o, In q) {
  const bool own_query = o.query_map != nullptr, own_key = o.key_map != nullptr;
  check(own_query == own_key, q.where(), "linear_attention: ", own_query ? "query_map" : "key_map",
        " is given alone; there must be both of query_map and key_map, or none");
  return own_query;
}

// Queries, keys and values as the kernels take them: features that are computed by ops are computed.
struct Mapped {
  Tensor q, k, v;
  LinearAttentionOptions options;
};
Mapped mapped(In q, In k, In v, const LinearAttentionOptions& o) {
  const bool maps = has_maps(o, q), poly2 = !maps && o.feature_map == FeatureMap::poly2;
  if (!maps && !poly2 && (o.feature_map != FeatureMap::identity || o.signed_features)) return {q, k, v, o};
  const Tensor keys = detail::without_padding(k, o.key_lengths, o.key_mask);
  Mapped x{q, keys, v, o};
  if (poly2) {
    x.q = products_of_two(q), x.k = products_of_two({keys, k.where()}), x.v = v->to(DType::float64);
    if (o.key_bias.defined()) x.options.key_bias = o.key_bias.to(DType::float64);
  } else if (maps) {
    x.q = features_of("query_map", o.query_map, q), x.k = features_of("key_map", o.key_map, {keys, k.where()});
  }
  if (!poly2 && !o.signed_features) {
    const NoTape guard;
    check_not_negative(maps ? "query_map" : "the identity of q", {x.q, q.where()});
    check_not_negative(maps ? "key_map" : "the identity of k",
                       {detail::without_padding(x.k, o.key_lengths, o.key_mask), k.where()});
  }
  x.options.feature_map = FeatureMap::identity;
  x.options.query_map = x.options.key_map = nullptr;
  return x;
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

// Of poly2: whether the squares of scores, D + Dv products for a pair of query and key, are less work than features and
// their sums. They are exact as well: no sum of terms that cancel.
bool fewer_scores(In q, In k, const LinearAttentionOptions& o) {
  return o.feature_map == FeatureMap::poly2 && !has_maps(o, q) && !o.key_bias.defined() &&
         k.dim(2) <= count_of_products(q.dim(3));
}
Tensor squared_scores(In q, In k, In v, const LinearAttentionOptions& o) {
  Similarity square = similarity_by_name("square");
  square.eps = o.eps;
  return generic_attention(q, k, v, square, {.causal = o.causal, .key_lengths = o.key_lengths, .key_mask = o.key_mask});
}

Tensor feature_attention(In q, In k, In v, const LinearAttentionOptions& o, bool merged) {
  check_call("linear_attention", q, k, v, o);
  if (fewer_scores(q, k, o)) {
    const Tensor y = squared_scores(q, k, v, o);
    return merged ? y.transpose(1, 2).reshape({y.dim(0), y.dim(2), y.dim(1) * y.dim(3)}) : y;
  }
  const Mapped x = mapped(q, k, v, o);
  return linear_attention_op("linear_attention", kind_of(x.options.feature_map), {x.q, q.where()}, x.k, x.v, x.options,
                             merged)
      .to(q.dtype());
}

// A step of decoding: checks, then forward from state to state.
Tensor step(const char* op, LinearKind kind, In q_in, In k_in, In v_in, LinearAttentionSums& state,
            const LinearAttentionOptions& o) {
  detail::check_heads(op, q_in, k_in, v_in);
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
  return feature_attention(q, k, v, options, false);
}

Tensor linear_attention_merged(In q, In k, In v, const LinearAttentionOptions& options) {
  return feature_attention(q, k, v, options, true);
}

Tensor linear_attention_step(In q, In k, In v, LinearAttentionSums& state, const LinearAttentionOptions& o) {
  const NoTape guard;
  check_call("linear_attention", q, k, v, o);
  const Mapped x = mapped(q, k, v, o);
  return step("linear_attention", kind_of(x.options.feature_map), {x.q, q.where()}, x.k, x.v, state, x.options)
      .to(q.dtype());
}

Tensor efficient_attention(In q, In k, In v, const LinearAttentionOptions& options) {
  check_call("efficient_attention", q, k, v, options);
  return linear_attention_op("efficient_attention", LinearKind::efficient, {softmax(q, -1), q.where()}, k, v, options,
                             false);
}

Tensor efficient_attention_step(In q, In k, In v, LinearAttentionSums& state, const LinearAttentionOptions& o) {
  const NoTape guard;
  check_call("efficient_attention", q, k, v, o);
  return step("efficient_attention", LinearKind::efficient, {softmax(q, -1), q.where()}, k, v, state, o);
}

}  // namespace heed
