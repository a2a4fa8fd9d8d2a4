// Flags that say how text files are read, and which Unicode form a tokenizer that is learned brings text into.
#pragma once
#include <heed/data/text.hpp>
#include <heed/data/unicode.hpp>
#include <optional>
#include <string>

#include "examples/support/command_line.hpp"

namespace heed::examples {

struct TextSettings {
  std::string line_ends = "lf", invalid = "refuse";  // LineEnds and InvalidUtf8, by name
  std::string unicode = "auto";                      // UnicodeForm, or auto: nfc for words and pieces that are learned
};

// Each by its flag's name: f(name, member).
template <class S, class F>
void for_each_text_setting(S& s, const F& f) {
  f("line-ends", s.line_ends), f("invalid-utf8", s.invalid), f("unicode", s.unicode);
}

void add_reading_flags(CommandLine& line, TextSettings& settings);  // --line-ends, --invalid-utf8
void add_unicode_flag(CommandLine& line, TextSettings& settings);   // --unicode

ReadTextOptions reading_options(const TextSettings& settings, TextReport* report);
// Nothing for auto.
std::optional<UnicodeForm> unicode_form_of(const TextSettings& settings);

}  // namespace heed::examples
