// Checks of what comes out: against a reference, against the same problem posed in another way.
#include <algorithm>
#include <cmath>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

Tensor reference_of(Subject& s, const Trial& t) {
  const NoTape guard;
  return s.options.reference(t.q, t.k, t.v, t.call, s.values()).to(DType::float64);
}

// More than a triangle.
bool asks_more(const AttentionCall& c) {
  return c.key_lengths.defined() || c.key_mask.defined() || c.mask.defined() || c.bias.defined();
}

// Rows [first, last) of queries.
Trial with_queries(const Trial& t, Index first, Index last) {
  Trial part = t;
  part.q = t.q.slice(2, first, last), part.dy = t.dy.slice(2, first, last);
  return part;
}

Trial with_keys(const Trial& t, Index length) {
  Trial part = t;
  part.k = t.k.slice(2, 0, length), part.v = t.v.slice(2, 0, length);
  return part;
}

// [B, G, S, D] -> [B, 2 G, S, D]: each head twice, side by side.
Tensor twice(const Tensor& x) {
  const Index b = x.dim(0), g = x.dim(1), s = x.dim(2), d = x.dim(3);
  return x.unsqueeze(2).expand({b, g, 2, s, d}).reshape({b, 2 * g, s, d});
}

// Back: the two of each pair summed.
Tensor summed(const Tensor& x) { return sum(x.view({x.dim(0), x.dim(1) / 2, 2, x.dim(2), x.dim(3)}), {2}); }

// [B, H, T, D] -> [B, T, H * D], as projections give it, and back as a view.
Tensor side_by_side(const Tensor& x) { return x.transpose(1, 2).reshape({x.dim(0), x.dim(2), x.dim(1) * x.dim(3)}); }
Tensor heads_at(const Tensor& fused, Index first, const Tensor& like) {
  const Tensor part = fused.slice(2, first, first + like.dim(1) * like.dim(3));
  return part.view({like.dim(0), like.dim(2), like.dim(1), like.dim(3)}).transpose(1, 2);
}

double root_mean_square(const Tensor& x) {
  double total = 0;
  for (double e : x.to_vector<double>()) total += e * e;
  return std::sqrt(total / static_cast<double>(x.numel()));
}

}  // namespace

void check_reference(Subject& s, Finding& f) {
  if (!s.options.reference) return;
  const auto compare = [&](const std::string& name, const Sizes& sizes) {
    Trial t = s.separated_trial(sizes);
    for (const Variant& variant : s.variants(sizes)) {
      if (sizes.queries > 100 && asks_more(variant.call)) continue;  // a reference takes its time
      t.call = variant.call;
      f.close(variant.name + ", " + name, s.out(t), reference_of(s, t), 1e-9);
    }
  };
  for (const Index n : {1, 7, 40, 130})
    if (n <= s.options.longest) compare(std::to_string(n) + " positions", {n, n});
  const Index n = std::min<Index>(24, s.options.longest), few = n * 2 / 3;
  if (s.can().grouped) compare("grouped heads", {n, n, 2, true});
  if (!s.can().cross || few < 1 || few == n) return;
  compare("T < S", {few, n});
  compare("T > S", {n, few});
}

void check_rows(Subject& s, Finding& f) {
  if (!s.options.normalised) return;
  const Index n = std::min<Index>(40, s.options.longest), few = std::min<Index>(5, n - 1);
  for (const Variant& variant : s.variants({n, n})) {
    // What a mask lets through that it should hide is in the sums, too: that is its own check's to tell.
    if (variant.call.causal && s.failed.count("causal") > 0) continue;
    if (masks_keys(variant.call) && s.failed.count("padding") > 0) continue;
    Trial t = s.trial({n, n});
    t.v.fill_(1);
    t.call = variant.call;
    Tensor y = s.out(t).clone();
    // Of a few keys the weights may all be small beside the 1e-6 that is added to their sum.
    if (t.call.causal) y = y.slice(2, few, n).clone();
    Tensor wanted = Tensor::ones(y.shape(), DType::float64);
    Index zeros = 0;  // a row may have no weight: all of its keys are masked, or no feature above 0
    for (Index i = 0; i < y.numel(); ++i)
      if (y.ptr<double>()[i] == 0) wanted.ptr<double>()[i] = 0, ++zeros;
    f.expect(zeros <= y.numel() / 2, variant.name + ": most rows are 0");
    f.close(variant.name, y, wanted, 1e-4);
  }
}

void check_weights(Subject& s, Finding& f) {
  if (!s.can().weights) return;
  const Index n = std::min<Index>(30, s.options.longest);
  for (const Variant& variant : s.variants({n, n})) {
    Trial t = s.trial({n, n});
    t.call = variant.call;
    const Tensor w = s.mechanism(DType::float64).weights(t.q, t.k, t.call).detach().dense();
    const Shape shape = {t.q.dim(0), t.q.dim(1), n, n};
    f.expect(w.shape() == shape, variant.name + ": weights are " + describe(w) + "; they must be " + to_string(shape));
    if (w.shape() != shape) continue;
    Tensor y = Tensor::zeros(t.dy.shape(), DType::float64);
    for (Index row = 0; row < w.numel() / n; ++row)
      for (Index j = 0; j < n; ++j) {
        const double p = w.ptr<double>()[row * n + j];
        const double* v = t.v.ptr<double>() + (row / n * n + j) * s.options.value_size;
        for (Index c = 0; c < s.options.value_size; ++c) y.ptr<double>()[row * s.options.value_size + c] += p * v[c];
        const bool unseen = (t.call.causal && j > row % n) ||
                            (t.call.key_lengths.defined() &&
                             static_cast<double>(j) >= t.call.key_lengths.at({row / n / s.options.heads})) ||
                            (t.call.key_mask.defined() && t.call.key_mask.at({row / n / s.options.heads, j}) == 0) ||
                            (t.call.mask.defined() && t.call.mask.at({row / n / s.options.heads, 0, row % n, j}) == 0);
        if (unseen && p != 0) return f.expect(false, variant.name + ": a key that is masked has a weight");
      }
    f.close(variant.name + ", weights times v", y, s.out(t), 1e-9);
  }
}

