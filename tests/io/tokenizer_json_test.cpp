// Tokenizers from tokenizer.json: tokens and texts of each kind, as the package `tokenizers` makes them.
#include <doctest/doctest.h>
#include <heed/data/text.hpp>
#include <heed/io/tokenizer_json.hpp>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"
#include "tests/tools/json.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::in_source;
using test::json_file;
using test::TemporaryFolder;

namespace {

// Written by tests/reference/tokenizers_files.py.
const nlohmann::json& stored() {
  static const nlohmann::json all = json_file(in_source("tests/reference/tokenizers_files.json"));
  return all;
}

JsonTokenizer tokenizer_named(const std::string& name) {
  return JsonTokenizer::from_state(stored().at(name).at("file").get<std::string>());
}

// Compares all texts of one kind with the results of `tokenizers`. Reports at most five differences.
void check_kind(const nlohmann::json& kind) {
  const JsonTokenizer t = JsonTokenizer::from_state(kind.at("file").get<std::string>());
  int wrong = 0;
  const auto compare = [&](const auto& got, const auto& expected, const std::string& text, const char* what) {
    if (got == expected) return;
    INFO(what, ": ", printable(text));
    if (++wrong <= 5) CHECK(nlohmann::json(got).dump(-1, ' ', true) == nlohmann::json(expected).dump(-1, ' ', true));
  };
  for (const auto& row : kind.at("texts")) {
    const auto text = row[0].get<std::string>();
    const auto ids = row[1].get<Tokens>();
    const auto decoded = row[3].get<std::string>();
    compare(t.encode(text), ids, text, "encode");
    compare(t.encode_as_text(text), row[2].is_null() ? ids : row[2].get<Tokens>(), text, "encode_as_text");
    compare(t.decode(ids), decoded, text, "decode");
    compare(t.decode_without_special(ids), row[4].is_null() ? decoded : row[4].get<std::string>(), text,
            "decode_without_special");
  }
  for (const auto& row : kind.at("ids"))
    compare(t.decode(row[0].get<Tokens>()), row[1].get<std::string>(), row[0].dump(), "decode of random tokens");
  CHECK(t.with_special_tokens({}) == kind.at("around").get<Tokens>());
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("tokenizer.json: tokens and texts of each kind are those of tokenizers") {
  CHECK(stored().size() >= 15);
  for (const auto& kind : stored().items()) {
    INFO(kind.key());
    CHECK(kind.value().at("texts").size() >= 20);
    check_kind(kind.value());
  }
}

// HEED_TOKENIZER_TEXTS names a folder that tests/reference/tokenizers_files.py wrote.
TEST_CASE("tokenizer.json: many texts") {
  const char* const folder = std::getenv("HEED_TOKENIZER_TEXTS");
  if (folder == nullptr) {
    MESSAGE("HEED_TOKENIZER_TEXTS is not set: no texts to compare");
    return;
  }
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    INFO(entry.path().string());
    check_kind(json_file(entry.path()));
    ++files;
  }
  CHECK(files > 0);
}

TEST_CASE("tokenizer.json: as a Tokenizer") {
  const JsonTokenizer qwen = tokenizer_named("qwen2");
  const Tokenizer t = qwen;
  CHECK(t.kind() == "tokenizer.json");
  CHECK(t.state() == stored()["qwen2"]["file"].get<std::string>());
  CHECK(t.vocabulary_size() == 445);
  const std::string text = "Zwölf Boxkämpfer, こんにちは 😀 12345\r\n\n  <|im_start|>x<|im_end|>";
  const Tokens ids = t.encode(text);
  CHECK(t.decode(ids) == text);
  StreamDecoder stream(t);
  std::string streamed;
  for (const std::int32_t id : ids) streamed += stream.next(id);
  CHECK(streamed + stream.finish() == text);
  CHECK(JsonTokenizer::from_state(t.state()).encode(text) == ids);
  const Tokenizer stored_in_json = Tokenizer::from_json(t.to_json());
  CHECK(stored_in_json.encode(text) == ids);
  CHECK(stored_in_json.hash() == t.hash());
  CHECK(t.as<JsonTokenizer>()->encode_as_text("<|im_end|>").size() > 1);
  CHECK(t.as<ByteTokenizer>() == nullptr);
  CHECK(error_of([] { Tokenizer::from_json(R"({"kind": "tokenizer.json", "state": "{}"})"); }) ==
        "tokenizer.json: model is missing");
  CHECK(t.hash() == Tokenizer(tokenizer_named("qwen2")).hash());
  CHECK(t.hash() != Tokenizer(tokenizer_named("gpt2")).hash());
}

TEST_CASE("tokenizer.json: parts of a text, encoded one by one") {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "the model of layer " + std::to_string(i) + ", naïve\n";
  for (const char* name : {"gpt2", "llama3", "smollm", "qwen2"}) {
    INFO(name);
    const Tokenizer t = tokenizer_named(name);
    CHECK(encode_text(t, text) == t.encode(text));
  }
  for (const char* name : {"prefix_space", "llama2", "mistral", "unigram"}) {  // insert a space before a text
    INFO(name);
    const JsonTokenizer t = tokenizer_named(name);
    CHECK(t.encode_next("the model").size() >= 1);
    CHECK(t.encode_next(" the model") == t.encode("the model"));
    CHECK(t.encode_next("the model") != t.encode("the model"));
  }
}

TEST_CASE("tokenizer.json: named tokens, lengths and bytes") {
  const JsonTokenizer bert = tokenizer_named("bert");
  CHECK(bert.special("<unk>") == bert.id_of("[UNK]"));
  CHECK(bert.special("<pad>") == bert.id_of("[PAD]"));
  CHECK(bert.special("<s>") == bert.id_of("[CLS]"));
  CHECK(bert.special("</s>") == bert.id_of("[SEP]"));
  CHECK(bert.special("[CLS]") == std::nullopt);
  CHECK(bert.max_length() == 128);
  CHECK(bert.is_special(2));
  CHECK(!bert.is_special(10));
  CHECK(!bert.is_byte(10));
  CHECK(bert.token(2) == "[CLS]");
  const JsonTokenizer llama = tokenizer_named("llama2");
  CHECK(llama.special("</s>") == 2);
  CHECK(llama.special("<pad>") == std::nullopt);
  CHECK(llama.max_length() == std::nullopt);
  CHECK(llama.is_byte(*llama.id_of("<0xE2>")));
  CHECK(!llama.is_byte(*llama.id_of("▁the")));
  CHECK(llama.id_of("no such token") == std::nullopt);
  const JsonTokenizer gpt2 = tokenizer_named("gpt2");
  CHECK(gpt2.is_byte(*gpt2.id_of("Ĳ")));  // the byte 0x90
  CHECK(gpt2.decode(Tokens{*gpt2.id_of("Ĳ")}) == "\uFFFD");
  CHECK(!gpt2.is_byte(*gpt2.id_of("a")));
  CHECK(gpt2.decode(Tokens{}) == "");
}

TEST_CASE("tokenizer.json: threads may encode with one tokenizer") {
  const JsonTokenizer t = tokenizer_named("smollm");
  const std::string text = stored()["smollm"]["texts"].dump();
  const Tokens expected = t.encode(text);
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < wrong.size(); ++k)
    threads.emplace_back([&, k] {
      for (int i = 0; i < 5; ++i) wrong[k] += t.encode(text) != expected;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

// The Unicode tables of libraries differ for characters that were added lately or are not assigned. Such texts are
// encoded, too, and byte-level tokenizers return them.
TEST_CASE("tokenizer.json: any character") {
  std::vector<std::string> blocks;
  const char32_t step = static_cast<char32_t>(test::thinned(1, 101));
  std::size_t count = 0;
  for (char32_t c = 1; c < 0x110000; c += step) {
    if (0xD800 <= c && c < 0xE000) continue;
    if (count++ % 1000 == 0) blocks.emplace_back();
    append_utf8(blocks.back(), c);
    if (c % 7 == 0) blocks.back() += ' ';
  }
  for (const auto& kind : stored().items()) {
    INFO(kind.key());
    const JsonTokenizer t = tokenizer_named(kind.key());
    const bool returns = kind.key() == "gpt2" || kind.key() == "smollm" || kind.key() == "llama3";
    int wrong = 0;
    for (const std::string& block : blocks) {
      const std::string decoded = t.decode(t.encode(block));
      wrong += returns && decoded != block ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("tokenizer.json: text that is not UTF-8") {
  const JsonTokenizer t = tokenizer_named("gpt2");
  const std::string text = "abc\xFFx";
  CHECK(error_of([&] { t.encode(text); }) == "tokenizer: the byte 0xFF at byte offset 3 is not valid UTF-8");
  CHECK(contains(error_of([&] { t.decode(Tokens{100000}); }), "decode: token 100000 is not in the vocabulary of"));
  CHECK(contains(error_of([&] { t.decode(Tokens{-1}); }), "decode: token -1 is not in the vocabulary of"));
  CHECK(contains(error_of([&] { t.token(-1); }), "token: token -1 is not in the vocabulary of"));
}

// One piece, whose merges need a heap, and patterns that must not recurse for each character.
TEST_CASE("tokenizer.json: long texts without a blank") {
  const auto check_size = [](const JsonTokenizer& t, const std::string& part, std::size_t size) {
    INFO(part);
    std::string text;
    while (text.size() < size) text += part;
    CHECK(t.encode(text).size() <= text.size() + 2);
  };
  for (const auto& kind : stored().items()) {
    INFO(kind.key());
    const JsonTokenizer t = tokenizer_named(kind.key());
    for (const char* part : {"a", "the", "1", "  ", "\n", "\u0301", ".", "▁", "漢"})
      check_size(t, part, test::thinned<std::size_t>(100'000, 20'000));
  }
  for (const char* name : {"llama3", "llama2"})
    check_size(tokenizer_named(name), "the", test::thinned<std::size_t>(10'000'000, 100'000));
}

TEST_CASE("tokenizer.json: files") {
  const TemporaryFolder folder;
  const auto file = folder.write("tokenizer.json", stored()["gpt2"]["file"].get<std::string>());
  CHECK(JsonTokenizer::load(file).vocabulary_size() == 420);
  const auto other = folder.write("other.json", "[1, 2]");
  CHECK(error_of([&] { JsonTokenizer::load(other); }) ==
        "load_tokenizer: " + other.string() + ": tokenizer.json: the text must be a JSON object");
  CHECK(contains(error_of([&] { JsonTokenizer::load(folder.path / "none.json"); }), "none.json"));
}
