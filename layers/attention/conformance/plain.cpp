// Plain form of the problems of the check "combinations": single sequences, one mask, keys repeated for each head.
#include <heed/autograd/attention.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/reduce/reduce.hpp>
#include <heed/layers/attention/detail/compositions.hpp>
#include <heed/layers/attention/detail/conformance_plan.hpp>

namespace heed::detail::conformance {
namespace {

// Sequence b alone, with keys and values repeated for each head. If the mechanism takes a mask, masks are merged: with
// `in_order` the key mask and the mask, else all masks. Without `in_order`, keys are permuted if their order does not
// matter.
struct Plain {
  Trial trial;
  Tensor back;  // int32 [S]: new position of each key; undefined: keys are not permuted
};

// Sequence b alone: keys and values repeated for each head, the mask and a bias of pairs expanded to [1, H, T, S].
Trial one_sequence(Subject& s, const Trial& t, Index b) {
  const Shape grid = {1, t.q.dim(1), t.q.dim(2), t.k.dim(2)};
  Trial one = sequence(t, b);
  for (const NamedBuffer& p : key_parts(one)) *p.buffer = repeat_heads(*p.buffer, t.q.dim(1));
  const auto written = [&](const Tensor& x) { return x.expand(grid).dense().clone(); };
  if (one.call.mask.defined()) one.call.mask = written(one.call.mask);
  if (one.call.bias.defined() && s.can().bias) one.call.bias = written(one.call.bias);
  return one;
}

Plain plain_of(Subject& s, const Trial& t, Index b, bool in_order) {
  Plain plain{one_sequence(s, t, b), {}};
  const Trial& one = plain.trial;
  AttentionCall& call = plain.trial.call;
  const Properties& is = s.properties();
  const bool unordered = !in_order && is.keys_unordered && is.lengths_are_masks;
  const bool folds = s.can().full_mask && s.folds_key_masks();
  if (call.causal && is.causal_is_mask && unordered) call.mask = one_mask(one, {.causal = true}), call.causal = false;
  if (call.key_mask.defined() && folds) call.mask = one_mask(one, {.key_mask = call.key_mask}), call.key_mask = {};
  if (call.causal || !unordered) return plain;  // the order of keys counts
  if (call.key_lengths.defined()) {
    const AttentionCall of_keys{.key_lengths = call.key_lengths, .key_mask = call.key_mask};
    if (folds)
      call.mask = one_mask(one, of_keys);
    else
      call.key_mask = allowed_pairs(one.q, one.k, of_keys).reshape({1, t.k.dim(2)});
    call.key_lengths = {};
  }
  plain.back = permute_keys(plain.trial, Rng(s.options.seed, 103));
  return plain;
}

}  // namespace

Trial sequence_plainly(Subject& s, const Trial& t, Index b) { return plain_of(s, t, b, true).trial; }

Outcome plainly(Subject& s, const Trial& t) {
  const Index B = t.q.dim(0), groups = t.k.dim(1);
  std::vector<Tensor> outs;
  std::map<std::string, std::vector<Tensor>> stacked;
  TensorsByName sums;
  for (Index b = 0; b < B; ++b) {
    const Plain plain = plain_of(s, t, b, false);
    Outcome o = s.run(plain.trial);
    outs.push_back(o.out);
    Trial names = t;
    for (const NamedBuffer& p : key_parts(names)) {
      Tensor& g = o.gradients.at(p.name);
      if (plain.back.defined()) g = index_select(g, 2, plain.back);
      g = sum(g.view({1, groups, g.dim(1) / groups, g.dim(2), g.dim(3)}), {2});
    }
    for (const NamedBuffer& p : parts(names)) stacked[p.name].push_back(o.gradients.at(p.name));
    for (const auto& [name, gradient] : o.gradients) {
      if (name != "bias" && stacked.count(name) > 0) continue;
      Tensor g = gradient;
      if (name == "bias") {
        if (plain.back.defined()) g = index_select(g, g.rank() - 1, plain.back);
        const Shape& shape = t.call.bias.shape();
        g = sum_to(g, shape.rank() == 4 ? shape.with(0, 1) : shape);
        if (shape.rank() == 4 && shape[0] > 1) {
          stacked[name].push_back(g);
          continue;
        }
      }
      sums[name] = sums.count(name) > 0 ? sums[name] + g : g.clone();
    }
  }
  Outcome all{.out = concatenate(outs, 0), .gradients = sums};
  for (const auto& [name, rows] : stacked) all.gradients[name] = concatenate(rows, 0);
  return all;
}

}  // namespace heed::detail::conformance
