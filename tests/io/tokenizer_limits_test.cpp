// Files with valid stages that would take much time or memory for a short text. Each ends with a message after a number
// of steps that is proportional to the text.
#include <doctest/doctest.h>
#include <heed/io/tokenizer_json.hpp>

#include <nlohmann/json.hpp>

#include "tests/support.hpp"

using namespace heed;
using nlohmann::json;
using test::contains;
using test::error_of;

namespace tokenizer_limits_test {  // several sources of tests are compiled as one
namespace {

constexpr const char* kTooMany =
    "the stages of the tokenizer take too many steps for this text: more than 256 per byte";

json letters() {
  return json::parse(R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
}
JsonTokenizer made(const json& file) { return JsonTokenizer::from_state(file.dump()); }

std::string error_of_pattern(const char* source, const std::string& text) {
  json file = letters();
  file["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", source}}}, {"behavior", "Isolated"}, {"invert", false}};
  const JsonTokenizer tokenizer = made(file);
  return error_of([&] { tokenizer.encode(text); });
}

std::string times(const char* text, std::size_t n) {
  std::string all;
  for (std::size_t i = 0; i < n; ++i) all += text;
  return all;
}

json added(int id, const std::string& content) {
  return {{"id", id},        {"content", content}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", true}, {"special", false}};
}

}  // namespace

