// Data for fine-tuning a language model: examples from text and JSONL files, their tokens with marks for the loss, and
// rows that hold several examples.
//
// Example:
//
//   std::ofstream("qa.jsonl") << R"({"prompt": "2 + 2 =", "completion": " 4"})" << '\n'
//                             << R"({"prompt": "3 + 5 =", "completion": " 8"})" << '\n';
//   const TokenExamples examples(read_examples({"qa.jsonl"}), ByteTokenizer(), {.context = 32, .end = 10});
//   const auto [training, held_out] = split(examples, 0.5, 1);  // half for validation
//   const SampleBatches batches(PackedSamples(training, {.context = 32, .seed = 1}), {.rows = 4});
//   const Batch b = batches.batch(1, 0);  // inputs, targets and b["documents"]: int32 [1, 32]
//   std::cout << b.counted << '\n';       // 3: " 4" or " 8", and the end
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <heed/data/chat_message.hpp>
#include <heed/data/samples.hpp>
#include <heed/data/text.hpp>
#include <heed/data/tokenizer.hpp>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace heed {

// ---- Examples in files ----

// An example for fine-tuning: a text, a prompt with its completion, or a conversation.
struct TextExample {
  std::string prompt = {};           // the text before `completion`; empty for a text
  std::string completion = {};       // a text, or the completion of the prompt
  std::vector<ChatMessage> messages = {};  // a conversation; prompt and completion are then not read
  std::string where = {};            // the origin, for messages: "line 7 of train.jsonl"
};

// The format of a file of examples.
enum class ExampleFormat {
  by_name,  // jsonl for .jsonl, .ndjson and .json; text for other names and standard input
  text,     // the file is one example
  jsonl     // each line is a JSON object with text, with prompt and completion, or with messages
};

// How files of examples are read.
struct ReadExamplesOptions {
  ExampleFormat format = ExampleFormat::by_name;  // of all files
  // Line ends and bytes that are not UTF-8. InvalidUtf8::skip leaves out lines of JSONL.
  ReadTextOptions text = {};
  // The names of fields that were not read are added to it: at most 32 names. Null: not needed.
  std::set<std::string>* ignored = nullptr;
};

// The examples of all files, in order. Folders are expanded as by text_files(), and "-" is standard input. A line of
// JSONL has one of three forms:
//
//   {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good morning"}]}
//   {"prompt": "2 + 2 =", "completion": " 4"}
//   {"text": "It was a bright cold day in April."}
//
// A line with fields of several forms has the first of them in this list. Other fields, such as an id, are ignored, and
// so are fields with the value null. Blank lines are skipped. Throws Error, which names file and line, for a line that
// is not a JSON object, lacks a field, has a field of another type, has a field twice, or is nested deeper than 64
// levels. Throws Error if read_text() would, and if there are no examples.
std::vector<TextExample> read_examples(const std::vector<std::filesystem::path>& files_and_folders,
                                       const ReadExamplesOptions& options = {});

// ---- Tokens of examples ----

// The tokens of a conversation, and which of them are learned.
struct MarkedTokens {
  Tokens tokens = {};              // ids
  std::vector<bool> trained = {};  // one per token: whether the loss counts the token as a target
};

// Encodes a conversation, by the chat template of a model. Throws Error for messages that the template does not take.
using EncodeChat = std::function<MarkedTokens(const std::vector<ChatMessage>& messages)>;

// How examples become samples.
struct TokenExampleOptions {
  Index context = 0;  // max inputs of a sample, 1 or more
  // Tokens before and after each text, and each prompt with its completion. The loss counts `end`. Conversations have
  // the tokens of their chat template instead.
  std::optional<std::int32_t> begin = {}, end = {};
  bool all_tokens = false;  // the loss counts all tokens; otherwise those of texts, completions and marked messages
  bool leave_out = false;         // leaves out examples longer than the context; otherwise they are cut at the end
  EncodeChat encode_chat = {};    // for conversations, which are errors without it
};

