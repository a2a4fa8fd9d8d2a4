// Pre-tokenizers of a tokenizer.json: they divide a text into pieces.
#include <algorithm>
#include <heed/io/tokenizer/byte_level.hpp>
#include <heed/io/tokenizer/stages.hpp>
#include <heed/io/tokenizer/unicode.hpp>

namespace heed::detail::tokenizer {
namespace {

// What becomes of the matches of a pattern: pieces of their own, nothing, a part of the piece before or after, or one
// piece per row of matches.
enum class Behaviour { isolated, removed, with_previous, with_next, contiguous };

Behaviour behaviour_of(const JsonView& json) {
  return static_cast<Behaviour>(
      json.one_of({"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"}));
}

using Segments = std::vector<std::pair<Range, bool>>;  // matches (true) and the parts between them, in order

// Joins segments as the behaviour demands. The flags of the result have no meaning.
void join(Segments& segments, Behaviour behaviour) {
  if (behaviour == Behaviour::with_next) std::reverse(segments.begin(), segments.end());
  bool previous = false;
  std::size_t made = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const auto [range, match] = segments[i];
    const bool joins = behaviour == Behaviour::contiguous ? match == previous : match && !previous;
    previous = match;
    if (!joins || made == 0) {
      segments[made++] = {range, match};
    } else if (behaviour == Behaviour::with_next) {
      segments[made - 1].first.begin = range.begin;
    } else {
      segments[made - 1].first.end = range.end;
    }
  }
  segments.resize(made);
  if (behaviour == Behaviour::with_next) std::reverse(segments.begin(), segments.end());
}

// Divides each piece. find(text, use) calls use(range, is_match) for the segments of a piece.
template <class Find>
void split(Pieces& pieces, EncodeScratch& scratch, Behaviour behaviour, bool invert, const Find& find) {
  std::vector<Range>& made = scratch.ranges;
  made.clear();
  const auto add = [&](std::uint32_t at, Range r) {
    if (r.begin != r.end) made.push_back({at + r.begin, at + r.end});
  };
  for (const Range piece : pieces.ranges) {
    const std::string_view text = part(pieces.text, piece);
    if (behaviour == Behaviour::isolated) {
      find(text, [&](Range r, bool) { add(piece.begin, r); });
    } else if (behaviour == Behaviour::removed) {
      find(text, [&](Range r, bool is_match) {
        if (is_match == invert) add(piece.begin, r);
      });
    } else {
      scratch.segments.clear();
      find(text, [&](Range r, bool is_match) { scratch.segments.emplace_back(r, is_match != invert); });
      join(scratch.segments, behaviour);
      for (const auto& segment : scratch.segments) add(piece.begin, segment.first);
    }
  }
  pieces.ranges.swap(made);
}

// Each character for which matches(c) is a match.
template <class Matches>
void split_at(Pieces& pieces, EncodeScratch& scratch, Behaviour behaviour, const Matches& matches) {
  split(pieces, scratch, behaviour, false, [&](std::string_view text, const auto& use) {
    std::size_t done = 0;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t begin = i;
      if (!matches(next_code_point(text, i))) continue;
      if (done != begin) use(range(done, begin), false);
      use(range(begin, i), true);
      done = i;
    }
    if (done != text.size()) use(range(done, text.size()), false);
  });
}

// Replaces each piece by what put(to, piece, index) appends to the string `to`.
template <class Put>
void rewrite_pieces(Pieces& pieces, EncodeScratch& scratch, const Put& put) {
  std::string& made = scratch.text;
  made.clear();
  pieces.first = pieces.first && !pieces.ranges.empty() && pieces.ranges[0].begin == 0;
  for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
    const std::size_t begin = made.size();
    put(made, part(pieces.text, pieces.ranges[i]), i);
    scratch.check(made.size());
    pieces.ranges[i] = range(begin, made.size());
  }
  pieces.own.swap(made);
  pieces.text = pieces.own;
}

class Split final : public Splitter {
 public:
  Split(Pattern pattern, Behaviour behaviour, bool invert)
      : pattern_(std::move(pattern)), behaviour_(behaviour), invert_(invert) {}
  void apply(Pieces& pieces, EncodeScratch& scratch) const override {
    split(pieces, scratch, behaviour_, invert_,
          [&](std::string_view text, const auto& use) { pattern_.each(text, scratch.match, use); });
  }

 private:
  Pattern pattern_;
  Behaviour behaviour_;
  bool invert_;
};

using IsIn = bool (*)(char32_t c);

