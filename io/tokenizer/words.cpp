// WordPiece (Schuster and Nakajima 2012), the model of BERT, WordLevel, and the vocabulary that all models share.
#include <heed/io/tokenizer/byte_trie.hpp>
#include <heed/io/tokenizer/stages.hpp>

namespace heed::detail::tokenizer {
namespace {

class WordPiece final : public Model {
 public:
  WordPiece(const TokenizerFile& file, const JsonView& json, const Vocabulary& vocabulary) {
    json.only({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
    check_trie_bytes(file);
    longest_ = static_cast<std::size_t>(json.at("max_input_chars_per_word").integer(0, 1 << 20));
    unknown_ = vocabulary.id_of(json.at("unk_token").text());
    if (unknown_ < 0) json.at("unk_token").refuse("is not in model.vocab");
    for (const TokenizerFile::Entry& e : file.vocabulary)
      if (e.text.size > 0) trie_.add(file.text(e.text), static_cast<std::int32_t>(e.value));
    for (const char c : json.at("continuing_subword_prefix").text()) {
      if (inside_ == ByteTrie::kNone) break;
      inside_ = trie_.step(inside_, static_cast<unsigned char>(c));
    }
  }

  void encode(const Pieces& pieces, Tokens& to, EncodeScratch& scratch) const override {
    for (const Range piece : pieces.ranges) encode_word(part(pieces.text, piece), to, scratch);
  }
  std::int32_t unknown() const override { return unknown_; }
  bool is_byte(std::int32_t) const override { return false; }

 private:
  void encode_word(std::string_view word, Tokens& to, EncodeScratch& scratch) const {
    PieceCache::Line* line = PieceCache::fits(word) ? &scratch.cache.line(word) : nullptr;
    if (line != nullptr && PieceCache::holds(*line, word)) {
      to.insert(to.end(), line->ids.begin(), line->ids.begin() + line->count);
      return;
    }
    const std::size_t before = to.size();
    if (!divide(word, to, scratch.match)) {
      to.resize(before);
      to.push_back(unknown_);
    }
    if (line != nullptr) PieceCache::store(*line, word, std::span(to).subspan(before));
  }

  // Appends the longest token at the beginning of the word, then the longest with the prefix at the beginning of the
  // rest, and so on. Returns false if no token continues the word, which is then one unknown token.
  bool divide(std::string_view word, Tokens& to, MatchState& state) const {
    std::size_t characters = 0;
    for (std::size_t i = 0; i < word.size(); i += length_at(word, i)) ++characters;
    if (characters > longest_) return false;
    for (std::size_t begin = 0; begin < word.size();) {
      std::size_t end = begin;
      std::int32_t id = -1, node = begin == 0 ? ByteTrie::kRoot : inside_;
      std::size_t i = begin;
      while (i < word.size() && node != ByteTrie::kNone) {
        node = trie_.step(node, static_cast<unsigned char>(word[i++]));
        if (node != ByteTrie::kNone && trie_.value(node) >= 0) id = trie_.value(node), end = i;
      }
      state.spend(i - begin);
      if (id < 0) return false;
      to.push_back(id);
      begin = end;
    }
    return true;
  }

  ByteTrie trie_;
  std::int32_t inside_ = ByteTrie::kRoot;  // the node after the prefix of tokens inside a word; kNone: none has it
  std::size_t longest_ = 0;                // characters of a word
  std::int32_t unknown_ = -1;
};

// Each piece is one token.
class WordLevel final : public Model {
 public:
  WordLevel(const JsonView& json, const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
    json.only({"type", "unk_token", "vocab"});
    unknown_ = vocabulary.id_of(json.at("unk_token").text());
  }

  void encode(const Pieces& pieces, Tokens& to, EncodeScratch&) const override {
    for (const Range piece : pieces.ranges) {
      const std::int32_t id = vocabulary_.id_of(part(pieces.text, piece));
      require(id >= 0 || unknown_ >= 0,
              "encode: the text has a word that is not in the vocabulary, and model.unk_token is not in model.vocab");
      to.push_back(id >= 0 ? id : unknown_);
    }
  }
  std::int32_t unknown() const override { return unknown_; }
  bool is_byte(std::int32_t) const override { return false; }

 private:
  const Vocabulary& vocabulary_;
  std::int32_t unknown_ = -1;
};

}  // namespace

std::unique_ptr<const Model> make_word_level(const TokenizerFile& file, const JsonView& json,
                                             const Vocabulary& vocabulary) {
  require(!file.scored, "tokenizer.json: model.vocab must be an object");
  return std::make_unique<WordLevel>(json, vocabulary);
}

std::unique_ptr<const Model> make_wordpiece(const TokenizerFile& file, const JsonView& json,
                                            const Vocabulary& vocabulary) {
  require(!file.scored, "tokenizer.json: model.vocab must be an object");
  return std::make_unique<WordPiece>(file, json, vocabulary);
}

void check_trie_bytes(const TokenizerFile& file) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 24;
  require(file.bytes.size() < kMaxBytes, "tokenizer.json: the texts of model.vocab have ", file.bytes.size(),
          " bytes; they must have fewer than ", kMaxBytes);
}

Vocabulary vocabulary_of(const TokenizerFile& file) {
  constexpr std::size_t kMaxUnused = std::size_t{1} << 16;
  const std::size_t ids = file.vocabulary.size() + kMaxUnused;
  Vocabulary made;
  made.reserve(file.vocabulary.size(), file.bytes.size());
  std::int32_t next = 0;
  for (const TokenizerFile::Entry& e : file.vocabulary) {
    const std::string_view text = file.text(e.text);
    const std::int32_t id = file.scored ? next++ : static_cast<std::int32_t>(e.value);
    if (static_cast<std::size_t>(id) >= ids)  // not require(), which would make an excerpt of each token
      fail("tokenizer.json: model.vocab has the id ", id, " for \"", excerpt(text), "\"; a vocabulary of ",
           file.vocabulary.size(), " tokens must have ids below ", ids);
    if (made.id_of(text) >= 0) fail("tokenizer.json: model.vocab has the token \"", excerpt(text), "\" twice");
    if (made.has(id))
      fail("tokenizer.json: model.vocab has the id ", id, " for \"", excerpt(made.text(id)), "\" and \"", excerpt(text),
           "\"");
    made.add(text, id);
  }
  return made;
}

}  // namespace heed::detail::tokenizer
