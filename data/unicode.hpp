// Unicode: normalization forms, lower case, and a guess at the encoding of bytes. By ICU, in its root locale.
//
// Example:
//
//   const std::string decomposed = "e\u0301";  // é as two code points, as macOS writes the names of files
//   std::cout << (normalized(decomposed, UnicodeForm::nfc) == "\u00e9") << '\n';  // 1
//   std::cout << lower_case("ΟΔΟΣ") << '\n';                                      // οδος, with a final sigma
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace heed {

// The form that a tokenizer brings text into (Unicode Standard Annex 15). nfc: letters and their marks are composed.
// nfkc: variants become plain characters too (ﬁ becomes fi, ² becomes 2, a no-break space a space).
enum class UnicodeForm { none, nfc, nfkc };

std::string_view name_of(UnicodeForm form);                            // "none", "nfc", "nfkc"
std::optional<UnicodeForm> unicode_form_named(std::string_view name);  // nothing for another name

// The text in a form. Bytes that are not UTF-8 are kept.
std::string normalized(std::string_view text, UnicodeForm form);

// The offset in `text` (UTF-8) of the character that the byte at `offset` of normalized(text, form) comes from.
std::size_t offset_before_normalizing(std::string_view text, UnicodeForm form, std::size_t offset);

// Whether normalization never joins the character to the one before. Texts cut there have the same form in parts.
bool begins_normal_unit(char32_t code_point);

// Lower case of UTF-8 text by the full mappings of Unicode, as Python's str.lower(): İ becomes i and a dot above, and Σ
// at the end of a word ς.
std::string lower_case(std::string_view text);

// The name of the encoding that bytes seem to have, such as "windows-1252"; empty if none is likely.
std::string guess_encoding(std::string_view bytes);

}  // namespace heed
