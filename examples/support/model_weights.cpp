// The types in which programs load the weights of a published model.
#include "examples/support/model_weights.hpp"

#include <cstdio>

namespace heed::examples {

Takes weights_type() { return one_of({"f32", "bf16", "q8_0", "stored"}); }

LoadPretrainedOptions weights_named(const std::string& given) {
  LoadPretrainedOptions options;
  options.dtype = given == "bf16" ? DType::bfloat16 : given == "q8_0" ? DType::q8_0 : DType::float32;
  options.as_stored = given == "stored";
  return options;
}

void print_quantized(const QuantizedWeights& weights) {
  const auto millions = [](Index n) { return static_cast<double>(n) / 1e6; };
  if (weights.stored > 0)
    std::fprintf(stderr, "%.1fM weights are quantized as in the file\n", millions(weights.stored));
  if (weights.rounded > 0)
    std::fprintf(stderr, "%.1fM weights were rounded to q8_0, with a relative error of %.2g\n",
                 millions(weights.rounded), weights.error);
}

}  // namespace heed::examples
