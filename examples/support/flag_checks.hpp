// What flags accept, as validators of CLI11. Their answers say what is and what must be; the list of flags shows the
// type_name alone.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <heed/layers/decoding.hpp>
#include <limits>
#include <string>
#include <vector>

namespace heed::examples {

// A whole number from `least` to `most`.
CLI::Validator whole(std::int64_t least, std::int64_t most = std::int64_t{1} << 40);
// A finite number from `least` to `most`.
CLI::Validator number(double least, double most = std::numeric_limits<double>::max());
// One of a list of words.
CLI::Validator one_of(std::vector<std::string> words);

// "a|b|c": the type_name of such a flag.
std::string choice(const std::vector<std::string>& words);

// --temperature, --top-k and --top-p.
void add_sampling_flags(CLI::App& app, SamplingOptions& sampling);

}  // namespace heed::examples
