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

// Any bytes as a terminal may show them: control characters and what is not UTF-8 as \n, \t, \x1B.
std::string printable(std::string_view bytes);

// The files that are meant by files and folders: a folder stands for all regular files below it, sorted by path,
// without hidden ones (a name that begins with a dot). Throws Error for a path that does not exist or cannot be read,
// and for a folder without files.
std::vector<std::filesystem::path> text_files(const std::vector<std::filesystem::path>& files_and_folders);

// The text of all these files in order, each but the last ended by a line feed if it has none. A UTF-8 byte order mark
// at the start of a file is dropped. Throws Error naming the file, and the byte offset where it is not UTF-8; and if
// there is no text at all.
std::string read_text(const std::vector<std::filesystem::path>& files_and_folders);
std::string read_text(const std::filesystem::path& file_or_folder);

// A part of a text that is read from files, and where it begins. A line feed that is not in a file, between one and the
// next, is a piece of its own at the end of the first.
struct TextPiece {
  std::string_view text;
  const std::filesystem::path& file;
  std::size_t offset;  // of its first byte in the file
};

// The same text in pieces of about piece_bytes, for what does not fit into memory: each ends with a line feed, or at
// least with a whole code point, or with the text.
void read_text_pieces(const std::vector<std::filesystem::path>& files_and_folders,
                      const std::function<void(const TextPiece&)>& use, std::size_t piece_bytes = std::size_t{1} << 20);

// Where a text may be cut so that the parts can be used on their own: after the first line feed behind `least` bytes;
// if there is none within `most` bytes, before the last space there, or else between two code points. 0: that depends
// on what follows the text. A function of the bytes alone, however they were read.
std::size_t cut_text(std::string_view text, std::size_t least, std::size_t most);

}  // namespace heed
