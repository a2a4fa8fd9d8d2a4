// Reads the tokenizers of published models: the file tokenizer.json of the package `tokenizers`. Reads byte-level BPE
// (GPT-2, Llama-3, Qwen, SmolLM2), BPE with byte fallback (Llama-2), WordPiece (BERT) and Unigram, with their added
// tokens, normalizers, pre-tokenizers, post-processors and decoders. The ids and texts are those of `tokenizers`.
//
// A JsonTokenizer is a TokenizerLike: Tokenizer holds it, and checkpoints and token files store the text of its file.
// StreamEncoder cuts a text after line feeds; between two line feeds, its tokens may differ from those of encode().
// io/tokenizer/README.md lists the types that are read.
//
// Example:
//
//   std::ofstream("tokenizer.json") << R"({"version": "1.0", "model": {"type": "BPE",
//     "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})";
//   const JsonTokenizer tokenizer = JsonTokenizer::load("tokenizer.json");
//   const Tokens ids = tokenizer.encode("aab");  // 0, 2
//   std::cout << tokenizer.decode(ids) << '\n';  // a ab
#pragma once
#include <filesystem>
#include <heed/data/tokenizer.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed {

// A tokenizer that a tokenizer.json describes. An immutable value: copies share it, and threads may use it at once.
class JsonTokenizer {
 public:
  // Reads a tokenizer.json of at most 256 MiB. Throws Error if the file is missing or no JSON, if a field or type is
  // unknown ("pre_tokenizer.pretokenizers[1].type is ..."), or if values contradict each other.
  static JsonTokenizer load(const std::filesystem::path& file);
  // The same from the text of such a file.
  static JsonTokenizer from_state(std::string_view json);

  // The tokens of a text, without those that the post-processor adds. Added tokens inside the text are recognised.
  // Throws EncodeError if the text is not UTF-8, and Error if a pattern of the file exceeds its limits on this text.
  Tokens encode(std::string_view text) const;
  // As encode(), but special tokens inside the text, such as "<|im_end|>", are ordinary text.
  Tokens encode_as_text(std::string_view text) const;
  // As encode(), without the space that some tokenizers insert before a text.
  Tokens encode_next(std::string_view text) const;
  // As encode(), but special tokens that overlap one of the ranges are ordinary text. So a conversation has special
  // tokens between its messages and none inside them. Ranges are bytes [begin, end), in order.
  using Bytes = std::pair<std::size_t, std::size_t>;
  struct Places {
    Tokens ids = {};  // the tokens of the text
    // The first byte and the index in `ids` of each added token, in order. Tokens that are searched for in the
    // normalized text are left out.
    std::vector<std::pair<std::size_t, std::size_t>> added = {};
    Index special_as_text = 0;  // the number of special tokens that became ordinary text
  };
  Places encode_around(std::string_view text, std::span<const Bytes> special_is_text) const;
  // The tokens of a whole text with those that the post-processor adds: [CLS] and [SEP] of BERT, the begin token of
  // Llama.
  Tokens with_special_tokens(const Tokens& ids) const;

  // The text of tokens. Bytes that are not UTF-8 become U+FFFD. Throws Error for an id out of range.
  std::string decode(std::span<const std::int32_t> ids) const;
  // The same without special tokens.
  std::string decode_without_special(std::span<const std::int32_t> ids) const;

  Index vocabulary_size() const;                         // the largest id + 1
  std::string kind() const { return "tokenizer.json"; }  // for Tokenizer
  std::string state() const;                             // the text of the file
  // "<unk>" is the unknown token of the model, "<s>" and "</s>" are the first and last token that the post-processor
  // adds, "<pad>" is the token of the field `padding`. If the file does not define one of them: the token of this name.
  std::optional<std::int32_t> special(std::string_view name) const;
  // Whether the token is one byte of a longer character.
  bool is_byte(std::int32_t id) const;
  // The id of a token, by its text in the file; nullopt if there is none.
  std::optional<std::int32_t> id_of(std::string_view token) const;
  // The text of a token in the file: "Ġthe". Empty for an id without a token. Throws Error for an id out of range.
  std::string token(std::int32_t id) const;
  // Whether decode_without_special() omits the token.
  bool is_special(std::int32_t id) const;
  // The number of tokens that the field `truncation` allows; nullopt without it. encode() does not truncate.
  std::optional<Index> max_length() const;

 private:
  struct Parts;
  explicit JsonTokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

// A tokenizer as a tokenizer.json, which state() of the result is: for other programs, with equal ids and texts.
// - byte: byte-level BPE without merges
// - char: WordLevel, with a word per character. `tokenizers` refuses other characters, as CharTokenizer does
// - sentencepiece: BPE, or Unigram
// - a JsonTokenizer: itself
//
// Differences remain in rare texts. Names of special tokens ("<s>"), and of byte pieces of a unigram model ("<0x41>"),
// are such tokens inside a text too. `tokenizers` applies a normalizer of SentencePiece to clusters of characters, and
// sums scores of a unigram model in double precision.
//
// Throws Error for a tokenizer of another type, and for a SentencePiece model that is neither BPE nor unigram, or has
// user-defined or unused pieces, spaces as suffixes or unescaped, or a normalizer for decoding.
JsonTokenizer to_json_tokenizer(const Tokenizer& tokenizer);

}  // namespace heed
