// Normal forms and classes of characters, by ICU.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace heed::detail::tokenizer {

enum class NormalForm { nfc, nfd, nfkc, nfkd };  // Unicode Standard Annex 15

// Replaces the text, which must be UTF-8, by its normal form. `scratch` is overwritten.
void normalize(std::string& text, NormalForm form, std::string& scratch);

// Appends the lower case of one code point (Unicode's full mapping without conditions).
void append_lower(std::string& to, char32_t c);

bool is_white_space(char32_t c);      // property White_Space
bool is_numeric(char32_t c);          // categories Nd, Nl, No
bool is_punctuation(char32_t c);      // ASCII punctuation and symbols, and the categories P*
bool is_word(char32_t c);             // Alphabetic, Join_Control, and the categories M*, Nd, Pc
bool is_mark(char32_t c);             // categories M*
bool is_nonspacing_mark(char32_t c);  // category Mn
bool is_control(char32_t c);          // categories Cc, Cf, Co, Cs

// The number of a character's script (Unicode Standard Annex 24). Hiragana and Katakana have the number of Han. A space
// and unassigned code points have kAnyScript.
inline constexpr int kAnyScript = -1;
int script_of(char32_t c);

bool is_ascii(std::string_view text);

// Calls use(cluster) for each character with its marks: the extended grapheme clusters of Unicode Standard Annex 29.
void each_cluster(std::string_view text, const std::function<void(std::string_view)>& use);

}  // namespace heed::detail::tokenizer
