// Files that JsonTokenizer refuses, with their messages; damaged and hostile files.
#include <doctest/doctest.h>
#include <heed/data/detail/base64.hpp>
#include <heed/io/tokenizer_json.hpp>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/support.hpp"
#include "tests/tools/json.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using nlohmann::json;
using test::contains;
using test::error_of;

namespace {

// A small byte-level tokenizer with a stage of most parts.
json small() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 3, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\s+|\\S+"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}},
      {"SpecialToken": {"id": "<e>", "type_id": 0}}], "pair": [],
      "special_tokens": {"<e>": {"id": "<e>", "ids": [3], "tokens": ["<e>"]}}},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
              "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}})");
}

struct Refusal {
  const char* pointer;  // of a value
  const char* value;    // JSON; empty: the value is removed
  const char* message;  // after "tokenizer.json: "
};

void check_refusals(const json& whole, const std::vector<Refusal>& cases) {
  for (const Refusal& c : cases) {
    json changed = whole;
    const json::json_pointer at(c.pointer);
    if (*c.value == '\0') {
      changed[at.parent_pointer()].erase(at.back());
    } else {
      changed[at] = json::parse(c.value);
    }
    INFO(c.pointer, " = ", c.value);
    CHECK(error_of([&] { JsonTokenizer::from_state(changed.dump()); }) == std::string("tokenizer.json: ") + c.message);
  }
}

std::string error_of_text(const std::string& text) {
  return error_of([&] { JsonTokenizer::from_state(text); });
}

}  // namespace

TEST_CASE("tokenizer.json: the small file") {
  const JsonTokenizer t = JsonTokenizer::from_state(small().dump());
  CHECK(t.encode("abba<e>") == Tokens{2, 1, 0, 3});
  CHECK(t.encode_as_text("<e>").empty());  // none of these characters has a token
  CHECK(t.with_special_tokens({2}) == Tokens{2, 3});
  CHECK(t.vocabulary_size() == 4);
}

