// Words as tokens, and the special tokens at the start and end of texts.
#include <heed/data/samples.hpp>
#include <heed/data/tokenizer.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

using Ids = std::vector<std::int32_t>;

TEST_CASE("words: the most frequent are first, equal ones in byte order, and rare ones are unknown") {
  const std::string text = "the cat saw the dog .\nthe dog\tsaw a bird .  \n";
  const WordTokenizer all(text);
  CHECK(all.vocabulary_size() == 4 + 7);
  CHECK(all.state() == "the\n.\ndog\nsaw\na\nbird\ncat\n");
  CHECK(all.encode(" the bird   saw a fish\n") == Ids{4, 9, 7, 8, 1});
  CHECK(all.decode(Ids{2, 4, 9, 1, 3, 0}) == "the bird <unk>");
  CHECK(all.word(3) == "</s>");
  const WordTokenizer few(text, {.min_frequency = 2});
  CHECK(few.state() == "the\n.\ndog\nsaw\n");
  CHECK(WordTokenizer(text, {.vocabulary = 2}).state() == "the\n.\n");
  CHECK(all.encode("<s> the </s>") == Ids{1, 4, 1});  // in a text, these are ordinary words
  CHECK(WordTokenizer("<s> a </s>").state() == "a\n");
}

TEST_CASE("words are learned from files, stored as JSON, and refused with a reason") {
  const std::string text = "one two two three three three\n";
  const TemporaryFolder folder;
  CHECK(WordTokenizer::train({folder.write("a.txt", text)}).state() == "three\ntwo\none\n");
  const Tokenizer tokenizer = WordTokenizer(text);
  const Tokenizer again = Tokenizer::from_json(tokenizer.to_json());
  CHECK(again.kind() == "word");
  CHECK(again.encode("two four") == tokenizer.encode("two four"));
  CHECK(again.hash() == tokenizer.hash());
  check_errors({
      {"word tokenizer: none of the 3 words of the text occurs 4 times",
       [&] { WordTokenizer(text, {.min_frequency = 4}); }},
      {"min_frequency is 0", [&] { WordTokenizer(text, {.min_frequency = 0}); }},
      {"decode: token 9 is not in the vocabulary of 7 tokens", [&] { tokenizer.decode({9}); }},
      {"«two» occurs twice", [] { WordTokenizer::from_state("two\ntwo\n"); }},
      {"«» is not a word", [] { WordTokenizer::from_state("two\n\nthree\n"); }},
      {"there are none", [] { WordTokenizer::from_state(""); }},
      {"«" + std::string(80, 'x') + "...» occurs twice",
       [] { WordTokenizer::from_state(std::string(5000, 'x') + "\n" + std::string(5000, 'x') + "\n"); }},
  });
}

TEST_CASE("words: text is normalized to NFC in training and use, or to the requested form") {
  const std::string nfc = "caf\u00e9 ma\u00f1ana \ufb01n", nfd = "cafe\u0301 man\u0303ana \ufb01n";
  const TemporaryFolder folder;
  const Tokenizer t = WordTokenizer(nfc);
  CHECK(t.unicode() == UnicodeForm::nfc);
  CHECK(t.encode(nfd) == t.encode(nfc));
  CHECK(t.decode(t.encode(nfd)) == nfc);
  CHECK(WordTokenizer::train({folder.write("nfd", nfd)}).state() == t.state());
  CHECK(WordTokenizer(nfd).state() == t.state());
  const Tokenizer again = Tokenizer::from_json(t.to_json());
  CHECK(again.to_json() == t.to_json());
  CHECK(again.encode(nfd) == t.encode(nfc));
  CHECK(WordTokenizer(nfc, {.unicode = UnicodeForm::nfkc}).encode("fin") == Ids{5});
  const Tokenizer none = WordTokenizer(nfd, {.unicode = UnicodeForm::none});
  CHECK(none.encode(nfd) != none.encode(nfc));
  CHECK(none.hash() != t.hash());
  // A tokenizer that was stored without a form keeps its words.
  const Tokenizer old = Tokenizer::from_json(R"({"kind": "word", "state": "e\u0301\n"})");
  CHECK(old.unicode() == UnicodeForm::none);
  CHECK(old.encode("e\u0301 \u00e9") == Ids{4, 1});
}

TEST_CASE("special tokens have names, and text pairs begin and end with them") {
  const Tokenizer words = WordTokenizer("a b c"), characters = CharTokenizer("abc ");
  CHECK(words.special("<pad>") == 0);
  CHECK(words.special("</s>") == 3);
  CHECK(!words.special("<mask>"));
  CHECK(!characters.special("<s>"));
  const SentencePieceTokenizer pieces = SentencePieceTokenizer::train_on_text("ab bc cd de\n", {.vocabulary = 270});
  CHECK(Tokenizer(pieces).special("<s>") == 1);
  CHECK(pieces.piece(*pieces.special("</s>")) == "</s>");
  CHECK(pieces.piece(*pieces.special("<unk>")) == "<unk>");
  CHECK(!pieces.special("<pad>"));
  CHECK(pieces.decode(Ids{1, 2}) == "");

  const std::vector<TextPair> pair = {{"a b", "c"}};
  const TextPairs with(pair, words, words, {.source_end = true});
  CHECK(ids_of(with.sample(0).at("source")) == Ids{4, 5, 3});
  CHECK(ids_of(with.sample(0).at("inputs")) == Ids{2, 6});
  CHECK(ids_of(with.sample(0).at("targets")) == Ids{6, 3});
  CHECK(with.source_vocabulary() == 7);
  CHECK(with.target_vocabulary() == 7);
  const TextPairs with_end(pair, characters, characters, {.source_end = true});
  CHECK(ids_of(with_end.sample(0).at("source")) == Ids{1, 0, 2, 5});
  CHECK(ids_of(with_end.sample(0).at("inputs")) == Ids{4, 3});
  CHECK(with_end.source_vocabulary() == 6);
}
