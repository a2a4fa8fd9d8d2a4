// The weights of BERT's head for the next sentence: pooler.dense and cls.seq_relationship in folders.
#include <heed/io/pretrained/weights.hpp>
#include <heed/layers/model.hpp>

namespace heed::detail::pretrained {
namespace {

// The name of a weight in files. Some lack the prefix of the class.
std::string name_in_folder(std::string name, const std::string& prefix) {
  for (const auto& [heed, file] : {std::pair<std::string, std::string>{"pooler.", prefix + "pooler.dense."},
                                   std::pair<std::string, std::string>{"output.", "cls.seq_relationship."}})
    if (name.starts_with(heed)) name.replace(0, heed.size(), file);
  return name;
}

constexpr const char kBertPrefix[] = "bert.";

}  // namespace

std::optional<NextSentence> load_next_sentence(const StoredTensors& tensors, const std::string& file, Index width,
                                               DType dtype) {
  const NoTape no_tape;
  Rng rng;
  NextSentence head = skip_init<NextSentence>(width, rng);
  const std::string prefix = tensors.contains("bert.pooler.dense.weight") ? kBertPrefix : "";
  for (const NamedParameter& p : named_parameters(head)) {
    const std::string name = name_in_folder(p.name, prefix);
    const auto at = tensors.find(name);
    if (at == tensors.end()) return {};
    require(at->second.shape == p.parameter->shape(), file, ": ", name, " is ", at->second.shape,
            " but the configuration requires ", p.parameter->shape());
    p.parameter->copy_(load(at->second, DType::float32));
  }
  if (dtype != DType::float32) to(head, dtype);
  return head;
}

std::vector<FileWeight> next_sentence_weights(NextSentence& head, const GPTOptions& model) {
  const Index width = model.blocks.attention.width;
  require(!model.causal && head.pooler.weight.shape() == Shape{width, width}, "save_pretrained: next_sentence has ",
          head.pooler.weight.dim(0), " numbers per position, and the model is ", model.causal ? "causal" : "an encoder",
          " of width ", width, "; it must be an encoder of the same width");
  std::vector<FileWeight> all;
  for (const NamedParameter& p : named_parameters(head)) {
    const Tensor& value = *p.parameter;
    all.push_back(
        {name_in_folder(p.name, kBertPrefix), is_quantized(value.dtype()) ? value.to(DType::float32) : value.detach()});
  }
  return all;
}

}  // namespace heed::detail::pretrained
