// flex_attention() as a mechanism: its parameters, the last block mask, and decoding.
#include <heed/layers/attention/flex.hpp>
//
#include <heed/autograd/elementwise.hpp>
#include <heed/layers/attention/states.hpp>
#include <mutex>

namespace heed {

// The mask of the last call, which the next call reuses if its shape is the same. Locked, because models may be called
// from several threads.
struct FlexAttention::LastMask {
  std::mutex mutex;
  BlockMask mask;
};

FlexAttention::FlexAttention(FlexMechanismOptions options)
    : options_(std::move(options)), last_(std::make_shared<LastMask>()) {
  const Tensor& sinks = options_.sinks;
  require(!sinks.defined() || (sinks.rank() == 1 && is_floating(sinks.dtype())), "FlexAttention: sinks is ", sinks,
          "; it must be [heads], floating");
  if (sinks.defined()) sinks_ = Parameter(sinks.clone());
  options_.sinks = Tensor();
  std::vector<Tensor> own = options_.score_mod.parameters();
  for (Tensor& x : own) x = x.detach().clone();
  if (options_.trained)
    for (const Tensor& x : own) score_.emplace_back(x);
  else
    options_.score_mod = options_.score_mod.with(own), constants_ = own.size();
}

FlexAttention::Rules FlexAttention::now() const {
  Rules rules{options_, last_};
  if (options_.trained) rules.options.score_mod = options_.score_mod.with(score_);
  rules.options.sinks = sinks_;
  return rules;
}

BlockMask FlexAttention::Rules::mask(const Shape& grid, const Tensor& positions) const {
  if (!options.mask_mod.defined() || grid[0] == 0 || grid[1] == 0) return {};
  const Index batch = options.mask_by_batch || positions.defined() ? grid[0] : 1,
              heads = options.mask_by_head ? grid[1] : 1;
  const auto make = [&] { return create_block_mask(options.mask_mod, batch, heads, grid[2], grid[3], positions); };
  if (grid[2] == 1) return make();  // decoding: each step has another number of keys
  const std::lock_guard lock(last->mutex);
  if (!last->mask.defined() || last->mask.shape() != Shape{batch, heads, grid[2], grid[3]}) last->mask = make();
  return last->mask;
}

Tensor FlexAttention::Rules::attend(In q, In k, In v, const AttentionCall& call, const Tensor& positions) const {
  const Shape grid = {q.dim(0), q.dim(1), q.dim(2), k.dim(2)};
  return flex_attention(q, k, v,
                        {.score_mod = options.score_mod,
                         .block_mask = mask(grid, positions),
                         .sinks = options.sinks,
                         .positions = positions,
                         .scale = options.scale},
                        call);
}

AttentionState FlexAttention::make_state() const {
  Rules rules = now();
  for (Tensor& x : detail::ScoreModAccess::parameters(rules.options.score_mod)) x = x.defined() ? x.detach() : x;
  if (rules.options.sinks.defined()) rules.options.sinks = rules.options.sinks.detach();
  return KeyValueState([rules](In q, In k, In v, const AttentionCall& call) {
    // If rows have different lengths, the only query of a row is its last position.
    Tensor positions;
    if (call.key_lengths.defined() && q.dim(2) == 1) positions = maximum(call.key_lengths - 1.0, 0.0);
    return rules.attend(q, k, v, call, positions);
  });
}

}  // namespace heed
