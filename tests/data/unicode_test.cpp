// Unicode against Python: tests/reference/unicode_python.py.
#include <heed/data/text.hpp>
#include <heed/data/unicode.hpp>

#include "tests/support.hpp"
#include "tests/tools/json.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using namespace heed::test;

namespace {

const nlohmann::json& reference() {
  static const nlohmann::json all = json_file(in_source("tests/reference/unicode_python.json"));
  return all;
}

// Checks that f gives Python's result for each code point of Unicode 14.
template <class F>
void check_code_points(const char* name, const F& f) {
  std::map<char32_t, std::string> changed;
  for (const auto& row : reference().at(name)) changed[row.at(0).get<char32_t>()] = row.at(1).get<std::string>();
  CHECK(changed.size() > 900);
  Index checked = 0;
  for (const auto& range : reference().at("assigned"))
    for (auto c = range.at(0).get<char32_t>(); c < range.at(1).get<char32_t>(); ++c, ++checked) {
      std::string text;
      append_utf8(text, c);
      const auto found = changed.find(c);
      if (f(text) != (found == changed.end() ? text : found->second)) FAIL_CHECK(name << " of " << show_character(c));
    }
  CHECK(checked > 280000);
}

}  // namespace

TEST_CASE("unicode: lower case and forms of every code point are Python's") {
  check_code_points("lower", lower_case);
  check_code_points("nfc", [](const std::string& text) { return normalized(text, UnicodeForm::nfc); });
  check_code_points("nfkc", [](const std::string& text) { return normalized(text, UnicodeForm::nfkc); });
}

TEST_CASE("unicode: a sigma among letters, marks and punctuation, and forms of sequences, are Python's") {
  CHECK(reference().at("words").size() > 200);
  for (const auto& row : reference().at("words")) {
    CAPTURE(row.dump());
    CHECK(lower_case(row.at(0).get<std::string>()) == row.at(1).get<std::string>());
  }
  for (const auto& row : reference().at("sequences")) {
    const auto text = row.at(0).get<std::string>();
    CAPTURE(row.dump());
    CHECK(normalized(text, UnicodeForm::none) == text);
    CHECK(normalized(text, UnicodeForm::nfc) == row.at(1).get<std::string>());
    CHECK(normalized(text, UnicodeForm::nfkc) == row.at(2).get<std::string>());
  }
}

TEST_CASE("unicode: invalid UTF-8 is kept, and parts of a text have the form of the whole") {
  CHECK(normalized("e\u0301\xFF"
                   "e\u0301\xE2\x82",
                   UnicodeForm::nfc) == "\u00e9\xFF\u00e9\xE2\x82");
  for (const auto& row : reference().at("sequences")) {
    const auto text = row.at(0).get<std::string>();
    for (const UnicodeForm form : {UnicodeForm::nfc, UnicodeForm::nfkc}) {
      std::string parts, part;
      for (const char32_t c : decode_utf8(text)) {
        if (begins_normal_unit(c)) parts += normalized(part, form), part.clear();
        append_utf8(part, c);
      }
      CHECK(parts + normalized(part, form) == normalized(text, form));
    }
  }
  CHECK(begins_normal_unit(U'a'));
  CHECK(!begins_normal_unit(U'\u0301'));
}

TEST_CASE("unicode: an offset in a normalized text is mapped to the original") {
  const std::string text = "e\u0301 ab \u1100\u1161 c";  // é and a Hangul syllable, decomposed
  const std::string composed = normalized(text, UnicodeForm::nfc);
  for (const char c : {'a', 'b', 'c', ' '})
    CHECK(offset_before_normalizing(text, UnicodeForm::nfc, composed.find(c)) == text.find(c));
  CHECK(offset_before_normalizing(text, UnicodeForm::nfc, 0) == 0);
  CHECK(offset_before_normalizing(text, UnicodeForm::none, 5) == 5);
}

TEST_CASE("unicode: forms have names, and encodings are guessed") {
  for (const UnicodeForm form : {UnicodeForm::none, UnicodeForm::nfc, UnicodeForm::nfkc})
    CHECK(unicode_form_named(name_of(form)) == form);
  CHECK(!unicode_form_named("nfd"));
  const std::string guess = guess_encoding("Die K\xFChe stehen auf der gr\xFCnen Wiese und fressen. Sch\xF6n!");
  CHECK((guess == "ISO-8859-1" || guess == "windows-1252"));
  CHECK(guess_encoding("") == "");
}
