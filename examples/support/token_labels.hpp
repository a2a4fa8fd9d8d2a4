// Labels of tokens for axes and tables.
#pragma once
#include <heed/data/tokenizer.hpp>
#include <span>
#include <string>
#include <vector>

namespace heed::examples {

// The text of each token, made visible: ␣ for a space, ↵ for a line feed, ⇥ for a tab, <0A> for another control
// character or a byte that is not a whole character. The token after the vocabulary is [MASK], of a masked model.
std::vector<std::string> token_labels(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

// Appends spaces up to `columns` characters, which may have several bytes each.
std::string padded(const std::string& text, std::size_t columns);

}  // namespace heed::examples
