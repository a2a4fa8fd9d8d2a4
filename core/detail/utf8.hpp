// The code points of UTF-8 text. Internal; data/text.hpp has what programs use.
#pragma once
#include <cstddef>
#include <string_view>

namespace heed::detail {

// How many bytes from i on fit the form of the code point that begins there; `whole` tells if it is finished.
std::size_t fitting_utf8(std::string_view text, std::size_t i, bool& whole);

// The code point of the `length` bytes from i on, which must be complete.
char32_t code_point_at(std::string_view text, std::size_t i, std::size_t length);

}  // namespace heed::detail