// PCRE2's own limit holds for each character at which a match may begin, and does not count the characters that a part
// of an expression passes.
TEST_CASE("tokenizer.json: patterns take steps in proportion to the text") {
  const std::string text(50'000, 'a');
  const char* patterns[] = {
      "a(?=a*[bc])",             // passes the rest of the text at each character
      "(?:a(?=a*[bc])|a)+[bc]",  // the same within a match
      ".*.*[bc]",
      "a*?a*?[bc]",
      "(?:a|a){20}[bc]",  // tries 2^20 ways at each character
      "a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a{20}[bc]",
      "(?:a|b|ab)(?:a|b|ab)*?(?:a|b|ab)*?[bc]",
      "(?:aa?)+[bc]",
      "(?!a*[bc])a",
  };
  for (const char* pattern : patterns) {
    INFO(pattern);
    CHECK(contains(error_of_pattern(pattern, text),
                   "encode: the pattern pre_tokenizer.pattern.Regex of the tokenizer fails at byte offset "));
    CHECK(contains(error_of_pattern(pattern, text), " of a text of 50000 bytes: it takes too many steps"));
    CHECK(error_of_pattern(pattern, "aab") == "");
  }
  // Published patterns, and texts that they pass most often.
  for (const char* pattern : {"\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|a{b|}|\\}"})
    CHECK(error_of_pattern(pattern, std::string(50'000, ' ') + std::string(50'000, '!')) == "");
}

// Call-outs, which count the steps, change no match.
TEST_CASE("tokenizer.json: patterns with all kinds of quantifiers and groups match as they are written") {
  json file = letters();
  file["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"c", 2}, {"{", 3}, {"}", 4}, {"ab", 5}, {"bc", 6}};
  const auto matches = [&](const char* source, const std::string& text) {
    file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", source}}}, {"content", "}"}};
    return made(file).encode(text);
  };
  CHECK(matches("a??b", "aabb") == Tokens{0, 4, 4});
  CHECK(matches("a?+b", "aabb") == Tokens{0, 4, 4});
  CHECK(matches("a*+b", "aabb") == Tokens{4, 4});
  CHECK(matches("a+?", "aab") == Tokens{4, 4, 1});
  CHECK(matches("a{2}", "aaab") == Tokens{4, 0, 1});
  CHECK(matches("a{2,}", "aaab") == Tokens{4, 1});
  CHECK(matches("(a|b)?c", "abcc") == Tokens{0, 4, 4});
  CHECK(matches("(?<=a)b*", "abbc") == Tokens{0, 4, 2});
  CHECK(matches("(?<!a)b?c", "abcbc") == Tokens{0, 1, 4, 4});
  CHECK(matches("(?=ab?)a", "aab") == Tokens{4, 4, 1});
  CHECK(matches("(?!ab)a", "aab") == Tokens{4, 0, 1});
  CHECK(matches("(?>a+)b?", "aabc") == Tokens{4, 2});
  CHECK(matches("(?i:A+)(?-i:b+)", "aabbc") == Tokens{4, 2});
  CHECK(matches("a{b", "a{bc") == Tokens{4, 2});
}

// A minute, if all of the long text is compared at each character.
TEST_CASE("tokenizer.json: a long text is searched for in time proportional to it") {
  json file = letters();
  const std::string wanted = std::string(1'000'000, 'a') + "b", text(2'000'000, 'a');
  file["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"String", wanted}}}, {"behavior", "Isolated"}, {"invert", false}};
  file["decoder"] = {{"type", "BPEDecoder"}, {"suffix", wanted}};
  file["model"]["vocab"][text] = 2;
  const JsonTokenizer tokenizer = made(file);
  CHECK(tokenizer.encode(text).size() == text.size());
  CHECK(tokenizer.decode(Tokens{2, 0}) == text + "a");
}

TEST_CASE("tokenizer.json: stages take steps in proportion to the text") {
  json file = letters();
  file["normalizer"] = {{"type", "Prepend"}, {"prepend", std::string(20'000, 'a')}};
  file["added_tokens"] = json::array({added(2, "<s>")});
  file["added_tokens"][0]["normalized"] = false;
  const JsonTokenizer prepends = made(file);  // 20,000 bytes per section
  CHECK(contains(error_of([&] { prepends.encode(times("a<s>", 5000)); }), kTooMany));

  file = letters();
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json(64, json{{"type", "NFKD"}})}};
  CHECK(contains(error_of([&] { made(file).encode(times("\u1fb7", 10'000)); }), kTooMany));

  file = letters();  // each character begins most of a long token
  file["added_tokens"] = json::array({added(2, std::string(1000, 'a') + "b")});
  CHECK(contains(error_of([&] { made(file).encode(std::string(50'000, 'a')); }), kTooMany));

  const std::string longest = std::string(20'000, 'a') + "b";
  file["added_tokens"] = json::array();
  const json scored = json::array({json::array({"a", -1}), json::array({longest, -2})});
  file["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", scored}};
  CHECK(contains(error_of([&] { made(file).encode(std::string(20'000, 'a')); }), kTooMany));
  file["model"] = {{"type", "WordPiece"},
                   {"unk_token", "a"},
                   {"continuing_subword_prefix", ""},
                   {"max_input_chars_per_word", 100'000},
                   {"vocab", {{"a", 0}, {longest, 1}}}};
  CHECK(contains(error_of([&] { made(file).encode(std::string(20'000, 'a')); }), kTooMany));

  file = letters();
  file["added_tokens"] = json::array();
  for (int i = 0; i < 4200; ++i)
    file["added_tokens"].push_back(added(2 + i, std::string(1000, 'a') + std::to_string(i)));
  CHECK(error_of([&] { made(file); }) ==
        "tokenizer.json: added_tokens[4178].content and the contents before it have more "
        "than 4194304 bytes");

  file = letters();
  file["model"]["end_of_word_suffix"] = std::string(65, 'b');
  CHECK(error_of([&] { made(file); }) == "tokenizer.json: model.end_of_word_suffix is longer than 64 bytes");
}

// Each token takes the white space around it, which is the same for all.
TEST_CASE("tokenizer.json: added tokens that take white space need time in proportion to the text") {
  json file = letters();
  file["added_tokens"] = json::array({added(2, " ")});
  file["added_tokens"][0]["lstrip"] = true;
  const std::string blanks(300'000, ' ');
  CHECK(made(file).encode(blanks + "a").size() == blanks.size() + 1);
  file["added_tokens"][0]["rstrip"] = true;
  CHECK(made(file).encode(blanks + "a").size() == blanks.size() + 1);  // more than a minute, if each walks to the end
}

TEST_CASE("tokenizer.json: decoders make texts in proportion to the tokens") {
  json file = letters();
  const json replaces = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(60'000, 'b')}};
  file["decoder"] = replaces;
  const Tokens ids(1000, 0);
  CHECK(contains(error_of([&] { made(file).decode(ids); }), "the stages of the tokenizer"));
}

// One text from a file is repeated in a message only in part.
TEST_CASE("tokenizer.json: messages are short") {
  const std::string name(10'000, 'x');
  json file = letters();
  file[name] = 1;
  CHECK(error_of([&] { made(file); }).size() < 200);
  file = letters();
  file["model"]["merges"] = {{name, "a"}};
  CHECK(error_of([&] { made(file); }).size() < 200);
  file["model"]["merges"] = {name + " a b"};
  CHECK(error_of([&] { made(file); }).size() < 200);
  file = letters();
  file["model"]["vocab"][name] = -1;
  CHECK(error_of([&] { made(file); }).size() < 200);
  file["model"]["vocab"][name] = 1;
  CHECK(error_of([&] { made(file); }).size() < 200);
  const std::string twice = R"({"version": "1.0", ")" + name + R"(": 1, ")" + name + R"(": 1})";
  CHECK(error_of([&] { JsonTokenizer::from_state(twice); }).size() < 200);
}

}  // namespace tokenizer_limits_test