// Splits at the characters of a class.
class ClassSplit final : public Splitter {
 public:
  ClassSplit(IsIn is_in, Behaviour behaviour) : is_in_(is_in), behaviour_(behaviour) {}
  void apply(Pieces& pieces, EncodeScratch& scratch) const override { split_at(pieces, scratch, behaviour_, is_in_); }

 private:
  IsIn is_in_;
  Behaviour behaviour_;
};

class DelimiterSplit final : public Splitter {
 public:
  explicit DelimiterSplit(char32_t delimiter) : delimiter_(delimiter) {}
  void apply(Pieces& pieces, EncodeScratch& scratch) const override {
    split_at(pieces, scratch, Behaviour::removed, [this](char32_t c) { return c == delimiter_; });
  }

 private:
  char32_t delimiter_;
};

// Keeps rows of word characters, and rows of characters that are neither of words nor white space.
struct WordSplit final : Splitter {
  void apply(Pieces& pieces, EncodeScratch& scratch) const override {
    const auto kind_of = [](char32_t c) { return is_word(c) ? 2 : is_white_space(c) ? 0 : 1; };
    split(pieces, scratch, Behaviour::removed, true, [&](std::string_view text, const auto& use) {
      std::size_t done = 0;
      int kind = 0;
      for (std::size_t i = 0; i < text.size();) {
        const std::size_t begin = i;
        const int next = kind_of(next_code_point(text, i));
        if (next == kind) continue;
        if (begin != done) use(range(done, begin), kind != 0);
        done = begin, kind = next;
      }
      if (done != text.size()) use(range(done, text.size()), kind != 0);
    });
  }
};

// Divides a text where the script changes. Hiragana and Katakana count as Han. A space and characters of no script
// belong to the piece before; at the beginning of a text they are removed, as `tokenizers` does.
struct ScriptSplit final : Splitter {
  void apply(Pieces& pieces, EncodeScratch& scratch) const override {
    split(pieces, scratch, Behaviour::removed, true, [&](std::string_view text, const auto& use) {
      std::size_t done = text.size();  // the beginning of the piece; none yet
      int script = kAnyScript;
      for (std::size_t i = 0; i < text.size();) {
        const std::size_t begin = i;
        const int next = script_of(next_code_point(text, i));
        if (next == kAnyScript) continue;
        if (next != script) {
          if (done < begin) use(range(done, begin), true);
          done = begin;
        }
        script = next;
      }
      if (done < text.size()) use(range(done, text.size()), true);
    });
  }
};

// The space of ByteLevel before each piece that does not begin with one.
struct PrefixSpace final : Splitter {
  void apply(Pieces& pieces, EncodeScratch& scratch) const override {
    const bool continues = pieces.continues && !pieces.ranges.empty() && pieces.ranges[0].begin == 0;
    rewrite_pieces(pieces, scratch, [&](std::string& to, std::string_view piece, std::size_t index) {
      if (!piece.starts_with(' ') && !(continues && index == 0)) to += ' ';
      to += piece;
    });
  }
};

// Writes bytes as the characters of byte-level tokenizers.
struct MapBytes final : Splitter {
  void apply(Pieces& pieces, EncodeScratch& scratch) const override {
    rewrite_pieces(pieces, scratch, [](std::string& to, std::string_view piece, std::size_t) {
      byte_level::append_characters(to, piece);
    });
  }
};

// Writes spaces as another character, mostly "▁", inserts it before a piece, and splits before it.
struct Metaspace final : Splitter {
  enum class Prepend { first, never, always };

  void apply(Pieces& pieces, EncodeScratch& scratch) const override {
    const bool first = pieces.first, continues = pieces.continues;
    const bool at_start = !pieces.ranges.empty() && pieces.ranges[0].begin == 0;
    rewrite_pieces(pieces, scratch, [&](std::string& to, std::string_view piece, std::size_t index) {
      const bool begins = index == 0 && at_start;
      const bool wanted = prepend == Prepend::always || (prepend == Prepend::first && first && begins);
      if (wanted && !(begins && continues) && !piece.starts_with(' ') && !piece.starts_with(replacement))
        to += replacement;
      for (const char c : piece) c == ' ' ? to += replacement : to += c;
    });
    if (!splits) return;
    split(pieces, scratch, Behaviour::with_next, false,
          [&](std::string_view text, const auto& use) { pattern.each(text, scratch.match, use); });
  }

