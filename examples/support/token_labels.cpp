// Makes tokens visible as labels.
#include "examples/support/token_labels.hpp"

#include <algorithm>
#include <heed/core/check.hpp>

namespace heed::examples {
namespace {

std::string shown_byte(unsigned char c) { return detail::formatted("<%02X>", c); }

bool continues(unsigned char c) { return (c & 0xC0) == 0x80; }

// The number of bytes of the character that begins at text[i]; 0 if none begins there.
std::size_t character(const std::string& text, std::size_t i) {
  const auto c = static_cast<unsigned char>(text[i]);
  const std::size_t length = c < 0x80                ? 1
                             : c >= 0xC2 && c < 0xE0 ? 2
                             : c >= 0xE0 && c < 0xF0 ? 3
                             : c >= 0xF0 && c < 0xF5 ? 4
                                                     : 0;
  if (length == 0 || i + length > text.size()) return 0;
  for (std::size_t j = 1; j < length; ++j)
    if (!continues(static_cast<unsigned char>(text[i + j]))) return 0;
  return length;
}

std::string visible(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t length = character(text, i);
    if (c == ' ')
      out += "␣";
    else if (c == '\n')
      out += "↵";
    else if (c == '\t')
      out += "⇥";
    else if (length == 0 || c < 0x20 || c == 0x7F)
      out += shown_byte(c);
    else
      out += text.substr(i, length);
    i += std::max<std::size_t>(1, length);
  }
  return out;
}

}  // namespace

std::vector<std::string> token_labels(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  // The text of a token is the part that it adds to the token before: some tokenizers drop a space at the beginning of
  // a text. Spaces between whole words belong to no token.
  const auto mask = static_cast<std::int32_t>(tokenizer.vocabulary_size());
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == mask) {
      labels.emplace_back("[MASK]");
      continue;
    }
    const bool first = i == 0 || ids[i - 1] == mask || tokenizer.kind() == "word";
    const std::string before = first ? "" : tokenizer.decode(ids.subspan(i - 1, 1)),
                      both = tokenizer.decode(ids.subspan(first ? i : i - 1, first ? 1 : 2));
    labels.push_back(visible(both.starts_with(before) ? both.substr(before.size()) : tokenizer.decode({ids[i]})));
  }
  return labels;
}

std::string padded(const std::string& text, std::size_t columns) {
  const auto characters = static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues(static_cast<unsigned char>(c)); }));
  return text + std::string(columns > characters ? columns - characters : 0, ' ');
}

}  // namespace heed::examples
