// UTF-8, and cutting texts into words, lines and parts.
#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/core/utf8.hpp>
#include <heed/data/detail/text_reader.hpp>
#include <heed/data/unicode.hpp>

namespace heed {
using detail::byte_at;

std::optional<std::size_t> find_invalid_utf8(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    if (byte_at(bytes, i) < 0x80) {
      ++i;
      continue;
    }
    bool whole;
    const std::size_t n = detail::fitting_utf8(bytes, i, whole);
    if (!whole) return i;
    i += n;
  }
  return std::nullopt;
}

std::size_t unfinished_utf8(std::string_view bytes) {
  for (std::size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const std::size_t i = bytes.size() - back;
    if ((byte_at(bytes, i) & 0xC0) == 0x80) continue;  // a continuation byte
    bool whole;
    return detail::fitting_utf8(bytes, i, whole) == back && !whole ? back : 0;
  }
  return 0;
}

std::size_t detail::invalid_utf8_size(std::string_view bytes) {
  bool whole;
  return std::max<std::size_t>(detail::fitting_utf8(bytes, 0, whole), 1);
}

std::string repair_utf8(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size();) {
    bool whole;
    const std::size_t n = detail::fitting_utf8(bytes, i, whole);
    if (whole)
      text += bytes.substr(i, n);
    else
      append_utf8(text, 0xFFFD);
    i += std::max<std::size_t>(n, 1);
  }
  return text;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t begin = text.find_first_not_of(kWhiteSpace); begin != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(kWhiteSpace, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kWhiteSpace, end);
  }
  return words;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    if (lines.back().ends_with('\r')) lines.back().remove_suffix(1);
    begin = end + 1;
  }
  return lines;
}

void drop_blank_end(std::vector<std::string_view>& lines) {
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
}

std::vector<char32_t> decode_utf8(std::string_view text) {
  std::vector<char32_t> code_points;
  code_points.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    bool whole;
    const std::size_t n = detail::fitting_utf8(text, i, whole);
    require(whole, "decode_utf8: the byte at offset ", i, " is not valid UTF-8");
    code_points.push_back(detail::code_point_at(text, i, n));
    i += n;
  }
  return code_points;
}

void append_utf8(std::string& text, char32_t c) {
  require(c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF), "encode_utf8: ", static_cast<unsigned long>(c),
          " is not a code point");
  const auto put = [&](char32_t b) { text += static_cast<char>(static_cast<unsigned char>(b)); };
  constexpr char32_t kFirst[] = {0, 0xC0, 0xE0, 0xF0};  // bits of the first byte, by the number of bytes after it
  std::size_t after = detail::utf8_size(c) - 1;
  put(kFirst[after] | c >> 6 * after);
  while (after-- > 0) put(0x80 | (c >> 6 * after & 0x3F));
}

std::string encode_utf8(const std::vector<char32_t>& code_points) {
  std::string text;
  text.reserve(code_points.size());
  for (char32_t c : code_points) append_utf8(text, c);
  return text;
}

std::string show_character(char32_t c) {
  const std::string number = detail::formatted("U+%04lX", static_cast<unsigned long>(c));
  if (c < 0x20 || (c >= 0x7F && c < 0xA0)) return number;
  std::string shown = "'";
  append_utf8(shown, c);
  return shown + "' (" + number + ")";
}

std::string detail::hex(std::uint64_t x, int digits) {
  return formatted("%0*llx", digits, static_cast<unsigned long long>(x));
}

std::string show_byte(char byte) { return detail::formatted("0x%02X", static_cast<unsigned>(byte) & 0xFFu); }

// Whether a code point begins at i that no normalization joins to the previous one.
static bool begins_unit(std::string_view text, std::size_t i) {
  if (byte_at(text, i) < 0x80) return true;
  bool whole;
  const std::size_t n = detail::fitting_utf8(text, i, whole);
  return whole && begins_normal_unit(detail::code_point_at(text, i, n));
}

std::size_t cut_text(std::string_view text, std::size_t min_size, std::size_t max_size) {
  const std::size_t line = text.substr(0, max_size).find('\n', min_size);
  if (line != std::string_view::npos) return line + 1;
  if (text.size() <= max_size) return 0;
  for (std::size_t i = max_size; i > std::max<std::size_t>(min_size, 1); --i)
    if (text[i] == ' ' && text[i - 1] != ' ') return i;
  std::size_t i = max_size;
  while (i > 1 && (byte_at(text, i) & 0xC0) == 0x80) --i;
  constexpr std::size_t kUnit = 256;  // max bytes of a character with its marks
  for (std::size_t k = i; k > std::max(min_size, i - std::min(i, kUnit)); --k)
    if (begins_unit(text, k)) return k;
  return i;
}

}  // namespace heed
