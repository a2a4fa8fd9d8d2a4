// Writes encoders as ONNX files, which onnxruntime and other engines run. In Python, ids and mask are int64
// [batch, length]:
//
//   session = onnxruntime.InferenceSession("encoder.onnx")
//   hidden, logits = session.run(None, {"input_ids": ids, "attention_mask": mask})
//
// Example:
//
//   Rng rng(1);
//   const BERTOptions options{
//       .vocabulary = 100, .context = 32, .blocks = {.layers = 2, .attention = {.width = 16, .heads = 2}}};
//   const BERT model(options, rng);
//   export_onnx("encoder.onnx", model, {.logits = true});
#pragma once
#include <filesystem>
#include <heed/io/pretrained.hpp>
#include <heed/layers/gpt.hpp>
#include <map>
#include <optional>
#include <string>

namespace heed {

// The outputs of an ONNX file, in this order, and its metadata.
struct OnnxOptions {
  bool hidden = true;   // last_hidden_state [batch, length, width]: hidden() of the model
  bool logits = false;  // logits [batch, length, vocabulary]
  // Set: sentence_embedding [batch, width], one vector per row, as encode_texts() computes it. max_tokens is not used.
  std::optional<SentencePooling> pooling = {};
  std::map<std::string, std::string> metadata = {};  // texts by key, such as a licence
};

// Writes an encoder: a BERT, or a GPT with options.causal = false. The file has opset 17, and float32 weights whatever
// the dtype of the model. Numbers of rows and tokens are chosen when it runs:
// - input_ids int64 [batch, length]. With positions other than none and relative, length is at most options.context.
// - attention_mask int64 [batch, length]: 0 for padding, anywhere in a row, which has no effect on other tokens. Hidden
//   states and logits at padding are meaningless, and so is the sentence_embedding of a row that is all padding.
// - token_type_ids int64 [batch, length], only if the model has token types.
// The file is written as file.tmp, synced and renamed, so that a failure keeps the old file. Equal models and options
// give equal bytes.
//
// Throws Error for a causal model, for attention other than softmax, for adapters that are not merged, if no output is
// chosen, for metadata that are not UTF-8, if a weight overflows float32, if the file would have 2 GB (2^31 bytes) or
// more, and if it cannot be written.
void export_onnx(const std::filesystem::path& file, const GPT& model, const OnnxOptions& options = {});

}  // namespace heed
