// Tokenizers: text to token ids and back. A `Tokenizer` holds any type with these members (yours as well):
//
//   Tokens encode(std::string_view text) const;                   // Error for text that it cannot express
//   std::string decode(std::span<const std::int32_t> ids) const;  // Error for an id out of range
//   Index vocabulary_size() const;
//   std::string kind() const;    // a short name: "byte"
//   std::string state() const;   // all that is needed to make it again; any bytes
//
// and, where that differs from encode():
//
//   Tokens encode_next(std::string_view text) const;  // text that goes on after other text
//
//   std::optional<std::int32_t> special(std::string_view name) const;  // the token "<pad>", "<unk>", "<s>" or "</s>"
//   UnicodeForm unicode() const;            // the form that encode() brings text into
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

template <class T>
concept TokenizerLike = requires(const T& t, std::string_view text, std::span<const std::int32_t> ids) {
  { t.encode(text) } -> std::convertible_to<Tokens>;
  { t.decode(ids) } -> std::convertible_to<std::string>;
  { t.vocabulary_size() } -> std::convertible_to<Index>;
  { t.kind() } -> std::convertible_to<std::string>;
  { t.state() } -> std::convertible_to<std::string>;
};

// What encode() throws for text that it cannot express: «SUBJECT at byte offset 12 REASON».
class EncodeError : public Error {
 public:
  EncodeError(std::string subject, std::size_t offset, std::string reason, const std::string& file = {});
  std::size_t offset() const { return offset_; }
  // The same, for a text of which that one was a part; or for a file.
  EncodeError at(std::size_t offset, const std::string& file = {}) const { return {subject_, offset, reason_, file}; }

 private:
  std::string subject_, reason_;
  std::size_t offset_;
};

// A shared, unchanging value; copies are cheap.
class Tokenizer {
 public:
  template <TokenizerLike T>
  requires(!std::same_as<T, Tokenizer>) Tokenizer(T tokenizer)
      : held_(std::make_shared<Held<T>>(std::move(tokenizer))) {}

  Tokens encode(std::string_view text) const { return held_->encode(text); }
  Tokens encode_next(std::string_view text) const { return held_->encode_next(text); }
  std::string decode(std::span<const std::int32_t> ids) const { return held_->decode(ids); }
  std::string decode(std::initializer_list<std::int32_t> ids) const {
    return decode(std::span(ids.begin(), ids.size()));
  }
  Index vocabulary_size() const { return held_->vocabulary_size(); }
  std::string kind() const { return held_->kind(); }
  std::string state() const { return held_->state(); }
  // The token of padding, of what it does not know, of the beginning and of the end of a text, by these names: "<pad>",
  // "<unk>", "<s>", "</s>". Nothing where it has none.
  std::optional<std::int32_t> special(std::string_view name) const { return held_->special(name); }
  // The form that encode() brings text into. What encode() and then decode() give is text in this form.
  UnicodeForm unicode() const { return held_->unicode(); }
  bool is_byte(std::int32_t id) const { return held_->is_byte(id); }

  // JSON that checkpoints and from_json keep: {"kind": ..., "state": ...}, or "state_base64" for bytes that are not
  // UTF-8; and "unicode": "nfc" or "nfkc" where the tokenizer has a form.
  std::string to_json() const;
  // Makes a byte, char, word or sentencepiece tokenizer again. Throws Error for damaged JSON and for another kind.
  static Tokenizer from_json(std::string_view json);
  // Tells tokenizers apart in token files: a hash (XXH64) of kind, state and form.
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
      if constexpr (requires { value.encode_next(text); }) {
        return value.encode_next(text);
      } else {
        return value.encode(text);
      }
    }
    std::string decode(std::span<const std::int32_t> ids) const override { return value.decode(ids); }
    Index vocabulary_size() const override { return value.vocabulary_size(); }
    std::string kind() const override { return value.kind(); }
    std::string state() const override { return value.state(); }
    std::optional<std::int32_t> special(std::string_view name) const override {
      if constexpr (requires { value.special(name); })
        return value.special(name);
      else
        return {};
    }
    UnicodeForm unicode() const override {
      if constexpr (requires { value.unicode(); })
        return value.unicode();
      else
        return UnicodeForm::none;
    }
    bool is_byte(std::int32_t id) const override {
      if constexpr (requires { value.is_byte(id); })
        return value.is_byte(id);
      else
        return false;
    }
    T value;
  };

  std::shared_ptr<const Face> held_;
};

