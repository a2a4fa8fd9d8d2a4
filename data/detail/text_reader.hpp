// What the readers of tables and of pairs of texts need of text files.
#pragma once
#include <heed/data/text.hpp>

namespace heed::detail {

// As read_text(), for readers that leave out whole rows: with InvalidUtf8::skip the text holds what is not UTF-8.
std::string read_rows(const std::filesystem::path& file, const ReadTextOptions& o);

// Bytes at the beginning of `bytes`, which is not UTF-8 from there on, that one U+FFFD stands for.
std::size_t invalid_utf8_size(std::string_view bytes);

// What a file is that begins with these bytes, where it is no UTF-8 text and no option reads it: what it is, and what
// converts it. Empty: it may be text.
struct ForeignFormat {
  std::string_view name = {}, cure = {};
};
ForeignFormat foreign_format(std::string_view begin);

}  // namespace heed::detail
