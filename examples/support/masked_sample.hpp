// What a masked language model fills in, for people to read.
#pragma once
#include <heed/data/batches.hpp>
#include <heed/data/tokenizer.hpp>
#include <heed/layers/gpt.hpp>
#include <string>

namespace heed::examples {

// The tokens of a text in which each [MASK] stands for one hidden token. Throws Error for a text without any, of more
// tokens than `context`, and with characters that the tokenizer does not know.
Tokens masked_tokens(const Tokenizer& tokenizer, const std::string& text, std::int32_t mask, Index context);

// The tokens as text, hidden ones filled in by the model's likeliest token: [x] where there is no `truth` or x is
// right, {x|y} where it says x and the truth is y. Colours, if asked for: right green, wrong red.
std::string filled_in(const BERT& model, const Tokenizer& tokenizer, const Tokens& tokens, const Tokens& truth,
                      std::int32_t mask, bool colours);

// Writes to stdout the prompt filled in; without one, `count` tokens of held-out text with hidden places, then filled
// in.
void print_filled_in(const BERT& model, const Tokenizer& tokenizer, const EvaluationSet& texts, MaskOptions masks,
                     const std::string& prompt, Index count, std::uint64_t seed);

}  // namespace heed::examples
