#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <fstream>
#include <heed/core/check.hpp>
#include <heed/data/text.hpp>
#include <heed/data/tokenizer.hpp>
#include <iterator>
#include <unordered_map>

namespace heed {

namespace sp = sentencepiece;

struct SentencePieceTokenizer::Model {
  sp::SentencePieceProcessor processor;
  std::string bytes;
};

namespace {

// Hands lines to the trainer. The library skips empty ones and warns of NUL bytes itself.
class Lines : public sp::SentenceIterator {
 public:
  explicit Lines(std::string_view text) : rest_(text) { Next(); }
  bool done() const override { return done_; }
  void Next() override {
    done_ = rest_.empty();
    const std::size_t n = std::min(rest_.find('\n'), rest_.size());
    line_ = rest_.substr(0, n);
    rest_.remove_prefix(std::min(n + 1, rest_.size()));
  }
  const std::string& value() const override { return line_; }
  sp::util::Status status() const override { return {}; }

 private:
  std::string_view rest_;
  std::string line_;
  bool done_ = false;
};

// «Internal: src/file.cc(12) [condition] Sentence.» becomes «Sentence.»
std::string reason(const sp::util::Status& status) {
  const std::string text = status.ToString();
  const std::size_t bracket = text.rfind("] ");
  return bracket == std::string::npos ? text : text.substr(bracket + 2);
}

}  // namespace

SentencePieceTokenizer SentencePieceTokenizer::load(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  require(in.good() && !std::filesystem::is_directory(file), "tokenizer: ", file.native(), " cannot be opened");
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  try {
    return from_state(bytes);
  } catch (const Error&) {
    fail("tokenizer: ", file.native(), " is not a SentencePiece model");
  }
}

SentencePieceTokenizer SentencePieceTokenizer::from_state(std::string_view serialized_model) {
  auto model = std::make_shared<Model>();
  model->bytes = serialized_model;
  const bool ok = !serialized_model.empty() && model->processor.LoadFromSerializedProto(model->bytes).ok() &&
                  model->processor.GetPieceSize() > 0;
  require(ok, "tokenizer: these ", serialized_model.size(), " bytes are not a SentencePiece model");
  return SentencePieceTokenizer(std::move(model));
}

SentencePieceTokenizer SentencePieceTokenizer::train(const std::vector<std::filesystem::path>& files,
                                                     const SentencePieceOptions& options) {
  return train_on_text(read_text(files), options);
}

SentencePieceTokenizer SentencePieceTokenizer::train_on_text(std::string_view text,
                                                             const SentencePieceOptions& options) {
  require(options.model == "bpe" || options.model == "unigram", "tokenizer: the model is \"", options.model,
          "\"; it must be bpe or unigram");
  require(!text.empty(), "tokenizer: the text to learn the pieces from is empty");
  require(options.vocabulary > 0, "tokenizer: a vocabulary of ", options.vocabulary,
          " pieces was asked for; it must be positive");
  if (const auto bad = find_invalid_utf8(text)) fail("tokenizer: the text to learn from is not UTF-8 at offset ", *bad);
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", options.model},
      {"vocab_size", std::to_string(options.vocabulary)},
      {"character_coverage", "1.0"},
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"},
      {"max_sentence_length", "1048576"},
      {"num_threads", "1"},  // the same pieces on every machine
      {"minloglevel", options.log ? "0" : "2"},
  };
  Lines lines(text);
  std::string bytes;
  const sp::util::Status status = sp::SentencePieceTrainer::Train(settings, &lines, &bytes);
  require(status.ok(), "tokenizer: SentencePiece cannot learn ", options.vocabulary,
          " pieces from this text: ", reason(status));
  return from_state(bytes);
}

std::vector<std::int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  std::vector<int> ids;
  const sp::util::Status status = model_->processor.Encode(text, &ids);
  require(status.ok(), "encode: SentencePiece refuses the text: ", reason(status));
  return {ids.begin(), ids.end()};
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  for (std::int32_t id : ids)
    require(id >= 0 && id < vocabulary_size(), "decode: token ", id, " is not in the vocabulary of ", vocabulary_size(),
            " tokens");
  std::string text;
  const sp::util::Status status = model_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  require(status.ok(), "decode: SentencePiece refuses the tokens: ", reason(status));
  return text;
}

Index SentencePieceTokenizer::vocabulary_size() const { return model_->processor.GetPieceSize(); }
std::string SentencePieceTokenizer::state() const { return model_->bytes; }

std::string SentencePieceTokenizer::piece(std::int32_t id) const {
  require(id >= 0 && id < vocabulary_size(), "piece: token ", id, " is not in the vocabulary of ", vocabulary_size(),
          " tokens");
  return model_->processor.IdToPiece(id);
}

}  // namespace heed
