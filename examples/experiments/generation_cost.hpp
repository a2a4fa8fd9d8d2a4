// Measures generation: a whole sequence token by token, and one token at a late position. Weights are random, because
// time does not depend on them.
#pragma once
#include <cstdint>
#include <heed/core/dtype.hpp>
#include <string>
#include <vector>

namespace heed::examples {

// The model of Katharopoulos et al. (2020, section 4.2) for MNIST: one position per pixel, here with 256 values per
// pixel.
struct GenerationShape {
  Index layers = 8, heads = 8, width = 256, vocabulary = 256;
  Index positions = 784, batch = 1;
  std::uint64_t seed = 1;
};

// Softmax attention that reads all earlier positions again, softmax attention with a cache, or linear attention.
enum class Generating { softmax_uncached, softmax_cached, linear };
std::string name_of(Generating way);  // for tables
double gpu_ratio(Generating way);     // sequences per second on a GPU in the paper, relative to softmax_uncached

// Seconds to generate all positions of the batch. softmax_uncached reads all earlier positions again for each position.
double generate_seconds(Generating way, const GenerationShape& shape);

// The cost of one more token.
struct TokenCost {
  std::vector<double> milliseconds;  // per repetition
  double state_mebibytes = 0;        // size of the states of all layers
};
// Measures one more token after `position` positions, batch 1. The states have random keys and values, because only
// time and memory are measured.
TokenCost token_cost(Generating way, Index position, int repeats, const GenerationShape& shape);

}  // namespace heed::examples
