#include <doctest/doctest.h>
#include <heed/core/check.hpp>
#include <heed/data/stories.hpp>
#include <heed/data/text.hpp>
#include <heed/data/tokenizer.hpp>

#include "tests/data/temporary_folder.hpp"

using namespace heed;
using Ids = std::vector<std::int32_t>;

namespace {

const std::string kMixed = "Zwölf €  \n\n\tこんにちは 😀 end ";

std::string corpus() { return Stories().text(3, 60000); }

// Every tokenizer gives its text back, also streamed and after a round trip through JSON.
void check_round_trip(const Tokenizer& t, const std::string& text) {
  const Ids ids = t.encode(text);
  CHECK(t.decode(ids) == text);
  for (std::int32_t id : ids) REQUIRE((id >= 0 && id < t.vocabulary_size()));
  StreamDecoder stream(t);
  std::string streamed;
  bool whole = true;
  for (std::int32_t id : ids) {
    const std::string piece = stream.next(id);
    whole = whole && !find_invalid_utf8(piece);
    streamed += piece;
  }
  CHECK(streamed + stream.finish() == text);
  CHECK(whole);
  const Tokenizer again = Tokenizer::from_json(t.to_json());
  CHECK(again.encode(text) == ids);
  CHECK(again.vocabulary_size() == t.vocabulary_size());
  CHECK(again.hash() == t.hash());
  CHECK(again.to_json() == t.to_json());
}

struct Letters {  // a user's own tokenizer
  std::vector<std::int32_t> encode(std::string_view text) const { return Ids(text.size(), 7); }
  std::string decode(std::span<const std::int32_t> ids) const { return std::string(ids.size(), 'x'); }
  Index vocabulary_size() const { return 8; }
  std::string kind() const { return "letters"; }
  std::string state() const { return "\xFF\x00"; }
};

}  // namespace

TEST_CASE("bytes") {
  const Tokenizer t = ByteTokenizer();
  check_round_trip(t, kMixed);
  CHECK(t.encode("a\xFF") == Ids{97, 255});
  CHECK(t.decode({104, 105}) == "hi");
  CHECK(t.encode("").empty());
  CHECK_THROWS_WITH_AS(t.decode({256}), "decode: token 256 is not in the vocabulary of 256 tokens", Error);
  CHECK_THROWS_AS(t.decode({-1}), Error);
}

TEST_CASE("characters are the sorted code points of the training text") {
  const CharTokenizer t("hello€ ö");
  CHECK(t.vocabulary_size() == 7);
  CHECK(t.state() == " ehloö€");
  CHECK(t.encode("hö") == Ids{2, 5});
  check_round_trip(t, "oh hello €ö");
  check_round_trip(CharTokenizer(kMixed), kMixed);
  CHECK_THROWS_WITH_AS(
      t.encode("öhx"),
      "char tokenizer: the character 'x' (U+0078) at byte offset 3 is not among the 7 characters of the training text",
      Error);
  CHECK_THROWS_WITH_AS(t.decode(Ids{7}), "decode: token 7 is not in the vocabulary of 7 tokens", Error);
  CHECK_THROWS_AS(CharTokenizer(""), Error);
  CHECK_THROWS_AS(CharTokenizer("\xFF"), Error);
  CHECK_THROWS_AS(t.encode("\xFF"), Error);
}

TEST_CASE("SentencePiece learns BPE and unigram models that give every text back") {
  for (const char* model : {"bpe", "unigram"}) {
    CAPTURE(model);
    const Tokenizer t = SentencePieceTokenizer::train_on_text(corpus(), {.vocabulary = 440, .model = model});
    CHECK(t.vocabulary_size() == 440);
    const std::string story = Stories().story(9, 0).text;
    CHECK(t.encode(story).size() < story.size());
    check_round_trip(t, story);
    check_round_trip(t, kMixed);
    check_round_trip(t, "  two  spaces");
    CHECK(t.encode("").empty());
    CHECK(SentencePieceTokenizer::train_on_text(corpus(), {.vocabulary = 440, .model = model}).state() == t.state());
    CHECK_THROWS_WITH_AS(t.decode({440}), "decode: token 440 is not in the vocabulary of 440 tokens", Error);
  }
}