void check_cross_lengths(Subject& s, Finding& f) {
  if (!s.can().cross) return;
  const Index n = std::min<Index>(150, s.options.longest);
  const Trial square = s.trial({n, n});
  const Tensor whole = s.out(square);
  for (const Index queries : {n / 3, n / 2, n - 1}) {
    if (queries < 1) continue;
    const std::string name = ", " + std::to_string(queries) + " queries of " + std::to_string(n) + " keys";
    Trial causal = square;
    causal.call.causal = true;
    if (s.can().causal)
      f.close("causal" + name, s.out(with_queries(causal, n - queries, n)), s.out(causal).slice(2, n - queries, n),
              kRounding);
    f.close("plain" + name, s.out(with_queries(square, n - queries, n)), whole.slice(2, n - queries, n), kRounding);
    // More queries than keys: those that see any are the last.
    if (s.can().causal) {
      const Trial few_keys = with_keys(causal, queries);
      f.close("causal, " + std::to_string(n) + " queries of " + std::to_string(queries) + " keys",
              s.out(few_keys).slice(2, n - queries, n), s.out(with_queries(few_keys, n - queries, n)), kRounding);
    }
  }
}

void check_grouped(Subject& s, Finding& f) {
  if (!s.can().grouped) return;
  const Index n = std::min<Index>(40, s.options.longest);
  for (const bool causal : {false, true}) {
    if (causal && !s.can().causal) continue;
    Trial shared = s.trial({n, n, 2, true});
    shared.call.causal = causal;
    Trial repeated = shared;
    repeated.k = twice(shared.k), repeated.v = twice(shared.v);
    Outcome wanted = s.run(repeated);
    for (const char* name : {"k", "v"}) wanted.gradients[name] = summed(wanted.gradients[name]);
    f.close(causal ? "causal" : "plain", s.run(shared), wanted, kRounding);
  }
}

void check_views(Subject& s, Finding& f) {
  const Index n = std::min<Index>(40, s.options.longest);
  for (const DType dtype : {DType::float64, DType::float32}) {
    Trial t = s.trial({n, n});
    for (Tensor* x : {&t.q, &t.k, &t.v, &t.dy}) *x = x->to(dtype);
    t.call.causal = s.can().causal;
    const Outcome wanted = s.run(t, dtype);
    const double tolerance = dtype == DType::float64 ? kRounding : 1e-5;
    const Index k_at = t.q.dim(1) * t.q.dim(3), v_at = k_at + t.k.dim(1) * t.k.dim(3);
    Tape tape;
    const Tensor fused = tape.watch(concatenate({side_by_side(t.q), side_by_side(t.k), side_by_side(t.v)}, 2));
    const Tensor y = s.mechanism(dtype).apply(heads_at(fused, 0, t.q), heads_at(fused, k_at, t.k),
                                              heads_at(fused, v_at, t.v), t.call);
    f.close("outputs", y.detach(), wanted.out, tolerance);
    if (y.node() == 0) continue;
    tape.backward(y, t.dy);
    const Tensor d = tape.grad(fused);
    f.close("gradient of q", heads_at(d, 0, t.q), wanted.gradients.at("q"), tolerance);
    f.close("gradient of k", heads_at(d, k_at, t.k), wanted.gradients.at("k"), tolerance);
    f.close("gradient of v", heads_at(d, v_at, t.v), wanted.gradients.at("v"), tolerance);
  }
}

void check_dropout(Subject& s, Finding& f) {
  if (!s.can().dropout) return;
  constexpr int kDraws = 300;
  const Index n = std::min<Index>(16, s.options.longest);
  Trial t = s.trial({n, n});
  add_values(t.v, Tensor::ones(t.v.shape(), DType::float64));
  const Tensor plain = s.out(t, DType::float32);
  t.call.dropout = 0.5;
  f.same_bits("outside of training", s.out(t, DType::float32), plain);
  const std::uint64_t position = default_rng().position();
  const auto draw = [&] {
    const Tape tape;  // turns training on
    return s.mechanism(DType::float32)
        .apply(t.q.to(DType::float32), t.k.to(DType::float32), t.v.to(DType::float32), t.call)
        .detach();
  };
  const Tensor first = draw();
  default_rng().set_position(position);
  f.same_bits("the same random numbers", draw(), first);
  Tensor off = Tensor::zeros(plain.shape(), DType::float64);  // the mean of all draws, less the output without dropout
  for (int i = 0; i < kDraws; ++i) add_values(off, draw());
  for (Index i = 0; i < off.numel(); ++i) off.ptr<double>()[i] /= kDraws;
  const std::vector<double> wanted = plain.to_vector<double>();
  for (std::size_t i = 0; i < wanted.size(); ++i) off.ptr<double>()[i] -= wanted[i];
  // One draw is off by about half of its value; the mean of 300 by a seventeenth of that.
  const double error = root_mean_square(off) / root_mean_square(plain);
  f.expect(error < 0.1, "the mean of " + std::to_string(kDraws) + " draws is off by " + std::to_string(error) +
                            " of the output without dropout");
  const bool dropped = first.to_vector<double>() != wanted;
  f.expect(dropped, "in training it changes nothing");
}

}  // namespace heed::detail::conformance
