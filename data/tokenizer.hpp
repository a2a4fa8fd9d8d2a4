// Tokenizers: conversion of text to token ids and back. A `Tokenizer` holds any type, including your own, with these
// members:
//
//   Tokens encode(std::string_view text) const;                   // throws Error for text that it cannot express
//   std::string decode(std::span<const std::int32_t> ids) const;  // throws Error for an id out of range
//   Index vocabulary_size() const;
//   std::string kind() const;    // a short name: "byte"
//   std::string state() const;   // all data needed to recreate the tokenizer; any bytes
//
// and optionally
//
//   Tokens encode_next(std::string_view text) const;  // text that follows other text; default: encode()
//
//   std::optional<std::int32_t> special(std::string_view name) const;  // the token "<pad>", "<unk>", "<s>" or "</s>"
//   UnicodeForm unicode() const;            // the form that encode() normalizes text to
//   bool is_byte(std::int32_t id) const;    // whether the token is a byte of a character that has no token
//
// Example:
//
//   const Tokenizer tokenizer = CharTokenizer("hello world");
//   const Tokens ids = tokenizer.encode("hello");
//   std::cout << tokenizer.decode(ids) << '\n';  // hello
#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <heed/core/check.hpp>
#include <heed/core/dtype.hpp>
#include <heed/data/text.hpp>
#include <heed/data/unicode.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace heed {

// A type that Tokenizer can hold.
template <class T>
concept TokenizerLike = requires(const T& t, std::string_view text, std::span<const std::int32_t> ids) {
  { t.encode(text) } -> std::convertible_to<Tokens>;
  { t.decode(ids) } -> std::convertible_to<std::string>;
  { t.vocabulary_size() } -> std::convertible_to<Index>;
  { t.kind() } -> std::convertible_to<std::string>;
  { t.state() } -> std::convertible_to<std::string>;
};

// Thrown by encode() for text that the tokenizer cannot express: "SUBJECT at byte offset 12 REASON".
class EncodeError : public Error {
 public:
  // A `file` that is not empty is named after the offset.
  EncodeError(std::string subject, std::size_t offset, std::string reason, const std::string& file = {});
  std::size_t offset() const { return offset_; }  // in bytes
  // The same error at another offset: in a longer text, or in a file.
  EncodeError at(std::size_t offset, const std::string& file = {}) const { return {subject_, offset, reason_, file}; }

 private:
  std::string subject_, reason_;
  std::size_t offset_;
};

// A tokenizer of any kind. An immutable value: copies are cheap and share it. Its members are described above.
class Tokenizer {
 public:
  // Holds any TokenizerLike tokenizer.
  template <TokenizerLike T>
  requires(!std::same_as<T, Tokenizer>) Tokenizer(T tokenizer)
      : held_(std::make_shared<Held<T>>(std::move(tokenizer))) {}

  // The functions of the held tokenizer. encode_next() is encode() if the tokenizer has none.
  Tokens encode(std::string_view text) const { return held_->encode(text); }
  Tokens encode_next(std::string_view text) const { return held_->encode_next(text); }
  std::string decode(std::span<const std::int32_t> ids) const { return held_->decode(ids); }
  std::string decode(std::initializer_list<std::int32_t> ids) const {
    return decode(std::span(ids.begin(), ids.size()));
  }
  Index vocabulary_size() const { return held_->vocabulary_size(); }
  std::string kind() const { return held_->kind(); }
  std::string state() const { return held_->state(); }
  // The token for padding, unknown text, the beginning or the end of a text, by name: "<pad>", "<unk>", "<s>", "</s>".
  // nullopt if there is none.
  std::optional<std::int32_t> special(std::string_view name) const { return held_->special(name); }
  // The form that encode() normalizes text to. decode(encode(text)) returns text in this form.
  UnicodeForm unicode() const { return held_->unicode(); }
  bool is_byte(std::int32_t id) const { return held_->is_byte(id); }
  // The held tokenizer if it is of this type, else null: as<JsonTokenizer>(). Valid as long as a copy of the Tokenizer.
  template <TokenizerLike T>
  const T* as() const {
    const auto* held = dynamic_cast<const Held<T>*>(held_.get());
    return held != nullptr ? &held->value : nullptr;
  }

