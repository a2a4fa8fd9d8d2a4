// The weights of published models: from files into a GPT, and back.
#pragma once
#include <functional>
#include <heed/io/pretrained.hpp>
#include <heed/io/pretrained/family.hpp>
#include <heed/layers/gpt.hpp>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heed::detail::pretrained {

// The tensors of a file by name.
using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

// Copies the tensors of a file into a model of the family, whose parameters get the types that the options say. Throws
// Error, which names the file and the tensor, if one is missing, has another shape, or is not used and may have an
// effect. All checks precede the first change. forget() is called after the values of a tensor were copied.
QuantizedWeights load_weights(const StoredTensors& tensors, const std::string& file, const Family& family, bool gguf,
                              GPT& model, const LoadPretrainedOptions& options,
                              const std::function<void(const StoredTensor&)>& forget);

// Converts a model as to(model, DType::q8_0) does, and measures the error.
QuantizedWeights round_weights(GPT& model);

// A weight as a file has it. Its values are change(value), made when they are written so that memory holds one at a
// time; `change` is empty if they are `value`.
struct FileWeight {
  std::string name = {};
  Tensor value = {};  // a view of a parameter, of the shape in the file
  std::function<Tensor(const Tensor&)> change = {};
};
// The weights of a model in the order of files: block by block. Throws Error for a parameter that the family lacks.
std::vector<FileWeight> file_weights(const Family& family, bool gguf, GPT& model);

// BERT's head for the next sentence, from the safetensors of a folder; nullopt if they lack one of its layers. Throws
// Error, which names the file and the tensor, for another shape.
std::optional<NextSentence> load_next_sentence(const StoredTensors& tensors, const std::string& file, Index width,
                                               DType dtype);
// Its weights for a folder. Throws Error if its width is not that of the model.
std::vector<FileWeight> next_sentence_weights(NextSentence& head, const GPTOptions& model);

}  // namespace heed::detail::pretrained
