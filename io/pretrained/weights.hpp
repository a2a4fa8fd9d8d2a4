// The weights of published models: from files into a GPT, and back.
#pragma once
#include <functional>
#include <heed/io/pretrained.hpp>
#include <heed/io/pretrained/family.hpp>
#include <heed/layers/gpt.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace heed::detail::pretrained {

// The tensors of a file by name.
using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

// Copies the tensors of a file into a model of the family, whose parameters get the types that the options say. Throws
// Error, which names the file and the tensor, if one is missing, has another shape, or is not used and may have an
// effect. All checks precede the first change.
QuantizedWeights load_weights(const StoredTensors& tensors, const std::string& file, const Family& family, bool gguf,
                              GPT& model, const LoadPretrainedOptions& options);

// Converts a model as to(model, DType::q8_0) does, and measures the error.
QuantizedWeights round_weights(GPT& model);

// Calls write(name in the file, tensor) for each weight of a model.
void for_each_weight(const Family& family, bool gguf, GPT& model,
                     const std::function<void(const std::string& name, const Tensor& value)>& write);

}  // namespace heed::detail::pretrained
