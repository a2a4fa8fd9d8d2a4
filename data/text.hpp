// Reads text from files and folders, and decodes, checks and cuts UTF-8.
//
// Example:
//
//   std::ofstream("a.txt") << "caf\u00e9\n";
//   const std::string text = read_text("a.txt");
//   std::cout << decode_utf8(text).size() << '\n';  // 5 code points
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <heed/core/check.hpp>  // printable(), excerpt()
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// The offset of the first byte that is not part of well-formed UTF-8 (Unicode 15, table 3-7: no overlong forms, no
// surrogates, nothing above U+10FFFF); nullopt if all bytes are valid.
std::optional<std::size_t> find_invalid_utf8(std::string_view bytes);

// The number of bytes at the end that begin a code point but do not finish it: 0 to 3. Earlier bytes are not checked.
std::size_t unfinished_utf8(std::string_view bytes);

// Replaces each invalid part by U+FFFD.
std::string repair_utf8(std::string_view bytes);

// Conversion from and to code points. decode_utf8 throws Error for invalid text, the others for an invalid code point.
std::vector<char32_t> decode_utf8(std::string_view text);
std::string encode_utf8(const std::vector<char32_t>& code_points);
void append_utf8(std::string& text, char32_t code_point);

// A character in the form that messages use: "'é' (U+00E9)", or "U+000A" if it is not printable.
std::string show_character(char32_t code_point);
std::string show_byte(char byte);  // "0xE9"

inline constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";  // ASCII only

// The words between white space.
std::vector<std::string_view> split_words(std::string_view text);

// The lines, without the line feed at the end of each and a carriage return before the line feed.
std::vector<std::string_view> split_lines(std::string_view text);
// Removes blank lines at the end.
void drop_blank_end(std::vector<std::string_view>& lines);

// Expands folders: a folder becomes all regular files below it, sorted by path, without hidden ones (names that begin
// with a dot). "-" (standard input) is kept. Throws Error if a path does not exist or cannot be read, or if a folder
// has no files.
std::vector<std::filesystem::path> text_files(const std::vector<std::filesystem::path>& files_and_folders);

// How the line ends of a file are read.
enum class LineEnds {
  lf,   // a carriage return and a line feed become a line feed; a lone carriage return is an error
  any,  // as lf, but a lone carriage return becomes a line feed
  keep  // unchanged
};

// How parts of a file that are not UTF-8 are handled.
enum class InvalidUtf8 {
  refuse,   // throws Error with file, offset, line and the likely encoding
  replace,  // each part becomes U+FFFD
  skip      // lines with such a part are left out
};

// Counts the changes that a reader made.
struct TextReport {
  std::size_t replaced = 0, skipped = 0;  // replaced parts; left-out lines, pairs or rows
  std::string first = {};                 // position of the first change: "line 3 of a.txt"
  // "2 lines were skipped, because they are not UTF-8 (the first: line 3 of a.txt)"; empty if nothing was changed.
  std::string text() const;
  // Adds 1 to `which`; keeps the first position.
  void count(std::size_t& which, const std::string& where) {
    if (which++ == 0 && first.empty()) first = where;
  }
};

// How text files are read.
struct ReadTextOptions {
  LineEnds line_ends = LineEnds::lf;          // how carriage returns are read
  InvalidUtf8 invalid = InvalidUtf8::refuse;  // how bytes that are not UTF-8 are read
  bool may_be_empty = false;     // an empty text is allowed; otherwise an error
  TextReport* report = nullptr;  // changes are added to it
};

// The text of all files in order. Every file except the last gets a line feed at its end if it has none. "-" is
// standard input. A UTF-8 byte order mark at the start of a file is dropped; U+FEFF elsewhere is kept. Only line feeds
// and, depending on the options, carriage returns end lines; U+0085, U+2028 and U+2029 do not. Throws Error, which
// names the file and the byte offset, if a file is not UTF-8. Throws Error for UTF-16, UTF-32 and compressed files
// whatever the options, and if there is no text.
std::string read_text(const std::vector<std::filesystem::path>& files_and_folders, const ReadTextOptions& o = {});
std::string read_text(const std::filesystem::path& file_or_folder, const ReadTextOptions& o = {});

// A part of a text that is read from files, and its position. The bytes equal those of the file from `offset` on,
// except in a piece that replaces a line end or invalid bytes. A line feed added between two files is such a piece, at
// the end of the first file.
struct TextPiece {
  std::string_view text;              // valid until the callback returns
  const std::filesystem::path& file;  // see shown_file()
  std::size_t offset;  // position of the first byte in the file
};

// Reads the same text in pieces of at most about piece_bytes, for texts that do not fit into memory. Each piece ends
// after a whole code point, and after a line feed if the line is short enough.
void read_text_pieces(const std::vector<std::filesystem::path>& files_and_folders,
                      const std::function<void(const TextPiece&)>& use, const ReadTextOptions& o = {},
                      std::size_t piece_bytes = std::size_t{1} << 20);

// The name of a file in messages: its path, or "standard input".
std::string shown_file(const std::filesystem::path& file);

// A position where a text may be cut so that the parts can be processed separately. The cut is after the first line
// feed that follows `min_size` bytes. If there is none within `max_size` bytes, the cut is before the last space
// there, or else between two characters (a code point with its marks). Returns 0 if the position depends on the text
// that follows. A function of the bytes alone, not of how they were read.
std::size_t cut_text(std::string_view text, std::size_t min_size, std::size_t max_size);

namespace detail {
// The number of bytes that encode a code point.
inline std::size_t utf8_size(char32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

std::string hex(std::uint64_t x, int digits = 16);  // with leading zeros: "00000000000000ff"

// Calls use(part) for each part that cut_text() cuts off the text. Returns the rest, which the next text may continue.
template <class Use>
std::string_view use_parts(std::string_view text, std::size_t min_size, std::size_t max_size, const Use& use) {
  while (const std::size_t n = cut_text(text, min_size, max_size)) {
    use(text.substr(0, n));
    text.remove_prefix(n);
  }
  return text;
}

// Appends a piece of a longer text to `rest`, calls use(part) for each part that cut_text() cuts off, and removes these
// parts from `rest`.
template <class Use>
void feed_parts(std::string& rest, std::string_view piece, std::size_t min_size, std::size_t max_size, const Use& use) {
  rest += piece;
  rest.erase(0, rest.size() - use_parts(rest, min_size, max_size, use).size());
}
}  // namespace detail

}  // namespace heed