// What became of a list of examples.
struct ExampleCounts {
  Index examples = 0;   // in the list
  Index divided = 0;    // texts longer than the context, whose parts are samples
  Index cut = 0;        // prompts and conversations that were cut
  Index left_out = 0;   // prompts and conversations left out, because they are longer than the context
  Index untrained = 0;  // examples left out, because the loss counts none of their tokens within the context
  Index tokens = 0;     // inputs of all samples
  Index trained = 0;    // targets that the loss counts

  // "2 of 90 examples are longer than 512 tokens and were cut; 1 has no token that the loss counts and was left out".
  // Empty if all examples are used in full.
  std::string text(Index context) const;
};

// Examples as samples. Sample i has "inputs" int32 [n] with 1 <= n <= context, and "targets" int32 [n], the next token
// of each input, or kIgnoreIndex if the loss does not count it. A text longer than the context is divided into samples
// that follow each other, so that each of its tokens is a target. Prompt and completion are encoded separately, as in
// use.
class TokenExamples {
 public:
  // Throws Error if no samples remain, for options out of range, and for a conversation without encode_chat. Throws
  // EncodeError, which names the example, for a text that cannot be encoded.
  TokenExamples(const std::vector<TextExample>& examples, const Tokenizer& tokenizer,
                const TokenExampleOptions& options);

  // The members of a list of samples: see SamplesLike.
  Index size() const { return static_cast<Index>(begins_.size()); }
  Sample sample(Index i) const;
  std::string where(Index i) const;  // of the example: "line 7 of train.jsonl"
  std::string fingerprint() const;
  const ExampleCounts& counts() const { return counts_; }

 private:
  Tokens tokens_;                     // of all samples: the inputs of each, and its last target
  std::vector<bool> trained_;         // one per token
  std::vector<std::size_t> begins_;   // of each sample in tokens_
  std::vector<std::string> origins_;  // of each sample
  ExampleCounts counts_;

  void add(const MarkedTokens& x, std::size_t begin, std::size_t end, const std::string& where);
  void add_example(const MarkedTokens& x, const std::string& where, bool is_text, const TokenExampleOptions& options);
};

// ---- Several samples per row ----

// How samples are packed into rows.
struct PackOptions {
  Index context = 0;                       // positions per row, 1 or more
  Index window = 64;                       // rows that are filled at the same time, 1 or more
  std::optional<std::uint64_t> seed = {};  // shuffles the samples before they are packed; unset: their order
  std::int32_t padding = 0;                // the input at positions after the last sample of a row
};

// Rows that hold several samples each, as samples for SampleBatches and SampleEvaluation. Row i has "inputs", "targets"
// and "documents", int32 [context]. documents has the position at which each position's sample begins, for
// AttentionCall::documents, by which attention and positions treat each sample as a row by itself:
//
//   model.loss(b.inputs, b.targets, {.documents = b["documents"]});
//
// Each sample is placed in the first of `window` open rows that has room for it (first fit). If none has, the oldest
// row is closed and a new one is opened. Each position after the last sample is a document without a target. The rows
// are a function of the samples and the options, so an order by seed and step (SampleBatches) resumes exactly.
class PackedSamples {
 public:
  // Reads all samples once for their lengths. Throws Error if there are no samples, for options out of range, and
  // unless each sample has int32 "inputs" and "targets" of one length, from 1 to the context.
  PackedSamples(Samples samples, const PackOptions& options);

  // The members of a list of samples: see SamplesLike. The fingerprint has a hash of that of the samples and of the
  // rows; nullopt if the samples have none.
  Index size() const { return static_cast<Index>(rows_.size()); }
  Sample sample(Index i) const;
  std::optional<std::string> fingerprint() const;
  double filled() const;  // share of positions that hold a token of a sample
  const std::vector<std::vector<Index>>& rows() const { return rows_; }  // the samples of each row, in their order

 private:
  Samples samples_;
  PackOptions options_;
  std::vector<std::vector<Index>> rows_;
  Index tokens_ = 0;  // of all samples
};

}  // namespace heed
