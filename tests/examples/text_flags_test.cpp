// Flags for reading text files: line ends, encodings, Unicode forms, standard input.
#include <heed/data/checkpoint.hpp>
#include <heed/data/text.hpp>
#include <heed/data/token_file.hpp>

#include "tests/examples/programs.hpp"

using namespace heed;
using namespace heed::test;

namespace {

struct TextFolder {
  TemporaryFolder folder;
  std::string file(const std::string& name) const { return (folder.path / name).string(); }
  std::string command(const std::string& name, const std::string& flags) const {
    return "env -C " + quoted(folder.path.string()) + " " + program(name) + " " + flags;
  }
  Ran run(const std::string& name, const std::string& flags) const { return test::run("exec " + command(name, flags)); }
  Ran train(const std::string& flags, const std::string& data) const {
    return run("train_lm", "--layers 1 --heads 2 --width 16 --context 16 --batch 4 --sample 0 --steps 3 --overwrite "
                           "--checkpoint " + data + ".h5 --data " + data + " " + flags);
  }
};

std::string with_ends(const std::string& text, const std::string& end) {
  std::string made;
  for (const char c : text) made += c == '\n' ? end : std::string(1, c);
  return made;
}

// Lines in NFC, and the same lines in NFD.
const std::string kNfc[] = {"der M\u00fcller tr\u00e4gt \u00c4pfel", "ein sch\u00f6ner Tag", "f\u00fcnf K\u00fche"},
                  kNfd[] = {"der Mu\u0308ller tra\u0308gt A\u0308pfel", "ein scho\u0308ner Tag",
                            "fu\u0308nf Ku\u0308he"};

std::string lines_of_form(const std::string (&lines)[3], int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += lines[i % 3] + "\n";
  return text;
}

// Whether the tensors in two checkpoints have the same bits.
bool same_models(const std::string& a, const std::string& b) {
  const Checkpoint x = load_checkpoint(a), y = load_checkpoint(b);
  if (x.tensors.size() != y.tensors.size() || x.tensors.size() < 5) return false;
  return std::ranges::all_of(x.tensors, [&](const auto& item) { return same_bits(item.second, y.tensor(item.first)); });
}

const char* const kTranslate =
    "--batch-tokens 64 --width 16 --hidden 32 --warmup 1 --steps 3 --eval-every 0 --beam 1 --source a.s --target a.t "
    "--val-source v.s --val-target v.t ";

void write_pairs(const TextFolder& f, const std::string& source, const std::string& target) {
  for (const char* name : {"a", "v"}) {
    f.folder.write(std::string(name) + ".s", source);
    f.folder.write(std::string(name) + ".t", target);
  }
}

}  // namespace

RELEASE_TEST_CASE("text flags: translate and train_lm train to the same bits on CR LF as on LF, and refuse CR alone") {
  const std::string text = lines_of_form(kNfc, 90);
  for (const std::string tokens : {"--vocabulary 300 ", "--min-freq 1 "}) {
    CAPTURE(tokens);
    const TextFolder f;
    for (const std::string ends : {"\n", "\r\n"}) {
      write_pairs(f, with_ends(text, ends), with_ends(text, ends));
      const Ran ran = f.run("translate", kTranslate + tokens + "--checkpoint " + (ends == "\n" ? "lf.h5" : "crlf.h5"));
      INFO(ran.output);
      REQUIRE(ran.exit_code == 0);
    }
    CHECK(same_models(f.file("lf.h5"), f.file("crlf.h5")));
    write_pairs(f, with_ends(text, "\r"), with_ends(text, "\r"));
    check_refused(f.run("translate", kTranslate + tokens), 1, "ends with a carriage return");
    CHECK(f.run("translate", kTranslate + tokens + "--line-ends any --checkpoint cr.h5").exit_code == 0);
    CHECK(same_models(f.file("lf.h5"), f.file("cr.h5")));
  }
  const TextFolder f;
  f.folder.write("lf", text), f.folder.write("crlf", with_ends(text, "\r\n")),
      f.folder.write("cr", with_ends(text, "\r"));
  REQUIRE(f.train("", "lf").exit_code == 0);
  REQUIRE(f.train("", "crlf").exit_code == 0);
  check_refused(f.train("", "cr"), 1, "ends with a carriage return");
  REQUIRE(f.train("--line-ends any", "cr").exit_code == 0);
  CHECK(same_models(f.file("lf.h5"), f.file("crlf.h5")));
  CHECK(same_models(f.file("lf.h5"), f.file("cr.h5")));
  REQUIRE(f.train("--line-ends keep", "crlf").exit_code == 0);
  CHECK(!same_models(f.file("lf.h5"), f.file("crlf.h5")));
  REQUIRE(f.run("tokenize", "--data lf --out lf.tokens").exit_code == 0);
  REQUIRE(f.run("tokenize", "--data crlf --out crlf.tokens").exit_code == 0);
  CHECK(bytes_of(f.file("lf.tokens")) == bytes_of(f.file("crlf.tokens")));
}

