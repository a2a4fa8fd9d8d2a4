// SentencePiece models: Unicode forms, byte tokens, and texts that cannot be learned from.
#include <heed/core/check.hpp>
#include <heed/data/tokenizer.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

const std::string kNfc = "caf\u00e9 \u00fcber ma\u00f1ana", kNfd = "cafe\u0301 u\u0308ber man\u0303ana";

std::string lines(const std::string& line) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("sentencepiece: trained models normalize text to NFC, and store the form in FILE.model and in JSON") {
  const TemporaryFolder f;
  for (const char* model : {"bpe", "unigram"}) {
    const SentencePieceOptions o{.vocabulary = 271, .model = model};
    const auto t = SentencePieceTokenizer::train_on_text(lines(kNfc), o);
    CHECK(t.unicode() == UnicodeForm::nfc);
    CHECK(SentencePieceTokenizer::train_on_text(lines(kNfd), o).state() == t.state());
    CHECK(SentencePieceTokenizer::train({f.write("nfd.txt", lines(kNfd))}, o).state() == t.state());
    CHECK(t.encode(kNfd) == t.encode(kNfc));
    CHECK(t.encode_next(kNfd) == t.encode_next(kNfc));
    CHECK(t.decode(t.encode(kNfd)) == kNfc);
    t.save(f.path / "x.model");
    CHECK(SentencePieceTokenizer::load(f.path / "x.model").encode(kNfd) == t.encode(kNfc));
    const Tokenizer again = Tokenizer::from_json(Tokenizer(t).to_json());
    CHECK(again.unicode() == UnicodeForm::nfc);
    CHECK(again.encode(kNfd) == t.encode(kNfc));
    const Tokenizer none = t.with_unicode(UnicodeForm::none);
    CHECK(none.encode(kNfd) != t.encode(kNfc));
    CHECK(none.decode(none.encode(kNfd)) == kNfd);
    CHECK(make_tokenizer(f.path / "x.model", "", UnicodeForm::nfkc).encode("\ufb01") == t.encode("fi"));
    CHECK(make_tokenizer(f.path / "x.model", "").unicode() == UnicodeForm::nfc);
    CHECK(contains(error_of([&] {
                     std::string json = Tokenizer(t).to_json();
                     Tokenizer::from_json(json.replace(json.find("\"nfc\""), 5, "\"nfkc\""));
                   }),
                   "its form is nfkc and that of its model is nfc; they must be the same"));
  }
  CHECK(
      SentencePieceTokenizer::train_on_text(lines(kNfc), {.vocabulary = 271, .unicode = UnicodeForm::none}).unicode() ==
      UnicodeForm::none);
}

TEST_CASE("sentencepiece: bytes of characters without a token are distinguished from pieces, and counted") {
  const Tokenizer t = SentencePieceTokenizer::train_on_text(lines(kNfc), {.vocabulary = 271});
  const Tokens ids = t.encode("caf\u00e9 \u20ac");
  CHECK(std::ranges::count_if(ids, [&](std::int32_t id) { return t.is_byte(id); }) == 3);
  CHECK(!t.is_byte(-1));
  CHECK(!t.is_byte(100000));
  TokenCounts counts;
  counts.add(t, ids);
  CHECK(counts.text() == "3 of " + std::to_string(ids.size()) + " tokens were byte pieces");
  const Tokenizer words = WordTokenizer("a b");
  counts = {};
  counts.add(words, words.encode("a c b d"));
  CHECK(counts.text() == "2 of 4 tokens were unknown to the model");
  counts = {};
  counts.add(words, words.encode("a b"));
  CHECK(counts.text().empty());
  CHECK(counts.tokens == 2);
}

TEST_CASE("sentencepiece: each text that it cannot learn from has a reason") {
  const std::string zero(1, '\0');
  for (const char* model : {"bpe", "unigram"}) {
    const auto refusal = [&](const std::string& text, Index vocabulary) {
      return error_of([&] { SentencePieceTokenizer::train_on_text(text, {.vocabulary = vocabulary, .model = model}); });
    };
    for (const std::string& text : {std::string("\n\n"), std::string("\t\n"), zero, zero + "\n\t\r\n",
                                    std::string("\u2585\n"), std::string("a \u2585\n\t\n")}) {
      CAPTURE(text);
      CHECK(contains(refusal(text, 260),
                     "SentencePiece can learn nothing from this text: each line has only zero bytes"));
    }
    for (const std::string& text : {std::string(" "), std::string("a"), std::string("\u2581"), zero + "a\n"}) {
      CAPTURE(text);
      CHECK(refusal(text, 260).empty());
      CHECK(contains(refusal(text, 5000), "cannot learn 5000 pieces from this text: Vocabulary size too high"));
    }
  }
}
