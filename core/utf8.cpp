// Reads UTF-8, and escapes any bytes for messages.
#include <algorithm>
#include <cstdio>
#include <heed/core/check.hpp>
#include <heed/core/utf8.hpp>

namespace heed {
namespace {

using detail::byte_at;

// The form of a code point with a given first byte: its number of bytes, and the range of the second byte. Unicode 15,
// table 3-7.
struct Form {
  std::size_t length = 0;  // 0: no code point begins with this byte
  unsigned low = 0x80, high = 0xBF;
};

Form form_of(unsigned first) {
  if (first < 0x80) return {1};
  if (first < 0xC2) return {};
  if (first < 0xE0) return {2};
  if (first < 0xF0) return {3, first == 0xE0 ? 0xA0u : 0x80u, first == 0xED ? 0x9Fu : 0xBFu};
  if (first < 0xF5) return {4, first == 0xF0 ? 0x90u : 0x80u, first == 0xF4 ? 0x8Fu : 0xBFu};
  return {};
}

}  // namespace

namespace detail {

std::size_t fitting_utf8(std::string_view s, std::size_t i, bool& whole) {
  const Form form = form_of(byte_at(s, i));
  whole = form.length == 1;
  if (form.length <= 1) return form.length;
  std::size_t n = 1;
  for (; n < form.length && i + n < s.size(); ++n) {
    const unsigned b = byte_at(s, i + n);
    if (n == 1 ? b < form.low || b > form.high : (b & 0xC0) != 0x80) break;
  }
  whole = n == form.length;
  return n;
}

char32_t code_point_at(std::string_view s, std::size_t i, std::size_t length) {
  if (length == 1) return byte_at(s, i);
  char32_t c = byte_at(s, i) & (0x7Fu >> length);
  for (std::size_t n = 1; n < length; ++n) c = c << 6 | (byte_at(s, i + n) & 0x3Fu);
  return c;
}

}  // namespace detail

std::string printable(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size();) {
    bool whole;
    const std::size_t n = std::max<std::size_t>(detail::fitting_utf8(bytes, i, whole), 1);
    const char32_t c = whole ? detail::code_point_at(bytes, i, n) : 0;
    if (whole && c >= 0x20 && (c < 0x7F || c >= 0xA0)) {
      text += bytes.substr(i, n);
    } else if (c == '\n' || c == '\t') {
      text += c == '\n' ? "\\n" : "\\t";
    } else {
      for (std::size_t k = i; k < i + n; ++k) {
        char hex[8];
        std::snprintf(hex, sizeof hex, "\\x%02X", byte_at(bytes, k));
        text += hex;
      }
    }
    i += n;
  }
  return text;
}

std::string excerpt(std::string_view bytes, std::size_t max_characters) {
  std::size_t i = 0, characters = 0;
  for (; i < bytes.size() && characters < max_characters; ++characters) {
    bool whole;
    i += std::max<std::size_t>(detail::fitting_utf8(bytes, i, whole), 1);
  }
  return printable(bytes.substr(0, i)) + (i < bytes.size() ? "..." : "");
}

}  // namespace heed
