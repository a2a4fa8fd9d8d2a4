// Tokenizers of bytes, characters and SentencePiece: round trips, training, parts of texts, streams and errors.
#include <doctest/doctest.h>
#include <heed/core/check.hpp>
#include <heed/data/tasks.hpp>
#include <heed/data/text.hpp>
#include <heed/data/tokenizer.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::TemporaryFolder;
using Ids = std::vector<std::int32_t>;

namespace {

const std::string kMixed = "Zwölf €  \n\n\tこんにちは 😀 end ";

std::string corpus() { return Stories().text(3, 60000); }

// Checks that a tokenizer restores its text, also streamed and after a conversion to JSON and back.
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

struct Letters {  // a user-defined tokenizer
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

TEST_CASE("bytes and characters keep text as it is, or bring it into a form") {
  const std::string nfc = "caf\u00e9 x", nfd = "cafe\u0301 x";
  check_round_trip(ByteTokenizer(), nfd);
  check_round_trip(CharTokenizer(nfd), nfd);
  for (const Tokenizer& t :
       {Tokenizer(ByteTokenizer(UnicodeForm::nfc)), Tokenizer(CharTokenizer(nfc, UnicodeForm::nfc)),
        Tokenizer(CharTokenizer(nfd, UnicodeForm::nfc))}) {
    CHECK(t.encode(nfd) == t.encode(nfc));
    check_round_trip(t, nfc);
    CHECK(t.unicode() == UnicodeForm::nfc);
    CHECK(t.hash() != Tokenizer(ByteTokenizer()).hash());
  }
  CHECK(Tokenizer(CharTokenizer(nfc)).hash() != Tokenizer(CharTokenizer(nfc, UnicodeForm::nfc)).hash());
  CHECK(make_tokenizer("char", nfd, UnicodeForm::nfc).encode(nfd).size() == 6);
  CHECK(make_tokenizer("byte", "", UnicodeForm::nfkc).encode("\ufb01") == Ids{'f', 'i'});
  TemporaryFolder f;
  CHECK(CharTokenizer::train({f.write("a.txt", nfd)}, UnicodeForm::nfc).state() == " acfx\u00e9");
  // Offsets of unknown characters refer to the given text, and errors name a text in another form.
  CHECK(error_of([&] { CharTokenizer(nfc, UnicodeForm::nfc).encode("e\u0301 cafe\u0301 y"); }) ==
        "char tokenizer: the character 'y' (U+0079) at byte offset 11 is not among the 6 characters of the training "
        "text");
  CHECK(contains(error_of([&] { CharTokenizer(nfc + "e").encode(nfd); }),
                 "at byte offset 4 is not among the 7 characters of the training text; the text is not in the Unicode "
                 "form NFC"));
  CHECK(contains(error_of([] { Tokenizer::from_json(R"({"kind": "byte", "state": "", "unicode": "nfd"})"); }),
                 "its Unicode form must be nfc, nfkc or none"));
  CHECK(contains(error_of([] { Tokenizer::from_json(R"({"kind": "byte", "state": "", "unicode": 3})"); }), "damaged"));
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

TEST_CASE("SentencePiece: the first word of a text has the same pieces as within a text, if requested") {
  for (const bool begins : {false, true}) {
    CAPTURE(begins);
    const SentencePieceTokenizer t =
        SentencePieceTokenizer::train_on_text(corpus(), {.vocabulary = 440, .word_begins = begins});
    const std::vector<std::int32_t> alone = t.encode("found"), within = t.encode("Mia found");
    const bool same = alone.size() <= within.size() && std::equal(alone.rbegin(), alone.rend(), within.rbegin());
    CHECK(same == begins);
    for (const std::string text : {"found a  map", " begins", "", "ends "}) check_round_trip(t, text);
  }
}

TEST_CASE("SentencePiece models are read from files") {
  TemporaryFolder f;
  const auto trained = SentencePieceTokenizer::train({f.write("text.txt", corpus())}, {.vocabulary = 350});
  const auto file = f.path / "pieces.model";
  trained.save(file);
  CHECK(contains(error_of([&] { trained.save(f.path / "no/pieces.model"); }), "tokenizer: there is no folder "));
  const Tokenizer t = make_tokenizer(file, "");
  CHECK(t.kind() == "sentencepiece");
  CHECK(t.state() == trained.state());
  CHECK(SentencePieceTokenizer::load(file).piece(0) == "<unk>");
  CHECK(contains(error_of([&] { SentencePieceTokenizer::load(file).piece(-1); }),
                 "piece: token -1 is not in the vocabulary of "));
  CHECK_THROWS_WITH_AS(make_tokenizer(f.path / "no.model", ""),
                       ("tokenizer: " + f.path.native() + "/no.model cannot be opened").c_str(), Error);
  for (const std::string& bytes : {std::string(), std::string("no model at all"), trained.state().substr(0, 100)})
    CHECK(contains(error_of([&] { make_tokenizer(f.write("bad.model", bytes), ""); }),
                   "bad.model is not a SentencePiece model"));
  CHECK_THROWS_AS(make_tokenizer("word", "x"), Error);
}

// Parts cut as by StreamEncoder, but small: after lines, or before spaces.
static void check_parts(const Tokenizer& t, const std::string& text) {
  for (std::size_t min_size : {0, 1, 7, 50, 400}) {
    Ids ids;
    std::string_view rest = text;
    while (!rest.empty()) {
      std::size_t n = cut_text(rest, min_size, min_size + 40);
      if (n == 0) n = rest.size();
      const std::string_view part = rest.substr(0, n);
      const Ids more = rest.size() == text.size() ? t.encode(part) : t.encode_next(part);
      ids.insert(ids.end(), more.begin(), more.end());
      rest.remove_prefix(n);
    }
    CAPTURE(min_size);
    CHECK((ids == t.encode(text)));
  }
}

TEST_CASE("a text encoded in parts has the tokens of the whole, for any rule of a model for the start of a text") {
  const std::string text =
      " \n two  spaces\n\n\n" + Stories().text(4, 3000) + " end \n \n  \nzwölf € 😀\n" + Stories().text(5, 900) + "\n";
  TemporaryFolder f;
  const auto own = SentencePieceTokenizer::train_on_text(corpus(), {.vocabulary = 440}),
             unigram = SentencePieceTokenizer::train_on_text(corpus(), {.vocabulary = 440, .model = "unigram"});
  // Variants of the same models: appended settings of the normalizer (field 3 of the model's protocol buffer) replace
  // its own. Field 3 adds a space before each text, field 4 joins spaces and removes them at the ends.
  for (const SentencePieceTokenizer& model : {own, unigram})
    for (const std::string& settings : {std::string(), std::string("\x1a\x02\x18\x01"), std::string("\x1a\x02\x20\x01"),
                                        std::string("\x1a\x04\x18\x01\x20\x01")}) {
      const Tokenizer t = SentencePieceTokenizer::from_state(model.state() + settings);
      CAPTURE(settings.size());
      CHECK((settings.empty() || t.encode(" a  b") != Tokenizer(model).encode(" a  b")));
      check_parts(t, text);
    }
  check_parts(ByteTokenizer(), text);
  check_parts(CharTokenizer(text), text);
}

TEST_CASE("the stream encoder does not care how its text is cut") {
  std::string text = Stories().text(6, 90000), words;
  for (int i = 0; i < 90000; ++i) words += "長い言葉";  // more than a megabyte without line feeds and spaces
  text += words + "\nzwölf €\n" + Stories().text(7, 100000);
  const Tokenizer t =
      SentencePieceTokenizer::train_on_text(words.substr(0, 120000) + text.substr(0, 50000), {.vocabulary = 460});
  const Ids whole = encode_text(t, text);
  CHECK((t.decode(whole) == text));
  for (std::size_t size : {3001, 65536, 1 << 22}) {
    Ids ids;
    StreamEncoder encoder(t,
                          [&](std::span<const std::int32_t> more) { ids.insert(ids.end(), more.begin(), more.end()); });
    for (std::size_t at = 0; at < text.size(); at += size) encoder.feed(std::string_view(text).substr(at, size));
    encoder.finish();
    CHECK((ids == whole));
  }
  CHECK(encode_text(t, "").empty());
}

TEST_CASE("a byte that is not UTF-8 is an Error with its offset in the whole text") {
  const Tokenizer t = CharTokenizer("ab\n€");
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "ab\n";
  for (const std::size_t at : {0ul, 3ul, 9000ul, 15000ul}) {  // parts have 4 kB
    const std::string place = "at byte offset " + std::to_string(at) + " is not valid UTF-8",
                      broken = text.substr(0, at) + "\xFF" + text, unfinished = text.substr(0, at) + "\xE2\x82";
    CHECK_THROWS_WITH_AS(encode_text(t, broken), ("char tokenizer: the byte 0xFF " + place).c_str(), EncodeError);
    CHECK_THROWS_WITH_AS(encode_text(t, unfinished), ("char tokenizer: the byte 0xE2 " + place).c_str(), EncodeError);
  }
}

TEST_CASE("characters from files are those of their text") {
  TemporaryFolder f;
  const auto a = f.write("a.txt", "\xEF\xBB\xBFzwölf"), b = f.write("b.txt", "€ 😀");
  CHECK(CharTokenizer::train({a, b}).state() == "\n flwzö€😀");
  CHECK(make_tokenizer("char", std::vector<std::filesystem::path>{a}).state() == "flwzö");
  CHECK(contains(error_of([&] { CharTokenizer::train({f.write("none.txt", "")}); }), "there is no text"));
}

TEST_CASE("SentencePiece trains on lines from all parts of a large text") {
  TemporaryFolder f;
  const std::string text = corpus();
  const auto file = f.write("text.txt", text);
  const auto whole = SentencePieceTokenizer::train({file}, {.vocabulary = 400});
  CHECK(whole.state() == SentencePieceTokenizer::train_on_text(text, {.vocabulary = 400}).state());
  CHECK(whole.state() ==
        SentencePieceTokenizer::train({file}, {.vocabulary = 400, .sample = static_cast<Index>(text.size())}).state());
  const SentencePieceOptions third{.vocabulary = 400, .sample = 20000};
  const auto part = SentencePieceTokenizer::train({file}, third);
  CHECK(part.state() != whole.state());
  CHECK(part.state() == SentencePieceTokenizer::train({file}, third).state());
  // Words at the end are known as well as those at the start.
  const std::string late = "Zanzibar and Zanzibar and Zanzibar\n";
  std::string more = text;
  for (int i = 0; i < 1000; ++i) more += late;
  CHECK(SentencePieceTokenizer::train({f.write("more.txt", more)}, third).encode("Zanzibar").size() < 4);
  CHECK_THROWS_AS(SentencePieceTokenizer::train({file}, {.sample = 0}), Error);
  const Tokenizer one_line =
      SentencePieceTokenizer::train_on_text(std::string(300000, 'x') + " word", {.vocabulary = 266});
  CHECK(one_line.decode(one_line.encode("xx")) == "xx");
}

TEST_CASE("SentencePiece explains why it cannot train") {
  CHECK(
      contains(error_of([] { SentencePieceTokenizer::train_on_text("abc", {.vocabulary = 0}); }),
               "tokenizer: vocabulary is 0; it must be above 259: one piece per byte, and 3 of SentencePiece itself"));
  CHECK(contains(error_of([] { SentencePieceTokenizer::train_on_text("abc", {.vocabulary = 5000}); }),
                 "cannot learn 5000 pieces from this text: Vocabulary size too high"));
  CHECK(contains(error_of([] { SentencePieceTokenizer::train_on_text(corpus(), {.vocabulary = 2}); }),
                 "vocabulary is 2; it must be above 259"));
  const std::string few = error_of([] { SentencePieceTokenizer::train_on_text(corpus(), {.vocabulary = 270}); });
  CHECK(contains(few, " The vocabulary must hold every character of the text."));
  CHECK_FALSE(contains(few, "--"));
  CHECK_THROWS_AS(SentencePieceTokenizer::train_on_text("", {}), Error);
  CHECK_THROWS_AS(SentencePieceTokenizer::train_on_text("abc\xFF", {}), Error);
  CHECK(contains(error_of([] { SentencePieceTokenizer::train_on_text("abc", {.model = "word"}); }),
                 "must be bpe or unigram"));
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

TEST_CASE("user-defined tokenizers work, and damaged ones are refused") {
  const Tokenizer own = Letters();
  CHECK(own.encode("ab") == Ids{7, 7});
  CHECK(own.decode({7, 7, 7}) == "xxx");
  CHECK(contains(error_of([&] { Tokenizer::from_json(own.to_json()); }), "of the kind \"letters\""));
  CHECK(own.hash() != Tokenizer(ByteTokenizer()).hash());
  CHECK(Tokenizer(CharTokenizer("ab")).hash() != Tokenizer(CharTokenizer("abc")).hash());
  for (const char* json : {"", "{", "[]", "{\"kind\": 3, \"state\": \"\"}", "{\"kind\": \"byte\"}"})
    CHECK(contains(error_of([&] { Tokenizer::from_json(json); }), "damaged"));
  for (const char* state : {"ba", "abb"})
    CHECK(
        contains(error_of([&] { Tokenizer::from_json(R"({"kind": "char", "state": ")" + std::string(state) + "\"}"); }),
                 "tokenizer: the stored characters are damaged: they must be sorted and unique"));
  CHECK(contains(error_of([] { Tokenizer::from_json(R"({"kind": "sentencepiece", "state_base64": "AAA"})"); }),
                 "multiple of 4"));
  CHECK(contains(error_of([] { Tokenizer::from_json(R"({"kind": "sentencepiece", "state_base64": "A*AA"})"); }),
                 "damaged at character 1"));
}
