// Attention composed of ops, over all pairs: correct mechanisms, and mechanisms with one fault each.
#pragma once
#include <algorithm>
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/conformance.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/states.hpp>
#include <sstream>

#include "tests/support.hpp"

namespace heed::test {

// A mechanism made of functions.
struct Composed {
  using Apply = std::function<Tensor(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call)>;
  AttentionCapabilities can;
  Apply f;
  std::function<AttentionState()> state = {};
  std::function<Tensor(const Tensor& q, const Tensor& k, const AttentionCall& call)> weights_of = {};

  std::string name() const { return "composed"; }
  AttentionCapabilities capabilities() const { return can; }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const { return f(q, k, v, call); }
  AttentionState make_state() const { return state(); }
  Tensor weights(In q, In k, const AttentionCall& call) const { return weights_of(q, k, call); }
  void members(auto&&) {}
};

inline MechanismFactory factory(const Composed& c) {
  return [c](Index, Rng&) { return AttentionMechanism(c); };
}

using Names = std::vector<std::string>;

// The names of the checks that fail. Sequences are shorter than by default, because all pairs are held in memory.
inline Names failed(const MechanismFactory& make, const ConformanceOptions& options = {.longest = 150}) {
  const ConformanceReport report = check_conformance(make, options);
  std::ostringstream text;
  text << report;
  INFO(text.str());
  CHECK(report.checks.size() > 4);
  return report.failed();
}
inline Names failed(const Composed& c, const ConformanceOptions& options = {.longest = 150}) {
  return failed(factory(c), options);
}

// Scaled scores plus bias, [B, H, T, S].
inline Tensor scores_of(const Tensor& q, const Tensor& k, const AttentionCall& call) {
  const Tensor s = matmul(q, without_padding(k, call).t()) / std::sqrt(static_cast<double>(q.dim(3)));
  return call.bias.defined() ? s + call.bias : s;
}

inline Tensor softmax_weights(const Tensor& q, const Tensor& k, const AttentionCall& call) {
  return masked_softmax(scores_of(q, k, call), allowed_pairs(q, k, call));
}

inline Tensor softmax_of(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
  return matmul(softmax_weights(q, k, call), without_padding(v, call));
}

inline Tensor elu_feature(const Tensor& x) { return exp(minimum(x, 0)) + maximum(x, 0); }

// Attention with features exp(q), exp(k), computed from their logarithms: normalised weights sum_r exp(q_r + k_r).
inline Tensor exp_feature_of(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionCall& call) {
  const Tensor s = logsumexp(q.unsqueeze(3) + without_padding(k, call).unsqueeze(2), {-1});
  return matmul(masked_softmax(s, allowed_pairs(q, k, call)), without_padding(v, call));
}

// Decode state of exp features: a running maximum m of each feature, the sums of exp(k - m) v, and the norms, which are
// sums of exp(k - m).
struct ExpFeatureState {
  bool rescales = true;  // false: sums and norms are not rescaled when m rises
  Tensor seen = Tensor::zeros({0}, DType::int32), m = {}, sums = {}, norms = {};

  Tensor token(const Tensor& q, const Tensor& k, const Tensor& v) {                      // [B, H, 1, D]
    const Tensor rows = k.transpose(2, 3), key = m.defined() ? maximum(m, rows) : rows;  // [B, H, D, 1]
    const Tensor feature = exp(rows - key);
    if (m.defined()) {
      const Tensor factor = rescales ? exp(m - key) : Tensor::ones(m.shape(), m.dtype());
      sums = sums * factor + matmul(feature, v);
      norms = norms * factor + feature;
    } else {
      sums = matmul(feature, v), norms = feature;
    }
    m = key.clone();
    const Tensor log = q + m.t(), u = exp(log - max(log, {-1}, true));
    return matmul(u, sums) / matmul(u, norms);
  }
  Tensor apply(In q, In k, In v, const AttentionCall& call) {
    const NoTape guard;
    std::vector<Tensor> rows;
    for (Index i = 0; i < q.dim(2); ++i)
      rows.push_back(token(q->slice(2, i, i + 1), k->slice(2, i, i + 1), v->slice(2, i, i + 1)));
    seen = detail::lengths_after("exp features", seen, k, call);
    return concatenate(rows, 2);
  }
  const Tensor& lengths() const { return seen; }
  void members(auto&& visit) {
    visit.buffer("lengths", seen);
    visit.buffer("m", m);
    visit.buffer("sums", sums);
    visit.buffer("norms", norms);
  }
};

// Chunks of Reformer: positions are sorted by hash bucket and cut into chunks of 16. Returns [B, H, T, T], true for
// pairs in one chunk.
inline Tensor same_chunk(const Tensor& q) {
  const Index batch = q.dim(0), heads = q.dim(1), n = q.dim(2), size = q.dim(3);
  const std::vector<double> x = q.to_vector<double>();
  Tensor same = Tensor::zeros({batch, heads, n, n}, DType::bool8);
  for (Index h = 0; h < batch * heads; ++h) {
    std::vector<Index> order(static_cast<std::size_t>(n)), chunk(order.size());
    for (Index i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = i;
    const auto bucket = [&](Index i) {
      const double* row = x.data() + (h * n + i) * size;
      return std::max_element(row, row + size) - row;
    };
    std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return bucket(a) < bucket(b); });
    for (std::size_t p = 0; p < order.size(); ++p)
      chunk[static_cast<std::size_t>(order[p])] = static_cast<Index>(p / 16);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < n; ++j)
        same.ptr<bool>()[(h * n + i) * n + j] =
            chunk[static_cast<std::size_t>(i)] == chunk[static_cast<std::size_t>(j)];
  }
  return same;
}

