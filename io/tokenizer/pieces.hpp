// The tokenizers of SentencePiece as the text of a tokenizer.json: those in GGUF files, and those that heed trains.
#pragma once
#include <cstdint>
#include <heed/data/unicode.hpp>
#include <string>
#include <vector>

namespace heed::detail::tokenizer {

// The types of pieces, with the numbers of SentencePiece and GGUF.
enum PieceType : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// A tokenizer of SentencePiece.
struct PieceModel {
  bool unigram = false;                     // else BPE
  std::vector<std::string> texts = {};      // by id; "▁" stands for a space
  std::vector<float> scores = {};           // one per text
  std::vector<std::int32_t> types = {};     // one per text, or empty: all normal
  std::int32_t unknown = -1;                // the piece for unknown characters; -1: none
  bool byte_fallback = false;               // unknown characters are pieces of bytes, <0x00> to <0xFF>
  bool space_prefix = false;                // a text gets a space before its begin
  bool trims = false;                       // spaces at the ends are removed, and several spaces become one
  UnicodeForm unicode = UnicodeForm::none;  // normalizes texts, before everything else
  std::string charsmap = {};                // SentencePiece's normalizer; empty: none

  std::int32_t type(std::size_t id) const { return types.empty() ? kNormal : types[id]; }
};

// Expressions of `trims`: what is written as one space, and what is removed.
inline constexpr char kSeveralSpaces[] = " {2,}", kOuterSpaces[] = R"((?<![\s\S]) | (?![\s\S]))";

// The text of a tokenizer.json. `padding` and `post_processor` are its parts, as JSON. Throws Error, which begins with
// `who`, for a BPE piece whose score is not finite or which has more than 256 bytes.
std::string json_of(const PieceModel& model, const std::string& who, const std::string& padding = "null",
                    const std::string& post_processor = "null");

// The parts of a tokenizer.json as text. `whole` puts them together; `model` is without its braces.
std::string whole_json(const std::string& padding, const std::string& added_tokens, const std::string& normalizer,
                       const std::string& pre_tokenizer, const std::string& post_processor, const std::string& decoder,
                       const std::string& model);
// An array of the texts that are added tokens by their types; a type is missing for all others.
std::string added_tokens_json(const std::vector<std::string>& texts, const std::vector<std::int32_t>& types);
// `"vocab":{...}`.
std::string vocabulary_json(const std::vector<std::string>& texts);
// The normalizer of a form: {"type":"NFC"}, or "null".
std::string normalizer_json(UnicodeForm form);

// Byte-level BPE with a token per byte and no merges, and words of one character. The tokens are single bytes or
// characters.
std::string bytes_json(const std::vector<std::string>& bytes, UnicodeForm form);
std::string characters_json(const std::vector<std::string>& characters, UnicodeForm form);
// The expression by which characters_json() divides a text.
inline constexpr char kAnyCharacter[] = R"([\s\S])";

}  // namespace heed::detail::tokenizer
