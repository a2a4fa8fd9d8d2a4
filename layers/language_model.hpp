// A language model that writes: tokens drawn one after the other, and a model with its tokenizer from the checkpoint
// that a training run left.
//
// A run of your own leaves such a checkpoint where RunOptions::texts has language_model_texts(config, tokenizer); then
// load_language_model("lm.h5") reads it.
//
// Example:
//
//   Rng rng(1);
//   const Tokenizer tokenizer = CharTokenizer("the cat sat on the mat");
//   const GPTOptions options{.vocabulary = tokenizer.vocabulary_size(), .layers = 1, .heads = 2, .width = 16};
//   const LanguageModel lm{GPT(options, rng), tokenizer};
//   const TextOptions text{.count = 20, .sampling = {.temperature = 0.8}, .stop = {"mat"}};
//   std::cout << generate_text(lm, {"the", "a cat"}, text)[0];
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <heed/core/random.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/data/tokenizer.hpp>
#include <heed/layers/decoding.hpp>
#include <heed/layers/gpt.hpp>
#include <heed/layers/model_config.hpp>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace heed {

// Continues `prompt` (not empty) by `count` tokens, each given to on_token as it comes; stops early where that returns
// false. Beyond the model's context, it goes on from the last half context, read anew.
Tokens generate(const GPT& model, std::span<const std::int32_t> prompt, Index count, const SamplingOptions& options,
                Rng& rng, const std::function<bool(std::int32_t)>& on_token = {});

// The same for prompts of any lengths (none empty) at once. Rows know nothing of each other: each is what the above
// gives with its generator, where the rounding of the model's ops does not depend on the batch.
std::vector<Tokens> generate(const GPT& model, std::span<const Tokens> prompts, const GenerateOptions& options = {});

// The tokenizer has the model's vocabulary, but that a masked model (options().causal is false: the network of a BERT)
// has one token more, the mask.
struct LanguageModel {
  GPT model;
  Tokenizer tokenizer;
};

// What a checkpoint says of a language model beside its values: the texts "config" and "tokenizer". Error for a config
// whose attention has no name that is listed, as load_language_model() could not build it: the weights of a model with
// a mechanism of your own come back by load_model(), into one that your program makes.
std::map<std::string, std::string> language_model_texts(const GPTConfig& config, const Tokenizer& tokenizer);

// Throws Error for a file that is no checkpoint of a language model, before it takes memory for what is not there. What
// else the file holds is left alone. Of bfloat16, weights take half the memory and a token about half the time, for
// texts that differ a little: see to() in layers/model.hpp.
LanguageModel load_language_model(const std::filesystem::path& file, DType dtype = DType::float32);

// Throws Error unless the tensors of a checkpoint, and the vocabulary of its tokenizer, are as the model would have
// them.
void check_language_model(const GPTConfig& config, const Checkpoint& checkpoint, Index vocabulary);

// An empty prompt is a line feed; where the tokenizer has none, as one of a text without, a space, or else its first
// token. Throws Error for characters of another prompt that the tokenizer does not know.
Tokens prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt);

struct TextOptions {
  Index count = 100;  // tokens of a text at most
  SamplingOptions sampling = {};
  // A text ends with the first of these that comes; they are brought into the tokenizer's Unicode form.
  std::vector<std::string> stop = {};
  Tokens stop_tokens = {};                     // the same of tokens, as some tokenizers have one for the end
  std::uint64_t seed = 1;                      // text i draws from Rng(seed, 2 + i)
  // Each piece as soon as it is whole characters: of each text first the prompt.
  std::function<void(Index text, const std::string& piece)> on_text = {};
};

// The prompts, of any lengths, each with what goes on from it. Before the first piece, throws Error for a masked model,
// and as prompt_tokens() and generate().
std::vector<std::string> generate_text(const LanguageModel& lm, const std::vector<std::string>& prompts,
                                       const TextOptions& options = {});

}  // namespace heed
