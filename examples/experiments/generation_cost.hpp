// What generating costs: a whole sequence token by token, and one token at a far position. The weights are random, as
// time does not depend on them.
#pragma once
#include <cstdint>
#include <heed/core/dtype.hpp>
#include <string>
#include <vector>

namespace heed::examples {

// The model of Katharopoulos et al. (2020, section 4.2) for MNIST, a pixel a position, here with 256 values of a pixel.
struct GenerationShape {
  Index layers = 8, heads = 8, width = 256, vocabulary = 256;
  Index positions = 784, batch = 1;
  std::uint64_t seed = 1;
};

enum class Generating { softmax_anew, softmax_cached, linear };
std::string name_of(Generating way);
double gpu_ratio(Generating way);  // the paper's sequences a second on a GPU, those of softmax_anew = 1

// Seconds to generate all positions of the batch; softmax_anew reads all earlier positions again for each.
double generate_seconds(Generating way, const GenerationShape& shape);

struct TokenCost {
  std::vector<double> milliseconds;  // of one token more, each
  double state_mebibytes = 0;        // of all layers
};
// After `position` positions that a state has seen: random keys and values, as only time and memory count. Batch 1.
TokenCost token_cost(Generating way, Index position, int repeats, const GenerationShape& shape);

}  // namespace heed::examples
