// Softmax attention composed of ops, with all capabilities. It is correct without hooks; a hook at any step adds one
// fault.
#pragma once
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/conformance.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed::test {

struct Hooks {
  AttentionCapabilities can = AttentionCapabilities::of_pairs();
  std::string name = "hooked";
  std::function<double(Index positions, Index size)> cost = {};
  // Hooks in the order of computation: inputs, scores [B, H, T, S] with the bias, allowed pairs of the same shape,
  // weights, weights after dropout, and output [B, H, T, Dv].
  std::function<void(Tensor& q, Tensor& k, Tensor& v, AttentionCall& call)> inputs = {};
  std::function<Tensor(const Tensor& s, const AttentionCall& call)> scores = {};
  std::function<Tensor(const Tensor& allowed, const AttentionCall& call)> allowed = {};
  std::function<Tensor(const Tensor& w, const AttentionCall& call)> weights = {};
  std::function<Tensor(const Tensor& w, double p)> drop = {};
  std::function<Tensor(const Tensor&x, const AttentionCall&call)> keys = {}, values = {};  // instead of without_padding
  std::function<Tensor(const Tensor& x, Index heads)> repeat = {};              // [B, Hk, S, D] -> [B, H, S, D]
  std::function<Tensor(const Tensor& y, const Tensor& v, const AttentionCall& call)> output = {};
  std::function<Tensor(const Tensor& w, const AttentionCall& call)> reported = {};  // result of weights()
  KeyValueState::Attend step = {};                                              // the attention of a decode state
  std::function<AttentionState()> state = {};
};

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
    const Tensor keys = h.repeat ? h.repeat(rows, q.dim(1)) : detail::repeat_heads(rows, q.dim(1));
    Tensor s = matmul(q, keys.t()) / std::sqrt(static_cast<double>(q.dim(3)));
    if (call.bias.defined()) s = s + call.bias;
    if (h.scores) s = h.scores(s, call);
    Tensor allowed = allowed_pairs(q, k, call);
    if (h.allowed) allowed = h.allowed(allowed.expand(s.shape()), call);
    const Tensor w = masked_softmax(s, allowed);
    return h.weights ? h.weights(w, call) : w;
  }
  Tensor apply(In q_in, In k_in, In v_in, const AttentionCall& original) const {
    Tensor q = q_in, k = k_in, v = v_in;
    AttentionCall call = original;
    Tensor w = weights_of(q, k, v, call);
    if (call.dropout > 0 && is_training()) w = h.drop ? h.drop(w, call.dropout) : keep_some(w, call.dropout, w.shape());
    const Tensor rows = h.values ? h.values(v, call) : without_padding(v, call);
    const Tensor y = matmul(w, h.repeat ? h.repeat(rows, q.dim(1)) : detail::repeat_heads(rows, q.dim(1)));
    return h.output ? h.output(y, v, call) : y;
  }
  Tensor weights(In q_in, In k_in, const AttentionCall& original) const {
    Tensor q = q_in, k = k_in, v = k_in;
    AttentionCall call = original;
    const Tensor w = weights_of(q, k, v, call);
    return h.reported ? h.reported(w, call) : w;
  }
  AttentionState make_state() const {
    if (h.state) return h.state();
    if (h.step) return KeyValueState(h.step);
    return KeyValueState(*this);
  }
  void members(auto&&) {}
};

// A decode state that keeps the tensors of every step but names only the lengths as a buffer. Copies share the tensors.
struct HoldingState {
  bool copies = true;
  std::shared_ptr<std::vector<Tensor>> keys = std::make_shared<std::vector<Tensor>>(),
                                       values = std::make_shared<std::vector<Tensor>>();
  Tensor count = Tensor::zeros({0}, DType::int32);

  Tensor apply(In q, In k, In v, const AttentionCall& call) {
    const NoTape guard;
    keys->push_back(copies ? k->clone() : k.tensor()), values->push_back(copies ? v->clone() : v.tensor());
    count = detail::lengths_after("holding", count, k, call);
    return Hooked{}.apply(q, concatenate(*keys, 2), concatenate(*values, 2), {.causal = true, .bias = call.bias});
  }
  const Tensor& lengths() const { return count; }
  void members(auto&& visit) { visit.buffer("lengths", count); }
};

// A correct state except for the changes by these functions: picked rows, the call, and the reported lengths.
struct WrongState {
  std::function<Tensor(const Tensor& indices)> pick = {};
  std::function<void(AttentionCall& call)> take = {};
  std::function<Tensor(const Tensor& lengths)> report_lengths = {};
  KeyValueState inner{[](In q, In k, In v, const AttentionCall& call) { return Hooked{}.apply(q, k, v, call); }};

