// Counts the multiplications of the parts of a layer, and finds crossovers of counts and of times.
#include "examples/experiments/cost.hpp"

#include <algorithm>
#include <cmath>
#include <heed/core/check.hpp>
#include <heed/layers/attention/reformer.hpp>

namespace heed::examples {
namespace {

// The number of pairs of the strided pattern: |i - j| < l or (i - j) mod l = 0, and j <= i if causal.
double strided_pairs(Index n, bool causal) {
  const Index l = stride_for(n), near = std::min(l, n) - 1;
  // Pairs at distances 1 ... near, fewer at the beginning; then pairs at multiples of l, of which q are at most n - 1.
  const Index before = n * near - near * (near + 1) / 2, q = (n - 1) / l, multiples = q * n - l * (q * (q + 1) / 2);
  return static_cast<double>((causal ? 1 : 2) * (before + multiples) + n);
}

double softmax_pairs(Index n, bool causal) {
  const auto all = static_cast<double>(n);
  return causal ? all * (all + 1) / 2 : all * all;
}

// |i - j| <= floor(w / 2), or i - w < j <= i if causal.
double window_pairs(Index n, Index w, bool causal) {
  const Index near = std::min(causal ? w - 1 : w / 2, n - 1);
  return static_cast<double>(n + (causal ? 1 : 2) * (n * near - near * (near + 1) / 2));
}

// With the first position global: the other queries see it, and it sees all positions, by two sets of projections.
double longformer_pairs(Index n, Index w, bool causal) {
  const auto far = static_cast<double>(std::max<Index>(0, causal ? n - w : n - 1 - w / 2));
  return window_pairs(n, w, causal) + far + (causal ? 1 : far + static_cast<double>(n));
}

// The largest number of keys that hashing can find, at least one per query.
double lsh_pairs(Index n, const LayerShape& s) {
  const Index max_keys = s.lsh_rounds * s.lsh_window;
  if (!s.causal) return static_cast<double>(n) * static_cast<double>(std::min(max_keys, std::max<Index>(1, n - 1)));
  const Index few = std::min(n, max_keys);  // position i has i keys before it
  return static_cast<double>(1 + few * (few - 1) / 2 + (n - few) * max_keys);
}

// Products of a query with keys, values and rotations.
double reformer_products(Index length, const LayerShape& s) {
  const Index buckets = ReformerAttention::default_buckets(length, s.chunk);
  const double digits = std::ceil(std::log2(static_cast<double>(buckets)) / 4),
               keys = static_cast<double>(length) / static_cast<double>(buckets);
  return static_cast<double>(s.lsh_rounds) * (2 * keys + 8 * digits);
}

}  // namespace

std::string name_of(Part part) {
  switch (part) {
    case Part::projections: return "projections";
    case Part::feed_forward: return "FFN";
    case Part::no_attention: return "no attention";
    case Part::softmax: return "softmax";
    case Part::linear: return "linear";
    case Part::linear_wide: return "linear, 4d";
    case Part::poly2: return "poly2";
    case Part::favor: return "favor";
    case Part::window: return "window";
    case Part::longformer: return "longformer";
    case Part::strided: return "strided";
    case Part::lsh: return "lsh";
    case Part::reformer: return "reformer";
    case Part::linformer: return "linformer";
    case Part::luna: return "luna";
    case Part::recurrent: return "recurrent";
    case Part::convolution: return "convolution";
    case Part::dilated: return "dilated";
  }
  return {};
}

std::vector<Part> parts_of(const LayerShape& shape) {
  std::vector<Part> parts = {Part::projections, Part::feed_forward, Part::no_attention, Part::softmax,
                             Part::linear,      Part::linear_wide,  Part::poly2,        Part::favor,
                             Part::window,      Part::longformer,   Part::strided,      Part::lsh};
  if (!shape.causal) parts.insert(parts.end(), {Part::reformer, Part::linformer, Part::luna});
  parts.insert(parts.end(), {Part::recurrent, Part::convolution, Part::dilated});
  return parts;
}

Index stride_for(Index n) { return std::max<Index>(2, std::lround(std::sqrt(static_cast<double>(n)))); }

double multiplications(Part part, Index length, const LayerShape& s) {
  const auto n = static_cast<double>(length), h = static_cast<double>(s.heads), d = static_cast<double>(s.head_size),
             width = h * d;
  switch (part) {
    case Part::projections: return 4 * n * width * width;
    case Part::feed_forward: return 2 * n * width * static_cast<double>(s.hidden);
    case Part::no_attention:
      return multiplications(Part::projections, length, s) + multiplications(Part::feed_forward, length, s);
    case Part::softmax: return 2 * softmax_pairs(length, s.causal) * width;
    case Part::linear: return 2 * n * h * d * d;
    case Part::linear_wide: return 2 * n * h * (4 * d) * (4 * d);
    case Part::poly2: return n * h * d * d * (d + 1);
    case Part::favor: return 4 * n * h * static_cast<double>(s.favor_features) * d;
    case Part::window: return 2 * window_pairs(length, s.window, s.causal) * width;
    case Part::longformer: return 2 * longformer_pairs(length, s.window, s.causal) * width;
    case Part::strided: return 2 * strided_pairs(length, s.causal) * width;
    case Part::lsh: return (2 * lsh_pairs(length, s) + n * static_cast<double>(s.lsh_rounds * s.lsh_buckets)) * width;
    case Part::reformer: return n * reformer_products(length, s) * width;
    case Part::luna: {
      const auto m = static_cast<double>(s.luna_memory);
      return 4 * n * m * width + 2 * m * width * width;
    }
    case Part::linformer: return 4 * n * static_cast<double>(std::min(s.linformer_rows, length)) * width;
    case Part::recurrent: return 6 * n * width * width;
    case Part::convolution:
    case Part::dilated: return static_cast<double>(s.kernel) * n * width * width;
  }
  return 0;
}

Index sequential_operations(Part part, Index n) { return part == Part::recurrent ? n : 1; }

std::optional<Index> longest_path(Part part, Index n, const LayerShape& s) {
  // Layers of which each reaches `reach` positions further.
  const auto layers = [&](Index reach) {
    return n == 1 ? 1 : reach == 0 ? std::optional<Index>() : (n - 2 + reach) / reach;
  };
  switch (part) {
    case Part::recurrent: return n;
    case Part::window: return layers(s.causal ? s.window - 1 : s.window / 2);
    case Part::convolution: return layers(s.causal ? s.kernel - 1 : s.kernel / 2);
    case Part::dilated: {
      if (s.kernel == 1) return layers(0);
      Index count = 1;
      for (Index reach = s.kernel - 1, span = s.kernel; reach / (s.causal ? 1 : 2) < n - 1; ++count)
        span *= s.kernel, reach = span - 1;
      return count;
    }
    case Part::longformer:
    case Part::strided: return 2;  // by a global position; by a position of the other kind
    case Part::projections:
    case Part::feed_forward:
    case Part::no_attention:
    case Part::lsh:
    case Part::reformer: return {};
    default: return 1;
  }
}

std::optional<Index> counted_crossover(const std::function<double(Index)>& a, const std::function<double(Index)>& b,
                                       Index max) {
  Index n = max;
  while (n > 0 && a(n) >= b(n)) --n;
  return n == max ? std::nullopt : std::optional(n + 1);
}

MeasuredCrossover measured_crossover(const std::vector<Index>& lengths, const std::vector<double>& a,
                                     const std::vector<double>& b) {
  require(!lengths.empty() && a.size() == lengths.size() && b.size() == lengths.size(),
          "measured_crossover: ", lengths.size(), " lengths, ", a.size(), " and ", b.size(),
          " times; the numbers must be equal, and at least 1");
  const auto ratio = [&](std::size_t i) { return std::log(a[i] / b[i]); };
  std::size_t i = lengths.size();
  while (i > 0 && ratio(i - 1) >= 0) --i;
  if (i == lengths.size()) return {};
  if (i == 0) return {MeasuredCrossover::from_the_first, 0};
  const double before = ratio(i - 1), after = ratio(i), share = -before / (after - before);
  const double from = std::log(static_cast<double>(lengths[i - 1])), to = std::log(static_cast<double>(lengths[i]));
  return {MeasuredCrossover::between, std::exp(from + share * (to - from))};
}

std::string describe(const MeasuredCrossover& crossover, const std::vector<Index>& lengths) {
  switch (crossover.kind) {
    case MeasuredCrossover::never: return "none up to " + std::to_string(lengths.back());
    case MeasuredCrossover::from_the_first: return "at or below " + std::to_string(lengths.front());
    default: return std::to_string(std::lround(crossover.n));
  }
}

std::vector<Comparison> comparisons(const LayerShape& shape) {
  std::vector<Comparison> all = {
      {"attention, projections included, over FFN: n = 2hd", {Part::projections, Part::softmax}, {Part::feed_forward}},
      {"the quadratic part over all else: n = 6hd", {Part::softmax}, {Part::no_attention}},
      {"softmax over linear: n = d", {Part::softmax}, {Part::linear}},
      {"softmax over linear of size 4d: n = 16d", {Part::softmax}, {Part::linear_wide}},
      {"softmax over poly2: n = d (d + 1) / 2", {Part::softmax}, {Part::poly2}},
      {"softmax over favor: n = 2m", {Part::softmax}, {Part::favor}},
      {"softmax over window", {Part::softmax}, {Part::window}},
      {"linear over window", {Part::linear}, {Part::window}},
      {"softmax over strided", {Part::softmax}, {Part::strided}},
      {"softmax over lsh", {Part::softmax}, {Part::lsh}}};
  if (!shape.causal)
    for (const Part part : {Part::reformer, Part::linformer, Part::luna})
      all.push_back({"softmax over " + name_of(part), {Part::softmax}, {part}});
  all.push_back({"softmax over recurrent: n = 3hd", {Part::softmax}, {Part::recurrent}});
  all.push_back({"softmax over convolution: n = khd / 2", {Part::softmax}, {Part::convolution}});
  return all;
}

double total(const std::vector<Part>& parts, const std::function<double(Part)>& cost) {
  double sum = 0;
  for (Part part : parts) sum += cost(part);
  return sum;
}

}  // namespace heed::examples