TEST_CASE("tokenizer.json: refused types and fields, by their path") {
  check_refusals(
      small(),
      {{"/pre_tokenizer/pretokenizers/1/type", "\"Sentences\"",
        "pre_tokenizer.pretokenizers[1].type is \"Sentences\"; it must be one of ByteLevel, Split, Digits, Metaspace, "
        "BertPreTokenizer, Punctuation, Whitespace, WhitespaceSplit, UnicodeScripts, CharDelimiterSplit, Sequence"},
       {"/pre_tokenizer/pretokenizers/1/colour", "1",
        "pre_tokenizer.pretokenizers[1].colour is not a field that heed knows"},
       {"/pre_tokenizer/pretokenizers/0/behavior", "\"Kept\"",
        "pre_tokenizer.pretokenizers[0].behavior is \"Kept\"; it must be one of Isolated, Removed, MergedWithPrevious, "
        "MergedWithNext, Contiguous"},
       {"/pre_tokenizer/pretokenizers/0/pattern", "{\"Regex\": \"a\", \"String\": \"b\"}",
        "pre_tokenizer.pretokenizers[0].pattern must have one of String and Regex"},
       {"/pre_tokenizer/pretokenizers/0/pattern", "{\"String\": \"\"}",
        "pre_tokenizer.pretokenizers[0].pattern.String must not be empty"},
       {"/pre_tokenizer/pretokenizers", "3", "pre_tokenizer.pretokenizers must be an array"},
       {"/pre_tokenizer/pretokenizers/1/use_regex", "1",
        "pre_tokenizer.pretokenizers[1].use_regex must be true or false"},
       {"/pre_tokenizer/type", "", "pre_tokenizer.type is missing"},
       {"/pre_tokenizer/type", "7", "pre_tokenizer.type must be a text"},
       {"/pre_tokenizer", "\"ByteLevel\"", "pre_tokenizer must be an object"},
       {"/normalizer/type", "\"Umlauts\"",
        "normalizer.type is \"Umlauts\"; it must be one of NFC, NFD, NFKC, NFKD, Sequence, Lowercase, "
        "StripAccents, Strip, Prepend, Replace, Nmt, ByteLevel, BertNormalizer, Precompiled"},
       {"/normalizer/form", "true", "normalizer.form is not a field that heed knows"},
       {"/decoder/type", "\"CTC\"",
        "decoder.type is \"CTC\"; it must be one of ByteLevel, Sequence, ByteFallback, Fuse, Replace, Strip, "
        "Metaspace, "
        "WordPiece, BPEDecoder"},
       {"/post_processor/type", "\"Other\"",
        "post_processor.type is \"Other\"; it must be one of TemplateProcessing, BertProcessing, RobertaProcessing, "
        "ByteLevel, Sequence"},
       {"/post_processor/single/0/Sequence/id", "\"B\"",
        "post_processor.single[0].Sequence.id is \"B\"; it must be one of A"},
       {"/post_processor/single/0", "{\"SpecialToken\": {\"id\": \"<e>\", \"type_id\": 0}}",
        "post_processor.single must have the sequence A once"},
       {"/post_processor/special_tokens/<e>/ids/0", "4",
        "post_processor.special_tokens.<e>.ids[0] must be an integer from 0 to 3"},
       {"/post_processor/single/1/SpecialToken/id", "\"<f>\"", "post_processor.special_tokens.<f> is missing"},
       {"/model/type", "\"Words\"", "model.type is \"Words\"; it must be one of BPE, WordPiece, WordLevel, Unigram"},
       {"/model/type", "\"WordPiece\"", "model.type must be BPE, because the last pre-tokenizer is ByteLevel"},
       {"/model/dropout", "0.1", "model.dropout is set; heed reads tokenizers without dropout"},
       {"/model/unk_token", "\"?\"", "model.unk_token is not in model.vocab"},
       {"/model/byte_fallback", "true",
        "model.byte_fallback is true, but model.vocab has no \"Ā\", which ByteLevel writes for the byte 0"},
       {"/model/speed", "1", "model.speed is not a field that heed knows"},
       {"/version", "\"2.0\"", "version is \"2.0\"; it must be one of 1.0"},
       {"/licence", "\"MIT\"", "licence is not a field that heed knows"},
       {"/truncation", "{\"max_length\": -1}", "truncation.max_length must be an integer from 0 to 2147483647"},
       {"/padding", "{\"pad_id\": 4}", "padding.pad_id must be an integer from 0 to 3"}});
}