  Tensor apply(In q, In k, In v, AttentionCall call) {
    if (take) take(call);
    return inner.apply(q, k, v, call);
  }
  Tensor lengths() const { return report_lengths ? report_lengths(inner.lengths()) : inner.lengths(); }
  WrongState rows(const Tensor& indices) const {
    WrongState picked = *this;
    picked.inner = pick_rows(inner, pick ? pick(indices) : indices);
    return picked;
  }
  void members(auto&& visit) { inner.members(visit); }
};
inline auto wrong_state(const WrongState& state) {
  return [state](Hooks& h) { h.state = [state] { return AttentionState(state); }; };
}
inline Tensor rolled(const Tensor& x) { return concatenate({x.slice(0, 1, x.dim(0)), x.slice(0, 0, 1)}, 0); }

// Correct except that a copy shares its cache.
struct SharedState {
  std::shared_ptr<KeyValueState> inner = std::make_shared<KeyValueState>(
      [](In q, In k, In v, const AttentionCall& call) { return Hooked{}.apply(q, k, v, call); });
  Tensor apply(In q, In k, In v, const AttentionCall& call) { return inner->apply(q, k, v, call); }
  Tensor lengths() const { return inner->lengths(); }
  SharedState rows(const Tensor& indices) const {
    return {std::make_shared<KeyValueState>(pick_rows(*inner, indices))};
  }
  void members(auto&& visit) { inner->members(visit); }
};

// Correct except that no buffer has the reported lengths.
struct UncountedState {
  WrongState inner = {};
  Tensor count = Tensor::zeros({0}, DType::int32);
  Tensor apply(In q, In k, In v, const AttentionCall& call) {
    const Tensor y = inner.apply(q, k, v, call);
    count = inner.lengths();
    return y;
  }
  Tensor lengths() const { return count; }
  UncountedState rows(const Tensor& indices) const {
    const WrongState picked = inner.rows(indices);
    return {picked, picked.lengths()};
  }
  void members(auto&& visit) { inner.members(visit); }
};

// x with a wrong gradient: f of the correct one.
inline Tensor regrad(const Tensor& x, std::function<Tensor(const Tensor& dy)> f) {
  Tensor y = x.detach().clone();
  record("regrad", Where::current(), y, {x}, saved(),
         [f = std::move(f)](Grads& d, const Tensor& dy) { d.add(0, f(dy)); });
  return y;
}

// x times a factor at positions >= from of `axis`.
inline Tensor scaled_from(const Tensor& x, int axis, Index from, double factor) {
  const Index n = x.dim(axis);
  std::vector<double> by(static_cast<std::size_t>(n), 1.0);
  for (Index i = from; i < n; ++i) by[static_cast<std::size_t>(i)] = factor;
  Shape shape = {1, 1, 1, 1};
  return x * Tensor::from(by, shape.with(axis < 0 ? axis + 4 : axis, n)).to(x.dtype());
}

// The allowed pairs [B, H, T, S], replaced by f(was, b, h, i, j).
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

// Ways to add a fault: to the inputs, to the call only, to the gradient of q, k or v, to the output, and to the pairs
// that a causal call allows.
inline void inputs(Hooks& h, std::function<void(Tensor& q, Tensor& k, Tensor& v, AttentionCall& call)> f) {
  h.inputs = std::move(f);
}
inline auto with_changed_call(std::function<void(AttentionCall& call)> f) {
  return [f](Hooks& h) { h.inputs = [f](Tensor&, Tensor&, Tensor&, AttentionCall& call) { f(call); }; };
}
inline auto gradient_of(char which, std::function<Tensor(const Tensor& dy)> f) {
  return [=](Hooks& h) {
    h.inputs = [=](Tensor& q, Tensor& k, Tensor& v, AttentionCall&) {
      Tensor& x = which == 'q' ? q : which == 'k' ? k : v;
      x = regrad(x, f);
    };
  };
}
inline auto outputs(std::function<Tensor(const Tensor& y, const Tensor& v, const AttentionCall& call)> f) {
  return [f](Hooks& h) { h.output = f; };
}
inline auto sees(std::function<bool(bool was, Index i, Index j, Index T, Index S)> f) {
  return [f](Hooks& h) {
    h.allowed = [f](const Tensor& allowed, const AttentionCall& call) {
      if (!call.causal) return allowed;
      const Index T = allowed.dim(2), S = allowed.dim(3);
      return decided(allowed, [=](bool was, Index, Index, Index i, Index j) { return f(was, i, j, T, S); });
    };
  };
}

// Removes padding by a product, which keeps NaN: 0 * NaN is NaN.
inline Tensor multiplied(const Tensor& x, const AttentionCall& call) {
  return x * allowed_pairs(x, x, {.key_lengths = call.key_lengths, .key_mask = call.key_mask})
                 .slice(2, 0, 1)
                 .transpose(2, 3)
                 .to(x.dtype());
}
inline bool masks(const AttentionCall& call) { return call.key_lengths.defined() || call.key_mask.defined(); }
inline Tensor in_bfloat16(const Tensor& x) { return x.to(DType::bfloat16).to(x.dtype()); }
inline Tensor in_float32(const Tensor& x) { return x.to(DType::float32).to(x.dtype()); }

}  // namespace heed::test