TEST_CASE("SentencePiece models are read from files") {
  TemporaryFolder f;
  const auto trained = SentencePieceTokenizer::train({f.write("text.txt", corpus())}, {.vocabulary = 350});
  const auto file = f.write("pieces.model", trained.state());
  const Tokenizer t = make_tokenizer(file, "");
  CHECK(t.kind() == "sentencepiece");
  CHECK(t.state() == trained.state());
  CHECK(SentencePieceTokenizer::load(file).piece(0) == "<unk>");
  CHECK_THROWS_WITH_AS(make_tokenizer(f.path / "no.model", ""),
                       ("tokenizer: " + f.path.native() + "/no.model cannot be opened").c_str(), Error);
  for (const std::string& bytes : {std::string(), std::string("no model at all"), trained.state().substr(0, 100)})
    CHECK(has(error_of([&] { make_tokenizer(f.write("bad.model", bytes), ""); }),
              "bad.model is not a SentencePiece model"));
  CHECK_THROWS_AS(make_tokenizer("word", "x"), Error);
}

TEST_CASE("SentencePiece explains what it cannot learn") {
  CHECK(has(error_of([] { SentencePieceTokenizer::train_on_text("abc", {.vocabulary = 5000}); }),
            "cannot learn 5000 pieces from this text: Vocabulary size too high"));
  CHECK(has(error_of([] { SentencePieceTokenizer::train_on_text(corpus(), {.vocabulary = 10}); }),
            "cannot learn 10 pieces"));
  CHECK_THROWS_AS(SentencePieceTokenizer::train_on_text("", {}), Error);
  CHECK_THROWS_AS(SentencePieceTokenizer::train_on_text("abc\xFF", {}), Error);
  CHECK(
      has(error_of([] { SentencePieceTokenizer::train_on_text("abc", {.model = "word"}); }), "must be bpe or unigram"));
}

TEST_CASE("a stream holds back unfinished characters and repairs broken ones") {
  StreamDecoder s{ByteTokenizer()};
  CHECK(s.next('a') == "a");
  CHECK(s.next(0xE2) == "");
  CHECK(s.next(0x82) == "");
  CHECK(s.next(0xAC) == "€");
  CHECK(s.next(0xFF) == "\xEF\xBF\xBD");
  CHECK(s.next(0xE2) == "");
  CHECK(s.next('b') ==
        "\xEF\xBF\xBD"
        "b");
  CHECK(s.next(0xF0) == "");
  CHECK(s.finish() == "\xEF\xBF\xBD");
  CHECK(s.finish() == "");
}

TEST_CASE("a tokenizer of one's own fits, and damaged ones are refused") {
  const Tokenizer own = Letters();
  CHECK(own.encode("ab") == Ids{7, 7});
  CHECK(own.decode({7, 7, 7}) == "xxx");
  CHECK(has(error_of([&] { Tokenizer::from_json(own.to_json()); }), "of the kind \"letters\""));
  CHECK(own.hash() != Tokenizer(ByteTokenizer()).hash());
  CHECK(Tokenizer(CharTokenizer("ab")).hash() != Tokenizer(CharTokenizer("abc")).hash());
  for (const char* json : {"", "{", "[]", "{\"kind\": 3, \"state\": \"\"}", "{\"kind\": \"byte\"}"})
    CHECK(has(error_of([&] { Tokenizer::from_json(json); }), "damaged"));
  CHECK(has(error_of([] { Tokenizer::from_json(R"({"kind": "sentencepiece", "state_base64": "AAA"})"); }),
            "multiple of 4"));
  CHECK(has(error_of([] { Tokenizer::from_json(R"({"kind": "sentencepiece", "state_base64": "A*AA"})"); }),
            "damaged at character 1"));
}
