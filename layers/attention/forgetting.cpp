#include <algorithm>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/attention_inputs.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/attention/states.hpp>

namespace heed {
namespace {

// Queries that count from one position. c may grow by about as much within a block as between a query and the keys that
// it still sees, so that float32 rounds to 1e-5; and the gradient of a bias takes a number per pair of a block.
constexpr Index kBlock = 256;

Tensor log_sigmoid(const Tensor& x) { return -softplus(-x); }

// The call of queries [first, last) and keys [0, keys).
AttentionCall call_of(AttentionCall call, Index first, Index last, Index keys) {
  for (Tensor* x : {&call.mask, &call.bias}) {
    if (x->defined() && x->rank() > 1 && x->dim(-2) > 1) *x = x->slice(-2, first, last);
    if (x->defined() && x->rank() > 0 && x->dim(-1) > 1) *x = x->slice(-1, 0, keys);
  }
  if (call.key_mask.defined()) call.key_mask = call.key_mask.slice(1, 0, keys);
  if (call.key_lengths.defined()) call.key_lengths = minimum(call.key_lengths, static_cast<double>(keys));
  return call;
}

// By log f [B, Hk, S, 1].
Tensor attend(In q, In k, In v, const AttentionCall& call, const Tensor& log_gates, std::optional<double> scale) {
  const Index queries = q.dim(2), ahead = k.dim(2) - queries;
  const Tensor kept = without_padding(log_gates.to(DType::float64), call);
  const Tensor c = cumsum(detail::repeat_heads(kept, q.dim(1)), 2).transpose(2, 3);  // [B, H, 1, S]
  const auto block = [&](Index first) {
    const Index last = std::min(first + kBlock, queries), keys = std::max<Index>(0, last + ahead);
    // The position of the first query.
    const Index from = std::clamp<Index>(first + ahead, 0, std::max<Index>(0, k.dim(2) - 1));
    AttentionCall of_block = call_of(call, first, last, keys);
    Tensor bias = c.slice(3, 0, keys);
    if (keys > 0) bias = c.slice(3, from, from + 1).detach() - bias;
    bias = bias.to(q.dtype());
    of_block.bias = of_block.bias.defined() ? of_block.bias + bias : bias;
    return attention({q->slice(2, first, last), q.where()}, k->slice(2, 0, keys), v->slice(2, 0, keys), of_block,
                     scale);
  };
  if (queries <= kBlock) return block(0);
  std::vector<Tensor> blocks;
  for (Index first = 0; first < queries; first += kBlock) blocks.push_back(block(first));
  return concatenate(blocks, 2);
}

// Keeps log f as one more element of each key.
struct ForgettingState {
  KeyValueState all;

  Tensor apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) {
    const NoTape guard;
    return all.apply(q, {concatenate({k, log_sigmoid(inputs[0])}, 3), k.where()}, v, call);
  }
  Tensor lengths() const { return all.lengths(); }
  void members(auto&& visit) { all.members(visit); }
};

}  // namespace

Tensor ForgettingAttention::apply(In q, In k, In v, const AttentionCall& call, std::span<const Tensor> inputs) const {
  detail::check_pairs("forgetting attention", q, k, call);
  // Padding may hold NaN, whose derivative would be NaN even times 0: it is taken away here and behind the sigmoid.
  const Tensor gates = without_padding({inputs[0], q.where()}, call).to(DType::float64);
  return attend(q, k, v, call, log_sigmoid(gates), scale);
}

AttentionState ForgettingAttention::make_state() const {
  const auto by_cache = [scale = scale](In q, In k, In v, const AttentionCall& call) {
    const Index size = k.dim(3) - 1;
    return attend(q, k->slice(3, 0, size), v, call, k->slice(3, size, size + 1), scale);
  };
  return AttentionState(ForgettingState{KeyValueState(by_cache)}, inputs());
}

}  // namespace heed
