// Normal forms and classes of characters, by ICU.
#include <unicode/brkiter.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/uscript.h>
#include <unicode/utext.h>

#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/data/text.hpp>
#include <heed/io/tokenizer/unicode.hpp>
#include <memory>

namespace heed::detail::tokenizer {
namespace {

const icu::Normalizer2& normalizer(NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* made = form == NormalForm::nfc    ? icu::Normalizer2::getNFCInstance(status)
                                 : form == NormalForm::nfd  ? icu::Normalizer2::getNFDInstance(status)
                                 : form == NormalForm::nfkc ? icu::Normalizer2::getNFKCInstance(status)
                                                            : icu::Normalizer2::getNFKDInstance(status);
  require(U_SUCCESS(status) != 0, "encode: ICU reports ", u_errorName(status));
  return *made;
}

bool has_category(char32_t c, std::uint32_t mask) { return (U_MASK(u_charType(static_cast<UChar32>(c))) & mask) != 0; }

// Few characters of Unicode 8 changed their category later. `tokenizers` has older tables, so the functions below name
// these characters.

constexpr bool is_between(char32_t c, char32_t first, char32_t last) { return first <= c && c <= last; }

}  // namespace

int script_of(char32_t c) {
  if (c == U' ') return kAnyScript;
  if (c == 0x30FC) return USCRIPT_HAN;                  // the sign for long vowels, which is common to two scripts
  if (c == 0x589 || c == 0x61C) return USCRIPT_COMMON;  // these four changed their script after Unicode 8
  if (c == 0x953 || c == 0x954) return USCRIPT_DEVANAGARI;
  UErrorCode status = U_ZERO_ERROR;
  const UScriptCode script = uscript_getScript(static_cast<UChar32>(c), &status);
  if (script == USCRIPT_HIRAGANA || script == USCRIPT_KATAKANA) return USCRIPT_HAN;
  return U_FAILURE(status) || script == USCRIPT_UNKNOWN ? kAnyScript : static_cast<int>(script);
}

void each_cluster(std::string_view text, const std::function<void(std::string_view)>& use) {
  if (is_ascii(text)) {
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t n = text.substr(i).starts_with("\r\n") ? 2 : 1;
      use(text.substr(i, n));
      i += n;
    }
    return;
  }
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> breaks(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
  UText* opened = utext_openUTF8(nullptr, text.data(), static_cast<std::int64_t>(text.size()), &status);
  const std::unique_ptr<UText, decltype(&utext_close)> closes(opened, utext_close);
  if (U_SUCCESS(status)) breaks->setText(opened, status);
  require(U_SUCCESS(status) != 0, "encode: ICU reports ", u_errorName(status));
  std::int32_t begin = breaks->first();
  for (std::int32_t end = breaks->next(); end != icu::BreakIterator::DONE; begin = end, end = breaks->next())
    use(text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void normalize(std::string& text, NormalForm form, std::string& scratch) {
  if (is_ascii(text)) return;
  scratch.clear();
  // ICU counts bytes in int32. cut_text() cuts between characters with their marks.
  constexpr std::size_t kPart = std::size_t{1} << 24;
  const auto append = [&](std::string_view part) {
    UErrorCode status = U_ZERO_ERROR;
    icu::StringByteSink<std::string> sink(&scratch);
    const icu::StringPiece piece(part.data(), static_cast<std::int32_t>(part.size()));
    normalizer(form).normalizeUTF8(0, piece, sink, nullptr, status);
    require(U_SUCCESS(status) != 0, "encode: ICU reports ", u_errorName(status));
  };
  append(detail::use_parts(text, kPart, 2 * kPart, append));
  text.swap(scratch);
}

void append_lower(std::string& to, char32_t c) {
  if (c < 0x80) {
    to += static_cast<char>(is_between(c, 'A', 'Z') ? c + 32 : c);
  } else if (c == 0x130) {  // the only code point whose lower case has two: i with a dot above
    to += "i\u0307";
  } else {
    append_utf8(to, static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))));
  }
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || is_between(c, '\t', '\r');
  return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return is_between(c, '0', '9');
  return has_category(c, U_GC_N_MASK);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return is_between(c, '!', '/') || is_between(c, ':', '@') || is_between(c, '[', '`') || is_between(c, '{', '~');
  return c == 0x166D || c == 0x111C9 || has_category(c, U_GC_P_MASK);  // the former are now a symbol and a mark
}

bool is_word(char32_t c) {
  if (c < 0x80) return is_between(c | 0x20, 'a', 'z') || is_between(c, '0', '9') || c == '_';
  return has_category(c, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK) ||
         u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_ALPHABETIC) != 0 ||
         u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_JOIN_CONTROL) != 0;
}

bool is_mark(char32_t c) {
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // now letters
  return c >= 0x80 && c != 0x111C9 && has_category(c, U_GC_M_MASK);
}
bool is_nonspacing_mark(char32_t c) {
  if (c == 0x1734) return true;                                                 // now a spacing mark
  if (c == 0x1885 || c == 0x1886 || c == 0xA9BD || c == 0x111C9) return false;  // later nonspacing marks
  return c >= 0x80 && has_category(c, U_GC_MN_MASK);
}
bool is_control(char32_t c) { return has_category(c, U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK | U_GC_CS_MASK); }

}  // namespace heed::detail::tokenizer