  std::string replacement;
  Pattern pattern = Pattern::literal("▁");  // finds the replacement
  Prepend prepend = Prepend::always;
  bool splits = true;
};

char32_t character_of(const JsonView& json) {
  const std::vector<char32_t> all = decode_utf8(json.text());
  if (all.size() != 1) json.refuse("must be one character");
  return all[0];
}

std::unique_ptr<const Splitter> make_metaspace_splitter(const JsonView& json) {
  json.only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  auto made = std::make_unique<Metaspace>();
  character_of(json.at("replacement"));
  made->replacement = json.at("replacement").text();
  made->pattern = Pattern::literal(made->replacement);
  if (json.has("prepend_scheme"))
    made->prepend = static_cast<Metaspace::Prepend>(json.at("prepend_scheme").one_of({"first", "never", "always"}));
  if (!json.boolean_or("add_prefix_space", true)) {
    if (json.has("prepend_scheme") && made->prepend != Metaspace::Prepend::never)
      json.at("add_prefix_space").refuse("is false; prepend_scheme must then be never");
    made->prepend = Metaspace::Prepend::never;
  }
  made->splits = json.boolean_or("split", true);
  return made;
}

constexpr char kGpt2[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The stages of ByteLevel, without the last one, which writes bytes as characters.
void add_byte_level(Stages<Splitter>& to, const JsonView& json) {
  json.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});  // trim_offsets does not change tokens
  json.boolean_or("trim_offsets", true);
  if (json.at("add_prefix_space").boolean()) to.push_back(std::make_unique<PrefixSpace>());
  static const Pattern gpt2 = Pattern::expression(kGpt2, "ByteLevel");
  if (json.boolean_or("use_regex", true)) to.push_back(std::make_unique<Split>(gpt2, Behaviour::isolated, false));
}

// Appends the pre-tokenizers that a Sequence consists of.
void flatten(std::vector<JsonView>& to, const JsonView& json) {
  if (json.at("type").text() != "Sequence") return to.push_back(json);
  json.only({"type", "pretokenizers"});
  for (const JsonView& item : json.at("pretokenizers").items()) flatten(to, item);
}

void add_splitter(Stages<Splitter>& to, const JsonView& json, bool last) {
  check_count(to.size(), json);
  const std::size_t kind =
      json.at("type").one_of({"ByteLevel", "Split", "Digits", "Metaspace", "BertPreTokenizer", "Punctuation",
                              "Whitespace", "WhitespaceSplit", "UnicodeScripts", "CharDelimiterSplit", "Sequence"});
  const auto add_class = [&](IsIn is_in, Behaviour behaviour) {
    to.push_back(std::make_unique<ClassSplit>(is_in, behaviour));
  };
  if (kind >= 6 && kind <= 8) json.only({"type"});
  switch (kind) {
    case 0:
      add_byte_level(to, json);
      if (!last) to.push_back(std::make_unique<MapBytes>());
      return;
    case 1:
      json.only({"type", "pattern", "behavior", "invert"});
      return to.push_back(std::make_unique<Split>(Pattern::from_json(json.at("pattern")),
                                                  behaviour_of(json.at("behavior")), json.at("invert").boolean()));
    case 2:
      json.only({"type", "individual_digits"});
      return add_class(is_numeric,
                       json.at("individual_digits").boolean() ? Behaviour::isolated : Behaviour::contiguous);
    case 3: return to.push_back(make_metaspace_splitter(json));
    case 4:
      json.only({"type"});
      add_class(is_white_space, Behaviour::removed);
      return add_class(is_punctuation, Behaviour::isolated);
    case 5:
      json.only({"type", "behavior"});
      return add_class(is_punctuation, json.has("behavior") ? behaviour_of(json.at("behavior")) : Behaviour::isolated);
    case 6: return to.push_back(std::make_unique<WordSplit>());
    case 7: return add_class(is_white_space, Behaviour::removed);
    case 8: return to.push_back(std::make_unique<ScriptSplit>());
    default:
      json.only({"type", "delimiter"});
      return to.push_back(std::make_unique<DelimiterSplit>(character_of(json.at("delimiter"))));
  }
}

}  // namespace

bool add_splitters(Stages<Splitter>& to, const JsonView& json) {
  std::vector<JsonView> stages;
  flatten(stages, json);
  for (std::size_t i = 0; i < stages.size(); ++i) add_splitter(to, stages[i], i + 1 == stages.size());
  return !stages.empty() && stages.back().at("type").text() == "ByteLevel";
}

}  // namespace heed::detail::tokenizer
