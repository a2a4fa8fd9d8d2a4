// A language model with its tokenizer: from the checkpoint that a training run left, and text from it.
//
//   const LanguageModel lm = load_language_model("lm.h5");
//   std::cout << generate_text(lm, {"Once"}, {.count = 100, .sampling = {.temperature = 0.8}, .stop = {"."}})[0];
//
// A run of your own leaves such a checkpoint where RunOptions::texts has language_model_texts(config, tokenizer).
#pragma once
#include <filesystem>
#include <functional>
#include <heed/data/checkpoint.hpp>
#include <heed/data/tokenizer.hpp>
#include <heed/layers/decoding.hpp>
#include <heed/layers/model_config.hpp>
#include <map>
#include <string>
#include <vector>

namespace heed {

// The tokenizer has the model's vocabulary, but that a masked model (options().causal is false: the network of a BERT)
// has one token more, the mask.
struct LanguageModel {
  GPT model;
  Tokenizer tokenizer;
};

// What a checkpoint says of a language model beside its values: the texts "config" and "tokenizer".
std::map<std::string, std::string> language_model_texts(const GPTConfig& config, const Tokenizer& tokenizer);

// Throws Error for a file that is no checkpoint of a language model, before it takes memory for what is not there. What
// else the file holds is left alone.
LanguageModel load_language_model(const std::filesystem::path& file);

// Throws Error unless the tensors of a checkpoint, and the vocabulary of its tokenizer, are as the model would have
// them.
void check_language_model(const GPTConfig& config, const Checkpoint& checkpoint, Index vocabulary);

// An empty prompt is a line feed; where the tokenizer has none, as one of a text without, a space, or else its first
// token. Throws Error for characters of another prompt that the tokenizer does not know.
std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt);

struct TextOptions {
  Index count = 100;  // tokens of a text at most
  SamplingOptions sampling = {};
  std::vector<std::string> stop = {};          // a text ends with the first of these that comes
  std::vector<std::int32_t> stop_tokens = {};  // the same of tokens, as some tokenizers have one for the end
  std::uint64_t seed = 1;                      // text i draws from Rng(seed, 2 + i)
  // Each piece as soon as it is whole characters: of each text first the prompt.
  std::function<void(Index text, const std::string& piece)> on_text = {};
};

// The prompts, of any lengths, each with what goes on from it. Before the first piece, throws Error for a masked model,
// and as prompt_tokens() and generate().
std::vector<std::string> generate_text(const LanguageModel& lm, const std::vector<std::string>& prompts,
                                       const TextOptions& options = {});

}  // namespace heed
