// Normalizers of a tokenizer.json.
#include <heed/io/tokenizer/byte_level.hpp>
#include <heed/io/tokenizer/stages.hpp>
#include <heed/io/tokenizer/unicode.hpp>

namespace heed::detail::tokenizer {
namespace {

class Form final : public Normalizer {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  void apply(std::string& text, bool, EncodeScratch& scratch) const override { normalize(text, form_, scratch.text); }

 private:
  NormalForm form_;
};

struct Lowercase final : Normalizer {
  void apply(std::string& text, bool, EncodeScratch& scratch) const override {
    rewrite(text, scratch.text, append_lower);
  }
};

struct StripAccents final : Normalizer {
  void apply(std::string& text, bool, EncodeScratch& scratch) const override {
    rewrite(text, scratch.text, [](std::string& to, char32_t c) {
      if (!is_mark(c)) append_utf8(to, c);
    });
  }
};

// Removes white space at the ends.
class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text, bool, EncodeScratch&) const override {
    std::size_t begin = 0, end = text.size();
    for (std::size_t i = 0; left_ && begin < end && is_white_space(next_code_point(text, i));) begin = i;
    while (right_ && end > begin) {
      const std::size_t at = previous(text, end);
      if (std::size_t i = at; !is_white_space(next_code_point(text, i))) break;
      end = at;
    }
    text.erase(end);
    text.erase(0, begin);
  }

 private:
  bool left_, right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text, bool continues, EncodeScratch&) const override {
    if (!text.empty() && !continues) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::string& text, bool, EncodeScratch& scratch) const override {
    replace_matches(text, pattern_, content_, scratch);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// Removes control characters, and makes white space a space.
struct Nmt final : Normalizer {
  static bool is_removed(char32_t c) {
    return (1 <= c && c <= 8) || c == 0xB || (0xE <= c && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  }
  static bool is_space(char32_t c) {
    return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (0x200B <= c && c <= 0x200F) || c == 0x2028 ||
           c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  }
  void apply(std::string& text, bool, EncodeScratch& scratch) const override {
    rewrite(text, scratch.text, [](std::string& to, char32_t c) {
      if (!is_removed(c)) append_utf8(to, is_space(c) ? U' ' : c);
    });
  }
};

struct Bytes final : Normalizer {
  void apply(std::string& text, bool, EncodeScratch& scratch) const override {
    scratch.text.clear();
    byte_level::append_characters(scratch.text, text);
    text.swap(scratch.text);
  }
};

// The normalizer of BERT.
struct Bert final : Normalizer {
  bool clean = true, separate_ideographs = true, strip_accents = true, lower = true;

  // The blocks of ideographs of the original BERT.
  static bool is_ideograph(char32_t c) {
    constexpr char32_t kBlocks[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                                       {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (const auto& block : kBlocks)
      if (block[0] <= c && c <= block[1]) return true;
    return false;
  }
  static void append_clean(std::string& to, char32_t c) {
    const bool blank = c == '\t' || c == '\n' || c == '\r';
    if (c == 0 || c == 0xFFFD || (!blank && is_control(c))) return;
    append_utf8(to, is_white_space(c) ? U' ' : c);
  }
  static void append_separate(std::string& to, char32_t c) {
    const bool ideograph = is_ideograph(c);
    if (ideograph) to += ' ';
    append_utf8(to, c);
    if (ideograph) to += ' ';
  }

  void apply(std::string& text, bool, EncodeScratch& scratch) const override {
    if (clean) rewrite(text, scratch.text, append_clean);
    if (separate_ideographs && !is_ascii(text)) rewrite(text, scratch.text, append_separate);
    if (strip_accents && !is_ascii(text)) {
      normalize(text, NormalForm::nfd, scratch.text);
      rewrite(text, scratch.text, [](std::string& to, char32_t c) {
        if (!is_nonspacing_mark(c)) append_utf8(to, c);
      });
    }
    if (lower) rewrite(text, scratch.text, append_lower);
  }
};

std::unique_ptr<const Normalizer> make_bert_normalizer(const JsonView& json) {
  json.only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  auto made = std::make_unique<Bert>();
  made->clean = json.at("clean_text").boolean();
  made->separate_ideographs = json.at("handle_chinese_chars").boolean();
  made->lower = json.at("lowercase").boolean();
  made->strip_accents = json.boolean_or("strip_accents", made->lower);
  return made;
}

}  // namespace

void normalize_all(const Stages<Normalizer>& stages, std::string& text, bool continues, EncodeScratch& scratch) {
  for (const auto& stage : stages) {
    stage->apply(text, continues, scratch);
    scratch.pass(text.size());
  }
}

void add_normalizers(Stages<Normalizer>& to, const JsonView& json) {
  check_count(to.size(), json);
  const JsonView type = json.at("type");
  const std::size_t kind = type.one_of({"NFC", "NFD", "NFKC", "NFKD", "Sequence", "Lowercase", "StripAccents", "Strip",
                                        "Prepend", "Replace", "Nmt", "ByteLevel", "BertNormalizer", "Precompiled"});
  const auto plain = [&](std::unique_ptr<const Normalizer> stage) {
    json.only({"type"});
    to.push_back(std::move(stage));
  };
  switch (kind) {
    case 0:
    case 1:
    case 2:
    case 3: return plain(std::make_unique<Form>(static_cast<NormalForm>(kind)));
    case 4:
      json.only({"type", "normalizers"});
      for (const JsonView& item : json.at("normalizers").items()) add_normalizers(to, item);
      return;
    case 5: return plain(std::make_unique<Lowercase>());
    case 6: return plain(std::make_unique<StripAccents>());
    case 7:
      json.only({"type", "strip_left", "strip_right"});
      return to.push_back(std::make_unique<Strip>(json.at("strip_left").boolean(), json.at("strip_right").boolean()));
    case 8: json.only({"type", "prepend"}); return to.push_back(std::make_unique<Prepend>(json.at("prepend").text()));
    case 9:
      json.only({"type", "pattern", "content"});
      return to.push_back(std::make_unique<Replace>(Pattern::from_json(json.at("pattern")), json.at("content").text()));
    case 10: return plain(std::make_unique<Nmt>());
    case 11: return plain(std::make_unique<Bytes>());
    case 12: return to.push_back(make_bert_normalizer(json));
    default: return to.push_back(make_precompiled(json));
  }
}

}  // namespace heed::detail::tokenizer
