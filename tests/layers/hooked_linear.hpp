// Linear attention with elu(x) + 1, in chunks from prefix sum to prefix sum, composed of ops. It is correct without
// hooks; a hook at any step adds one fault.
#pragma once
#include <heed/autograd/reductions.hpp>

#include "tests/layers/attention/hooked_attention.hpp"
#include "tests/layers/attention/wrong_mechanisms.hpp"

namespace heed::test {

// Sums over all keys so far: sum f(k) v^T [B, H, D, Dv] and sum f(k) [B, H, D, 1].
struct LinearSums {
  Tensor values, keys;
};

struct LinearHooks {
  AttentionCapabilities can = {.causal = true, .key_mask = true, .weights = true, .state = true, .cross = true,
                               .grouped = true};
  std::function<void(Tensor& q, Tensor& k, Tensor& v, AttentionCall& call)> inputs = {};
  std::function<Tensor(const Tensor& x, Index heads)> repeat = detail::repeat_heads;
  std::function<Tensor(const Tensor& x)> query = elu_feature, key = elu_feature;
  // f(k) for the numerator and for the norm, and the values, without padding. k and v are given with padding.
  std::function<void(Tensor& numerator, Tensor& norm, Tensor& values, const Tensor& k, const Tensor& v,
                     const AttentionCall& call)>
      features = {};
  Index chunk = 16;
  Index diagonal = 0, diagonal_of_state = 0;  // keys of its own chunk that a query sees after itself
  Index left_out = 0;                         // keys at the end of a chunk that are not added to the sums
  // used: the sums that a chunk uses, from those before and after the chunk. carried: changes the sums after a chunk.
  std::function<LinearSums(const LinearSums& before, const LinearSums& after)> used = {};
  std::function<void(LinearSums& sums, Index end)> carried = {};
  std::function<Index(Index T, Index S)> ahead = [](Index T, Index S) { return S - T; };
  std::function<Tensor(const Tensor& norm)> divisor = [](const Tensor& norm) { return norm + 1e-6; };
  // Changes the sums of a state after a step, given those before the step. `seen`: positions so far.
  std::function<void(LinearSums& sums, const LinearSums& before, Index seen)> kept = {};
  bool state_names_norm = true;
  std::function<void(AttentionCall& new_keys)> of_state = {};  // changes key_lengths in a state

  // q [B, H, T, D], k and norm [B, H, S, D] are features. The chunks are computed in order and update `sums`.
  Tensor in_chunks(LinearSums& sums, const Tensor& q, const Tensor& k, const Tensor& norm, const Tensor& v,
                   Index seen_beyond) const {
    const Index T = q.dim(2), S = k.dim(2), from = ahead(T, S);
    Tensor y = Tensor::zeros({q.dim(0), q.dim(1), std::clamp<Index>(-from, 0, T), v.dim(3)}, q.dtype());
    for (Index begin = 0; begin < S; begin += chunk) {
      const Index end = std::min(S, begin + chunk), last = std::max(begin, end - left_out);
      const LinearSums before = sums;
      const auto part = [&](const Tensor& x, Index to) { return x.slice(2, begin, to); };
      sums.values = sums.values + matmul(part(k, last).t(), part(v, last));
      sums.keys = sums.keys + sum(part(norm, last), {2}, true).t();
      const LinearSums own = used ? used(before, sums) : before;
      const Index first = std::clamp<Index>(begin - from, 0, T), next = std::clamp<Index>(end - from, 0, T);
      if (first < next) {
        const Tensor rows = q.slice(2, first, next);
        const Tensor sees = tril(Tensor::ones({next - first, end - begin}, DType::bool8),
                                 first + from - begin + seen_beyond);
        const auto pairs = [&](const Tensor& keys) { return where(sees, matmul(rows, part(keys, end).t()), 0.0); };
        const Tensor above = matmul(pairs(k), part(v, end)) + matmul(rows, own.values);
        y = concatenate({y, above / divisor(sum(pairs(norm), {3}, true) + matmul(rows, own.keys))}, 2);
      }
      if (carried) carried(sums, end);
    }
    return y.dim(2) == T ? y : Tensor::zeros({q.dim(0), q.dim(1), T, v.dim(3)}, q.dtype());  // no keys
  }

  static LinearSums nothing(const Tensor& q, const Tensor& v) {
    const auto zeros = [&](Index columns) { return Tensor::zeros({q.dim(0), q.dim(1), q.dim(3), columns}, q.dtype()); };
    return {zeros(v.dim(3)), zeros(1)};
  }
};

struct LinearState {
  LinearHooks h;
  Tensor seen = Tensor::zeros({0}, DType::int32);
  LinearSums sums = {};

  Tensor apply(In q, In k, In v, const AttentionCall& call) {
    const NoTape guard;
    AttentionCall new_keys{.key_lengths = call.key_lengths};
    if (h.of_state) h.of_state(new_keys);
    const auto all_heads = [&](const Tensor& x) { return h.repeat(without_padding(x, new_keys), q.dim(1)); };
    const Tensor keys = without_padding(h.key(all_heads(k)), new_keys), values = all_heads(v);
    if (!sums.keys.defined()) sums = LinearHooks::nothing(q, v);
    const LinearSums before = sums;
    const Tensor y = h.in_chunks(sums, h.query(q), keys, keys, values, h.diagonal_of_state);
    seen = detail::lengths_after("hooked linear", seen, k, call);
    if (h.kept) h.kept(sums, before, detail::longest_of(seen));
    return y;
  }
  const Tensor& lengths() const { return seen; }
  void members(auto&& visit) {
    visit.buffer("lengths", seen);
    visit.buffer("values", sums.values);
    if (h.state_names_norm) visit.buffer("keys", sums.keys);
  }
};

struct HookedLinear {
  LinearHooks h = {};

  std::string name() const { return "hooked linear"; }
  AttentionCapabilities capabilities() const { return h.can; }
  double keys_per_query(Index, Index size) const { return static_cast<double>(size); }
  Tensor apply(In q_in, In k_in, In v_in, const AttentionCall& original) const {
    Tensor q = q_in, k = k_in, v = v_in;
    AttentionCall call = original;
    if (h.inputs) h.inputs(q, k, v, call);
    const auto all_heads = [&](const Tensor& x) { return h.repeat(x, q.dim(1)); };
    k = all_heads(k), v = all_heads(v);
    // Padding is removed again after the features, because f(0) is 1.
    Tensor numerator = without_padding(h.key(without_padding(k, call)), call), norm = numerator;
    Tensor values = without_padding(v, call);
    if (h.features) h.features(numerator, norm, values, k, v, call);
    q = h.query(q);
    LinearSums sums = LinearHooks::nothing(q, v);
    if (call.causal) return h.in_chunks(sums, q, numerator, norm, values, h.diagonal);
    return matmul(q, matmul(numerator.t(), values)) / h.divisor(matmul(q, sum(norm, {2}, true).t()));
  }
  AttentionState make_state() const { return LinearState{h}; }
  void members(auto&&) {}
};

}  // namespace heed::test
