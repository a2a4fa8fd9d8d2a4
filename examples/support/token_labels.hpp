// Tokens as labels of axes and tables.
#pragma once
#include <heed/data/tokenizer.hpp>
#include <span>
#include <string>
#include <vector>

namespace heed::examples {

// The text of each token, to be seen: ␣ for a space, ↵ for a line feed, ⇥ for a tab, <0A> for another control character
// or a byte that is no character by itself. The token behind the vocabulary is a masked model's [MASK].
std::vector<std::string> token_labels(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

// With spaces behind it up to `columns` characters, however many bytes they have.
std::string padded(const std::string& text, std::size_t columns);

}  // namespace heed::examples
