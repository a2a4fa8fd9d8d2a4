// Tokenizers of data/ as tokenizer.json and inside GGUF files: ids and texts are equal.
#include <heed/core/random.hpp>
#include <heed/data/detail/base64.hpp>
#include <heed/io/protobuf.hpp>
#include <heed/io/tokenizer_gguf.hpp>

#include "tests/data/temporary_folder.hpp"
#include "tests/io/stored_tokenizers.hpp"
#include "tests/support.hpp"

using namespace heed;
using detail::ProtobufMessage;
using test::contains;
using test::error_of;

namespace {

const std::string kTaught =
    "The cat sat on the mat, and the dog sat on the log.\nA straße, a café, 10 °C: naïve words; 日本 and 日 and 本.\n"
    "  Two spaces, the  cat  and a tab\there.\nthe theory, the other, the mother and the cathedral\n";

// Texts of pieces of kTaught in random order, with runs of spaces at any place.
std::vector<std::string> texts_like_taught(int count) {
  const std::vector<char32_t> all = decode_utf8(kTaught);
  Rng rng(7);
  std::vector<std::string> texts = {"", " ", "  ", "\n", " \n ", "the", " the", "the ", "the cat", "a  a"};
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (Index parts = 1 + rng.integer(4); parts > 0; --parts) {
      const Index begin = rng.integer(static_cast<Index>(all.size())), n = rng.integer(20);
      for (Index k = begin; k < std::min<Index>(begin + n, static_cast<Index>(all.size())); ++k)
        append_utf8(text, all[static_cast<std::size_t>(k)]);
      text += std::string(static_cast<std::size_t>(rng.integer(3)), ' ');
    }
    texts.push_back(text);
  }
  return texts;
}

JsonTokenizer through_gguf(const JsonTokenizer& tokenizer) {
  const test::TemporaryFolder folder;
  GgufMetadata metadata = tokenizer_metadata(tokenizer);
  metadata["general.architecture"] = "llama";
  save_gguf(folder.path / "x.gguf", metadata, {});
  return tokenizer_of(GgufFile(folder.path / "x.gguf"));
}

// The number of texts for which ids or decoded texts differ.
int differences(const Tokenizer& own, const JsonTokenizer& other, const std::vector<std::string>& texts) {
  int wrong = 0;
  for (const std::string& text : texts) {
    const Tokens ids = own.encode(text);
    if (ids == other.encode(text) && own.decode(ids) == other.decode(ids)) continue;
    if (++wrong < 4) MESSAGE("other ids or another text: ", printable(text));
  }
  return wrong;
}

SentencePieceTokenizer taught(const std::string& model, bool word_begins, UnicodeForm form = UnicodeForm::nfc) {
  return SentencePieceTokenizer::train_on_text(
      kTaught, {.vocabulary = 310, .model = model, .word_begins = word_begins, .unicode = form});
}

// A SentencePiece model with other fields of its trainer (2), normalizer (3) or denormalizer (5).
SentencePieceTokenizer with_spec(const SentencePieceTokenizer& base, int number, const ProtobufMessage& spec) {
  ProtobufMessage field;
  field.message(number, spec);
  return SentencePieceTokenizer::from_state(base.state() + field.bytes());
}

}  // namespace

TEST_CASE("own tokenizers: bytes") {
  for (const UnicodeForm form : {UnicodeForm::none, UnicodeForm::nfc, UnicodeForm::nfkc}) {
    const Tokenizer own = ByteTokenizer(form);
    const JsonTokenizer published = to_json_tokenizer(own);
    std::vector<std::string> texts = texts_like_taught(100);
    texts.push_back("e\xCC\x81 \xEF\xAC\x81 \x01\x7F\xC2\xA0\xF0\x9F\x98\x80");
    texts.push_back(std::string("a\0b", 3));
    CHECK(differences(own, published, texts) == 0);
    CHECK(published.vocabulary_size() == 256);
    CHECK_FALSE(published.special("<s>"));
    if (form == UnicodeForm::nfkc)
      CHECK(error_of([&] { tokenizer_metadata(published); }) ==
            "tokenizer.json: normalizer has no counterpart in a GGUF file");
    else
      CHECK(differences(Tokenizer(ByteTokenizer()), through_gguf(published), texts_like_taught(50)) == 0);
  }
}

TEST_CASE("own tokenizers: characters") {
  const Tokenizer own = CharTokenizer(kTaught + "\"\\'", UnicodeForm::nfc), ascii = CharTokenizer("abc \n\\");
  const JsonTokenizer published = to_json_tokenizer(own), gguf = through_gguf(published);
  CHECK(differences(own, published, texts_like_taught(200)) == 0);
  CHECK(differences(own, gguf, texts_like_taught(200)) == 0);
  CHECK(published.encode("cafe\xCC\x81") == own.encode("café"));
  CHECK(own.encode("\"\\'") == gguf.encode("\"\\'"));
  CHECK(!error_of([&] { published.encode("Ω"); }).empty());  // as CharTokenizer
  CHECK(!error_of([&] { gguf.encode("Ω"); }).empty());
  CHECK(differences(ascii, through_gguf(to_json_tokenizer(ascii)), {"", "ab c\n", "\\a"}) == 0);
  CHECK(to_json_tokenizer(published).state() == published.state());
}

