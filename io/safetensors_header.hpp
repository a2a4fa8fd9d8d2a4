// Parses and builds the headers of safetensors files, and parses the index of a model in several files. Works on bytes
// in memory only, so that tests and fuzzers can call it. Internal.
#pragma once
#include <cstddef>
#include <cstdint>
#include <heed/io/stored_tensor.hpp>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail {

// A safetensors file has three parts (https://github.com/huggingface/safetensors, "Format"): the length of the header
// (8 bytes, little-endian), the header (JSON), and the values of all tensors.
inline constexpr std::size_t kSafetensorsLength = 8;             // bytes of the first part
inline constexpr std::size_t kSafetensorsMaxHeader = 100000000;  // bytes; the limit of the safetensors package
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

// The tensors of a file by name, as views of its bytes, and its metadata.
struct SafetensorsContent {
  std::map<std::string, StoredTensor, std::less<>> tensors = {};
  std::map<std::string, std::string> metadata = {};
};

// Parses a whole file. `file` is its name in messages. Throws Error unless
// - the header has at most kSafetensorsMaxHeader bytes, ends within the file and begins with {
// - the header is JSON without duplicate keys, whose fields are those of the format
// - each tensor has a type that load() converts, at most 8 axes, and the bytes of its type and shape
// - the tensors cover the rest of the file in the order of their offsets, without gaps and overlaps.
// Allocates at most a few times the bytes of the header.
SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& file);

// Parses an index: returns the name of the file of each tensor. `index` is the name of the index in messages. Throws
// Error unless it is JSON with a "weight_map" without duplicate keys, and each file in it is the name of a .safetensors
// file in the same folder. "metadata" is not used.
std::map<std::string, std::string, std::less<>> parse_safetensors_index(std::string_view json,
                                                                        const std::string& index);

// A tensor that is to be written: bytes [begin, end) of the values.
struct SafetensorsEntry {
  std::string name = {};
  StoredType type = StoredType::f32;
  Shape shape = {};
  std::size_t begin = 0, end = 0;
};

// The first two parts of a file: the length, and the header with the entries in this order, padded with spaces to a
// multiple of 8 bytes. Names and metadata must be UTF-8.
std::string safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const std::map<std::string, std::string>& metadata);

}  // namespace heed::detail
