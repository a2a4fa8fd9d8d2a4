// Byte-pair encoding (Sennrich et al. 2016): a piece begins as single bytes or characters, and neighbours are merged in
// the order of the list of merges.
#include <algorithm>
#include <array>
#include <functional>
#include <heed/io/tokenizer/byte_level.hpp>
#include <heed/io/tokenizer/stages.hpp>
#include <limits>

namespace heed::detail::tokenizer {
namespace {

constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();  // the rank of pairs that are not merged

// Ranks and merged tokens by pair: a hash table with linear probing.
class Pairs {
 public:
  struct Result {
    std::int32_t rank = kNone, id = -1;
  };

  explicit Pairs(std::size_t count) {
    std::size_t size = 16;
    while (size < count * 2) size *= 2;
    slots_.resize(size);
  }
  // The last merge of a pair counts. Throws Error if the pairs are chosen to collide.
  void set(std::int32_t left, std::int32_t right, Result result) {
    const std::uint64_t key = key_of(left, right);
    const std::size_t at = place(key);
    slots_[at].key = key, slots_[at].result = result;
    probes_.add((at - begin_of(key)) & (slots_.size() - 1), slots_.size() / 2);
  }
  Result find(std::int32_t left, std::int32_t right) const {
    return slots_[place(key_of(left, right))].result;  // an empty slot has the rank kNone
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    Result result;
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t begin_of(std::uint64_t key) const {
    std::uint64_t hash = key * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
    return hash & (slots_.size() - 1);
  }
  std::size_t place(std::uint64_t key) const {
    std::size_t i = begin_of(key);
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & (slots_.size() - 1);
    return i;
  }

  std::vector<Slot> slots_;  // a power of two
  Probes probes_;
};

class Bpe final : public Model {
 public:
  Bpe(const TokenizerFile& file, const JsonView& json, const Vocabulary& vocabulary, bool bytes);

  void encode(const Pieces& pieces, Tokens& to, EncodeScratch& scratch) const override;
  std::int32_t unknown() const override { return unknown_; }
  bool is_byte(std::int32_t id) const override { return std::ranges::binary_search(parts_, id); }

 private:
  // The tokens by which merges of a piece begin, as text: a character, with the prefix unless it is the first, and the
  // suffix if it is the last.
  std::int32_t first_token(std::string_view character, bool first, bool last, std::string& word) const;
  void read_fields(const JsonView& json);
  void read_merges(const TokenizerFile& file);
  void read_bytes();
  void find_cuts(const TokenizerFile& file);

  void encode_piece(std::string_view piece, Tokens& to, EncodeScratch& scratch) const;
  void append_first(std::string_view piece, Tokens& to, EncodeScratch& scratch) const;
  bool append_fallback(std::string_view character, Tokens& to) const;
  std::size_t merge_short(std::int32_t* ids, std::size_t n) const;
  Merge merge_at(const std::vector<Symbol>& list, std::int32_t at) const;
  std::size_t merge_long(std::int32_t* ids, std::size_t n, EncodeScratch& scratch) const;

