// The stages of a tokenizer: normalizers change a text, splitters (pre-tokenizers) divide it into pieces, a model turns
// pieces into tokens, decoders turn tokens into a text. Each stage is made from a part of a tokenizer.json.
#pragma once
#include <heed/io/tokenizer/json.hpp>
#include <heed/io/tokenizer/scratch.hpp>
#include <heed/io/tokenizer/vocabulary.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail::tokenizer {

// Changes the text of a section.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // `continues`: other text precedes the section, so that nothing is inserted before it.
  virtual void apply(std::string& text, bool continues, EncodeScratch& scratch) const = 0;
};

// Divides each piece into smaller pieces. May change the text.
class Splitter {
 public:
  virtual ~Splitter() = default;
  virtual void apply(Pieces& pieces, EncodeScratch& scratch) const = 0;
};

// Turns pieces into tokens.
class Model {
 public:
  virtual ~Model() = default;
  // Appends the tokens of the pieces.
  virtual void encode(const Pieces& pieces, Tokens& to, EncodeScratch& scratch) const = 0;
  virtual std::int32_t unknown() const = 0;         // the id of the unknown token; -1: none
  virtual bool is_byte(std::int32_t id) const = 0;  // whether the token is one byte of a longer character
};

// Changes the texts of tokens. The text of all tokens is their concatenation.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& texts, EncodeScratch& scratch) const = 0;
};

template <class Stage>
using Stages = std::vector<std::unique_ptr<const Stage>>;

// Throws Error if a part of the file has 64 stages already.
inline void check_count(std::size_t stages, const JsonView& json) {
  constexpr std::size_t kMaxStages = 64;
  if (stages >= kMaxStages) json.refuse("is one stage too many; there may be " + std::to_string(kMaxStages));
}

// The normalizer Precompiled.
std::unique_ptr<const Normalizer> make_precompiled(const JsonView& json);

// Each function appends the stages of one part of the file, in order. A Sequence becomes its stages.
void add_normalizers(Stages<Normalizer>& to, const JsonView& json);
// Applies normalizers in order. scratch.allow() must have been called.
void normalize_all(const Stages<Normalizer>& stages, std::string& text, bool continues, EncodeScratch& scratch);
void add_decoders(Stages<Decoder>& to, const JsonView& json);
// The splitters. If the last one maps bytes to characters (ByteLevel), it is left out, and the function returns true:
// the model then takes bytes.
bool add_splitters(Stages<Splitter>& to, const JsonView& json);

// The models. `bytes`: pieces are bytes, whereas the texts of tokens map bytes to characters.
std::unique_ptr<const Model> make_bpe(const TokenizerFile& file, const JsonView& json, const Vocabulary& vocabulary,
                                      bool bytes);
std::unique_ptr<const Model> make_wordpiece(const TokenizerFile& file, const JsonView& json,
                                            const Vocabulary& vocabulary);
std::unique_ptr<const Model> make_word_level(const TokenizerFile& file, const JsonView& json,
                                             const Vocabulary& vocabulary);
std::unique_ptr<const Model> make_unigram(const TokenizerFile& file, const JsonView& json,
                                          const Vocabulary& vocabulary);

// Throws Error if the texts of the vocabulary do not fit into a ByteTrie.
void check_trie_bytes(const TokenizerFile& file);

// The vocabulary of a file. Throws Error if two tokens have the same text or id, or if most ids have no token.
Vocabulary vocabulary_of(const TokenizerFile& file);

}  // namespace heed::detail::tokenizer
