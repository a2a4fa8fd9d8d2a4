// Bytes as text of 64 characters (RFC 4648, section 4).
#pragma once
#include <string>
#include <string_view>

namespace heed::detail {

std::string to_base64(std::string_view bytes);
// Throws Error if the text has another length than a multiple of 4, or another character.
std::string from_base64(std::string_view text);

}  // namespace heed::detail
