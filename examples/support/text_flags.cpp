// Declares the flags for reading texts.
#include "examples/support/text_flags.hpp"

namespace heed::examples {

void TextSettings::reading_fields(SettingFields& f) {
  f("line-ends", line_ends, Kind::training,
    "Line ends of text files: lf reads CR LF as LF and refuses CR alone, any reads both as LF, keep changes "
    "nothing [lf]",
    one_of({"lf", "any", "keep"}));
  f("invalid-utf8", invalid, Kind::training,
    "Text that is not UTF-8: refuse, replace (by U+FFFD), or skip (leave out the line) [refuse]",
    one_of({"refuse", "replace", "skip"}));
}

void TextSettings::unicode_field(SettingFields& f) {
  f("unicode", unicode, Kind::model,
    "Unicode form to which the tokenizer converts text; auto: nfc for learned words and pieces, that of "
    "FILE.model, none for characters and bytes [auto]",
    one_of({"auto", "none", "nfc", "nfkc"}));
}

ReadTextOptions reading_options(const TextSettings& s, TextReport* report) {
  return {.line_ends = s.line_ends == "any"    ? LineEnds::any
                       : s.line_ends == "keep" ? LineEnds::keep
                                               : LineEnds::lf,
          .invalid = s.invalid == "replace" ? InvalidUtf8::replace
                     : s.invalid == "skip"  ? InvalidUtf8::skip
                                            : InvalidUtf8::refuse,
          .report = report};
}

std::optional<UnicodeForm> unicode_form_of(const TextSettings& s) { return unicode_form_named(s.unicode); }

}  // namespace heed::examples
