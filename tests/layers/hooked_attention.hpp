// Softmax attention composed of ops, with all capabilities and right as it stands; hooks at each step put one fault in.
#pragma once
#include <cmath>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/allowed_pairs.hpp>
#include <heed/layers/attention/conformance.hpp>
#include <heed/layers/attention/key_value_state.hpp>

namespace heed::test {

struct Hooks {
  AttentionCapabilities can = AttentionCapabilities::of_pairs();
  std::string name = "hooked";
  std::function<double(Index positions, Index size)> cost = {};
  // What comes in; the scores [B, H, T, S] with the bias; the allowed pairs, the same shape; the weights; what dropout
  // leaves of them; the output [B, H, T, Dv].
  std::function<void(Tensor& q, Tensor& k, Tensor& v, AttentionCall& call)> inputs = {};
  std::function<Tensor(const Tensor& s, const AttentionCall& call)> scores = {};
  std::function<Tensor(const Tensor& allowed, const AttentionCall& call)> allowed = {};
  std::function<Tensor(const Tensor& w, const AttentionCall& call)> weights = {};
  std::function<Tensor(const Tensor& w, double p)> drop = {};
  std::function<Tensor(const Tensor&x, const AttentionCall&call)> keys = {},
                                                                  values = {};  // in place of without_padding
  std::function<Tensor(const Tensor& x, Index heads)> repeat = {};              // [B, Hk, S, D] -> [B, H, S, D]
  std::function<Tensor(const Tensor& y, const Tensor& v, const AttentionCall& call)> output = {};
  std::function<Tensor(const Tensor& w, const AttentionCall& call)> told = {};  // weights(), of the right ones
  std::function<Tensor(In q, In k, In v, const Tensor& bias)> step = {};        // what a state attends by
  std::function<AttentionState()> state = {};
};

// x [B, Hk, S, D] with each head as often as query heads share it, side by side.
inline Tensor each_head(const Tensor& x, Index heads) {
  const Shape s = x.shape();
  if (s[1] == heads || s[1] == 0) return x;
  return x.unsqueeze(2).expand({s[0], s[1], heads / s[1], s[2], s[3]}).reshape({s[0], heads, s[2], s[3]});
}

inline Tensor keep_some(const Tensor& w, double p, const Shape& drawn) {
  const Tensor keep = ge(default_rng().uniform(drawn), p).to(w.dtype());
  return w * keep / (1 - p);
}

struct Hooked {
  Hooks h = {};

  std::string name() const { return h.name; }
  AttentionCapabilities capabilities() const { return h.can; }
  double keys_per_query(Index positions, Index size) const {
    return h.cost ? h.cost(positions, size) : static_cast<double>(positions);
  }
  Tensor weights_of(Tensor& q, Tensor& k, Tensor& v, AttentionCall& call) const {
    if (h.inputs) h.inputs(q, k, v, call);
    const Tensor rows = h.keys ? h.keys(k, call) : without_padding(k, call);
    const Tensor keys = h.repeat ? h.repeat(rows, q.dim(1)) : each_head(rows, q.dim(1));
    Tensor s = matmul(q, keys.t()) / std::sqrt(static_cast<double>(q.dim(3)));
    if (call.bias.defined()) s = s + call.bias;
    if (h.scores) s = h.scores(s, call);
    Tensor allowed = allowed_pairs(q, k, call);
    if (h.allowed) allowed = h.allowed(allowed.expand(s.shape()), call);
    const Tensor w = masked_softmax(s, allowed);
    return h.weights ? h.weights(w, call) : w;
  }
  Tensor apply(In q_in, In k_in, In v_in, const AttentionCall& asked) const {
    Tensor q = q_in, k = k_in, v = v_in;
    AttentionCall call = asked;
    Tensor w = weights_of(q, k, v, call);
    if (call.dropout > 0 && is_training()) w = h.drop ? h.drop(w, call.dropout) : keep_some(w, call.dropout, w.shape());
    const Tensor rows = h.values ? h.values(v, call) : without_padding(v, call);
    const Tensor y = matmul(w, h.repeat ? h.repeat(rows, q.dim(1)) : each_head(rows, q.dim(1)));
    return h.output ? h.output(y, v, call) : y;
  }
  Tensor weights(In q_in, In k_in, const AttentionCall& asked) const {
    Tensor q = q_in, k = k_in, v = k_in;
    AttentionCall call = asked;
    const Tensor w = weights_of(q, k, v, call);
    return h.told ? h.told(w, call) : w;
  }
  AttentionState make_state() const {
    if (h.state) return h.state();
    if (h.step) return KeyValueState(h.step);
    return KeyValueState([self = *this](In q, In k, In v, const Tensor& bias) {
      return self.apply(q, k, v, {.causal = true, .bias = bias});
    });
  }
  void members(auto&&) {}
};

// x, whose gradient is f of what it should be.
inline Tensor regrad(const Tensor& x, std::function<Tensor(const Tensor& dy)> f) {
  Tensor y = x.detach().clone();
  record("regrad", Where::current(), y, {x}, saved(),
         [f = std::move(f)](Grads& d, const Tensor& dy) { d.add(0, f(dy)); });
  return y;
}

// x with position `axis` >= from times a factor.
inline Tensor scaled_from(const Tensor& x, int axis, Index from, double factor) {
  const Index n = x.dim(axis);
  std::vector<double> by(static_cast<std::size_t>(n), 1.0);
  for (Index i = from; i < n; ++i) by[static_cast<std::size_t>(i)] = factor;
  Shape shape = {1, 1, 1, 1};
  return x * Tensor::from(by, shape.with(axis < 0 ? axis + 4 : axis, n)).to(x.dtype());
}

// Allowed pairs [B, H, T, S] decided anew: f(was, b, h, i, j).
template <class F>
Tensor decided(const Tensor& allowed, F f) {
  Tensor y = allowed.dense().clone();
  const Index H = y.dim(1), T = y.dim(2), S = y.dim(3);
  for (Index n = 0; n < y.numel(); ++n) {
    bool& x = y.ptr<bool>()[n];
    x = f(x, n / S / T / H, n / S / T % H, n / S % T, n % S);
  }
  return y;
}

}  // namespace heed::test