  // JSON for checkpoints and from_json(): {"kind": ..., "state": ...}, or "state_base64" if the state is not UTF-8. Has
  // "unicode": "nfc" or "nfkc" if the tokenizer has a form.
  std::string to_json() const;
  // Recreates a tokenizer of the kind byte, char, word, sentencepiece or tokenizer.json (io/tokenizer_json.hpp). Throws
  // Error for damaged JSON and for other kinds.
  static Tokenizer from_json(std::string_view json);
  // Identifies the tokenizer in token files: XXH64 of kind, state and form.
  std::uint64_t hash() const;

 private:
  struct Face {
    virtual ~Face() = default;
    virtual Tokens encode(std::string_view text) const = 0;
    virtual Tokens encode_next(std::string_view text) const = 0;
    virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
    virtual Index vocabulary_size() const = 0;
    virtual std::string kind() const = 0;
    virtual std::string state() const = 0;
    virtual std::optional<std::int32_t> special(std::string_view name) const = 0;
    virtual UnicodeForm unicode() const = 0;
    virtual bool is_byte(std::int32_t id) const = 0;
  };
  template <class T>
  struct Held final : Face {
    explicit Held(T t) : value(std::move(t)) {}
    Tokens encode(std::string_view text) const override { return value.encode(text); }
    Tokens encode_next(std::string_view text) const override {
      if constexpr (requires { value.encode_next(text); }) return value.encode_next(text);
      return value.encode(text);
    }
    std::string decode(std::span<const std::int32_t> ids) const override { return value.decode(ids); }
    Index vocabulary_size() const override { return value.vocabulary_size(); }
    std::string kind() const override { return value.kind(); }
    std::string state() const override { return value.state(); }
    std::optional<std::int32_t> special(std::string_view name) const override {
      if constexpr (requires { value.special(name); }) return value.special(name);
      return {};
    }
    UnicodeForm unicode() const override {
      if constexpr (requires { value.unicode(); }) return value.unicode();
      return UnicodeForm::none;
    }
    bool is_byte(std::int32_t id) const override {
      if constexpr (requires { value.is_byte(id); }) return value.is_byte(id);
      return false;
    }
    T value;
  };

  std::shared_ptr<const Face> held_;
};

namespace detail {
// Throws Error unless 0 <= id < vocabulary.
inline void check_id(const char* op, std::int32_t id, Index vocabulary) {
  require(id >= 0 && id < vocabulary, op, ": token ", id, " is not in the vocabulary of ", vocabulary, " tokens");
}
}  // namespace detail

// Counts tokens, and among them unknown tokens ("<unk>") and bytes of characters without a token (line feeds excluded).
struct TokenCounts {
  Index tokens = 0, unknown = 0, bytes = 0;                                 // numbers of tokens as above
  void add(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);  // counts the tokens of a text
  // "3 of 120 tokens were unknown to the model", "3 of 120 tokens were byte pieces", or both; empty if there are none.
  std::string text() const;
};

// One token per byte, 256 in all. Expresses any text. With a form, bytes that are not UTF-8 are kept unchanged.
class ByteTokenizer {
 public:
  // Normalizes texts to this form.
  explicit ByteTokenizer(UnicodeForm unicode = UnicodeForm::none) : unicode_(unicode) {}
  // The members of a tokenizer, described at the top of this file. decode() throws Error for an id out of range.
  Tokens encode(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> ids) const;
  Index vocabulary_size() const { return 256; }
  std::string kind() const { return "byte"; }
  std::string state() const { return {}; }
  UnicodeForm unicode() const { return unicode_; }

 private:
  UnicodeForm unicode_;
};

// One token per code point of the training text, in sorted order, as in nanoGPT. encode() throws EncodeError for other
// characters, which also rejects text in another Unicode form than the training text; so the default is no form.
class CharTokenizer {
 public:
  // Learns the characters of a normalized text. Throws Error if the text is empty or not UTF-8.
  explicit CharTokenizer(std::string_view text, UnicodeForm unicode = UnicodeForm::none);
  // Learns the characters of files, read in pieces. Throws Error as read_text().
  static CharTokenizer train(const std::vector<std::filesystem::path>& files_and_folders,
                             UnicodeForm unicode = UnicodeForm::none, const ReadTextOptions& reading = {});

