// Published models: language models and encoders, with their tokenizers, from files of other programs, and back.
//
// Families: GPT-2, Llama (and SmolLM2), Mistral, Qwen2, Qwen3, Gemma 3 (text), BERT (and MiniLM). Files: a folder with
// config.json, safetensors and tokenizer.json, as Hugging Face's transformers saves it; a GGUF file, as llama.cpp uses
// it; heed's own checkpoints. docs/pretrained.md says what is refused.
//
// Example:
//
//   Rng rng(1);
//   const GPTConfig config{
//       .options = {.vocabulary = 256, .context = 64, .blocks = {.layers = 1, .attention = {.width = 32}}}};
//   GPT trained(config.options, rng, config.factory());
//   Checkpoint checkpoint;
//   checkpoint.texts = language_model_texts(config, ByteTokenizer());
//   store_model(checkpoint, trained);
//   save_checkpoint("lm.h5", checkpoint);
//   const Pretrained p = load_pretrained("lm.h5");
//   std::cout << generate_text(p.lm, {"ab"}, {.count = 4})[0] << '\n';
#pragma once
#include <cstdint>
#include <filesystem>
#include <heed/io/peft.hpp>
#include <heed/io/stored_tensor.hpp>
#include <heed/layers/language_model.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace heed {

// What the files of a model say about it, for conversions.
struct ModelCard {
  // "name", "author", "organization", "license", "description", "url", ...: the texts of GGUF's metadata general.*, or
  // of the beginning of a folder's README.md.
  std::map<std::string, std::string> texts = {};
  std::string chat_template = {};  // Jinja; empty if there is none
};

// How the vectors of a text's tokens become one vector, as sentence-transformers does it.
struct SentencePooling {
  // mean and max: over the tokens of the text; first: the vector of the first token.
  enum class Kind { mean, first, max };
  Kind kind = Kind::mean;   // how
  bool normalized = false;  // divides the vector by its length
  Index max_tokens = 0;     // longer texts are cut; 0: the context of the model
};

// The weights of a model that are quantized.
struct QuantizedWeights {
  Index stored = 0;   // numbers that are as in the file
  Index rounded = 0;  // numbers that were rounded to q8_0
  double error = 0;   // of rounding: sqrt(sum (x - q)^2 / sum x^2) over the numbers x that became q
};

// A published model.
struct Pretrained {
  std::string family = {};                       // "llama"; empty for a heed checkpoint of no family
  GPTConfig config = {};                         // the options of the model
  LanguageModel lm;                              // the model and its tokenizer
  ModelCard card = {};                           // licence, author, chat template
  std::optional<std::int32_t> begin_token = {};  // the token before a text, which some tokenizers do not add
  Tokens end_tokens = {};                        // tokens that end a text or an answer
  std::optional<SentencePooling> pooling = {};   // of an encoder for sentences
  QuantizedWeights quantized = {};               // the weights that are quantized
  // BERT's head for the next sentence, which only folders hold; other formats leave it out.
  std::optional<NextSentence> next_sentence = {};
};

// Options of load_pretrained().
struct LoadPretrainedOptions {
  DType dtype = DType::float32;  // of the weights; bfloat16 and q8_0: see to() in layers/model.hpp
  // Weights that a file has as Q8_0, Q4_0 or Q4_1 stay as they are: they are not trained, and take the memory of the
  // file. Those of other quantized types become q8_0, all others `dtype`.
  bool as_stored = false;
  std::optional<Tokenizer> tokenizer = {};  // in place of the tokenizer of the files
};

// Loads a folder, a GGUF file or a checkpoint. The path of a folder's config.json or model.safetensors means the
// folder. Everything except the values is checked before memory for the model is allocated.
//
// Throws Error, which names the file, if a file is missing or damaged; for a family, a field of the configuration, or a
// tensor that heed does not know: nothing that would change results is ignored; for a tensor that is missing or has
// another shape.
Pretrained load_pretrained(const std::filesystem::path& path, const LoadPretrainedOptions& options = {});

// Whether load_pretrained() reads the path as a checkpoint, and not as a folder or a GGUF file. Throws Error as
// load_pretrained() for a missing or pickled file.
bool names_checkpoint(const std::filesystem::path& path);

// Options of save_pretrained().
struct SavePretrainedOptions {
  // The type of matrices: f32, f16, bf16, or in a GGUF file q8_0 (matrices whose rows are no multiple of 32 are f16
  // then). Other tensors are f32 in GGUF files, and of this type in safetensors.
  StoredType type = StoredType::f32;
  // A folder's weights are divided into files of at most this many bytes, with an index. transformers does the same.
  // A larger tensor has its own file.
  std::int64_t max_file_bytes = 50'000'000'000;
};

// Writes a model: a GGUF file if the path ends with ".gguf", a checkpoint if it ends with ".h5", an ONNX file of an
// encoder if it ends with ".onnx" (io/onnx.hpp), else a folder with config.json, model.safetensors, tokenizer.json,
// tokenizer_config.json and README.md. An old file or folder is replaced whole or not at all. Tensors are converted one
// at a time. Quantized weights are stored as they are in GGUF files, and as numbers in safetensors; ONNX files and
// checkpoints have none.
//
// A model that heed trained is one of GPT-2 or Llama if they have its options; a model without biases becomes a GPT-2
// with biases of zero. Its tokenizer is written by to_json_tokenizer() and tokenizer_metadata().
//
// Throws Error if the model is of no family that has the format, for example if a heed model has options that the
// family lacks, if the format cannot express its tokenizer, and if the folder contains other files, which would be
// lost.
void save_pretrained(const std::filesystem::path& path, Pretrained& model, const SavePretrainedOptions& options = {});

// The texts of a checkpoint of the model: those of language_model_texts(), and its card and tokens. A run that trains
// the model stores them, so that load_pretrained() reads them again.
std::map<std::string, std::string> pretrained_texts(const Pretrained& model);
// The names of the card and the tokens there. A run that trains a model further keeps these texts.
inline constexpr const char* kPretrainedTexts[] = {"card", "tokens"};

// The names of the model's linear maps in the class of its family, for save_peft() and load_peft(). Throws Error if the
// model is of no family.
PeftNames peft_names(const Pretrained& model);

// The vectors of texts by an encoder, float32 [texts, width]. Texts are encoded in batches of similar lengths. Throws
// Error if the model has no pooling.
Tensor encode_texts(const Pretrained& model, const std::vector<std::string>& texts, Index batch = 32);

}  // namespace heed