TEST_CASE("own tokenizers: SentencePiece") {
  const std::vector<std::string> texts = texts_like_taught(300);
  for (const std::string model : {"bpe", "unigram"}) {
    for (const bool begins : {false, true}) {
      INFO(model << ", begins a text with a space: " << begins);
      const SentencePieceTokenizer own = taught(model, begins);
      const JsonTokenizer published = to_json_tokenizer(own);
      CHECK(differences(own, published, texts) == 0);
      CHECK(differences(own, published, {"Ωmega 😀", "e\xCC\x81", "\t\x01"}) == 0);  // bytes, and NFC
      CHECK(published.vocabulary_size() == own.vocabulary_size());
      for (const char* name : {"<unk>", "<s>", "</s>"}) CHECK(published.special(name) == own.special(name));
      CHECK(published.with_special_tokens({5}) == Tokens{5});
      CHECK(published.encode("<s>") == Tokens{1});
      if (model == "bpe") CHECK(published.encode_as_text("the <s>") == own.encode("the <s>"));
      const JsonTokenizer gguf = through_gguf(published);
      CHECK(differences(own, gguf, texts) == 0);
      CHECK(gguf.with_special_tokens({5}) == Tokens{5});
      // A unigram model has no byte fallback in GGUF.
      CHECK((gguf.encode("Ω") == own.encode("Ω")) == (model == "bpe"));
      if (model == "unigram") CHECK(gguf.encode("Ω").back() == own.special("<unk>"));
    }
  }
}

TEST_CASE("own tokenizers: SentencePiece's normalizer, and spaces that are removed") {
  const std::string map = detail::from_base64(
      nlohmann::json::parse(test::tokenizer_file("precompiled"))["normalizer"]["precompiled_charsmap"]
          .get<std::string>());
  std::vector<std::string> known = texts_like_taught(200);  // without bytes, which unigram models in GGUF lack
  for (const char* text : {"  the  ﬁrst ", "   ", "the\n\n cat  \n"}) known.push_back(text);
  std::vector<std::string> texts = known;
  for (const char* text : {"Ａ ①  ", "\u00a0the\u3000cat\n"}) texts.push_back(text);
  for (const std::string model : {"bpe", "unigram"}) {
    for (const bool prefix : {true, false}) {
      INFO(model << ", begins a text with a space: " << prefix);
      ProtobufMessage spec;
      spec.text(2, map);
      spec.integer(3, prefix);
      spec.integer(4, 1);
      const SentencePieceTokenizer own = with_spec(taught(model, prefix, UnicodeForm::none), 3, spec);
      CHECK(own.encode("ﬁ") == own.encode(" fi  "));
      const JsonTokenizer published = to_json_tokenizer(own);
      CHECK(differences(own, published, texts) == 0);
      if (model == "bpe")
        CHECK(contains(error_of([&] { tokenizer_metadata(published); }),
                       "normalizer changes texts more than GGUF's BPE"));
      else if (prefix)
        CHECK(differences(own, through_gguf(published), known) == 0);
      else
        CHECK(
            contains(error_of([&] { tokenizer_metadata(published); }), "normalizer removes spaces and does not begin"));
    }
  }
}

TEST_CASE("own tokenizers: what tokenizer.json cannot say is refused") {
  const SentencePieceTokenizer own = taught("bpe", true);
  const auto refusal = [&](int number, const ProtobufMessage& spec) {
    return error_of([&] { to_json_tokenizer(with_spec(own, number, spec)); });
  };
  ProtobufMessage kind, suffix, spaces, map, user;
  kind.integer(3, 4);
  CHECK(refusal(2, kind) == "tokenizer.json: the SentencePiece model is of the type char; it must be unigram or bpe");
  suffix.integer(24, 1);
  CHECK(contains(refusal(2, suffix), "writes spaces as suffixes of words; they must be prefixes"));
  spaces.integer(5, 0);
  CHECK(contains(refusal(3, spaces), "does not write spaces as \"▁\", which it must do"));
  map.text(2, "\x04");
  CHECK(contains(refusal(5, map), "normalizes decoded texts, which tokenizer.json cannot say"));
  user.text(1, "<user>");
  user.integer(3, 4);
  CHECK(contains(refusal(1, user), "the piece <user> of the SentencePiece model is user-defined"));
  CHECK(contains(error_of([&] { to_json_tokenizer(Tokenizer(WordTokenizer("a b"))); }), "is of the kind word"));
}

TEST_CASE("own tokenizers: tokens of GGUF's kind rwkv that heed does not read") {
  const auto read = [](const std::vector<std::string>& tokens) {
    const test::TemporaryFolder folder;
    save_gguf(folder.path / "x.gguf",
              {{"general.architecture", "rwkv6"},
               {"tokenizer.ggml.model", "rwkv"},
               {"tokenizer.ggml.tokens", GgufArray(tokens)}},
              {});
    return tokenizer_of(GgufFile(folder.path / "x.gguf"));
  };
  CHECK(read({"a", "\\n", "\\x5c", "\\t", "\\r"}).encode("a\n\\\t\r") == Tokens{0, 1, 2, 3, 4});
  CHECK(read({"a", "é"}).encode("éa") == Tokens{1, 0});
  CHECK(read({"\\xc3", "\\xa9", "b"}).encode("éb") == Tokens{0, 1, 2});
  CHECK(contains(error_of([&] {
                   read({"a", "the"});
                 }),
                 "tokenizer.ggml.tokens has \"the\" at index 1; heed reads rwkv's tokenizers if all tokens are single "
                 "bytes, or all are single characters"));
  CHECK(!error_of([&] { read({"é", "\\xc3"}); }).empty());
  CHECK(!error_of([&] { read({""}); }).empty());
}
