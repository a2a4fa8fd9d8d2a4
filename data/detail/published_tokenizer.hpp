// Tokenizers of published models, which Tokenizer::from_json() recreates.
#pragma once
#include <heed/data/tokenizer.hpp>
#include <string_view>

namespace heed::detail {

// A tokenizer of the kind "tokenizer.json" from its state. Throws Error if the state is damaged. Defined in
// io/tokenizer_json.cpp, because data/ does not include io/. It is an ordinary function, so a program without it does
// not link.
Tokenizer published_tokenizer(std::string_view state);

}  // namespace heed::detail