// How many tokens of a text are unknown to the tokenizer ("<unk>"), or bytes of characters that have no token.
struct TokenCounts {
  Index tokens = 0, unknown = 0, bytes = 0;
  void add(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);
  TokenCounts& operator+=(const TokenCounts& other);
  // "3 of 120 tokens were unknown to the model", the same of "byte pieces", or both; empty if there are none.
  std::string text() const;
};

// 256 tokens, the bytes. Expresses any text. With a form, bytes that are not UTF-8 are kept as they are.
class ByteTokenizer {
 public:
  explicit ByteTokenizer(UnicodeForm unicode = UnicodeForm::none) : unicode_(unicode) {}
  Tokens encode(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> ids) const;
  Index vocabulary_size() const { return 256; }
  std::string kind() const { return "byte"; }
  std::string state() const { return {}; }
  UnicodeForm unicode() const { return unicode_; }

 private:
  UnicodeForm unicode_;
};

// The sorted code points of a text, as nanoGPT's. A character that the text lacks is an Error naming it and its offset:
// text in another form than the training text is refused, so that no form is the default.
class CharTokenizer {
 public:
  // Learns the characters of a text in a form; Error if it is empty or not UTF-8.
  explicit CharTokenizer(std::string_view text, UnicodeForm unicode = UnicodeForm::none);
  // The same of files, read in pieces. Throws Error as read_text.
  static CharTokenizer train(const std::vector<std::filesystem::path>& files_and_folders,
                             UnicodeForm unicode = UnicodeForm::none, const ReadTextOptions& reading = {});

  // EncodeError for a character that was not learned, and for what is not UTF-8.
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

struct WordOptions {
  Index vocabulary = 0;     // the most words, the commonest; 0: all
  Index min_frequency = 1;  // words that are there less often are unknown
  UnicodeForm unicode = UnicodeForm::nfc;
};

// Words between white space, of texts that are tokenised already. <pad>, <unk>, <s> and </s> are 0 to 3, and then come
// the words, the most frequent first, equal ones in the order of their bytes.
class WordTokenizer {
 public:
  static constexpr std::int32_t kPad = 0, kUnknown = 1, kBegin = 2, kEnd = 3;

  // Learns the words of a text, or of files. Error where none is left; as read_text.
  explicit WordTokenizer(std::string_view text, const WordOptions& options = {});
  static WordTokenizer train(const std::vector<std::filesystem::path>& files_and_folders,
                             const WordOptions& options = {}, const ReadTextOptions& reading = {});
  // Error where two are the same, or one is empty.
  static WordTokenizer from_state(std::string_view words, UnicodeForm unicode = UnicodeForm::none);

  Tokens encode(std::string_view text) const;  // another word is <unk>
  // With spaces between; without <pad>, <s> and </s>.
  std::string decode(std::span<const std::int32_t> ids) const;
  Index vocabulary_size() const { return 4 + static_cast<Index>(words_.size()); }
  std::string kind() const { return "word"; }
  std::string state() const;  // the words, a line each
  std::optional<std::int32_t> special(std::string_view name) const;
  const std::string& word(std::int32_t id) const;  // "<s>" of 2. Error for an id out of range
  UnicodeForm unicode() const { return unicode_; }

 private:
  explicit WordTokenizer(UnicodeForm unicode) : unicode_(unicode) {}
  UnicodeForm unicode_;
  std::vector<std::string> words_;
  std::unordered_map<std::string, std::int32_t> ids_;

