// Flags for reading text files, and for the Unicode form of a tokenizer that is learned.
#pragma once
#include <heed/data/text.hpp>
#include <heed/data/unicode.hpp>
#include <optional>
#include <string>

#include "examples/support/settings.hpp"

namespace heed::examples {

// The values of these flags.
struct TextSettings {
  std::string line_ends = "lf", invalid = "refuse";  // names of LineEnds and InvalidUtf8
  std::string unicode = "auto";                      // name of UnicodeForm, or auto: nfc if words or pieces are learned

  void reading_fields(SettingFields& f);  // --line-ends, --invalid-utf8
  void unicode_field(SettingFields& f);   // --unicode
};

// Options for read_text(). `report` receives the changes made while reading; it may be null.
ReadTextOptions reading_options(const TextSettings& settings, TextReport* report);
// Empty for auto.
std::optional<UnicodeForm> unicode_form_of(const TextSettings& settings);

}  // namespace heed::examples
