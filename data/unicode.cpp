// Unicode functions, implemented with ICU.
#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/edits.h>
#include <unicode/normalizer2.h>
#include <unicode/ucsdet.h>

#include <algorithm>
#include <heed/core/check.hpp>
#include <heed/data/text.hpp>
#include <heed/data/unicode.hpp>
#include <memory>

namespace heed {
namespace {

constexpr std::string_view kFormNames[] = {"none", "nfc", "nfkc"};
constexpr std::size_t kPart = std::size_t{1} << 24;  // ICU counts bytes in int32

icu::StringPiece piece_of(std::string_view text) { return {text.data(), static_cast<std::int32_t>(text.size())}; }

void check_icu(const char* op, UErrorCode status) {
  require(U_SUCCESS(status) != 0, op, ": ICU reports ", u_errorName(status));
}

const icu::Normalizer2& normalizer(UnicodeForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* made =
      form == UnicodeForm::nfc ? icu::Normalizer2::getNFCInstance(status) : icu::Normalizer2::getNFKCInstance(status);
  check_icu("normalize", status);
  return *made;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Appends a converted text. Calls convert(piece, sink, status), a function of ICU, for parts of the text that can be
// converted separately.
template <class Convert>
void append_converted(std::string& made, std::string_view text, const char* op, const Convert& convert) {
  const auto append = [&](std::string_view part) {
    UErrorCode status = U_ZERO_ERROR;
    icu::StringByteSink<std::string> sink(&made);
    convert(piece_of(part), sink, status);
    check_icu(op, status);
  };
  append(detail::use_parts(text, kPart, 2 * kPart, append));
}

}  // namespace

std::string_view name_of(UnicodeForm form) { return kFormNames[static_cast<std::size_t>(form)]; }

std::optional<UnicodeForm> unicode_form_named(std::string_view name) {
  for (const UnicodeForm form : {UnicodeForm::none, UnicodeForm::nfc, UnicodeForm::nfkc})
    if (name == name_of(form)) return form;
  return std::nullopt;
}

std::string normalized(std::string_view text, UnicodeForm form) {
  if (form == UnicodeForm::none || is_ascii(text)) return std::string(text);
  std::string made;
  made.reserve(text.size());
  const auto append = [&](std::string_view valid) {
    append_converted(made, valid, "normalize", [form](icu::StringPiece piece, icu::ByteSink& sink, UErrorCode& status) {
      normalizer(form).normalizeUTF8(0, piece, sink, nullptr, status);
    });
  };
  while (const auto bad = find_invalid_utf8(text)) {
    append(text.substr(0, *bad));
    made += text[*bad];
    text.remove_prefix(*bad + 1);
  }
  append(text);
  return made;
}

std::size_t offset_before_normalizing(std::string_view text, UnicodeForm form, std::size_t offset) {
  if (form == UnicodeForm::none) return offset;
  UErrorCode status = U_ZERO_ERROR;
  std::string made;
  icu::StringByteSink<std::string> sink(&made);
  icu::Edits edits;
  normalizer(form).normalizeUTF8(0, piece_of(text), sink, &edits, status);
  check_icu("normalize", status);
  auto change = edits.getFineIterator();
  const std::int32_t found = change.sourceIndexFromDestinationIndex(static_cast<std::int32_t>(offset), status);
  check_icu("normalize", status);
  return static_cast<std::size_t>(found);
}

bool begins_normal_unit(char32_t c) {
  return c < 0x80 || normalizer(UnicodeForm::nfkc).hasBoundaryBefore(static_cast<UChar32>(c)) != 0;
}

std::string lower_case(std::string_view text) {
  std::string made;
  append_converted(made, text, "lower case", [](icu::StringPiece piece, icu::ByteSink& sink, UErrorCode& status) {
    icu::CaseMap::utf8ToLower("", 0, piece, sink, nullptr, status);
  });
  return made;
}

std::string guess_encoding(std::string_view bytes) {
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<UCharsetDetector, void (*)(UCharsetDetector*)> detector(ucsdet_open(&status), ucsdet_close);
  const std::string_view some = bytes.substr(0, std::size_t{1} << 16);
  ucsdet_setText(detector.get(), some.data(), static_cast<std::int32_t>(some.size()), &status);
  const UCharsetMatch* match = ucsdet_detect(detector.get(), &status);
  if (U_FAILURE(status) || match == nullptr) return {};
  const std::int32_t confidence = ucsdet_getConfidence(match, &status);
  const char* name = ucsdet_getName(match, &status);
  constexpr std::int32_t kLikely = 15;  // percent
  return U_SUCCESS(status) && confidence >= kLikely && std::string_view(name) != "UTF-8" ? name : "";
}

}  // namespace heed