  void add(std::string word);
};

struct SentencePieceOptions {
  Index vocabulary = 4096;    // an Error if the text has too few or too many characters for it
  std::string model = "bpe";  // or "unigram"
  bool log = false;           // let the library write its progress to stderr
  // The first word of a text has the pieces that it has behind a space, as texts that are tokenised one by one want it.
  bool word_begins = false;
  // Of files with more bytes than this, train() learns from lines that are chosen all over them, at most so many bytes.
  Index sample = Index{64} << 20;
  UnicodeForm unicode = UnicodeForm::nfc;  // SentencePiece's own normalizer is left out
};

// Pieces of words by SentencePiece (Kudo and Richardson 2018): loads any model of it, or learns one from text. The form
// is a field of the model of heed's own, which other programs skip: they must bring text into the form themselves.
class SentencePieceTokenizer {
 public:
  // Reads FILE.model. Throws Error if it is missing or not a model.
  static SentencePieceTokenizer load(const std::filesystem::path& file);
  static SentencePieceTokenizer from_state(std::string_view serialized_model);
  // Learns a model that gives every text in its form back exactly: no added spaces, unknown characters as bytes.
  static SentencePieceTokenizer train(const std::vector<std::filesystem::path>& files_and_folders,
                                      const SentencePieceOptions& options = {}, const ReadTextOptions& reading = {});
  static SentencePieceTokenizer train_on_text(std::string_view text, const SentencePieceOptions& options = {});

  Tokens encode(std::string_view text) const;
  // Without the space that some models put before every text.
  Tokens encode_next(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> ids) const;
  Index vocabulary_size() const;
  std::string kind() const { return "sentencepiece"; }
  std::string state() const;  // the serialised model: the bytes of FILE.model
  // Writes FILE.model, which replaces an old one whole or not at all. Throws Error where it cannot be written.
  void save(const std::filesystem::path& file) const;
  std::string piece(std::int32_t id) const;
  std::optional<std::int32_t> special(std::string_view name) const;  // models learned here have all but <pad>
  UnicodeForm unicode() const;
  SentencePieceTokenizer with_unicode(UnicodeForm unicode) const;  // the same model, with another form
  bool is_byte(std::int32_t id) const;

 private:
  struct Model;
  explicit SentencePieceTokenizer(std::shared_ptr<const Model> model) : model_(std::move(model)) {}
  std::shared_ptr<const Model> model_;
};

// What is wrong with a name for make_tokenizer; empty if nothing is.
std::string tokenizer_name_error(const std::string& name);

// What the flag --tokenizer means: byte, char (of the text, or of the files), or a SentencePiece FILE.model. Without a
// form, FILE.model keeps its own, and the others have none.
Tokenizer make_tokenizer(const std::string& name, std::string_view text, std::optional<UnicodeForm> unicode = {});
Tokenizer make_tokenizer(const std::string& name, const std::vector<std::filesystem::path>& files_and_folders,
                         std::optional<UnicodeForm> unicode = {}, const ReadTextOptions& reading = {});

// The tokens of a text that comes in pieces, for one that does not fit into memory. It is encoded in parts of 4 kB or
// more, cut after line feeds or, in long lines, before spaces, wherever the pieces end: so the tokens are a function of
// the text. For the tokenizers here they are those of its lines one by one, and of encode() of the whole, but that the
// unigram model of SentencePiece sums scores in float and so may choose otherwise in long texts. (Only a text without
// line feed and space for a megabyte may have another token where it is cut, and a SentencePiece model whose pieces
// span them.)
class StreamEncoder {
 public:
  using Use = std::function<void(std::span<const std::int32_t>)>;
  StreamEncoder(Tokenizer tokenizer, Use use) : tokenizer_(std::move(tokenizer)), use_(std::move(use)) {}
  void feed(std::string_view piece);  // EncodeError: the offset is that in the whole text
  void finish();                      // what is left

 private:
  void encode(std::string_view part);

  Tokenizer tokenizer_;
  Use use_;
  std::string rest_;
  std::size_t offset_ = 0;  // of rest_ in the text
};

// All tokens of a text, as StreamEncoder makes them: takes less memory than encode() for a long one.
Tokens encode_text(const Tokenizer& tokenizer, std::string_view text);

// Text of a growing row of tokens, for showing it while it is generated: the bytes of an unfinished character are held
// back until it is whole, so that each piece is UTF-8.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  std::string next(std::int32_t id);  // the new text; may be empty
  std::string finish();               // what was held back, with U+FFFD for what never became a character

 private:
  std::string take(std::string_view text, std::size_t end);

  Tokenizer tokenizer_;
  Tokens ids_;             // the tokens of the last text given out, then those after it
  std::size_t given_ = 0;  // how many tokens of ids_ were given out in full
};

}  // namespace heed