TEST_CASE("tokenizer.json: refused vocabularies, merges and added tokens") {
  check_refusals(
      small(),
      {{"/model/vocab", "{}", "model.vocab has no tokens"},
       {"/model/vocab/a", "1", "model.vocab has the id 1 for \"a\" and \"b\""},
       {"/model/vocab/a", "-1", "model.vocab[\"a\"] must be an id from 0 to 4194303"},
       {"/model/vocab/a", "4194304", "model.vocab[\"a\"] must be an id from 0 to 4194303"},
       {"/model/vocab/a", "65539",
        "model.vocab has the id 65539 for \"a\"; a vocabulary of 3 tokens must have ids below 65539"},
       {"/model/vocab/a", "0.5", "model.vocab[\"a\"] must be an id from 0 to 4194303"},
       {"/model/vocab/a", "{}", "model.vocab[\"a\"] must be an id from 0 to 4194303"},
       {"/model/vocab", "[[\"a\", 0.5, 1]]", "model.vocab[0] must be a token and its score, [\"a\", -1.5]"},
       {"/model/vocab", "[[\"a\"]]", "model.vocab[0] must be a token and its score, [\"a\", -1.5]"},
       {"/model/vocab", "[\"a\"]", "model.vocab[0] must be a token and its score, [\"a\", -1.5]"},
       {"/model/vocab", "[[\"a\", 0]]", "model.vocab must be an object"},
       {"/model/merges/0", "[\"a\", \"c\"]", "model.merges[0] needs the token \"c\", which is not in model.vocab"},
       {"/model/merges/0", "[\"b\", \"a\"]", "model.merges[0] needs the token \"ba\", which is not in model.vocab"},
       {"/model/merges/0", "\"a b c\"",
        "model.merges[0] is \"a b c\"; it must be two tokens, \"a b\" or [\"a\", \"b\"]"},
       {"/model/merges/0", "[\"a\"]", "model.merges[0] must be two tokens, \"a b\" or [\"a\", \"b\"]"},
       {"/model/merges/0", "5", "model.merges[0] must be two tokens, \"a b\" or [\"a\", \"b\"]"},
       {"/model/merges", "{}", "model.merges must be an array"},
       {"/model/merges", "", "model.merges is missing"},
       {"/added_tokens/0/id", "4", "added_tokens[0].id is 4; it must be 3, the next free id"},
       {"/added_tokens/0/content", "\"ab\"",
        "added_tokens[0].id is 3; it must be 2, the id of the token in model.vocab"},
       {"/added_tokens/0/content", "\"\"", "added_tokens[0].content has 0 bytes; it must have 1 to 1024"},
       {"/added_tokens/0/special", "", "added_tokens[0].special is missing"}});
  json twice = small();
  twice["added_tokens"].push_back(twice["added_tokens"][0]);
  twice["added_tokens"][1]["id"] = 4;
  CHECK(error_of_text(twice.dump()) == "tokenizer.json: added_tokens[1].content occurs twice");
  json empty = small();
  empty["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  empty["added_tokens"][0]["content"] = "  ";
  empty["added_tokens"][0]["normalized"] = true;
  CHECK(error_of_text(empty.dump()) == "tokenizer.json: added_tokens[0].content is empty after normalization");
}

TEST_CASE("tokenizer.json: other models") {
  json word = small();
  word["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  word["model"] = json::parse(R"({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                                  "max_input_chars_per_word": 5, "vocab": {"[UNK]": 0, "ab": 1, "##c": 2}})");
  CHECK(JsonTokenizer::from_state(word.dump()).encode("ab abc abd abcccc") == Tokens{1, 1, 2, 0, 0});
  check_refusals(word, {{"/model/unk_token", "\"?\"", "model.unk_token is not in model.vocab"},
                        {"/model/max_input_chars_per_word", "", "model.max_input_chars_per_word is missing"},
                        {"/model/merges", "[]", "model.merges is not a field that heed knows"}});
  json unigram = word;
  unigram["model"] = json::parse(R"({"type": "Unigram", "unk_id": 0, "byte_fallback": false,
                                     "vocab": [["<unk>", 0], ["ab", -1.5], ["a", -1]]})");
  CHECK(JsonTokenizer::from_state(unigram.dump()).encode("aba xy") == Tokens{1, 2, 0});
  check_refusals(unigram, {{"/model/unk_id", "3", "model.unk_id must be an integer from 0 to 2"},
                           {"/model/vocab", "{\"a\": 1}", "model.vocab must be an array of tokens and scores"},
                           {"/model/vocab/1/0", "\"a\"", "model.vocab has the token \"a\" twice"}});
  unigram["model"]["unk_id"] = nullptr;
  const JsonTokenizer known = JsonTokenizer::from_state(unigram.dump());
  CHECK(known.encode("a") == Tokens{2});
  CHECK(error_of([&] { known.encode("x"); }) ==
        "encode: the text has a character that is not in the vocabulary, and model.unk_id is not set");
}

TEST_CASE("tokenizer.json: words that are not in the vocabulary of WordLevel") {
  json word = small();
  for (const char* part : {"pre_tokenizer", "decoder", "post_processor", "added_tokens"}) word[part] = nullptr;
  word["model"] = json::parse(R"({"type": "WordLevel", "unk_token": "?", "vocab": {"a": 0, "?": 1}})");
  CHECK(JsonTokenizer::from_state(word.dump()).encode("b") == Tokens{1});
  word["model"]["vocab"].erase("?");
  CHECK(JsonTokenizer::from_state(word.dump()).encode("a") == Tokens{0});
  CHECK(error_of([&] { JsonTokenizer::from_state(word.dump()).encode("b"); }) ==
        "encode: the text has a word that is not in the vocabulary, and model.unk_token is not in model.vocab");
  word["model"]["vocab"] = json::parse(R"([["a", 1.5]])");
  CHECK(error_of_text(word.dump()) == "tokenizer.json: model.vocab must be an object");
}

TEST_CASE("tokenizer.json: a zero byte is not the end of the text") {
  CHECK(error_of_text(small().dump() + std::string("\0}", 2)) == "tokenizer.json has a zero byte; it must be JSON");
}

TEST_CASE("tokenizer.json: damaged tables of Precompiled") {
  // One entry: "a" becomes "b". The root has the offset 1 xor 'a'. Its child has a leaf at 2.
  const auto table = [](std::vector<std::uint32_t> units, const std::string& texts, std::uint32_t size) {
    std::string bytes;
    units.insert(units.begin(), size);
    for (const std::uint32_t unit : units)
      for (int i = 0; i < 4; ++i) bytes += static_cast<char>(unit >> (8 * i) & 255);
    json file = small();
    file["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", detail::to_base64(bytes + texts)}};
    return file.dump();
  };
  const std::vector<std::uint32_t> units = {(1 ^ 'a') << 10, 'a' | 0x100 | 3 << 10, 0};
  const std::string text("b\0", 2);
  CHECK(JsonTokenizer::from_state(table(units, text, 12)).encode("ba") == Tokens{1, 1});
  const std::string damaged =
      "tokenizer.json: normalizer.precompiled_charsmap is damaged: it must have the size of a table of 4 bytes per "
      "entry, and the table";
  for (const std::uint32_t size : {0u, 3u, 11u, 16u, 0xFFFFFFFCu})
    CHECK(error_of_text(table(units, text, size)) == damaged);
  CHECK(error_of_text(table({}, "", 4)) == damaged);
  CHECK(error_of_text(table(units, "\xFF", 12)) ==
        "tokenizer.json: normalizer.precompiled_charsmap is damaged: its texts must be UTF-8");
  const auto fails = [](const std::string& file, const std::string& message) {
    const JsonTokenizer t = JsonTokenizer::from_state(file);
    CHECK(error_of([&] { t.encode("a"); }) == message);
  };
  fails(table({5 << 10, 0, 0}, text, 12),
        "encode: normalizer.precompiled_charsmap of the tokenizer is damaged: it has no entry 100");
  fails(table({units[0], units[1], 9}, text, 12),
        "encode: normalizer.precompiled_charsmap of the tokenizer is damaged: it has no text at 9");
  fails(table({units[0], units[1], 1}, std::string("\u00e9\0", 3), 12),  // within a character
        "encode: normalizer.precompiled_charsmap of the tokenizer is damaged: it has no text at 1");
  json file = small();
  file["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "abc"}};
  CHECK(contains(error_of_text(file.dump()), "the base64 text has 3 characters; it must have a multiple of 4"));
}

TEST_CASE("tokenizer.json: expressions that Oniguruma and PCRE2 read differently are refused") {
  json whole = small();
  json& pattern = whole["pre_tokenizer"]["pretokenizers"][0]["pattern"];
  for (const char* refused : {"\\w+",    "\\ba",   "\\h",         "\\v",    "(a)\\1",   "\\p",     "\\x41",
                              "(?i)a",   "(?R)",   "(?1)",        "(?C)a",  "(?P<n>a)", "(*FAIL)", "(*LIMIT_MATCH=1)a",
                              "(?(1)a)", "[a[b]]", "[[:alpha:]]", "[a&&b]", "[]a]",     "[^]a]",   "a{2}+",
                              "a{2}?",   "a{,2}",  "\\",          "[a",     "\\Q",      "\\K",     "\\C",
                              "\\R",     "(?x)a b"}) {
    pattern["Regex"] = refused;
    INFO(refused);
    CHECK(contains(error_of_text(whole.dump()), "tokenizer.json: pre_tokenizer.pretokenizers[0].pattern.Regex has \""));
  }
  for (const char* wrong : {"(a", "a)", "*a", "a**", "\\p{Nothing}", "(?<=a+)b", "[b-a]", "\\x{110000}"}) {
    pattern["Regex"] = wrong;
    INFO(wrong);
    CHECK(contains(error_of_text(whole.dump()), "Regex is not a regular expression: "));
  }
  for (const char* fine : {"a|b", "\\s+(?!\\S)", "(?i:'s)", "[^\\r\\n\\p{L}]?+\\p{L}++", "(?<=a)b", "(?>a+)b",
                           "\\x{41}", "[\\]a\\-b]", "a{2,3}", "^a$", "\\P{Han}", "\\[\\(\\*"}) {
    pattern["Regex"] = fine;
    INFO(fine);
    CHECK(error_of_text(whole.dump()) == "");
  }
  pattern["Regex"] = "";
  CHECK(contains(error_of_text(whole.dump()), "has 0 bytes; a regular expression must have 1 to 4096"));
  pattern["Regex"] = std::string(5000, 'a');
  CHECK(contains(error_of_text(whole.dump()), "has 5000 bytes; a regular expression must have 1 to 4096"));
  pattern["Regex"] = std::string(100, '(') + "a" + std::string(100, ')');
  CHECK(contains(error_of_text(whole.dump()), "parentheses are too deeply nested"));
  pattern["Regex"] = "(((((a{1,999}){1,999}){1,999}){1,999}){1,999})";
  CHECK(contains(error_of_text(whole.dump()), "regular expression is too large"));
}

// A pattern that needs exponential time, or a deep stack, ends with a message.
TEST_CASE("tokenizer.json: patterns have limits") {
  json whole = small();
  json& pattern = whole["pre_tokenizer"]["pretokenizers"][0]["pattern"];
  pattern["Regex"] = "(a+)+[^a]";
  const JsonTokenizer slow = JsonTokenizer::from_state(whole.dump());
  const std::string message = error_of([&] { slow.encode(std::string(60, 'a')); });
  CHECK(contains(message,
                 "encode: the pattern pre_tokenizer.pretokenizers[0].pattern.Regex of the tokenizer fails at "
                 "byte offset 0 of a text of 60 bytes: it takes too many steps"));
  CHECK(slow.encode("ab") == Tokens{2});  // the memory of the failed match is used again
  pattern["Regex"] = "(?:a|b|(ab))+[^ab]";
  const JsonTokenizer deep = JsonTokenizer::from_state(whole.dump());
  CHECK(contains(error_of([&] { deep.encode(std::string(3'000'000, 'a')); }), "of a text of 3000000 bytes: "));
}

// Stages that make a text longer again and again, many stages, and many expressions.
TEST_CASE("tokenizer.json: stages have limits") {
  json growing = small(), stages = json::array();
  for (int i = 0; i < 40; ++i)
    stages.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaa"}});
  growing["normalizer"] = {{"type", "Sequence"}, {"normalizers", stages}};
  CHECK(contains(error_of([&] { JsonTokenizer::from_state(growing.dump()).encode("aaaa"); }),
                 "tokenizer: the stages of the tokenizer make more than 65600 bytes of a text"));
  growing["added_tokens"][0]["normalized"] = true;
  growing["added_tokens"][0]["content"] = "<a>";
  CHECK(contains(error_of_text(growing.dump()), "tokenizer: the stages of the tokenizer make more than 65584 bytes"));
  json bytes = small();
  bytes["pre_tokenizer"]["pretokenizers"] = json(30, small()["pre_tokenizer"]["pretokenizers"][1]);
  CHECK(contains(error_of([&] { JsonTokenizer::from_state(bytes.dump()).encode("ab\u00e9"); }),
                 "tokenizer: the stages of the tokenizer make more than 65600 bytes of a text"));
  json decoder = small();
  decoder["decoder"] = {{"type", "Sequence"}, {"decoders", stages}};
  CHECK(contains(error_of([&] {
                   JsonTokenizer::from_state(decoder.dump()).decode(Tokens{0, 0});
                 }),
                 "tokenizer: the stages of the tokenizer make more than 65600 bytes of a text"));
  json many = small();
  many["normalizer"] = {{"type", "Sequence"}, {"normalizers", json(65, json{{"type", "NFC"}})}};
  CHECK(error_of_text(many.dump()) ==
        "tokenizer.json: normalizer.normalizers[64] is one stage too many; there may be 64");
  many = small();
  many["pre_tokenizer"]["pretokenizers"] = json(17, small()["pre_tokenizer"]["pretokenizers"][0]);
  CHECK(error_of_text(many.dump()) == "tokenizer.json: there are more than 16 regular expressions");
  many = small();
  many["post_processor"]["special_tokens"]["<e>"]["ids"] = json(1025, 3);
  CHECK(error_of_text(many.dump()) == "tokenizer.json: post_processor adds more than 1024 tokens");
}

TEST_CASE("tokenizer.json: text that is not the JSON of a tokenizer") {
  CHECK(error_of_text("") == "tokenizer.json: the text is not JSON at byte 1");
  CHECK(error_of_text("[]") == "tokenizer.json: the text must be a JSON object");
  CHECK(error_of_text("null") == "tokenizer.json: the text must be a JSON object");
  CHECK(error_of_text("{}") == "tokenizer.json: model is missing");
  CHECK(error_of_text(small().dump() + "x").starts_with("tokenizer.json: the text is not JSON at byte "));
  CHECK(error_of_text(R"({"model": {"vocab": {"\ud800": 1}}})").starts_with("tokenizer.json: the text is not JSON at"));
  CHECK(error_of_text(R"({"version": "1.0", "version": "1.0"})") ==
        "tokenizer.json: the key \"version\" occurs twice in one object");
  CHECK(error_of_text(R"({"model": {"vocab": {"a": 1, "a": 2}}})") ==
        "tokenizer.json: model.vocab has the token \"a\" twice");
  CHECK(error_of_text(std::string(40, '[')) == "tokenizer.json: values are nested deeper than 32 levels");
  std::string many = "{", values = "[0";
  for (int i = 0; i < 17000; ++i) many += "\"" + std::to_string(i) + "\":0,";
  CHECK(error_of_text(many) == "tokenizer.json: an object has more than 16384 keys");
  for (int i = 0; i < 1100000; ++i) values += ",0";
  CHECK(error_of_text(values) == "tokenizer.json: there are more than 1048576 values");
}

TEST_CASE("tokenizer.json: a file that is cut at any byte, or has any byte changed") {
  const std::string whole = small().dump();
  for (std::size_t n = 0; n < whole.size(); ++n) {
    INFO(n);
    CHECK(error_of_text(whole.substr(0, n)) != "");
  }
  std::mt19937 random(1);
  int read = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    if (!test::is_taken(static_cast<long>(at), 4)) continue;
    for (const char c : {'\0', '"', '9', '[', '}', '\\', static_cast<char>(random())}) {
      std::string changed = whole;
      changed[at] = c;
      try {
        const JsonTokenizer t = JsonTokenizer::from_state(changed);
        t.decode(t.with_special_tokens(t.encode("ab <e> \u00e9 99 \n")));
        ++read;
      } catch (const Error& e) {
        const std::string message = e.what();
        const bool zero = message == "tokenizer.json has a zero byte; it must be JSON";
        CHECK((zero || message.starts_with("tokenizer.json: ")));
      }
    }
  }
  CHECK(read > 20);
}
