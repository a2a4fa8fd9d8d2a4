// Reads code points of UTF-8 text. Internal; programs use data/text.hpp.
#pragma once
#include <cstddef>
#include <string_view>

namespace heed::detail {

inline unsigned byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

// The number of bytes from i on that match the encoding of one code point; 0 if none begins there. Sets `whole` to
// whether the code point is complete.
std::size_t fitting_utf8(std::string_view text, std::size_t i, bool& whole);

// The code point encoded by `length` bytes from i on. It must be complete.
char32_t code_point_at(std::string_view text, std::size_t i, std::size_t length);

}  // namespace heed::detail
