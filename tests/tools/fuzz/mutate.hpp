// Mutations that pass the first checks of a parser: changes of JSON values instead of bytes, and valid checksums.
#pragma once
#include <cstddef>
#include <cstdint>

namespace heed::test::fuzz {

enum class Kind { npz, safetensors, tokenizer, gguf };

// Changes data[0, size) to an input of at most `max` bytes, and returns its size.
std::size_t mutated(Kind kind, std::uint8_t* data, std::size_t size, std::size_t max, unsigned seed);

}  // namespace heed::test::fuzz
