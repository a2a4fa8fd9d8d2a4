// Writes the tokenizers of data/ as tokenizer.json.
#include <heed/data/text.hpp>
#include <heed/io/protobuf.hpp>
#include <heed/io/tokenizer/pieces.hpp>
#include <heed/io/tokenizer_json.hpp>

namespace heed {

using namespace detail::tokenizer;
using detail::ProtobufFields;

namespace {

constexpr const char* kWho = "tokenizer.json: ";

// ---- SentencePiece: fields of sentencepiece_model.proto ----

// A text and its score.
void add_piece(PieceModel& model, std::string_view bytes) {
  std::string text;
  float score = 0;
  std::int32_t type = kNormal;
  for (ProtobufFields f(bytes); f.next();) {
    if (f.number() == 1) text = f.text();
    if (f.number() == 2) score = f.real();
    if (f.number() == 3) type = static_cast<std::int32_t>(f.integer());
  }
  const auto id = static_cast<std::int32_t>(model.texts.size());
  require(type != kUserDefined && type != kUnused, kWho, "the piece ", excerpt(text), " of the SentencePiece model is ",
          type == kUserDefined ? "user-defined" : "unused",
          ", which tokenizer.json cannot say exactly; pieces must be normal, control, unknown or byte pieces");
  if (type == kUnknown) model.unknown = id;
  model.texts.push_back(std::move(text));
  model.scores.push_back(score);
  model.types.push_back(type);
}

void read_trainer(PieceModel& model, std::string_view bytes) {
  std::uint64_t kind = 1;
  for (ProtobufFields f(bytes); f.next();) {
    if (f.number() == 3) kind = f.integer();
    require(f.number() != 24 || f.integer() == 0, kWho,
            "the SentencePiece model writes spaces as suffixes of words; they must be prefixes");
    if (f.number() == 35) model.byte_fallback = f.integer() != 0;
  }
  require(kind == 1 || kind == 2, kWho, "the SentencePiece model is of the type ", kind == 3 ? "word" : "char",
          "; it must be unigram or bpe");
  model.unigram = kind == 1;
}

void read_normalizer(PieceModel& model, std::string_view bytes) {
  model.space_prefix = model.trims = true;
  for (ProtobufFields f(bytes); f.next();) {
    if (f.number() == 2) model.charsmap = f.text();
    if (f.number() == 3) model.space_prefix = f.integer() != 0;
    if (f.number() == 4) model.trims = f.integer() != 0;
    require(f.number() != 5 || f.integer() != 0, kWho,
            "the SentencePiece model does not write spaces as \"▁\", which it must do");
  }
}

void check_denormalizer(std::string_view bytes) {
  for (ProtobufFields f(bytes); f.next();)
    require(f.number() != 2 || f.text().empty(), kWho,
            "the SentencePiece model normalizes decoded texts, which tokenizer.json cannot say");
}

PieceModel pieces_of(const SentencePieceTokenizer& tokenizer) {
  const std::string bytes = tokenizer.state();
  PieceModel model{.unicode = tokenizer.unicode()};
  read_trainer(model, {});
  read_normalizer(model, {});
  for (ProtobufFields f(bytes); f.next();) {
    if (f.number() == 1) add_piece(model, f.text());
    if (f.number() == 2) read_trainer(model, f.text());
    if (f.number() == 3) read_normalizer(model, f.text());
    if (f.number() == 5) check_denormalizer(f.text());
  }
  require(static_cast<Index>(model.texts.size()) == tokenizer.vocabulary_size(), kWho, "the SentencePiece model has ",
          tokenizer.vocabulary_size(), " pieces, of which ", model.texts.size(), " could be read");
  return model;
}

// ---- Bytes and characters ----

std::string json_of_bytes(UnicodeForm form) {
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
  return bytes_json(bytes, form);
}

std::string json_of_characters(const CharTokenizer& tokenizer) {
  std::vector<std::string> characters;
  for (const char32_t c : decode_utf8(tokenizer.state())) characters.push_back(encode_utf8({c}));
  return characters_json(characters, tokenizer.unicode());
}

}  // namespace

JsonTokenizer to_json_tokenizer(const Tokenizer& tokenizer) {
  if (const auto* json = tokenizer.as<JsonTokenizer>()) return *json;
  if (tokenizer.as<ByteTokenizer>() != nullptr) return JsonTokenizer::from_state(json_of_bytes(tokenizer.unicode()));
  if (const auto* characters = tokenizer.as<CharTokenizer>())
    return JsonTokenizer::from_state(json_of_characters(*characters));
  if (const auto* pieces = tokenizer.as<SentencePieceTokenizer>())
    return JsonTokenizer::from_state(json_of(pieces_of(*pieces), kWho));
  fail(kWho, "the tokenizer is of the kind ", tokenizer.kind(),
       "; it must be byte, char, sentencepiece or tokenizer.json");
}

}  // namespace heed
