// What the parts of a Transformer layer cost by count, as Su ("Linear attention", 2021, article 002 of the seeds)
// counts them: the multiplications of matrix products, forward, for n positions, h heads of size d and a feed-forward
// part of size m. Activations, softmax and norms are not counted.
//
//   projections      4 n (h d)^2                 queries, keys, values and output
//   FFN              2 n h d m                   8 n (h d)^2 for m = 4 h d
//   no attention     projections + FFN
//   softmax          2 n^2 h d                   the scores, and the values times the weights
//   linear           2 n h d^2
//   linear, 4d       2 n h (4 d)^2               queries, keys and values of four times the size
//   strided          2 d a head and pair that the pattern has, O(n sqrt(n)); l = round(sqrt(n))
//   lsh              at most rounds * window keys a query, 2 d each, and the rotations: rounds * buckets / 2 * d for a
//                    query and for a key
//   linformer        4 n r h d                   r rows of keys and of values, made and attended to
//
// Causal, softmax has n (n + 1) / 2 pairs; linformer has no such form.
#pragma once
#include <functional>
#include <heed/core/dtype.hpp>
#include <optional>
#include <string>
#include <vector>

namespace heed::examples {

struct LayerShape {  // BERT-base
  Index heads = 12;
  Index head_size = 64;
  Index hidden = 3072;  // of the feed-forward part
  bool causal = false;
  Index linformer_rows = 256;  // r, or n if that is less
  Index lsh_rounds = 4, lsh_window = 32, lsh_buckets = 64;

  Index width() const { return heads * head_size; }
};

enum class Part { projections, feed_forward, no_attention, softmax, linear, linear_wide, strided, lsh, linformer };
std::string name_of(Part part);
std::vector<Part> parts_of(const LayerShape& shape);  // all, or those that can be causal
Index stride_for(Index n);                            // l of the strided pattern

double multiplications(Part part, Index n, const LayerShape& shape);

double median(std::vector<double> values);  // not empty

// The least n of 1 ... most from which on a(n) >= b(n); none if there is none.
std::optional<Index> counted_crossover(const std::function<double(Index)>& a, const std::function<double(Index)>& b,
                                       Index most = Index{1} << 20);

// The same of times a and b that were measured at `lengths` (ascending): between the two neighbours where a passes b
// for the last time, on straight lines in log n and log time.
struct MeasuredCrossover {
  enum Kind { never, from_the_first, between } kind = never;  // never: a is below b at the last length
  double n = 0;                                               // where it is between two lengths
};
MeasuredCrossover measured_crossover(const std::vector<Index>& lengths, const std::vector<double>& a,
                                     const std::vector<double>& b);
std::string describe(const MeasuredCrossover& crossover,
                     const std::vector<Index>& lengths);  // "1480", "none up to 512"

// The crossovers of the article, and those of the other mechanisms: the sum of some parts passes that of others.
struct Comparison {
  std::string name;
  std::vector<Part> a, b;
};
std::vector<Comparison> comparisons(const LayerShape& shape);
double total(const std::vector<Part>& parts, const std::function<double(Part)>& cost);

}  // namespace heed::examples