// A state that counts its positions, without a buffer that holds the count.
struct ForgetfulState {
  KeyValueState inner{softmax_of};
  Index seen = 0;
  Tensor apply(In q, In k, In v, const AttentionCall& call) {
    seen += q.dim(2);
    return inner.apply(q, k, v, call);
  }
  Tensor lengths() const { return Tensor::full({inner.lengths().numel()}, static_cast<double>(seen), DType::int32); }
  void members(auto&& visit) { inner.members(visit); }
};

// A correct state with one tensor that is named for other rows than it has.
struct MisnamedState {
  bool shares_values = false;  // true: values are named as shared; false: a shared tensor is named as a buffer
  KeyValueState inner{softmax_of};
  Tensor scale = Tensor::ones({});
  Tensor apply(In q, In k, In v, const AttentionCall& call) { return inner.apply(q, k, v, call); }
  Tensor lengths() const { return inner.lengths(); }
  void members(auto&& visit) {
    for (const NamedBuffer& b : named_buffers(inner))
      shares_values&& b.name == "values" ? visit.shared(b.name, *b.buffer) : visit.buffer(b.name, *b.buffer);
    if (!shares_values) visit.buffer("scale", scale);
  }
};

// Softmax attention with a learned scale per head. `detached`: the scale gets no gradient.
struct LearnedScale {
  Parameter scale;  // [H, 1, 1]
  bool detached;
  std::string name() const { return "learned scale"; }
  AttentionCapabilities capabilities() const { return {.causal = true, .key_mask = true, .cross = true}; }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const {
    const Tensor s = scores_of(q, k, call) * (detached ? scale.detach() : static_cast<const Tensor&>(scale));
    return matmul(masked_softmax(s, allowed_pairs(q, k, call)), without_padding(v, call));
  }
  void members(auto&& visit) { visit("scale", scale); }
};

inline MechanismFactory learned_scale(bool detached) {
  return [detached](Index, Rng&) { return LearnedScale{Parameter(Tensor::ones({4, 1, 1})), detached}; };
}

// Softmax attention whose output is multiplied by two parameters and a buffer, which members() names or does not.
struct NamedBadly {
  enum class Kind { right, parameter_unnamed, constant_unnamed, buffer_unnamed, twice, slash };
  Kind kind;
  Parameter gain, other;
  Tensor buffer;

  NamedBadly(Kind k, Rng& rng)
      : kind(k),
        gain(k == Kind::constant_unnamed ? Tensor::ones({1}) : rng.uniform({1}, 1, 2)),
        other(rng.uniform({1}, 1, 2)),
        buffer(rng.uniform({1}, 1, 2)) {}
  std::string name() const { return "named"; }
  AttentionCapabilities capabilities() const { return {.causal = true}; }
  Tensor apply(In q, In k, In v, const AttentionCall& call) const {
    const auto as = [&](const Tensor& x) { return x.dtype() == q.dtype() ? x : x.to(q.dtype()); };
    return softmax_of(q, k, v, call) * as(gain) * as(other) * as(buffer);
  }
  void members(auto&& visit) {
    if (kind != Kind::parameter_unnamed && kind != Kind::constant_unnamed)
      visit(kind == Kind::slash ? "my/gain" : "gain", gain);
    visit(kind == Kind::twice ? "gain" : "other", other);
    if (kind != Kind::buffer_unnamed) visit.buffer("buffer", buffer);
  }
};

}  // namespace heed::test
