// Text generation with a language model: a GPT with its tokenizer, loaded from the checkpoint of a training run.
//
// For checkpoints of your own runs, set CheckpointOptions::texts to language_model_texts(config, tokenizer). Then
// load_language_model("lm.h5") reads them.
//
// Example:
//
//   Rng rng(1);
//   const Tokenizer tokenizer = CharTokenizer("the cat sat on the mat");
//   const GPTOptions options{.vocabulary = tokenizer.vocabulary_size(),
//                            .blocks = {.layers = 1, .attention = {.width = 16, .heads = 2}}};
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

// Continues `prompt` (not empty) by up to `count` tokens. on_token is called with each token; generation stops early if
// on_token returns false. When the text exceeds the model's context, the model reads the last half context again and
// continues. Throws Error for an empty prompt and for sampling options out of range.
Tokens generate(const GPT& model, std::span<const std::int32_t> prompt, Index count, const SamplingOptions& options,
                Rng& rng, const std::function<bool(std::int32_t)>& on_token = {});

// The same for several prompts of any lengths above 0. Rows are independent: each equals the result of the function
// above with the row's generator, if the rounding of the model's ops does not depend on the batch.
std::vector<Tokens> generate(const GPT& model, std::span<const Tokens> prompts, const GenerateOptions& options = {});

// A model and its tokenizer, with the same vocabulary. A masked model (options().causal is false, as in a BERT) has one
// more token, the mask.
struct LanguageModel {
  GPT model;            // causal or masked
  Tokenizer tokenizer;  // its vocabulary excludes the mask
};

// The texts "config" and "tokenizer" that describe a language model in a checkpoint. Throws Error if the config names
// an attention that is not in the list of names, because load_language_model() could not build the model. If your
// program defines the mechanism, it builds the model itself and loads the weights with load_model().
std::map<std::string, std::string> language_model_texts(const GPTConfig& config, const Tokenizer& tokenizer);

// Throws Error if the file is not a checkpoint of a language model; sizes are checked before memory is allocated. Other
// contents of the file are ignored. With bfloat16, weights need half the memory and a token about half the time, and
// texts may differ slightly: see to() in layers/model.hpp.
LanguageModel load_language_model(const std::filesystem::path& file, DType dtype = DType::float32);
// The same for a loaded checkpoint.
LanguageModel language_model_of(const Checkpoint& checkpoint, DType dtype = DType::float32);

// Throws Error if a checkpoint has only the trained part of a model, such as an adapter (store_trainable()).
void check_whole_model(const Checkpoint& checkpoint);

// Throws Error unless the tensors of a checkpoint, and the vocabulary of its tokenizer, fit the configuration.
void check_language_model(const GPTConfig& config, const Checkpoint& checkpoint, Index vocabulary);

// The tokens of a prompt. An empty prompt becomes a line feed; if the tokenizer cannot encode that, a space; otherwise
// its first token. Throws Error for characters that the tokenizer cannot encode.
Tokens prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt);

// Options of generate_text().
struct TextOptions {
  Index count = 100;              // maximum number of tokens per text
  SamplingOptions sampling = {};  // how tokens are chosen
  // A text ends with the first occurrence of one of these, which are converted to the tokenizer's Unicode form.
  std::vector<std::string> stop = {};
  Tokens stop_tokens = {};  // a text ends with the first of these tokens, such as an end token
  std::uint64_t seed = 1;   // text i draws from Rng(seed, 2 + i)
  // Called with each piece of whole characters; the first piece of each text is its prompt.
  std::function<void(Index text, const std::string& piece)> on_text = {};
};

// Continues prompts of any lengths. Each result begins with its prompt. Before the first piece, throws Error for a
// masked model, and as prompt_tokens() and generate().
std::vector<std::string> generate_text(const LanguageModel& lm, const std::vector<std::string>& prompts,
                                       const TextOptions& options = {});

}  // namespace heed