TEST_CASE("text flags: a model trained on NFC translates NFD, and scores compare texts in the tokenizer's form") {
  const std::string nfc = lines_of_form(kNfc, 60), nfd = lines_of_form(kNfd, 60);
  for (const std::string tokens : {"--vocabulary 300 ", "--min-freq 1 "}) {
    CAPTURE(tokens);
    const TextFolder f;
    write_pairs(f, nfc, nfc);
    f.folder.write("v.s", nfd), f.folder.write("v.t", nfd), f.folder.write("nfc", nfc), f.folder.write("nfd", nfd);
    Ran ran = f.run("translate", kTranslate + tokens + "--lr 2e-2 --steps 60");
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    CHECK(contains(ran.output, "chrF2 = 100.00"));
    CHECK(!contains(ran.output, "unknown"));
    CHECK(f.run("translate", "--translate nfd").output == nfc);
    CHECK(f.run("translate", "--translate nfc").output == nfc);
    // Without a Unicode form, the model does not know NFD, and the program reports it.
    ran = f.run("translate", kTranslate + tokens + "--unicode none --checkpoint none.h5");
    INFO(ran.output);
    CHECK(ran.exit_code == 0);
    const bool words = tokens.starts_with("--min");
    CHECK(contains(ran.output,
                   words ? "validation, source: 120 of 180 tokens were unknown to the model" : "validation, source: "));
    CHECK(contains(ran.output, words ? "validation, target: " : "tokens were byte pieces"));
    CHECK(contains(f.run("translate", "--checkpoint none.h5 --translate nfd").output,
                   words ? "120 of 180 tokens were unknown to the model" : "tokens were byte pieces"));
  }
  const TextFolder f;
  check_refused(f.run("translate", "--unicode nfc"), 2, "--unicode is for text files, but --source is not given");
  check_refused(f.run("train_lm", "--unicode nfc"), 2, "--unicode requires text files; give --data");
}

TEST_CASE("text flags: train_lm and tokenize bring text into a Unicode form, and report unknown tokens") {
  const TextFolder f;
  f.folder.write("nfc", lines_of_form(kNfc, 120)), f.folder.write("nfd", lines_of_form(kNfd, 120));
  REQUIRE(f.train("--unicode nfc", "nfc").exit_code == 0);
  REQUIRE(f.train("--unicode nfc", "nfd").exit_code == 0);
  CHECK(same_models(f.file("nfc.h5"), f.file("nfd.h5")));
  const auto prompted = [&](const std::string& prompt) {
    return f.run("generate", "--checkpoint nfc.h5 --tokens 1 --prompt '" + prompt + "'");
  };
  CHECK(prompted(kNfd[1]).exit_code == 0);
  REQUIRE(f.train("", "nfc").exit_code == 0);
  check_refused(prompted(kNfd[1]), 1, "the text is not in the Unicode form NFC");

  REQUIRE(f.run("tokenize", "--data nfc --train bpe --vocabulary 300 --model x.model --out a.tokens").exit_code == 0);
  REQUIRE(f.run("tokenize", "--data nfd --tokenizer x.model --out b.tokens").exit_code == 0);
  CHECK(bytes_of(f.file("a.tokens")) == bytes_of(f.file("b.tokens")));
  CHECK(TokenSource::open(f.file("a.tokens")).tokenizer().unicode() == UnicodeForm::nfc);
  f.folder.write("other",
                 lines_of_form(kNfc, 100) + std::string("\u20ac\u20ac\u20ac\u20ac\n\n") + lines_of_form(kNfc, 6));
  const Ran ran = f.train("--tokenizer x.model --val-fraction 0.2", "other");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.output, "validation: 12 of "));
  CHECK(contains(ran.output, "tokens were byte pieces\n"));
}

