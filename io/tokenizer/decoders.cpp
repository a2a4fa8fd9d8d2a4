// Decoders of a tokenizer.json: they turn the texts of tokens into a text.
#include <algorithm>
#include <charconv>
#include <heed/io/tokenizer/byte_level.hpp>
#include <heed/io/tokenizer/stages.hpp>

namespace heed::detail::tokenizer {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = find_text(text, from, 0), done = 0;
  if (at == text.npos) return;
  std::string made;
  for (; at != text.npos; at = find_text(text, from, done)) {
    made.append(text, done, at - done) += to;
    done = at + from.size();
  }
  made.append(text, done);
  text.swap(made);
}

std::string joined_texts(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += text;
  return all;
}

// Reads the characters of bytes. A token with another character is kept as it is.
struct ByteLevelDecoder final : Decoder {
  void apply(std::vector<std::string>& texts, EncodeScratch&) const override {
    std::string bytes;
    for (const std::string& text : texts)
      if (!byte_level::append_bytes(bytes, text)) bytes += text;
    texts.assign(1, repair_utf8(bytes));
  }
};

// Reads tokens such as <0xE2>. Bytes in a row that are not UTF-8 become one U+FFFD each.
struct ByteFallback final : Decoder {
  static int byte_of_token(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return -1;
    unsigned value = 0;
    const char* end = token.data() + 5;
    const auto [stop, error] = std::from_chars(token.data() + 3, end, value, 16);
    return error == std::errc() && stop == end ? static_cast<int>(value) : -1;
  }
  void apply(std::vector<std::string>& texts, EncodeScratch&) const override {
    std::vector<std::string> made;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (find_invalid_utf8(bytes)) {
        made.insert(made.end(), bytes.size(), "\uFFFD");
      } else {
        made.push_back(bytes);
      }
      bytes.clear();
    };
    for (std::string& text : texts) {
      if (const int byte = byte_of_token(text); byte >= 0) {
        bytes += static_cast<char>(byte);
      } else {
        flush();
        made.push_back(std::move(text));
      }
    }
    flush();
    texts.swap(made);
  }
};

struct Fuse final : Decoder {
  void apply(std::vector<std::string>& texts, EncodeScratch&) const override { texts.assign(1, joined_texts(texts)); }
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::vector<std::string>& texts, EncodeScratch& scratch) const override {
    for (std::string& text : texts) replace_matches(text, pattern_, content_, scratch);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// Removes up to `start` and `stop` characters `content` from the ends of each text.
class StripDecoder final : public Decoder {
 public:
  StripDecoder(std::string content, std::size_t start, std::size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& texts, EncodeScratch&) const override {
    for (std::string& text : texts) {
      std::string_view rest = text;
      for (std::size_t i = 0; i < start_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
      for (std::size_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
      text = std::string(rest);
    }
  }

 private:
  std::string content_;
  std::size_t start_, stop_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(std::string replacement, bool prepends)
      : replacement_(std::move(replacement)), prepends_(prepends) {}
  void apply(std::vector<std::string>& texts, EncodeScratch&) const override {
    for (std::size_t i = 0; i < texts.size(); ++i) replace_all(texts[i], replacement_, i == 0 && prepends_ ? "" : " ");
  }

 private:
  std::string replacement_;
  bool prepends_;
};

// Joins words with spaces, and pieces that begin with the prefix without.
class WordPieceDecoder final : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void apply(std::vector<std::string>& texts, EncodeScratch&) const override {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      std::string& text = texts[i];
      if (i > 0 && text.starts_with(prefix_)) {
        text.erase(0, prefix_.size());
      } else if (i > 0) {
        text.insert(0, " ");
      }
      if (cleanup_) clean(text);
    }
  }
  static void clean(std::string& text) {
    constexpr std::string_view kChanges[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                                {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                                {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& change : kChanges) replace_all(text, change[0], change[1]);
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

// Writes a space for the suffix of each word but the last.
class SuffixDecoder final : public Decoder {
 public:
  explicit SuffixDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& texts, EncodeScratch&) const override {
    for (std::size_t i = 0; i < texts.size(); ++i) replace_all(texts[i], suffix_, i + 1 == texts.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

std::string one_character(const JsonView& json) {
  if (decode_utf8(json.text()).size() != 1) json.refuse("must be one character");
  return json.text();
}

std::unique_ptr<const Decoder> make_metaspace_decoder(const JsonView& json) {
  json.only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  const bool never =
      (json.has("prepend_scheme") && json.at("prepend_scheme").one_of({"first", "never", "always"}) == 1) ||
      !json.boolean_or("add_prefix_space", true);
  return std::make_unique<MetaspaceDecoder>(one_character(json.at("replacement")), !never);
}

}  // namespace

void add_decoders(Stages<Decoder>& to, const JsonView& json) {
  check_count(to.size(), json);
  constexpr std::int64_t kMaxStrip = 1 << 20;
  const std::size_t kind = json.at("type").one_of(
      {"ByteLevel", "Sequence", "ByteFallback", "Fuse", "Replace", "Strip", "Metaspace", "WordPiece", "BPEDecoder"});
  switch (kind) {
    case 0:
      json.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});  // these have no effect here
      return to.push_back(std::make_unique<ByteLevelDecoder>());
    case 1:
      json.only({"type", "decoders"});
      for (const JsonView& item : json.at("decoders").items()) add_decoders(to, item);
      return;
    case 2: json.only({"type"}); return to.push_back(std::make_unique<ByteFallback>());
    case 3: json.only({"type"}); return to.push_back(std::make_unique<Fuse>());
    case 4:
      json.only({"type", "pattern", "content"});
      return to.push_back(
          std::make_unique<ReplaceDecoder>(Pattern::from_json(json.at("pattern")), json.at("content").text()));
    case 5:
      json.only({"type", "content", "start", "stop"});
      return to.push_back(std::make_unique<StripDecoder>(
          one_character(json.at("content")), static_cast<std::size_t>(json.at("start").integer(0, kMaxStrip)),
          static_cast<std::size_t>(json.at("stop").integer(0, kMaxStrip))));
    case 6: return to.push_back(make_metaspace_decoder(json));
    case 7:
      json.only({"type", "prefix", "cleanup"});
      return to.push_back(std::make_unique<WordPieceDecoder>(json.at("prefix").text(), json.at("cleanup").boolean()));
    default:
      json.only({"type", "suffix"});
      if (json.at("suffix").text().empty()) json.at("suffix").refuse("must not be empty");
      return to.push_back(std::make_unique<SuffixDecoder>(json.at("suffix").text()));
  }
}

}  // namespace heed::detail::tokenizer
