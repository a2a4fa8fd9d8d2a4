// generic_attention() and relative_attention(): forward and backward in blocks, their masks, pooled keys, vectors of
// relative positions, and values that are not finite.
#include <heed/autograd/generic_attention.hpp>
//
#include <algorithm>
#include <cmath>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/detail/relative_vectors.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/random.hpp>
#include <limits>

namespace heed {
namespace {

using detail::AttentionInputs;

constexpr Index kBlockScores = Index{1} << 20;  // scores held at once

void check_call(In q, In k, In v, const Similarity& f, const AttentionCall& call, const GenericAttentionOptions& o) {
  const Where& at = q.where();
  detail::check_heads("generic_attention", q, k, v);
  detail::check_pairs("generic_attention", q, k, call, o.scale);
  check(static_cast<bool>(f.f), at, "generic_attention: the similarity '", f.name, "' has no f; it must be a function");
  check(!f.log || f.by == SimilarityNorm::sum, at, "generic_attention: the similarity '", f.name,
        "' is given by its logarithm and normalised by count; it must be normalised by sum");
  check(o.pool >= 1, at, "generic_attention: pool is ", o.pool, "; it must be 1 or more");
  check(o.pool == 1 || !(call.causal || call.mask.defined() || call.bias.defined()), at, "generic_attention: pool is ",
        o.pool, ", with causal masking, a mask or a bias; pooled keys mix positions, so pooling supports none of them");
}

// Backward calls f on plain scores, so the gradient of anything else that f uses would be lost. Without a tape, a
// result that depends on a tensor with a gradient is marked as unrecorded, which this check finds.
void check_constant(In q, const Similarity& f) {
  const detail::ModeScope aside([](detail::Mode& m, void*) { m.tape = nullptr, m.first_run = nullptr; });
  check(!f.f(Tensor::zeros({1, 1, 1, 1}, q.dtype())).is_unrecorded(), q.where(), "generic_attention: f of '", f.name,
        "' uses a parameter, or another value that requires a gradient, which would be lost; f must depend on scores ",
        "alone: put the parameter into q, k or the bias, or detach() it to use it as a constant");
}

// The problem of one call, for forward and backward. Rows of k and v that the key masks exclude are zeros.
struct Problem : AttentionInputs {
  Similarity f;
  RelativeVectors vectors;
  bool finite, bias_hides;  // all values are finite; the bias contains -infinity

  Index batch() const { return q.dim(0); }
  Index heads() const { return q.dim(1); }
  Index groups() const { return k.dim(1); }
  Index queries() const { return q.dim(2); }
  Index keys() const { return k.dim(2); }
};

Problem problem_of(const Similarity& f, const AttentionInputs& x, const RelativeVectors& vectors) {
  Problem p{x, f, vectors, true, false};
  p.k = without_padding(x.k, x.call), p.v = without_padding(x.v, x.call);
  const Tensor& bias = x.call.bias;
  p.bias_hides = bias.defined() && bias.numel() > 0 && min(bias).item() <= -detail::kInfinity;
  p.finite = std::isfinite(sum(p.v * 0).item());
  return p;
}

// Queries [first, last), and keys [0, keys), which are all keys visible to one of these queries by `causal`.
struct Rows {
  Index first, last, keys;

