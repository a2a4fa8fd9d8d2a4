// Runs the parts of a layer and measures time and memory.
#include "examples/experiments/cost_measure.hpp"

#include <algorithm>
#include <chrono>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/random.hpp>
#include <heed/layers/attention/linear.hpp>
#include <heed/layers/attention/longformer.hpp>
#include <heed/layers/attention/luna.hpp>
#include <heed/layers/attention/reformer.hpp>
#include <heed/layers/attention/softmax.hpp>
#include <heed/layers/attention/sparse.hpp>
#include <heed/layers/convolution.hpp>
#include <heed/layers/feed_forward.hpp>
#include <heed/layers/recurrent.hpp>

namespace heed::examples {
namespace {

AttentionMechanism mechanism_of(Part part, Index n, const LayerShape& s, Rng& rng, std::uint64_t seed) {
  switch (part) {
    case Part::linear:
    case Part::linear_wide: return LinearAttention{};
    case Part::poly2: return LinearAttention{{.feature_map = FeatureMap::poly2}};
    case Part::favor: return FavorAttention(s.head_size, {.features = s.favor_features, .seed = seed});
    case Part::window: return WindowAttention({.window = s.window});
    case Part::longformer: return LongformerAttention({.window = s.window, .globals = {0}, .size = s.head_size});
    case Part::strided: return StridedAttention({.stride = stride_for(n)});
    case Part::lsh:
      return LshAttention({.size = s.head_size,
                           .buckets = s.lsh_buckets,
                           .rounds = s.lsh_rounds,
                           .window = s.lsh_window,
                           .seed = seed});
    case Part::reformer:
      return ReformerAttention({.size = s.head_size, .chunk = s.chunk, .rounds = s.lsh_rounds, .seed = seed});
    case Part::luna: return LunaAttention(s.heads, s.head_size, rng, {.memory = s.luna_memory});
    case Part::linformer: return LinformerAttention(n, std::min(n, s.linformer_rows), rng);
    default: return SoftmaxAttention{};
  }
}

// A recurrent or convolutional layer of the same width, on x [1, n, width].
Measured measure_other_layer(Part part, const Tensor& x, const LayerShape& s, Rng& rng, const MeasureOptions& options) {
  const Index width = s.width();
  if (part == Part::recurrent) {
    const GRU layer({.input = width, .hidden = width}, rng);
    return measure_forward([&](const Tensor& t) { return layer(t).y; }, x, options);
  }
  const Index dilation = part == Part::dilated ? s.kernel : 1;
  Conv1dLayerOptions o{.dilation = dilation, .causal = s.causal};
  if (!s.causal) o.padding = dilation * (s.kernel - 1) / 2;
  const Conv1d layer(width, width, s.kernel, rng, o);
  return measure_forward([&](const Tensor& t) { return layer(t.t()).t(); }, x, options);
}

}  // namespace

Measured measure_forward(const std::function<Tensor(const Tensor& x)>& forward, const Tensor& x,
                         const MeasureOptions& options) {
  const NoTape off;
  const Tensor dy = options.backward ? Rng(options.seed, 2).normal(forward(x).shape()) : Tensor();
  const auto run = [&] {
    if (!options.backward) return void(forward(x));
    Tape tape;
    const Tensor y = forward(tape.watch(x));
    tape.backward(y, dy);
  };
  run();  // fills the memory pool and makes the gradients of weights
  Measured result;
  double sum = 0;
  while (static_cast<int>(result.milliseconds.size()) < options.repeats ||
         (sum < 50 && result.milliseconds.size() < 25)) {
    reset_peak_memory();
    const std::size_t before = memory_use().current;
    result.milliseconds.push_back(milliseconds(run));
    result.peak_mebibytes = static_cast<double>(memory_use().peak - before) / (1 << 20);
    sum += result.milliseconds.back();
  }
  return result;
}

double milliseconds(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

Measured measure(Part part, Index n, const LayerShape& s, const MeasureOptions& options) {
  Rng rng(options.seed);
  const Index width = s.width();
  if (part == Part::projections || part == Part::feed_forward || part == Part::no_attention) {
    const Tensor x = rng.normal({1, n, width});
    const Linear qkv(width, 3 * width, rng), proj(width, width, rng);
    const FeedForward ffn(width, rng, {.hidden = s.hidden});
    // Without attention, the values are used as its result.
    const auto projections = [&](const Tensor& t) { return proj(qkv(t).slice(-1, 2 * width, 3 * width)); };
    if (part == Part::projections) return measure_forward(projections, x, options);
    if (part == Part::feed_forward) return measure_forward([&](const Tensor& t) { return ffn(t); }, x, options);
    return measure_forward([&](const Tensor& t) { return ffn(projections(t)); }, x, options);
  }
  if (part == Part::recurrent || part == Part::convolution || part == Part::dilated)
    return measure_other_layer(part, rng.normal({1, n, width}), s, rng, options);
  // Queries, keys and values are views of one tensor, as in a layer.
  const Index size = s.head_size * (part == Part::linear_wide ? 4 : 1);
  const AttentionMechanism mechanism = mechanism_of(part, n, s, rng, options.seed);
  const auto given = static_cast<Index>(mechanism.inputs().size());
  const Tensor x = rng.normal({1, n, 3 + given, s.heads, size});
  const auto attend = [&](const Tensor& t) {
    const auto heads = [&](Index i) { return t.select(2, i).transpose(1, 2); };
    std::vector<Tensor> inputs;
    for (Index i = 0; i < given; ++i) inputs.push_back(heads(3 + i));
    return mechanism.apply(heads(0), heads(1), heads(2), {.causal = s.causal}, inputs);
  };
  return measure_forward(attend, x, options);
}

}  // namespace heed::examples
