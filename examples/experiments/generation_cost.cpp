// Generates with random weights and measures time and the memory of states.
#include "examples/experiments/generation_cost.hpp"

#include <heed/layers/language_model.hpp>
#include <heed/layers/model_config.hpp>

#include "examples/experiments/cost_measure.hpp"

namespace heed::examples {
namespace {

// Without positions, whose table would limit the length of the sequence.
GPT model_of(Generating way, const GenerationShape& s) {
  Rng rng(s.seed);
  return GPT({.vocabulary = s.vocabulary,
              .context = s.positions,
              .blocks = {.layers = s.layers, .attention = {.width = s.width, .heads = s.heads}},
              .positions = PositionKind::none},
             rng, mechanism_by_name(way == Generating::linear ? "linear" : "softmax"));
}

Tensor column(const Tokens& ids) {
  const auto n = static_cast<Index>(ids.size());
  return Tensor::from_values(ids.data(), n, {n, 1});
}

// Fills a cache with keys and values x [1, H, n, D] without computing attention, as load_state() does from a file. The
// capacity is that of a cache that grew token by token.
void fill_cache(AttentionState& state, const Tensor& x) {
  const Index positions = x.dim(2);
  Index room = 64;  // the capacity, which doubles
  while (room < positions) room *= 2;
  for (const NamedBuffer& b : named_buffers(state)) {
    if (b.name == "lengths") {
      *b.buffer = Tensor::full({1}, static_cast<double>(positions), DType::int32);
      continue;
    }
    *b.buffer = Tensor::empty(x.shape().with(2, room));
    b.buffer->slice(2, 0, positions).copy_(x);
  }
}

}  // namespace

std::string name_of(Generating way) {
  switch (way) {
    case Generating::softmax_uncached: return "softmax, no cache";
    case Generating::softmax_cached: return "softmax, cache";
    default: return "linear, sums";
  }
}

double gpu_ratio(Generating way) {
  return way == Generating::softmax_uncached ? 1 : way == Generating::softmax_cached ? 16.8 : 317;
}

double generate_seconds(Generating way, const GenerationShape& s) {
  const GPT model = model_of(way, s);
  const NoTape off;
  const Evaluation evaluation;
  Rng rng(s.seed, 1);
  Tensor all = Tensor::zeros({s.batch, s.positions + 1}, DType::int32);
  Tokens last(static_cast<std::size_t>(s.batch), 0);
  std::vector<AttentionState> states;
  const auto step = [&](Index t) {
    if (way == Generating::softmax_uncached) states.clear();
    const Tensor logits =
        model.decode(way == Generating::softmax_uncached ? all.slice(1, 0, t + 1).dense() : column(last), states);
    for (Index row = 0; row < s.batch; ++row) {
      const std::int32_t next = sample(logits[row], {}, rng);
      last[static_cast<std::size_t>(row)] = all.ptr<std::int32_t>()[row * (s.positions + 1) + t + 1] = next;
    }
  };
  step(0);  // fills the memory pool
  states.clear();
  return milliseconds([&] {
           for (Index t = 0; t < s.positions; ++t) step(t);
         }) /
         1000;
}

TokenCost token_cost(Generating way, Index position, int repeats, const GenerationShape& s) {
  const GPT model = model_of(way, s);
  const NoTape off;
  const Evaluation evaluation;
  const Tensor x = Rng(s.seed, 3).normal({1, s.heads, position, s.width / s.heads});
  std::vector<AttentionState> states;
  for (const TransformerBlock& block : model.transformer.blocks) {
    AttentionState& state = states.emplace_back(block.attention.mechanism.make_state());
    if (way == Generating::softmax_cached)
      fill_cache(state, x);
    else
      state.apply(x, x, x);
  }
  const auto step = [&] { model.decode(Tensor::zeros({1, 1}, DType::int32), states); };
  step();
  TokenCost cost;
  for (int i = 0; i < repeats; ++i) cost.milliseconds.push_back(milliseconds(step));
  std::size_t bytes = 0;
  for (AttentionState& state : states)
    for (const NamedBuffer& b : named_buffers(state))
      if (b.buffer->defined()) bytes += bytes_of(b.buffer->dtype(), b.buffer->numel());
  cost.state_mebibytes = static_cast<double>(bytes) / (1 << 20);
  return cost;
}

}  // namespace heed::examples