  Index count() const { return last - first; }
  Tensor of(const Tensor& x) const { return x.slice(2, first, last); }     // [B, H, T, ...]
  Tensor seen(const Tensor& x) const { return x.slice(2, 0, keys); }       // [B, Hk, S, ...]
  Tensor pairs(const Tensor& x) const { return of(x).slice(3, 0, keys); }  // [B, H, T, S]
};

// Calls f(rows) for all blocks of queries with a visible key.
template <class F>
void each_block(const Problem& p, const F& f) {
  const Index a_row = p.batch() * p.heads() * p.keys();
  if (a_row == 0) return;
  const Index step = std::max<Index>(1, kBlockScores / a_row);
  for (Index i = 0; i < p.queries(); i += step) {
    const Index last = std::min(p.queries(), i + step);
    const Index keys = p.call.causal ? causal_end(query_position(last - 1, p.queries(), p.keys()), p.keys()) : p.keys();
    if (keys > 0) f(Rows{i, last, keys});
  }
}

// Heads that share keys, as rows of one product: [B, H, r, n] -> [B, Hk, H / Hk * r, n].
Tensor by_group(const Problem& p, const Tensor& x) {
  return x.reshape({p.batch(), p.groups(), p.heads() / p.groups() * x.dim(2), x.dim(3)});
}
Tensor by_head(const Problem& p, const Tensor& x, Index rows) { return x.view({p.batch(), p.heads(), rows, x.dim(3)}); }

// The distances of the keys to the queries of a block.
detail::Distances distances(const Problem& p, const Rows& r) {
  const RelativeVectors& vectors = p.vectors;
  detail::Distances at{{}, r.keys, (vectors.keys.defined() ? vectors.keys : vectors.values).dim(0) / 2};
  for (Index b = 0; b < p.batch(); ++b)
    at.first.push_back(vectors.positions.defined() ? vectors.positions.ptr<std::int32_t>()[b] + r.first
                                                   : query_position(r.first, p.queries(), p.keys()));
  return at;
}

// The products of rows x [B, H, r, n] with the vectors of the pairs, [B, H, r, keys].
Tensor with_vectors(const Problem& p, const Rows& r, const Tensor& x, const Tensor& vectors) {
  return detail::spread_by_distance(matmul(x, vectors.t()), distances(p, r));
}

// The pairs that are not allowed, broadcast to [B, H, r, keys]; undefined if all are allowed.
Tensor forbidden(const Problem& p, const Rows& r) {
  const Tensor allowed = detail::allowed_block(p.call, p.grid(), r.first, r.last, r.keys);
  Tensor all = allowed.defined() ? logical_not(allowed) : allowed;
  if (p.bias_hides) {
    const Tensor hidden = r.pairs(p.call.bias.expand(p.grid())) <= -detail::kInfinity;
    all = all.defined() ? logical_or(all, hidden) : hidden;
  }
  return all;
}

Tensor cleared(const Tensor& x, const Tensor& where, double value = 0) {
  return where.defined() ? masked_fill(x, where, value) : x;
}

// Results for a block: scores and weights [B, H, r, keys], 0 where forbidden, and 1 / c [B, H, r, 1], 0 where c is 0.
struct Block {
  Tensor forbidden, scores, weights, inverse;
};

Tensor similarity_of(const Problem& p, const Tensor& scores) {
  const Tensor y = p.f.f(scores);
  require(y.defined() && y.shape() == scores.shape() && y.dtype() == scores.dtype(), "generic_attention: f of '",
          p.f.name, "' returned ", y, " for ", scores, "; shape and dtype must be the same");
  return y;
}

Block block_of(const Problem& p, const Rows& r) {
  Block b;
  b.forbidden = forbidden(p, r);
  Tensor s = matmul(by_group(p, r.of(p.q)), r.seen(p.k).transpose(2, 3)) * p.scale;
  s = by_head(p, s, r.count());
  if (p.vectors.keys.defined()) s = s + with_vectors(p, r, r.of(p.q), p.vectors.keys) * p.scale;
  if (p.call.bias.defined()) s = s + r.pairs(p.call.bias.expand(p.grid()));
  b.scores = cleared(s, b.forbidden);
  const Tensor f = cleared(similarity_of(p, b.scores), b.forbidden, p.f.log ? -detail::kInfinity : 0);
  if (p.f.log) {
    const Tensor top = max(f, {3}, true);
    const Tensor e = exp(f - masked_fill(top, top <= -detail::kInfinity, 0));
    const Tensor total = sum(e, {3}, true);
    b.inverse = masked_fill(1 / total, total <= 0, 0);
    b.weights = e * b.inverse;
  } else if (p.f.by == SimilarityNorm::sum) {
    const Tensor min_value = min(f);
    require(!(min_value.item() < 0), "generic_attention: the similarity '", p.f.name, "' is ", min_value.item(),
            " for a score, and is normalised by its sum; it must be 0 or more, or normalised by count");
    const Tensor total = sum(f, {3}, true);
    b.inverse = masked_fill(1 / (total + p.f.eps), total <= 0, 0);
    b.weights = f * b.inverse;
  } else {
    const Tensor ones = Tensor::ones({1, 1, 1, r.keys}, f.dtype())
                            .expand(b.forbidden.defined() ? b.forbidden.shape() : Shape{1, 1, 1, r.keys});
    const Tensor count = sum(cleared(ones, b.forbidden), {3}, true);
    b.inverse = masked_fill(1 / count, count <= 0, 0);
    b.weights = f * b.inverse;
  }
  return b;
}

// x with dropout. `draw` holds the block's random numbers from draw_of(), which is called in the order of the blocks.
Tensor dropped(const Problem& p, const Tensor& x, const Tensor& draw) {
  return p.call.dropout == 0 ? x : masked_fill(x * dropout_scale(p.call.dropout), draw < p.call.dropout, 0);
}
Tensor draw_of(const Problem& p, const Tensor& like, Rng& random) {
  return p.call.dropout == 0 ? Tensor() : random.uniform(like.shape());
}

// f'(s) df
Tensor through(const Problem& p, const Tensor& s, const Tensor& df) {
  if (p.f.derivative) return p.f.derivative(s) * df;
  Tape tape;
  const Tensor x = tape.watch(s), y = p.f.f(x);
  if (y.node() != 0) tape.backward(y, df);
  const Tensor ds = tape.grad(x);
  return ds.defined() ? ds.detach() : Tensor::zeros(s.shape(), s.dtype());
}

// sum_j w_ij v_j over the keys visible to query i. The other keys have weight 0, but 0 * NaN is NaN. So values that are
// not finite are handled separately.
Tensor mixed(const Problem& p, const Rows& r, const Block& b, const Tensor& w) {
  const Tensor v = r.seen(p.v), weights = by_group(p, w);
  if (p.finite) return matmul(weights, v);
  const Tensor seen = by_group(p, cleared(Tensor::ones(w.shape(), w.dtype()), b.forbidden));
  return matmul(weights, masked_fill(v, logical_not(isfinite(v)), 0)) + detail::non_finite_part(weights, v, seen);
}

void forward(const Problem& p, Tensor& out, Rng& random) {
  each_block(p, [&](const Rows& r) {
    const Block b = block_of(p, r);
    const Tensor w = dropped(p, b.weights, draw_of(p, b.weights, random));
    Tensor rows = r.of(out), y = by_head(p, mixed(p, r, b, w), r.count());
    if (p.vectors.values.defined()) y = y + matmul(detail::sum_by_distance(w, distances(p, r)), p.vectors.values);
    detail::copy_values(rows, y);
  });
}

struct Sums {
  Tensor dq, dk, dv, dbias, dkeys, dvalues;  // the last two of the vectors; undefined: not needed