  // Throws EncodeError for a character that was not learned, and for invalid UTF-8.
  Tokens encode(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> ids) const;
  Index vocabulary_size() const { return static_cast<Index>(characters_.size()); }
  std::string kind() const { return "char"; }
  std::string state() const;  // the characters in order
  UnicodeForm unicode() const { return unicode_; }

 private:
  CharTokenizer(std::vector<char32_t> characters, UnicodeForm unicode);
  std::vector<char32_t> characters_;       // sorted
  std::array<std::int32_t, 128> ascii_{};  // their tokens; -1: none
  UnicodeForm unicode_;

  std::int32_t id_of(char32_t c) const;  // -1: none
};

// Which words become tokens.
struct WordOptions {
  Index vocabulary = 0;     // max number of words, by frequency; 0: all
  Index min_frequency = 1;  // rarer words are unknown
  UnicodeForm unicode = UnicodeForm::nfc;  // the form of all words
};

// Words between white space, for texts that are already split into words. <pad>, <unk>, <s> and </s> are 0 to 3. The
// words follow in the order of decreasing frequency, words of equal frequency in the order of their bytes.
class WordTokenizer {
 public:
  static constexpr std::int32_t kPad = 0, kUnknown = 1, kBegin = 2, kEnd = 3;  // ids of <pad>, <unk>, <s> and </s>

  // Learns the words of a text or of files. Throws Error if no word is left, or as read_text().
  explicit WordTokenizer(std::string_view text, const WordOptions& options = {});
  // The same from files, read in pieces.
  static WordTokenizer train(const std::vector<std::filesystem::path>& files_and_folders,
                             const WordOptions& options = {}, const ReadTextOptions& reading = {});
  // Throws Error if a word is empty or occurs twice.
  static WordTokenizer from_state(std::string_view words, UnicodeForm unicode = UnicodeForm::none);

  Tokens encode(std::string_view text) const;  // words that were not learned become <unk>
  // The words joined by spaces, without <pad>, <s> and </s>.
  std::string decode(std::span<const std::int32_t> ids) const;
  Index vocabulary_size() const { return 4 + static_cast<Index>(words_.size()); }
  std::string kind() const { return "word"; }
  std::string state() const;  // the words, one per line
  std::optional<std::int32_t> special(std::string_view name) const;
  const std::string& word(std::int32_t id) const;  // word(2) is "<s>"; throws Error for an id out of range
  UnicodeForm unicode() const { return unicode_; }

 private:
  explicit WordTokenizer(UnicodeForm unicode) : unicode_(unicode) {}
  UnicodeForm unicode_;
  std::vector<std::string> words_;
  std::unordered_map<std::string, std::int32_t> ids_;

  void add(std::string word);
};

// How SentencePiece learns a model.
struct SentencePieceOptions {
  Index vocabulary = 4096;    // Error if the text has too few or too many characters for this size
  std::string model = "bpe";  // or "unigram"
  bool log = false;           // lets SentencePiece write its progress to stderr
  // The first word of a text gets the same pieces as after a space, for texts that are tokenized one by one.
  bool word_begins = false;
  // For files with more bytes than this, train() learns from lines chosen evenly over the files, at most this many
  // bytes.
  Index sample = Index{64} << 20;
  UnicodeForm unicode = UnicodeForm::nfc;  // SentencePiece's own normalizer is off
};

// Pieces of words by SentencePiece (Kudo and Richardson 2018). Loads any SentencePiece model, or learns one from text.
// The form is stored in an extra field of the model. Other programs ignore this field, so they must normalize text
// themselves.
class SentencePieceTokenizer {
 public:
  // Reads FILE.model. Throws Error if the file is missing or not a model.
  static SentencePieceTokenizer load(const std::filesystem::path& file);
  static SentencePieceTokenizer from_state(std::string_view serialized_model);
  // Learns a model that reproduces every text in its form exactly: no added spaces, unknown characters as bytes.
  static SentencePieceTokenizer train(const std::vector<std::filesystem::path>& files_and_folders,
                                      const SentencePieceOptions& options = {}, const ReadTextOptions& reading = {});
  static SentencePieceTokenizer train_on_text(std::string_view text, const SentencePieceOptions& options = {});

