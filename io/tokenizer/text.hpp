// Ranges of a text, and code points of valid UTF-8.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <heed/data/text.hpp>
#include <string>
#include <string_view>

namespace heed::detail::tokenizer {

// Bytes [begin, end) of a text.
struct Range {
  std::uint32_t begin = 0, end = 0;
};
inline std::string_view part(std::string_view text, Range r) { return text.substr(r.begin, r.end - r.begin); }
inline Range range(std::size_t begin, std::size_t end) {
  return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
}

inline unsigned byte_of(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

// The bytes of a code point that begins with this byte, in valid UTF-8.
inline std::size_t length_at(std::string_view text, std::size_t i) {
  const unsigned b = byte_of(text, i);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

// The first place of `wanted`, which is not empty, at or after `from`; npos if there is none. Takes time in proportion
// to both lengths: std::string_view::find may compare all of a long `wanted` at each byte.
inline std::size_t find_text(std::string_view text, std::string_view wanted, std::size_t from) {
  constexpr std::size_t kShort = 16;
  if (wanted.size() <= kShort || from > text.size()) return text.find(wanted, from);
  const void* found = ::memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  if (found == nullptr) return text.npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

// Returns the code point at `i` of valid UTF-8 and moves `i` to the next one.
inline char32_t next_code_point(std::string_view text, std::size_t& i) {
  const std::size_t n = length_at(text, i);
  char32_t c = byte_of(text, i);
  if (n > 1) c &= 0x7Fu >> n;
  for (std::size_t k = 1; k < n; ++k) c = c << 6 | (byte_of(text, i + k) & 0x3F);
  i += n;
  return c;
}

// The beginning of the code point before `i` (i > 0).
inline std::size_t previous(std::string_view text, std::size_t i) {
  do --i;
  while ((byte_of(text, i) & 0xC0) == 0x80);
  return i;
}

// Replaces each code point c of valid UTF-8 by what put(to, c) appends to the string `to`.
template <class Put>
void rewrite(std::string& text, std::string& scratch, const Put& put) {
  scratch.clear();
  for (std::size_t i = 0; i < text.size();) put(scratch, next_code_point(text, i));
  text.swap(scratch);
}

}  // namespace heed::detail::tokenizer
