// Reading of text files, for the readers of tables and of pairs of texts.
#pragma once
#include <heed/data/text.hpp>

namespace heed::detail {

// As read_text(), but with InvalidUtf8::skip invalid bytes are kept, so that the caller can leave out whole rows.
std::string read_rows(const std::filesystem::path& file, const ReadTextOptions& o);

// The number of bytes at the beginning of `bytes`, which starts with invalid UTF-8, that one U+FFFD replaces.
std::size_t invalid_utf8_size(std::string_view bytes);

// The format of a file that begins with these bytes, if the file is not UTF-8 text and no option reads it: its name,
// and the program that converts it. Empty if the file may be text.
struct ForeignFormat {
  std::string_view name = {}, cure = {};
};
ForeignFormat foreign_format(std::string_view begin);

}  // namespace heed::detail