  bool of_scores() const { return dq.defined() || dk.defined() || dbias.defined() || dkeys.defined(); }
};

// Adds to a table of vectors, for each distance, the rows x [B, H, r, n] times w [B, H, r, keys] at this distance.
void add_vectors(Tensor& to, const Problem& p, const Rows& r, const Tensor& w, const Tensor& x) {
  const Tensor by_distance = detail::sum_by_distance(w, distances(p, r));
  detail::add_values(to, sum(matmul(by_distance.transpose(2, 3), x), {0, 1}));
}

void backward(const Problem& p, const Tensor& dout, Sums& d, Rng random) {
  each_block(p, [&](const Rows& r) {
    const Block b = block_of(p, r);
    const Tensor draw = draw_of(p, b.weights, random), g = by_group(p, r.of(dout));
    const auto add = [&](const Tensor& to, const Tensor& x) {
      Tensor part = r.seen(to);
      detail::add_values(part, x);
    };
    if (d.dv.defined()) add(d.dv, matmul(by_group(p, dropped(p, b.weights, draw)).transpose(2, 3), g));
    if (d.dvalues.defined()) add_vectors(d.dvalues, p, r, dropped(p, b.weights, draw), r.of(dout));
    if (!d.of_scores()) return;
    Tensor dw = by_head(p, matmul(g, r.seen(p.v).transpose(2, 3)), r.count());
    if (p.vectors.values.defined()) dw = dw + with_vectors(p, r, r.of(dout), p.vectors.values);
    dw = dropped(p, dw, draw);
    if (!p.finite) dw = cleared(dw, b.forbidden);
    if (p.f.by == SimilarityNorm::sum) dw = dw - sum(b.weights * dw, {3}, true);
    const Tensor df = cleared(dw * (p.f.log ? b.weights : b.inverse), b.forbidden);
    const Tensor ds = cleared(through(p, b.scores, df), b.forbidden), grouped = by_group(p, ds);
    if (d.dq.defined()) {
      Tensor rows = r.of(d.dq), dq = by_head(p, matmul(grouped, r.seen(p.k)), r.count());
      if (p.vectors.keys.defined()) dq = dq + matmul(detail::sum_by_distance(ds, distances(p, r)), p.vectors.keys);
      detail::copy_values(rows, dq * p.scale);
    }
    if (d.dkeys.defined()) add_vectors(d.dkeys, p, r, ds * p.scale, r.of(p.q));
    if (d.dk.defined()) add(d.dk, matmul(grouped.transpose(2, 3), by_group(p, r.of(p.q))) * p.scale);
    if (d.dbias.defined()) {
      Tensor pairs = r.pairs(d.dbias);
      detail::copy_values(pairs, ds);
    }
  });
}

// What an op adds to queries, keys, values and the call.
struct GenericForm {
  const char* op;
  const Similarity& f;
  double scale;
  RelativeVectors vectors = {};
};

Tensor generic_op(In q, In k, In v, const AttentionCall& call, const GenericForm& form) {
  const Similarity& f = form.f;
  const RelativeVectors& vectors = form.vectors;
  AttentionInputs x{q.tensor(), k.tensor(), v.tensor(), call, form.scale};
  if (!is_training()) x.call.dropout = 0;
  Tensor y = Tensor::zeros({q.dim(0), q.dim(2), q.dim(1), v.dim(3)}, q.dtype());
  const Rng random = default_rng();
  {
    const NoTape guard;
    const MatmulPrecision exact(DType::float32);
    AttentionInputs constants = x;
    RelativeVectors constant_vectors = vectors;
    const auto detach = [](auto&... tensor) { ((tensor = tensor.defined() ? tensor.detach() : tensor), ...); };
    std::apply(detach, constants.tensors()), std::apply(detach, constant_vectors.tensors());
    Tensor out = y.transpose(1, 2);
    forward(problem_of(f, constants, constant_vectors), out, default_rng());
  }
  record(form.op, q.where(), y, {q, k, v, call.bias, vectors.keys, vectors.values}, saved(x, vectors),
         [f, random](Grads& d, const Tensor& dy, const AttentionInputs& in, const RelativeVectors& of_forward) {
           const MatmulPrecision exact(DType::float32);
           const Problem p = problem_of(f, in, of_forward);
           const auto zeros = [&](int i, const Shape& shape) {
             return d.needs(i) ? Tensor::zeros(shape, dy.dtype()) : Tensor();
           };
           Sums sums{zeros(0, p.q.shape()), zeros(1, p.k.shape()), zeros(2, p.v.shape()), zeros(3, p.grid()), {}, {}};
           if (d.needs(4)) sums.dkeys = Tensor::zeros(of_forward.keys.shape(), dy.dtype());
           if (d.needs(5)) sums.dvalues = Tensor::zeros(of_forward.values.shape(), dy.dtype());
           backward(p, dy.transpose(1, 2), sums, random);
           d.add(0, sums.dq), d.add(1, sums.dk), d.add(2, sums.dv), d.add(3, sums.dbias);
           d.add(4, sums.dkeys), d.add(5, sums.dvalues);
         });
  return y.transpose(1, 2);
}

// ---- Pooled keys and values ----

// x [B, Hk, S, D] -> [B, Hk, ceil(S / pool), D], pooled over the keys in `seen`, bool8 [B, 1, ceil(S / pool), pool, 1].
Tensor pooled(const Tensor& x, const Tensor& seen, Pooling kind) {
  const Index groups = seen.dim(2), pool = seen.dim(3), missing = groups * pool - x.dim(2);
  Tensor full = x;
  if (missing > 0) full = concatenate({x, Tensor::zeros(x.shape().with(2, missing), x.dtype())}, 2);
  full = full.reshape({x.dim(0), x.dim(1), groups, pool, x.dim(3)});
  const Tensor masked = logical_not(seen);
  if (kind == Pooling::max) {
    const Tensor top = max(masked_fill(full, masked, -detail::kInfinity), {3});
    return masked_fill(top, logical_not(any(seen, {3})), 0);
  }
  return sum(masked_fill(full, masked, 0), {3}) / maximum(sum(seen.to(x.dtype()), {3}), 1);
}

struct PooledKeys {
  Tensor k, v;      // [B, Hk, ceil(S / pool), D]
  Tensor key_mask;  // bool8 [B, ceil(S / pool)]: the group has a key that is not masked
};

// Pools the keys that key_lengths and key_mask allow, and their values. The call and the options must have been
// checked.
PooledKeys pooled_keys(In k, In v, const AttentionCall& call, const GenericAttentionOptions& o) {
  const Index batch = k.dim(0), keys = k.dim(2), groups = (keys + o.pool - 1) / o.pool;
  Tensor seen = Tensor::zeros({batch, groups * o.pool}, DType::bool8), real = seen.slice(1, 0, keys);
  real.fill_(1);
  if (call.key_mask.defined()) detail::copy_values(real, call.key_mask);
  if (call.key_lengths.defined())
    seen = logical_and(seen, Tensor::arange(groups * o.pool) < call.key_lengths.unsqueeze(1));
  seen = seen.view({batch, 1, groups, o.pool, 1});
  return {pooled(k, seen, o.pooling), pooled(v, seen, o.pooling), any(seen, {3}).view({batch, groups})};
}

}  // namespace

Tensor generic_attention(In q, In k, In v, const Similarity& f, const AttentionCall& call,
                         const GenericAttentionOptions& o) {
  check_call(q, k, v, f, call, o);
  check_constant(q, f);
  if (o.pool == 1) return generic_op(q, k, v, call, {"generic_attention", f, o.scale});
  const PooledKeys groups = pooled_keys(k, v, call, o);
  return generic_op(q, groups.k, groups.v, {.key_mask = groups.key_mask, .dropout = call.dropout},
                    {"generic_attention", f, o.scale});
}

Tensor relative_attention(In q, In k, In v, const RelativeVectors& vectors, const AttentionCall& call,
                          std::optional<double> scale) {
  constexpr const char* op = "relative_attention";
  detail::check_heads(op, q, k, v);
  const double factor = scale ? *scale : 1 / std::sqrt(static_cast<double>(q.dim(3)));
  detail::check_pairs(op, q, k, call, factor);
  const Tensor &keys = vectors.keys, &values = vectors.values, &positions = vectors.positions;
  const auto fits = [&](const Tensor& x, Index size) {
    return !x.defined() || (x.rank() == 2 && x.dim(0) % 2 == 1 && x.dim(1) == size && x.dtype() == q.dtype());
  };
  check(fits(keys, q.dim(3)) && fits(values, v.dim(3)) &&
            (!keys.defined() || !values.defined() || keys.dim(0) == values.dim(0)),
        q.where(), op, ": q is ", q.tensor(), ", v is ", v.tensor(), ", and the vectors are ", keys, " for keys and ",
        values, " for values; they must be [2 clip + 1, size of q] and [2 clip + 1, size of v] of one dtype");
  check(!positions.defined() || (positions.shape() == Shape{q.dim(0)} && positions.dtype() == DType::int32), q.where(),
        op, ": positions is ", positions, "; it must be ", Shape{q.dim(0)}, " int32");
  RelativeVectors dense = vectors;
  if (positions.defined()) dense.positions = positions.dense();
  const Similarity softmax_weights = similarity_by_name("embedded-gaussian");
  return generic_op(q, k, v, call, {op, softmax_weights, factor, dense});
}

}  // namespace heed
