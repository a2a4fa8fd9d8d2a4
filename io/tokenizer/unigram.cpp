// Unigram (Kudo 2018): the division of a piece whose tokens have the largest sum of scores.
#include <array>
#include <cmath>
#include <heed/io/tokenizer/byte_trie.hpp>
#include <heed/io/tokenizer/stages.hpp>
#include <limits>

namespace heed::detail::tokenizer {
namespace {

class Unigram final : public Model {
 public:
  Unigram(const TokenizerFile& file, const JsonView& json, const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
    json.only({"type", "unk_id", "vocab", "byte_fallback"});
    check_trie_bytes(file);
    const auto count = static_cast<std::int64_t>(file.vocabulary.size());
    if (json.has("unk_id")) unknown_ = static_cast<std::int32_t>(json.at("unk_id").integer(0, count - 1));
    fallback_ = json.boolean_or("byte_fallback", false);
    double lowest = std::numeric_limits<double>::infinity();
    for (const TokenizerFile::Entry& e : file.vocabulary) {
      const auto id = static_cast<std::int32_t>(scores_.size());
      if (e.text.size > 0) trie_.add(file.text(e.text), id);
      scores_.push_back(e.value);
      lowest = std::min(lowest, e.value);
    }
    constexpr double kPenalty = 10;
    unknown_score_ = lowest - kPenalty;
    for (unsigned b = 0; b < 256; ++b) byte_ids_[b] = vocabulary_.id_of(formatted("<0x%02X>", b));
  }

  void encode(const Pieces& pieces, Tokens& to, EncodeScratch& scratch) const override {
    for (const Range piece : pieces.ranges) encode_piece(part(pieces.text, piece), to, scratch);
  }
  std::int32_t unknown() const override { return unknown_; }
  bool is_byte(std::int32_t id) const override {
    return fallback_ && std::ranges::find(byte_ids_, id) != byte_ids_.end();
  }

 private:
  void encode_piece(std::string_view piece, Tokens& to, EncodeScratch& scratch) const {
    PieceCache::Line* line = PieceCache::fits(piece) ? &scratch.cache.line(piece) : nullptr;
    if (line != nullptr && PieceCache::holds(*line, piece)) {
      to.insert(to.end(), line->ids.begin(), line->ids.begin() + line->count);
      return;
    }
    const std::size_t before = to.size();
    find_paths(piece, scratch.paths, scratch.match);
    append_best(piece, scratch.paths, to);
    if (line != nullptr) PieceCache::store(*line, piece, std::span(to).subspan(before));
  }

  // The best way to each byte of the piece at which a token can end (Viterbi 1967). Of equal ways the first counts:
  // the one whose last token is longest.
  void find_paths(std::string_view piece, std::vector<Path>& paths, MatchState& state) const {
    paths.assign(piece.size() + 1, {});
    for (std::size_t begin = 0; begin < piece.size();) {
      const std::size_t character = begin + length_at(piece, begin);
      const double score = paths[begin].score;
      const auto try_end = [&](std::size_t end, double candidate, std::int32_t id) {
        if (paths[end].begin < 0 || candidate > paths[end].score)
          paths[end] = {candidate, static_cast<std::int32_t>(begin), id};
      };
      bool single = false;
      std::int32_t node = ByteTrie::kRoot;
      std::size_t end = begin;
      while (end < piece.size()) {
        node = trie_.step(node, static_cast<unsigned char>(piece[end++]));
        if (node == ByteTrie::kNone) break;
        const std::int32_t id = trie_.value(node);
        if (id < 0) continue;
        try_end(end, scores_[static_cast<std::size_t>(id)] + score, id);
        single = single || end == character;
      }
      state.spend(end - begin);
      if (!single) {
        require(unknown_ >= 0,
                "encode: the text has a character that is not in the vocabulary, and model.unk_id is "
                "not set");
        try_end(character, unknown_score_ + score, unknown_);
      }
      begin = character;
    }
  }

  // Appends the tokens of the best way. Neighbouring unknown characters are one token, or the tokens of their bytes.
  void append_best(std::string_view piece, std::vector<Path>& paths, Tokens& to) const {
    const std::size_t before = to.size();
    for (std::size_t end = piece.size(); end > 0;) {
      std::size_t begin = static_cast<std::size_t>(paths[end].begin);
      const std::int32_t id = paths[end].id;
      if (id == unknown_) {
        while (begin > 0 && paths[begin].id == unknown_) begin = static_cast<std::size_t>(paths[begin].begin);
        append_unknown(piece.substr(begin, end - begin), to);
      } else {
        to.push_back(id);
      }
      end = begin;
    }
    std::reverse(to.begin() + static_cast<std::ptrdiff_t>(before), to.end());
  }

  // In reverse order.
  void append_unknown(std::string_view text, Tokens& to) const {
    const std::int32_t whole = vocabulary_.id_of(text);
    const auto id_at = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
    if (whole < 0 && fallback_ && std::ranges::all_of(text, [&](char c) { return id_at(c) >= 0; })) {
      for (std::size_t i = text.size(); i-- > 0;) to.push_back(id_at(text[i]));
    } else {
      to.push_back(whole >= 0 ? whole : unknown_);
    }
  }

  const Vocabulary& vocabulary_;
  ByteTrie trie_;
  std::vector<double> scores_;              // by id
  std::array<std::int32_t, 256> byte_ids_;  // of <0x00> to <0xFF>; -1: none
  double unknown_score_ = 0;
  std::int32_t unknown_ = -1;
  bool fallback_ = false;
};

}  // namespace

std::unique_ptr<const Model> make_unigram(const TokenizerFile& file, const JsonView& json,
                                          const Vocabulary& vocabulary) {
  require(file.scored, "tokenizer.json: model.vocab must be an array of tokens and scores");
  return std::make_unique<Unigram>(file, json, vocabulary);
}

}  // namespace heed::detail::tokenizer
