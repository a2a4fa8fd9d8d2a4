// Bytes as text of 64 characters.
#include <cstdint>
#include <heed/core/check.hpp>
#include <heed/data/detail/base64.hpp>

namespace heed::detail {
namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k) group = group << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) text += k <= n ? kBase64[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::string from_base64(std::string_view text) {
  require(text.size() % 4 == 0, "tokenizer: the base64 text has ", text.size(),
          " characters; it must have a multiple of 4");
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::uint32_t group = 0;
    std::size_t n = 4;
    while (n > 2 && i + 4 == text.size() && text[i + n - 1] == '=') --n;
    for (std::size_t k = 0; k < 4; ++k) {
      const std::size_t value = k < n ? kBase64.find(text[i + k]) : 0;
      require(value != std::string_view::npos, "tokenizer: the base64 text is damaged at character ", i + k);
      group = group << 6 | static_cast<std::uint32_t>(value);
    }
    for (std::size_t k = 0; k + 1 < n; ++k) bytes += static_cast<char>(group >> (16 - 8 * k) & 255);
  }
  return bytes;
}

}  // namespace heed::detail
