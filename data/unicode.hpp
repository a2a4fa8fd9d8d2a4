// Unicode normalization, lower case and detection of encodings, by ICU in its root locale.
//
// Example:
//
//   const std::string decomposed = "e\u0301";  // é as two code points, as in file names on macOS
//   std::cout << (normalized(decomposed, UnicodeForm::nfc) == "\u00e9") << '\n';  // 1
//   std::cout << lower_case("ΟΔΟΣ") << '\n';                                      // οδος, with a final sigma
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace heed {

// The normalization form of a tokenizer (Unicode Standard Annex 15). nfc: letters and their marks are composed. nfkc:
// as nfc, and compatibility characters are replaced (ﬁ becomes fi, ² becomes 2, a no-break space becomes a space).
enum class UnicodeForm { none, nfc, nfkc };

std::string_view name_of(UnicodeForm form);                            // "none", "nfc", "nfkc"
std::optional<UnicodeForm> unicode_form_named(std::string_view name);  // nullopt for any other name

// The text in a form. Bytes that are not UTF-8 are kept.
std::string normalized(std::string_view text, UnicodeForm form);

// The offset in `text` (UTF-8) of the character that produced the byte at `offset` of normalized(text, form).
std::size_t offset_before_normalizing(std::string_view text, UnicodeForm form, std::size_t offset);

// Whether normalization never joins the character to the previous one. A text that is cut before such characters can be
// normalized part by part.
bool begins_normal_unit(char32_t code_point);

// Lower case of UTF-8 text by the full mappings of Unicode, as Python's str.lower(): İ becomes i and a combining dot
// above, and Σ at the end of a word becomes ς.
std::string lower_case(std::string_view text);

// The likely encoding of the bytes, such as "windows-1252"; empty if none is likely or the bytes are UTF-8.
std::string guess_encoding(std::string_view bytes);

}  // namespace heed
