// Counts the cost of the parts of a Transformer layer, as Su does ("Linear attention", 2021): the multiplications of
// matrix products, forward. A layer has n positions, h heads of size d and a feed-forward part of size m. Activations,
// softmax and norms are not counted.
//
//   projections      4 n (h d)^2                 queries, keys, values and output
//   FFN              2 n h d m                   8 n (h d)^2 for m = 4 h d
//   no attention     projections + FFN
//   softmax          2 n^2 h d                   the scores, and the values times the weights
//   linear           2 n h d^2
//   linear, 4d       2 n h (4 d)^2               queries, keys and values of four times the size
//   poly2            n h d^2 (d + 1)             by the d (d + 1) / 2 products of two elements; short sequences are
//                                                computed by their scores instead
//   favor            4 n h m d                   m features of queries and keys, and their sums
//   window           2 d per head and pair of the window of w keys
//   longformer       the same with one global position, whose query has its own queries, keys and values
//   strided          2 d per head and pair of the pattern, O(n sqrt(n)); l = round(sqrt(n))
//   lsh              at most rounds * window keys per query, 2 d each, and the rotations: rounds * buckets / 2 * d per
//                    query and per key
//   reformer         the keys of a bucket per query and round, 2 d each, if all buckets are of equal size; and the
//                    rotations: 8 d per query, round and digit of a bucket; chunks of c
//   linformer        4 n r h d                   r rows of keys and of values, made and attended to
//   luna             4 n m h d + 2 m (h d)^2     m vectors of the memory, packed and attended to, and their maps
//   recurrent        6 n (h d)^2                 a GRU of width h d: 3 gates of the input and of the last state
//   convolution      k n (h d)^2                 of kernel k and h d channels
//   dilated          k n (h d)^2                 the same with a dilation of k, the second layer of a dilated stack
//
// With a causal mask, softmax has n (n + 1) / 2 pairs. reformer, linformer and luna are for encoders: the first two
// have no causal form, and that of luna has other products.
//
// The other columns are those of Vaswani et al. 2017 (table 1) for one layer: the number of operations that must follow
// each other, and the longest path between two positions, as a number of layers or, in a recurrent layer, of steps.
#pragma once
#include <functional>
#include <heed/core/dtype.hpp>
#include <optional>
#include <string>
#include <vector>

namespace heed::examples {

// The sizes of a layer. Defaults: BERT-base.
struct LayerShape {
  Index heads = 12;
  Index head_size = 64;
  Index hidden = 3072;  // size m of the feed-forward part
  bool causal = false;
  Index window = 256;          // w, of window and longformer
  Index favor_features = 256;  // m
  Index linformer_rows = 256;  // r, at most n
  Index lsh_rounds = 4, lsh_window = 32, lsh_buckets = 64;  // rounds also of reformer
  Index chunk = 64;                                         // c
  Index luna_memory = 16;                                   // m of luna
  Index kernel = 3;                                         // k, of convolutions; odd

  Index width() const { return heads * head_size; }
};

// The parts of a layer, as in the table above.
enum class Part {
  projections,
  feed_forward,
  no_attention,
  softmax,
  linear,
  linear_wide,
  poly2,
  favor,
  window,
  longformer,
  strided,
  lsh,
  reformer,
  linformer,
  luna,
  recurrent,
  convolution,
  dilated
};
std::string name_of(Part part);                       // as in the table above
std::vector<Part> parts_of(const LayerShape& shape);  // all; without reformer, linformer and luna if causal
Index stride_for(Index n);                            // l of the strided pattern

// Multiplications of a part, forward, on n positions.
double multiplications(Part part, Index n, const LayerShape& shape);
// Operations that must follow each other: n in a recurrent layer, else 1. What a part does in a fixed number of
// operations, such as products and a softmax, counts as one.
Index sequential_operations(Part part, Index n);
// The longest path between two of n positions; none for parts that do not mix positions, and for lsh, whose keys depend
// on values. A window, a convolution and a dilated stack (dilations 1, k, k^2, ...) need several layers.
std::optional<Index> longest_path(Part part, Index n, const LayerShape& shape);

// The smallest n from which on a(n) >= b(n), up to `max`; none if a(max) < b(max).
std::optional<Index> counted_crossover(const std::function<double(Index)>& a, const std::function<double(Index)>& b,
                                       Index max = Index{1} << 20);

// The crossover of times a and b measured at `lengths`, which must ascend. The point where a exceeds b for the last
// time is interpolated between two lengths, linear in log n and log time. Throws Error unless each length has two
// times.
struct MeasuredCrossover {
  enum Kind { never, from_the_first, between } kind = never;  // never: a is below b at the last length
  double n = 0;                                               // the crossover, if it is between two lengths
};
MeasuredCrossover measured_crossover(const std::vector<Index>& lengths, const std::vector<double>& a,
                                     const std::vector<double>& b);
// For a table.
std::string describe(const MeasuredCrossover& crossover,
                     const std::vector<Index>& lengths);  // "1480", "none up to 512"

// Pairs of sums of parts whose crossovers are reported: those of Su, and those of other mechanisms.
struct Comparison {
  std::string name;
  std::vector<Part> a, b;
};
std::vector<Comparison> comparisons(const LayerShape& shape);
// The sum of the costs of parts.
double total(const std::vector<Part>& parts, const std::function<double(Part)>& cost);

}  // namespace heed::examples
