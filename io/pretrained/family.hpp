// Families of published models: how their files describe and name what a GPT has.
#pragma once
#include <heed/io/pretrained/fields.hpp>
#include <heed/layers/model_config.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail::pretrained {

// How a file stores a weight, compared with heed.
enum class Form {
  plain,
  transposed,  // [in, out], as in GPT-2's Conv1D
  rope_pairs,  // the rows of each head are ordered for rope of neighbours: GGUF's q and k for the architecture llama
  plus_one     // 1 + weight: GGUF's norms of Gemma
};

// A weight's name in heed and in files. "#" stands for the number of the block.
struct Weight {
  std::string heed = {};  // "blocks.#.attention.qkv.weight"
  int part = -1;          // the number of the map in a matrix that stacks several (NamedParameter::parts); -1: all
  std::string hf = {};    // in safetensors, after the prefix of the family; "/NAME": without the prefix
  std::string gguf = {};
  Form hf_form = Form::plain, gguf_form = Form::plain;
};

// A family of models.
struct Family {
  const char* name;          // model_type in config.json
  const char* architecture;  // general.architecture in GGUF; "" if heed does not write or read it
  const char* class_name;    // in `architectures` of config.json
  const char* prefix;        // of the names in safetensors, which some files omit
  void (*fields)(ModelFields& f, GPTConfig& config);
  std::vector<Weight> (*weights)(const GPTOptions& options);
  const char* output;  // the output in safetensors, which files may have although it is tied
  // Tensors of files that have no effect on heed's model: parts of their names, between spaces.
  const char* without_effect;
};

// After the architecture: the number of an encoder's pooling in GGUF's metadata.
inline constexpr char kGgufPooling[] = ".pooling_type";

// All families.
std::span<const Family> families();
// The family with the model_type of a config.json, or the architecture of a GGUF file. Throw Error for others.
const Family& family_of_config(const JsonView& config);
const Family& family_of_gguf(const GgufFile& file);
// The family whose files can describe the model, or null: what is written and read again is the same configuration.
// The head of BERT is not compared, since files show it by their tensors. `gguf`: for GGUF files.
const Family* family_for(const GPTConfig& config, bool gguf);
// The configuration with values instead of defaults, and without what concerns training only (dropout).
GPTConfig plain_config(const GPTConfig& config);

// Fields of config.json that tell how a model was made, how programs use it, or what its class returns.
void common_without_effect(ModelFields& f);
// The base and the scaling of rope. config.json spells them in two ways. `base`: if the file has none.
void rope_fields(ModelFields& f, MultiHeadAttentionOptions& attention, double base);
// Llama's scaling by the numbers in a GGUF file's rope_freqs.weight. Throws Error if no scaling of Llama 3 gives them.
RopeScaling scaling_of(const std::vector<float>& divisors, double base);
// The numbers by which the frequencies are divided, for rope_freqs.weight.
std::vector<float> divisors_of(const RopeScaling& scaling, double base, Index head_size);

// The families' functions.
void gpt2_fields(ModelFields& f, GPTConfig& config);
void llama_fields(ModelFields& f, GPTConfig& config);
void mistral_fields(ModelFields& f, GPTConfig& config);
void qwen2_fields(ModelFields& f, GPTConfig& config);
void qwen3_fields(ModelFields& f, GPTConfig& config);
void gemma3_fields(ModelFields& f, GPTConfig& config);
void bert_fields(ModelFields& f, GPTConfig& config);
std::vector<Weight> gpt2_weights(const GPTOptions& options);
std::vector<Weight> llama_weights(const GPTOptions& options);  // GGUF's q and k are rope_pairs
std::vector<Weight> qwen_weights(const GPTOptions& options);
std::vector<Weight> gemma3_weights(const GPTOptions& options);
std::vector<Weight> bert_weights(const GPTOptions& options);

}  // namespace heed::detail::pretrained
