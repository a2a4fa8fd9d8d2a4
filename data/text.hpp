// Text from files and folders, and UTF-8.
//
// Example:
//
//   std::ofstream("a.txt") << "caf\u00e9\n";
//   const std::string text = read_text("a.txt");
//   std::cout << decode_utf8(text).size() << '\n';  // 5 code points
#pragma once
#include <filesystem>
#include <functional>
#include <heed/core/check.hpp>  // printable(), excerpt()
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// The offset of the first byte that is not part of well-formed UTF-8 (Unicode 15, table 3-7: no overlong forms, no
// surrogates, nothing above U+10FFFF); nothing if all is well.
std::optional<std::size_t> find_invalid_utf8(std::string_view bytes);

// Bytes at the end that begin a code point but do not finish it: 0 to 3. The text before them may still be invalid.
std::size_t unfinished_utf8(std::string_view bytes);

// Each part that is not UTF-8 becomes U+FFFD.
std::string repair_utf8(std::string_view bytes);

// Code points. decode_utf8 throws Error for invalid text; encode_utf8 for what is no code point.
std::vector<char32_t> decode_utf8(std::string_view text);
std::string encode_utf8(const std::vector<char32_t>& code_points);
void append_utf8(std::string& text, char32_t code_point);

// A character as messages show it: «'é' (U+00E9)», or «U+000A» for what does not print.
std::string show_character(char32_t code_point);

inline constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";  // of ASCII

// What is between white space.
std::vector<std::string_view> split_words(std::string_view text);

// Its lines, without the line feeds that end them and carriage returns before those.
std::vector<std::string_view> split_lines(std::string_view text);
// Lines without blank ones at the end.
void drop_blank_end(std::vector<std::string_view>& lines);

// The files that are meant by files and folders: a folder stands for all regular files below it, sorted by path,
// without hidden ones (a name that begins with a dot). "-", which is standard input, is kept. Throws Error for a path
// that does not exist or cannot be read, and for a folder without files.
std::vector<std::filesystem::path> text_files(const std::vector<std::filesystem::path>& files_and_folders);

// How the line ends of a file are read.
enum class LineEnds {
  lf,   // a carriage return and a line feed become a line feed; a carriage return alone is an Error
  any,  // and a carriage return alone becomes a line feed
  keep  // as they are
};

// What becomes of parts of a file that are not UTF-8.
enum class InvalidUtf8 {
  refuse,   // Error: file, offset, line, and what the file seems to be
  replace,  // each becomes U+FFFD
  skip      // lines that have one are left out
};

// What a reader changed.
struct TextReport {
  std::size_t replaced = 0, skipped = 0;  // parts that are not UTF-8; lines, or pairs and rows, that have one
  std::string first = {};                 // where the first one is: "line 3 of a.txt"
  // "2 lines were left out, as they are not UTF-8 (the first: line 3 of a.txt)"; empty if nothing was changed.
  std::string text() const;
  void count(std::size_t& which, const std::string& where) {
    if (which++ == 0 && first.empty()) first = where;
  }
};

struct ReadTextOptions {
  LineEnds line_ends = LineEnds::lf;
  InvalidUtf8 invalid = InvalidUtf8::refuse;
  bool may_be_empty = false;     // an empty text is no Error
  TextReport* report = nullptr;  // is added to
};

// The text of all these files in order, each but the last ended by a line feed if it has none; "-" is standard input.
// A UTF-8 byte order mark at the start of a file is dropped; U+FEFF elsewhere is kept. Only line feeds and, by the
// options, carriage returns end lines: U+0085, U+2028 and U+2029 do not. Throws Error naming the file, and the byte
// offset where it is not UTF-8; for UTF-16, UTF-32 and compressed files, whatever the options; and if there is no text.
std::string read_text(const std::vector<std::filesystem::path>& files_and_folders, const ReadTextOptions& o = {});
std::string read_text(const std::filesystem::path& file_or_folder, const ReadTextOptions& o = {});

// A part of a text that is read from files, and where it begins: its bytes are those of the file from there on, but
// that a line end or U+FFFD may stand for others as a piece of its own. A line feed that is not in a file, between one
// and the next, is such a piece at the end of the first.
struct TextPiece {
  std::string_view text;
  const std::filesystem::path& file;
  std::size_t offset;  // of its first byte in the file
};

// The same text in pieces of at most about piece_bytes, for what does not fit into memory: each ends with a whole code
// point, and with a line feed where a line is short enough.
void read_text_pieces(const std::vector<std::filesystem::path>& files_and_folders,
                      const std::function<void(const TextPiece&)>& use, const ReadTextOptions& o = {},
                      std::size_t piece_bytes = std::size_t{1} << 20);

// A file as messages name it: its path, or "standard input".
std::string shown_file(const std::filesystem::path& file);

// Where a text may be cut so that the parts can be used on their own: after the first line feed behind `least` bytes;
// if there is none within `most` bytes, before the last space there, or else between two characters (code points, and
// marks that belong to them). 0: that depends on what follows the text. A function of the bytes alone, however they
// were read.
std::size_t cut_text(std::string_view text, std::size_t least, std::size_t most);

}  // namespace heed
