// Text for people with tokens that a masked language model fills in.
#pragma once
#include <heed/data/batches.hpp>
#include <heed/data/tokenizer.hpp>
#include <heed/layers/gpt.hpp>
#include <string>

namespace heed::examples {

// The tokens of a text in which each [MASK] is one hidden token. Throws Error if there is no [MASK], if the text has
// more than `context` tokens, or if the tokenizer does not know a character.
Tokens masked_tokens(const Tokenizer& tokenizer, const std::string& text, std::int32_t mask, Index context);

// The tokens as text, with hidden tokens replaced by those of `predicted`: [x] if x is right or `truth` is empty, {x|y}
// if the truth is y. With `colours`, right tokens are green and wrong ones red.
std::string filled_in(const Tokenizer& tokenizer, const Tokens& tokens, const Tokens& predicted, const Tokens& truth,
                      std::int32_t mask, bool colours);
// The same with the model's most likely tokens. The mask is the last token that the model knows.
std::string filled_in(const BERT& model, const Tokenizer& tokenizer, const Tokens& tokens, const Tokens& truth,
                      std::int32_t mask, bool colours);

// Prints to stdout the prompt filled in. Without a prompt, prints `count` tokens of held-out text with hidden places,
// then the same filled in.
void print_filled_in(const BERT& model, const Tokenizer& tokenizer, const EvaluationSet& texts, MaskOptions masks,
                     const std::string& prompt, Index count, std::uint64_t seed);

}  // namespace heed::examples