  const Vocabulary& vocabulary_;
  bool bytes_;                                            // pieces are bytes
  bool fallback_ = false, fuse_ = false, whole_ = false;  // byte_fallback, fuse_unk, ignore_merges
  bool cuts_ = false;                                     // see find_cuts()
  std::string prefix_, suffix_;
  std::int32_t unknown_ = -1;
  std::array<std::int32_t, 256> fallback_ids_;             // of <0x00> to <0xFF>; -1: none
  std::array<std::array<std::int32_t, 256>, 4> byte_ids_;  // by first + 2 * last
  std::vector<std::int32_t> parts_;                        // tokens of one byte of a longer character, sorted
  Pairs pairs_;
};

Bpe::Bpe(const TokenizerFile& file, const JsonView& json, const Vocabulary& vocabulary, bool bytes)
    : vocabulary_(vocabulary), bytes_(bytes), pairs_(file.merges.size()) {
  read_fields(json);
  for (unsigned b = 0; b < 256; ++b) fallback_ids_[b] = vocabulary_.id_of(formatted("<0x%02X>", b));
  if (bytes_) read_bytes();
  for (unsigned b = 0; b < 256; ++b) {
    const std::int32_t id = bytes_ ? byte_ids_[0][b] : fallback_ ? fallback_ids_[b] : -1;
    if (id >= 0 && (!bytes_ || b >= 0x80)) parts_.push_back(id);
  }
  std::ranges::sort(parts_);
  read_merges(file);
  if (!bytes_) find_cuts(file);
}

void Bpe::read_fields(const JsonView& json) {
  json.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
             "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (json.has("dropout")) json.at("dropout").refuse("is set; heed reads tokenizers without dropout");
  json.at("merges").items();
  prefix_ = json.text_or("continuing_subword_prefix", "");
  suffix_ = json.text_or("end_of_word_suffix", "");
  constexpr std::size_t kLongest = 64;  // bytes: both are copied for each character
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (json.text_or(key, "").size() > kLongest)
      json.at(key).refuse("is longer than " + std::to_string(kLongest) + " bytes");
  fuse_ = json.boolean_or("fuse_unk", false);
  fallback_ = json.boolean_or("byte_fallback", false);
  whole_ = json.boolean_or("ignore_merges", false);
  if (fallback_ && !(prefix_.empty() && suffix_.empty()))
    json.at("byte_fallback").refuse("is true; continuing_subword_prefix and end_of_word_suffix must then be empty");
  if (!json.has("unk_token")) return;
  unknown_ = vocabulary_.id_of(json.at("unk_token").text());
  if (unknown_ < 0) json.at("unk_token").refuse("is not in model.vocab");
}

std::int32_t Bpe::first_token(std::string_view character, bool first, bool last, std::string& word) const {
  if (prefix_.empty() && suffix_.empty()) return vocabulary_.id_of(character);
  word.clear();
  if (!first) word += prefix_;
  word += character;
  if (last) word += suffix_;
  return vocabulary_.id_of(word);
}

void Bpe::read_bytes() {
  std::string word;
  for (unsigned b = 0; b < 256; ++b) {
    std::string character;
    append_utf8(character, byte_level::kCharacters[b]);
    for (unsigned place = 0; place < 4; ++place)
      byte_ids_[place][b] = first_token(character, (place & 1) != 0, (place & 2) != 0, word);
    require(byte_ids_[0][b] >= 0 || !fallback_,
            "tokenizer.json: model.byte_fallback is true, but model.vocab has no \"", character,
            "\", which ByteLevel writes for the byte ", b);
  }
}

void Bpe::read_merges(const TokenizerFile& file) {
  std::string joined;
  for (std::size_t i = 0; i < file.merges.size(); ++i) {
    const std::string_view left = file.text(file.merges[i].first), right = file.text(file.merges[i].second);
    const auto id_of = [&](std::string_view token) {
      const std::int32_t id = vocabulary_.id_of(token);
      if (id < 0)
        fail("tokenizer.json: model.merges[", i, "] needs the token \"", excerpt(token),
             "\", which is not in model.vocab");
      return id;
    };
    if (right.size() < prefix_.size())
      fail("tokenizer.json: model.merges[", i, "] has \"", excerpt(right),
           "\", which is shorter than model.continuing_subword_prefix");
    (joined = left) += right.substr(prefix_.size());
    const std::int32_t left_id = id_of(left), right_id = id_of(right);
    pairs_.set(left_id, right_id, {static_cast<std::int32_t>(i), id_of(joined)});
  }
}

// Pieces of Llama-2 are whole texts, in which "▁" stands for a space. If no merge joins a token that begins with "▁" to
// one that ends otherwise, no token crosses the beginning of a word, and the text is divided there. The parts are
// short, and most are in the cache.
void Bpe::find_cuts(const TokenizerFile& file) {
  constexpr std::string_view kSpace = "▁";
  cuts_ = prefix_.empty() && suffix_.empty() && vocabulary_.id_of(kSpace) >= 0 && !whole_;
  for (const auto& [left, right] : file.merges)
    cuts_ = cuts_ && (!file.text(right).starts_with(kSpace) || file.text(left).ends_with(kSpace));
}

void Bpe::encode(const Pieces& pieces, Tokens& to, EncodeScratch& scratch) const {
  constexpr std::string_view kSpace = "▁";
  for (const Range piece : pieces.ranges) {
    std::string_view rest = part(pieces.text, piece);
    while (cuts_ && rest.size() > kSpace.size()) {
      std::size_t cut = rest.find(kSpace, 1);
      while (cut != rest.npos && rest.substr(0, cut).ends_with(kSpace)) cut = rest.find(kSpace, cut + 1);
      if (cut == rest.npos) break;
      encode_piece(rest.substr(0, cut), to, scratch);
      rest.remove_prefix(cut);
    }
    encode_piece(rest, to, scratch);
  }
}

void Bpe::encode_piece(std::string_view piece, Tokens& to, EncodeScratch& scratch) const {
  PieceCache::Line* line = PieceCache::fits(piece) ? &scratch.cache.line(piece) : nullptr;
  if (line != nullptr && PieceCache::holds(*line, piece)) {
    to.insert(to.end(), line->ids.begin(), line->ids.begin() + line->count);
    return;
  }
  const std::size_t begin = to.size();
  std::int32_t whole = -1;
  if (whole_) {
    scratch.word.clear();
    if (bytes_) byte_level::append_characters(scratch.word, piece);
    whole = vocabulary_.id_of(bytes_ ? std::string_view(scratch.word) : piece);
  }
  if (whole >= 0) {
    to.push_back(whole);
  } else {
    append_first(piece, to, scratch);
    constexpr std::size_t kShort = 32;  // symbols; below, the lowest rank is found without a heap
    std::int32_t* ids = to.data() + begin;
    const std::size_t n = to.size() - begin;
    to.resize(begin + (n <= kShort ? merge_short(ids, n) : merge_long(ids, n, scratch)));
  }
  if (line != nullptr) PieceCache::store(*line, piece, std::span(to).subspan(begin));
}

// The order of unknown characters and bytes is that of `tokenizers`: an unknown token waits for the next known one.
void Bpe::append_first(std::string_view piece, Tokens& to, EncodeScratch& scratch) const {
  bool waits = false;
  const auto flush = [&] {
    if (waits) to.push_back(unknown_);
    waits = false;
  };
  for (std::size_t i = 0; i < piece.size();) {
    const std::size_t n = bytes_ ? 1 : length_at(piece, i);
    const bool first = i == 0, last = i + n == piece.size();
    const std::string_view character = piece.substr(i, n);
    const std::int32_t id = bytes_ ? byte_ids_[(first ? 1u : 0u) + (last ? 2u : 0u)][byte_of(piece, i)]
                                   : first_token(character, first, last, scratch.word);
    i += n;
    if (id >= 0) {
      flush();
      to.push_back(id);
    } else if (!(fallback_ && append_fallback(character, to)) && unknown_ >= 0) {
      if (!fuse_) flush();
      waits = true;
    }
  }
  flush();
}

bool Bpe::append_fallback(std::string_view character, Tokens& to) const {
  for (std::size_t i = 0; i < character.size(); ++i)
    if (fallback_ids_[byte_of(character, i)] < 0) return false;
  for (std::size_t i = 0; i < character.size(); ++i) to.push_back(fallback_ids_[byte_of(character, i)]);
  return true;
}

// Merges `n` tokens in place. Returns their number.
std::size_t Bpe::merge_short(std::int32_t* ids, std::size_t n) const {
  std::array<Pairs::Result, 32> next;  // of the token and its right neighbour
  for (std::size_t i = 0; i + 1 < n; ++i) next[i] = pairs_.find(ids[i], ids[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (next[i].rank < next[best].rank) best = i;
    if (next[best].rank == kNone) break;
    ids[best] = next[best].id;
    std::copy(ids + best + 2, ids + n, ids + best + 1);
    if (best + 2 < n) std::copy(next.begin() + best + 2, next.begin() + n - 1, next.begin() + best + 1);
    --n;
    if (best > 0) next[best - 1] = pairs_.find(ids[best - 1], ids[best]);
    if (best + 1 < n) next[best] = pairs_.find(ids[best], ids[best + 1]);
  }
  return n;
}

// The merge of a token and the next one. Its rank is kNone if there is none.
Merge Bpe::merge_at(const std::vector<Symbol>& list, std::int32_t at) const {
  const std::int32_t next = at < 0 ? -1 : list[static_cast<std::size_t>(at)].next;
  if (next < 0) return {kNone, at, -1};
  const auto r = pairs_.find(list[static_cast<std::size_t>(at)].id, list[static_cast<std::size_t>(next)].id);
  return {r.rank, at, r.id};
}

// As merge_short(), with a heap and a list, for long pieces. A pair that changed after it was put on the heap is left
// out: a later merge of its tokens is longer, and has another id.
std::size_t Bpe::merge_long(std::int32_t* ids, std::size_t n, EncodeScratch& scratch) const {
  std::vector<Symbol>& list = scratch.symbols;
  std::vector<Merge>& heap = scratch.merges;
  list.resize(n);
  heap.clear();
  for (std::size_t i = 0; i < n; ++i)
    list[i] = {ids[i], static_cast<std::int32_t>(i) - 1, i + 1 < n ? static_cast<std::int32_t>(i) + 1 : -1};
  for (std::size_t i = 0; i + 1 < n; ++i)
    if (const Merge m = merge_at(list, static_cast<std::int32_t>(i)); m.rank != kNone) heap.push_back(m);
  std::ranges::make_heap(heap, std::greater<>());
  const auto push = [&](std::int32_t at) {
    const Merge m = merge_at(list, at);
    if (m.rank == kNone) return;
    heap.push_back(m);
    std::ranges::push_heap(heap, std::greater<>());
  };
  while (!heap.empty()) {
    const Merge m = heap.front();
    std::ranges::pop_heap(heap, std::greater<>());
    heap.pop_back();
    Symbol& left = list[static_cast<std::size_t>(m.at)];
    if (left.id < 0 || merge_at(list, m.at).id != m.id) continue;
    Symbol& right = list[static_cast<std::size_t>(left.next)];
    left.id = m.id, left.next = right.next, right.id = -1;
    if (left.next >= 0) list[static_cast<std::size_t>(left.next)].previous = m.at;
    push(left.previous);
    push(m.at);
  }
  std::size_t made = 0;
  for (const Symbol& s : list)
    if (s.id >= 0) ids[made++] = s.id;
  constexpr std::size_t kKept = std::size_t{1} << 16;  // memory of longer pieces is released
  if (n > kKept) list = {}, heap = {};
  return made;
}

}  // namespace

std::unique_ptr<const Model> make_bpe(const TokenizerFile& file, const JsonView& json, const Vocabulary& vocabulary,
                                      bool bytes) {
  require(!file.scored, "tokenizer.json: model.vocab must be an object");
  return std::make_unique<Bpe>(file, json, vocabulary, bytes);
}

}  // namespace heed::detail::tokenizer
