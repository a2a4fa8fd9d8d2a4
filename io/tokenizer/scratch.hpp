// Memory that the stages of a tokenizer reuse from text to text, so that a piece of a text needs no allocation.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <heed/data/tokenizer.hpp>
#include <heed/io/tokenizer/pattern.hpp>
#include <heed/io/tokenizer/text.hpp>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::detail::tokenizer {

// The pieces of one section of a text, which is the part between added tokens.
struct Pieces {
  std::string_view text;      // the section, or its normalized form in `own`
  std::string own;            // for stages that change the text
  std::vector<Range> ranges;  // not empty, in order; gaps are parts that were removed
  bool first = true;          // the section begins the text
  bool continues = false;     // other text precedes the text: no space is inserted before the section
};

// The tokens of recent short pieces. A piece is stored at one place, chosen by its hash, and replaces the piece there.
class PieceCache {
 public:
  struct Line {
    std::uint8_t bytes = 0, count = 0;
    std::array<char, 22> text = {};
    std::array<std::int32_t, 10> ids = {};
  };

  // The line of a piece. holds() tells whether the line has the tokens of the piece.
  Line& line(std::string_view piece) {
    if (lines_.empty()) lines_.resize(kLines);
    return lines_[std::hash<std::string_view>()(piece) % kLines];
  }
  static bool fits(std::string_view piece) { return piece.size() <= sizeof(Line::text); }
  static bool holds(const Line& line, std::string_view piece) {
    return line.bytes == piece.size() && std::memcmp(line.text.data(), piece.data(), piece.size()) == 0;
  }
  static void store(Line& line, std::string_view piece, std::span<const std::int32_t> ids) {
    if (ids.size() > line.ids.size()) return;
    line.bytes = static_cast<std::uint8_t>(piece.size()), line.count = static_cast<std::uint8_t>(ids.size());
    std::memcpy(line.text.data(), piece.data(), piece.size());
    std::copy(ids.begin(), ids.end(), line.ids.begin());
  }

 private:
  static constexpr std::size_t kLines = std::size_t{1} << 14;  // 1 MiB
  std::vector<Line> lines_;
};

// A token of a piece during merges: a node of a list.
struct Symbol {
  std::int32_t id = 0;
  std::int32_t previous = -1, next = -1;  // -1: none
};

// A pair of neighbours that can be merged. The lowest rank is merged first, and of equal ranks the leftmost pair.
struct Merge {
  std::int32_t rank = 0, at = 0, id = 0;  // `at`: of the left symbol; `id`: of the merged token
  friend bool operator>(const Merge& a, const Merge& b) { return a.rank != b.rank ? a.rank > b.rank : a.at > b.at; }
};

// The best way to end a token at a byte of a piece, for Unigram.
struct Path {
  double score = 0;
  std::int32_t begin = -1, id = -1;  // -1: no token ends here
};

struct EncodeScratch {
  MatchState match;
  Pieces pieces;
  std::size_t longest = 0;  // bytes; see allow()
  std::string normalized, text, word;
  std::vector<Range> ranges;
  std::vector<std::pair<Range, bool>> segments;  // of a pattern: matches and the parts between them
  PieceCache cache;
  std::vector<Symbol> symbols;
  std::vector<Merge> merges;
  std::vector<Path> paths;

  // Bounds what stages make of a text of `bytes` bytes, and their steps. Stages of a hostile file could double the text
  // again and again, or insert a long text at many places.
  void allow(std::size_t bytes) {
    constexpr std::size_t kMax = std::numeric_limits<std::int32_t>::max();  // places in a text have 32 bits
    longest = std::min(bytes * kLongest + (std::size_t{1} << 16), kMax);
    match.allow(bytes);
  }
  // Throws Error if a stage made a text of more bytes.
  void check(std::size_t bytes) const {
    require(bytes <= longest, "tokenizer: the stages of the tokenizer make more than ", longest,
            " bytes of a text; this is more than ", kLongest, " times the text");
  }
  // Counts the steps of a stage that made, or passed, a text of this size.
  void pass(std::size_t bytes) {
    check(bytes);
    match.spend(kStepsPerByte * bytes);
  }

 private:
  static constexpr std::size_t kLongest = 16, kStepsPerByte = 4;
};

// Replaces each match of the pattern by `content`.
inline void replace_matches(std::string& text, const Pattern& pattern, std::string_view content,
                            EncodeScratch& scratch) {
  if (text.empty()) return;
  std::string& made = scratch.text;
  made.clear();
  pattern.each(text, scratch.match, [&](Range r, bool is_match) {
    made += is_match ? content : part(text, r);
    scratch.check(made.size());
  });
  scratch.pass(made.size());
  text.swap(made);
}

}  // namespace heed::detail::tokenizer