  // Throws Error if SentencePiece reports an error.
  Tokens encode(std::string_view text) const;
  // Encodes without the space that some models insert before every text.
  Tokens encode_next(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> ids) const;
  Index vocabulary_size() const;
  std::string kind() const { return "sentencepiece"; }
  std::string state() const;  // the serialized model: the bytes of FILE.model
  // Writes FILE.model; an old file is replaced whole or not at all. Throws Error if the file cannot be written.
  void save(const std::filesystem::path& file) const;
  // The text of a token, with SentencePiece's signs. Throws Error for an id out of range.
  std::string piece(std::int32_t id) const;
  std::optional<std::int32_t> special(std::string_view name) const;  // train() makes models with all except <pad>
  UnicodeForm unicode() const;
  SentencePieceTokenizer with_unicode(UnicodeForm unicode) const;  // the same model with another form
  bool is_byte(std::int32_t id) const;

 private:
  struct Model;
  explicit SentencePieceTokenizer(std::shared_ptr<const Model> model) : model_(std::move(model)) {}
  std::shared_ptr<const Model> model_;
};

// The reason why make_tokenizer() rejects a name; empty if it accepts the name.
std::string tokenizer_name_error(const std::string& name);

// Makes the tokenizer that the flag --tokenizer names: byte, char (learned from the text or files), or a SentencePiece
// FILE.model. If `unicode` is not given, FILE.model keeps its own form and the others have none.
Tokenizer make_tokenizer(const std::string& name, std::string_view text, std::optional<UnicodeForm> unicode = {});
Tokenizer make_tokenizer(const std::string& name, const std::vector<std::filesystem::path>& files_and_folders,
                         std::optional<UnicodeForm> unicode = {}, const ReadTextOptions& reading = {});

// Encodes a text that is given in pieces, for texts that do not fit into memory. The text is encoded in parts of 4 kB
// or more, cut after line feeds or, in long lines, before spaces. The cuts do not depend on the pieces, so the tokens
// are a function of the text.
//
// For the tokenizers in this file the tokens equal those of encode() on the whole text, and on each line. Exceptions:
// the unigram model of SentencePiece sums scores in float and may choose differently in long texts. A token may differ
// at a cut in a text that has no line feed or space for a megabyte, and with a SentencePiece model whose pieces span
// cuts.
class StreamEncoder {
 public:
  using Use = std::function<void(std::span<const std::int32_t>)>;  // receives the next tokens
  // `use` receives all tokens of the text, in order.
  StreamEncoder(Tokenizer tokenizer, Use use) : tokenizer_(std::move(tokenizer)), use_(std::move(use)) {}
  void feed(std::string_view piece);  // throws EncodeError with the offset in the whole text
  void finish();                      // encodes the rest

 private:
  void encode(std::string_view part);

  Tokenizer tokenizer_;
  Use use_;
  std::string rest_;
  std::size_t offset_ = 0;  // of rest_ in the text
};

// All tokens of a text, as from StreamEncoder. Takes less memory than encode() for a long text.
Tokens encode_text(const Tokenizer& tokenizer, std::string_view text);

// Decodes tokens one by one, to show text while it is generated. The bytes of an unfinished character are kept until
// the character is complete, so that each piece is valid UTF-8.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}  // begins a text
  std::string next(std::int32_t id);  // the new text; may be empty
  std::string finish();               // the bytes kept back, with U+FFFD for unfinished characters

 private:
  std::string take(std::string_view text);  // the end of the text that was not returned yet

  Tokenizer tokenizer_;
  Tokens ids_;             // the tokens of the last text returned, then the tokens after it
  std::size_t given_ = 0;  // number of tokens of ids_ whose text was returned
};

}  // namespace heed
