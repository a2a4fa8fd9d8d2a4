// The types in which programs load the weights of a published model.
#pragma once
#include <heed/io/pretrained.hpp>
#include <string>

#include "examples/support/command_line.hpp"

namespace heed::examples {

// f32, bf16, q8_0, or stored: quantized weights as in the file, others as float32. weights_named() are the options for
// the word.
Takes weights_type();
LoadPretrainedOptions weights_named(const std::string& given);

// Prints to stderr what became of the weights, if some are quantized: how many are as stored and how many were rounded,
// with the error.
void print_quantized(const QuantizedWeights& weights);

}  // namespace heed::examples
