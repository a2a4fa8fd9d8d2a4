// A language model with its tokenizer, as train_lm leaves it in a checkpoint.
#pragma once
#include <filesystem>
#include <heed/data/checkpoint.hpp>
#include <heed/data/tokenizer.hpp>
#include <heed/layers/decoding.hpp>
#include <heed/layers/gpt.hpp>

namespace heed::examples {

struct LanguageModel {
  GPT model;
  Tokenizer tokenizer;
};

// Throws Error for a file that is no checkpoint of a language model, and for a masked one, which does not generate.
LanguageModel load_language_model(const std::filesystem::path& file);
// A masked one, too: its network, a GPT that is not causal, and whose last token is the mask.
LanguageModel load_any_language_model(const std::filesystem::path& file);

// An empty prompt is a line feed; where the tokenizer has none, as one of a text without, a space, or else its first
// token. Throws Error for characters of another prompt that the tokenizer does not know.
std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt);

// Writes a sample to stdout as it is made: the prompt, then `count` tokens.
void stream_sample(const GPT& model, const Tokenizer& tokenizer, const std::string& prompt, Index count,
                   const SamplingOptions& options, std::uint64_t seed);

}  // namespace heed::examples
