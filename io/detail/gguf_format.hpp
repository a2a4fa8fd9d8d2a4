// What reader and writer of GGUF files share: limits, numbers of types, alignment. And the parser of a file in memory.
// Internal.
#pragma once
#include <cstddef>
#include <cstdint>
#include <heed/io/gguf.hpp>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace heed::detail {

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr std::uint32_t kGgufVersion = 3;
inline constexpr const char* kGgufAlignmentKey = "general.alignment";
inline constexpr std::size_t kMaxGgufName = 63;  // bytes: ggml stores names with a zero byte in 64
inline constexpr std::size_t kMaxGgufKey = 65535;
inline constexpr int kMaxGgufRank = 4;

// A type of tensors in GGUF.
struct GgufType {
  std::uint32_t number;
  std::string_view name;
};
// The type with this number; null if ggml has none.
const GgufType* gguf_type(std::uint32_t number);
// The number of a type; nullopt for the types that GGUF lacks.
std::optional<std::uint32_t> gguf_number(StoredType type);

// The alignment of tensors by the metadata. Throws Error, which begins with `who`, if it is invalid.
std::size_t gguf_alignment(const GgufMetadata& metadata, const std::string& who);
// The next multiple of the alignment, which is a power of two.
inline std::size_t padded(std::size_t size, std::size_t alignment) { return (size + alignment - 1) & ~(alignment - 1); }

// Throw Error, which begins with `who`, unless GGUF allows the name of a tensor and the key.
void check_gguf_name(std::string_view name, const std::string& who);
void check_gguf_key(std::string_view key, const std::string& who);

// The contents of a file. Tensors are views of the bytes that were parsed.
struct GgufContents {
  GgufMetadata metadata = {};
  std::map<std::string, StoredTensor, std::less<>> tensors = {};
};
// Parses a whole file. Checks everything before it returns, and allocates at most a small multiple of the file's size.
// Throws Error, which begins with `who`: "GGUF file: NAME".
GgufContents parse_gguf(std::span<const std::byte> bytes, const std::string& who);

}  // namespace heed::detail
