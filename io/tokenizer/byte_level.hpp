// The characters by which byte-level tokenizers write bytes: GPT-2's table, in which a space is "Ġ" (U+0120).
#pragma once
#include <array>
#include <cstdint>
#include <heed/io/tokenizer/text.hpp>
#include <string>
#include <string_view>

namespace heed::detail::tokenizer {

namespace byte_level {

// Whether a byte is written as the code point of the same number: the printable characters of Latin-1.
constexpr bool is_plain(unsigned byte) {
  return ('!' <= byte && byte <= '~') || (0xA1 <= byte && byte <= 0xAC) || (0xAE <= byte && byte <= 0xFF);
}

// The code points of the bytes. The other bytes are written as U+0100, U+0101, ..., in order.
constexpr std::array<char16_t, 256> make_characters() {
  std::array<char16_t, 256> made = {};
  char16_t next = 256;
  for (unsigned b = 0; b < 256; ++b) made[b] = is_plain(b) ? static_cast<char16_t>(b) : next++;
  return made;
}
inline constexpr std::array<char16_t, 256> kCharacters = make_characters();

// The bytes of the code points; -1 for other code points.
constexpr std::array<std::int16_t, 324> make_bytes() {
  std::array<std::int16_t, 324> made = {};
  made.fill(-1);
  for (unsigned b = 0; b < 256; ++b) made[kCharacters[b]] = static_cast<std::int16_t>(b);
  return made;
}
inline constexpr std::array<std::int16_t, 324> kBytes = make_bytes();

// Appends the characters of bytes.
inline void append_characters(std::string& to, std::string_view bytes) {
  for (const char b : bytes) append_utf8(to, kCharacters[static_cast<unsigned char>(b)]);
}

// Appends the bytes of characters, and returns true; returns false, with `to` unchanged, if a character is not in the
// table.
inline bool append_bytes(std::string& to, std::string_view characters) {
  const std::size_t before = to.size();
  for (std::size_t i = 0; i < characters.size();) {
    const char32_t c = next_code_point(characters, i);
    if (c >= kBytes.size() || kBytes[c] < 0) return to.resize(before), false;
    to += static_cast<char>(kBytes[c]);
  }
  return true;
}

}  // namespace byte_level

}  // namespace heed::detail::tokenizer
