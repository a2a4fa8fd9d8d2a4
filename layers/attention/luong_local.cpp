// Luong's local attention: aligned positions, their windows, and the two ways to attend to the keys of a window.
#include <heed/layers/attention/luong.hpp>
//
#include <algorithm>
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>

namespace heed {
namespace {

constexpr const char* kLuongLocal = "luong-local attention";

void check_vector(In q, const char* what, const Tensor& x, const Tensor& W) {
  check(x.defined() && x.rank() == 2 && x.dim(0) == W.dim(0) && x.dim(1) == W.dim(1) && x.dtype() == W.dtype(),
        q.where(), kLuongLocal, ": W is ", W, " and ", what, " is ", x,
        "; they must be [heads, units, size] and [heads, units]");
}

void check_local(In q, In k, In v, const LuongLocalAttention& m, const AttentionCall& call) {
  const LuongLocalOptions& o = m.options;
  detail::check_heads(kLuongLocal, q, k, v);
  detail::check_pairs(kLuongLocal, q, k, call);
  check(!call.causal, q.where(), kLuongLocal,
        " does not support causal masking: the keys are from another sentence, in another order than the queries");
  check(o.radius >= 1, q.where(), kLuongLocal, ": radius is ", o.radius, "; it must be 1 or more");
  const Tensor& first = call.first_query;
  check(!first.defined() ||
            (first.dtype() == DType::int32 && (first.shape() == Shape{} || first.shape() == Shape{q.dim(0)})),
        q.where(), kLuongLocal, ": first_query is ", first, "; it must be int32 [] or [", q.dim(0), "]");
  check(!first.defined() || detail::shortest_of(first) >= 0, q.where(), kLuongLocal, ": first_query holds ",
        first.defined() ? detail::shortest_of(first) : 0, "; its values must be 0 or more");
  if (o.score == LuongScore::general)
    check(m.W.defined() && m.W.rank() == 3 && m.W.dim(1) == m.W.dim(2), q.where(), kLuongLocal, ": W is ", m.W,
          "; it must be [heads, size, size]");
  if (o.score == LuongScore::concat) {
    check(m.W.defined() && m.U.defined() && m.W.shape() == m.U.shape() && m.W.rank() == 3, q.where(), kLuongLocal,
          ": W is ", m.W, " and U is ", m.U, "; both must be [heads, units, size]");
    check_vector(q, "score", m.score, m.W);
    if (m.bias.defined()) check_vector(q, "bias", m.bias, m.W);
  }
  if (o.alignment == LuongAlignment::predictive) {
    check(m.position_W.defined() && m.position_W.rank() == 3, q.where(), kLuongLocal, ": position_W is ", m.position_W,
          "; it must be [heads, units, size]");
    check_vector(q, "position_score", m.position_score, m.position_W);
  }
}

// The windows of all queries, as constants: W = min(2 D + 1, S) places per query.
struct Windows {
  Tensor keys;       // int32 [B, H, T, W]: j; any key of the sentence where `forbidden`
  Tensor offsets;    // float64 [B, H, T, W]: j
  Tensor forbidden;  // bool8 [B, H, T, W]
};

Windows windows_of(const Tensor& positions, Index keys, const LuongLocalOptions& o, const AttentionCall& call) {
  const Index B = positions.dim(0), H = positions.dim(1), T = positions.dim(2), W = std::min(2 * o.radius + 1, keys);
  const double radius = static_cast<double>(o.radius);
  const detail::PairMasks masks(call, {B, H, T, keys});
  const Shape shape = {B, H, T, W};
  Windows w{Tensor::zeros(shape, DType::int32), Tensor::zeros(shape, DType::float64),
            Tensor::ones(shape, DType::bool8)};
  const Tensor centres = positions.dense();
  for (Index row = 0; row < B * H * T; ++row) {
    const Index b = row / T / H, h = row / T % H, i = row % T, length = masks.length(b);
    double centre = centres.ptr<double>()[row];
    if (std::isnan(centre)) centre = 0;  // any window will do: its Gaussian is NaN
    if (o.window_around_key) centre = std::min(std::floor(centre), std::max(0.0, static_cast<double>(length - 1)));
    const double left = std::clamp(std::ceil(centre - radius), -radius, static_cast<double>(keys));
    const Index first = W == keys ? 0 : static_cast<Index>(left);
    for (Index n = 0; n < W; ++n) {
      const Index j = first + n, at = row * W + n;
      w.offsets.ptr<double>()[at] = static_cast<double>(j);
      const bool inside = j >= 0 && j < length && std::abs(static_cast<double>(j) - centre) <= radius;
      if (!inside || !masks.allows(b, h, i, j)) continue;
      w.keys.ptr<std::int32_t>()[at] = static_cast<std::int32_t>(j);
      w.forbidden.ptr<bool>()[at] = false;
    }
  }
  return w;
}

// The rows of x [B, Hk, S, n] for the keys [B, H, T, W]: [B, H, T, W, n].
Tensor rows_at(const Tensor& x, const Tensor& keys) {
  const Index groups = x.dim(1), S = x.dim(2), heads = keys.dim(1), of_head = keys.dim(2) * keys.dim(3);
  Tensor rows = keys.clone();
  std::int32_t* row = rows.ptr<std::int32_t>();
  require(x.dim(0) * groups * S < Index{1} << 31, kLuongLocal, ": there are ", x.dim(0) * groups * S,
          " keys in all heads; there must be fewer than 2^31");
  for (Index n = 0; n < rows.numel(); ++n) {
    const Index head = n / of_head, b = head / heads, g = head % heads / (heads / groups);
    row[n] += static_cast<std::int32_t>((b * groups + g) * S);
  }
  return index_select(x.reshape({x.dim(0) * groups * S, x.dim(3)}), 0, rows.view({rows.numel()}))
      .view(keys.shape() + Shape{x.dim(3)});
}

// u . tanh(a_i + c_j) at the places, for a [B, H, T, A], c [B, H, S, A] and u [H, A]: [B, H, T, W]. Computed for a tile
// of queries at a time; backward computes the sums of a tile again. A tile gathers about S rows, so
// the gathered rows need no more memory than c, and adding up their gradient costs no more than the scores.
Tensor additive_scores(const Tensor& a, const Tensor& c, const Tensor& u, const Tensor& keys) {
  const Index queries = keys.dim(2), tile = std::max<Index>(1, c.dim(2) / keys.dim(3));
  std::vector<Tensor> parts;
  for (Index first = 0; first < queries; first += tile) {
    const Index end = std::min(queries, first + tile);
    const auto of_tile = [places = keys.slice(2, first, end).contiguous()](const std::vector<Tensor>& x) {
      return sum(tanh(x[0].unsqueeze(3) + rows_at(x[1], places)) * x[2].unsqueeze(1).unsqueeze(1), {4});
    };
    parts.push_back(recompute(of_tile, {a.slice(2, first, end), c, u}));
  }
  return concatenate(parts, 2);
}

// The queries whose dot products with keys are the scores of dot and general.
Tensor scored_query(In q, const LuongLocalAttention& m) {
  if (m.options.score != LuongScore::general) return q;
  return detail::project_heads(kLuongLocal, q, m.W.transpose(1, 2));
}

// Scores at the places: [B, H, T, W].
Tensor scores_at(In q, const Tensor& k, const Tensor& keys, const LuongLocalAttention& m) {
  if (m.options.score == LuongScore::concat) {
    Tensor a = detail::project_heads(kLuongLocal, q, m.W);
    if (m.bias.defined()) a = a + m.bias.unsqueeze(1);
    return additive_scores(a, detail::project_keys(kLuongLocal, {k, q.where()}, m.U), m.score, keys);
  }
  return matmul(scored_query(q, m).unsqueeze(3), rows_at(k, keys).transpose(3, 4)).squeeze(3);
}

Tensor log_gaussian(const Tensor& offsets, const Tensor& positions, const LuongLocalOptions& o) {
  const double sigma = static_cast<double>(o.radius) / 2;
  return square(offsets - positions.unsqueeze(3)) * (-0.5 / (sigma * sigma));
}

// Weights at the places [B, H, T, W], in the dtype of q. Places with a bias of -infinity are added to w.forbidden. To
// renormalise, the logarithm of the Gaussian is added to the scores.
Tensor weights_at(In q, const Tensor& k, Windows& w, const Tensor& positions, const LuongLocalAttention& m,
                  const AttentionCall& call) {
  const LuongLocalOptions& o = m.options;
  const bool predictive = o.alignment == LuongAlignment::predictive;
  Tensor s = scores_at(q, k, w.keys, m);
  if (call.bias.defined()) s = s + gather(call.bias.expand({q.dim(0), q.dim(1), q.dim(2), k.dim(2)}), 3, w.keys);
  if (predictive && o.renormalise) s = s + log_gaussian(w.offsets, positions, o).to(q.dtype());
  s = masked_fill(s, w.forbidden, -detail::kInfinity);
  w.forbidden = s.detach() <= -detail::kInfinity;
  const Tensor empty = max(s.detach(), {3}, true) <= -detail::kInfinity;  // no key: the softmax of 0s is not NaN
  const Tensor weights = masked_fill(softmax(masked_fill(s, empty, 0), 3), w.forbidden, 0);
  return predictive && !o.renormalise ? weights * exp(log_gaussian(w.offsets, positions, o)).to(q.dtype()) : weights;
}

// p [B, H, T] in float64, with a gradient for local-p.
Tensor positions_of(In q, In k, const LuongLocalAttention& m, const AttentionCall& call) {
  const LuongLocalOptions& o = m.options;
  const Index B = q.dim(0), H = q.dim(1), T = q.dim(2), S = k.dim(2);
  if (o.alignment == LuongAlignment::monotonic) {
    const Tensor steps = Tensor::arange(T).to(DType::float64);
    if (!call.first_query.defined()) return steps.expand({B, H, T});
    return (call.first_query.to(DType::float64).expand({B}).view({B, 1, 1}) + steps).expand({B, H, T});
  }
  Tensor lengths = Tensor::full({B, 1, 1}, static_cast<double>(S), DType::float64);
  if (call.key_lengths.defined()) lengths = call.key_lengths.to(DType::float64).view({B, 1, 1});
  const Tensor query = q->to(DType::float64), W = m.position_W.to(DType::float64);
  const Tensor t = tanh(detail::project_heads(kLuongLocal, {query, q.where()}, W));
  return lengths * sigmoid(sum(t * m.position_score.to(DType::float64).unsqueeze(1), {3}));
}

// ---- All keys, masked ----

// Up to this number of windows, products with all keys cost less than gathering rows.
constexpr Index kWindows = 16;

bool is_short(In q, In k, const LuongLocalAttention& m) {
  return m.options.score != LuongScore::concat && k.dim(1) == q.dim(1) &&
         k.dim(2) <= kWindows * (2 * m.options.radius + 1);
}

// The pairs inside the windows that the call allows: bool8 [B, H, T, S].
Tensor inside_windows(const Windows& w, Index keys) {
  const Shape& places = w.keys.shape();
  Tensor allowed = Tensor::zeros({places[0], places[1], places[2], keys}, DType::bool8);
  for (Index n = 0; n < w.keys.numel(); ++n)
    if (!w.forbidden.ptr<bool>()[n]) allowed.ptr<bool>()[n / places[3] * keys + w.keys.ptr<std::int32_t>()[n]] = true;
  return allowed;
}

// The result, computed from all keys. local-m is softmax attention under a mask.
Tensor apply_to_all(In q, In k, In v, const LuongLocalAttention& m, AttentionCall call) {
  const LuongLocalOptions& o = m.options;
  const Tensor positions = positions_of(q, k, m, call);
  call.mask = inside_windows(windows_of(positions.detach(), k.dim(2), o, call), k.dim(2));
  const Tensor query = scored_query(q, m);
  if (o.alignment == LuongAlignment::monotonic) return attention({query, q.where()}, k, v, call, 1.0);
  const Tensor gaussian = log_gaussian(Tensor::arange(k.dim(2), DType::float64), positions, o).to(q.dtype());
  if (o.renormalise) {
    call.bias = call.bias.defined() ? call.bias + gaussian : gaussian;
    return attention({query, q.where()}, k, v, call, 1.0);
  }
  const Tensor scores = matmul(query, without_padding(k, call, kLuongLocal).transpose(2, 3));
  const Tensor weights = masked_softmax(call.bias.defined() ? scores + call.bias : scores, call.mask) * exp(gaussian);
  return matmul(call.dropout > 0 ? dropout(weights, call.dropout) : weights, without_padding(v, call, kLuongLocal));
}

}  // namespace

LuongLocalAttention::LuongLocalAttention(Exactly<Index> heads, Exactly<Index> size, Rng& rng,
                                         const LuongLocalOptions& o)
    : options(o) {
  const Index units = o.units == 0 ? static_cast<Index>(size) : o.units;
  require(heads > 0 && size > 0 && units > 0 && o.radius > 0, "LuongLocalAttention: heads is ", heads, ", size is ",
          size, ", radius is ", o.radius, " and units is ", o.units, "; all must be 1 or more, or units 0 (as size)");
  if (o.score == LuongScore::general) W = detail::uniform_parameter({heads, size, size}, size, rng);
  if (o.score == LuongScore::concat) {
    W = detail::uniform_parameter({heads, units, size}, 2 * size, rng);
    U = detail::uniform_parameter({heads, units, size}, 2 * size, rng);
    bias = detail::uniform_parameter({heads, units}, 2 * size, rng);
    score = detail::uniform_parameter({heads, units}, units, rng);
  }
  if (o.alignment == LuongAlignment::monotonic) return;
  position_W = detail::uniform_parameter({heads, units, size}, size, rng);
  position_score = detail::uniform_parameter({heads, units}, units, rng);
}

std::string LuongLocalAttention::name() const {
  return options.alignment == LuongAlignment::monotonic ? "luong-local-m" : "luong-local-p";
}

AttentionCapabilities LuongLocalAttention::capabilities() const {
  AttentionCapabilities can = AttentionCapabilities::of_pairs(
      {.discrete = true, .why = "the keys are from another sentence, in another order than the queries"});
  can.causal = can.state = false;
  return can;
}

Tensor LuongLocalAttention::apply(In q, In k, In v, const AttentionCall& call) const {
  check_local(q, k, v, *this, call);
  const Index B = q.dim(0), H = q.dim(1), T = q.dim(2);
  if (B * H * T * k.dim(2) == 0) return Tensor::zeros({B, H, T, v.dim(3)}, q.dtype());
  const auto finite = [](const Tensor& x) { return std::isfinite(sum(x.detach() * 0).item()); };
  const auto seen = [&](In x) { return without_padding({x->detach(), x.where()}, call, kLuongLocal); };
  // NaN in keys outside of all windows must have no effect.
  if (is_short(q, k, *this) && finite(seen(k)) && finite(seen(v))) return apply_to_all(q, k, v, *this, call);
  const Tensor p = positions_of(q, k, *this, call);
  Windows w = windows_of(p.detach(), k.dim(2), options, call);
  Tensor weights = weights_at(q, without_padding(k, call, kLuongLocal), w, p, *this, call);  // [B, H, T, W]
  Tensor values = rows_at(without_padding(v, call, kLuongLocal), w.keys);                    // [B, H, T, W, Dv]
  // A forbidden place holds the value of some other key, and 0 times a NaN value would be NaN.
  if (!finite(values)) values = masked_fill(values, w.forbidden.unsqueeze(4), 0);
  if (call.dropout > 0) weights = dropout(weights, call.dropout);
  return matmul(weights.unsqueeze(3), values).squeeze(3);
}

Tensor LuongLocalAttention::positions(In q, In k, const AttentionCall& call) const {
  check_local(q, k, k, *this, call);
  return positions_of(q, k, *this, call);
}

}  // namespace heed