TEST_CASE("text flags: files that are not UTF-8 are refused by name, repaired, or read without those lines") {
  const TextFolder f;
  const std::string text = lines_of_form(kNfc, 60);
  f.folder.write("bad", text + "sch\xF6n\n" + text), f.folder.write("good", text + text);
  check_refused(f.train("", "bad"), 1, "(line 61)");
  REQUIRE(f.train("", "good").exit_code == 0);
  Ran ran = f.train("--invalid-utf8 skip", "bad");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.output, "1 line was skipped, because it is not UTF-8 (the first: line 61 of bad)\n"));
  CHECK(same_models(f.file("good.h5"), f.file("bad.h5")));
  ran = f.run("tokenize", "--data bad --out x.tokens --invalid-utf8 replace");
  CHECK(contains(ran.output, "1 part was replaced by U+FFFD, because it is not UTF-8 (the first: line 61 of bad)\n"));
  f.folder.write("x.gz", "\x1F\x8B\x08");
  check_refused(f.train("--invalid-utf8 skip", "x.gz"), 1, "x.gz is a gzip file, not UTF-8 text");
  write_pairs(f, text, text);
  f.folder.write("a.t", with_ends(text, "\xFF\n"));
  check_refused(f.run("translate", kTranslate), 1, "a.t is not UTF-8");
  f.folder.write("a.t", text + "x\xFF\n"), f.folder.write("a.s", text + "y\n");
  CHECK(contains(f.run("translate", std::string(kTranslate) + "--invalid-utf8 skip").output,
                 "1 line was skipped, because it is not UTF-8 (the first: line 61 of a.s and a.t)\n"));
}

TEST_CASE("text flags: - is standard input, of train_lm and of tokenize, which reads it twice") {
  const TextFolder f;
  f.folder.write("text", lines_of_form(kNfc, 90));
  const std::string flags =
      "--layers 1 --heads 2 --width 16 --context 16 --batch 4 --sample 0 --steps 3 --overwrite --checkpoint ";
  REQUIRE(f.run("train_lm", flags + "a.h5 --data text").exit_code == 0);
  const Ran ran = test::run("cat " + quoted(f.file("text")) + " | " + f.command("train_lm", flags + "b.h5 --data -"));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(same_models(f.file("a.h5"), f.file("b.h5")));
  for (const std::string tokenizer : {"", "--tokenizer byte ", "--train bpe --vocabulary 290 "}) {
    CAPTURE(tokenizer);
    REQUIRE(f.run("tokenize", tokenizer + "--data text --out a.tokens").exit_code == 0);
    REQUIRE(test::run("cat " + quoted(f.file("text")) + " | " +
                      f.command("tokenize", tokenizer + "--data - --out b.tokens"))
                .exit_code == 0);
    CHECK(bytes_of(f.file("a.tokens")) == bytes_of(f.file("b.tokens")));
  }
  CHECK(contains(test::run(f.command("train_lm", flags + "c.h5 --data - < /dev/null")).output,
                 "there is no text in standard input"));
}

TEST_CASE("text flags: messages of a text that is too short say which part it is") {
  const TextFolder f;
  f.folder.write("text", lines_of_form(kNfc, 6));
  const Ran ran = f.train("--context 64", "text");
  CHECK(contains(ran.output, "batches: the validation part of the text (--val-fraction) has "));
  CHECK(contains(f.train("--context 64 --val-fraction 0.9", "text").output,
                 "batches: the training part of the text has "));
}
