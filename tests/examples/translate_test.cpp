// Runs translate. Above 400 lines: the flags and models of one program.
#include <array>
#include <heed/core/random.hpp>
#include <heed/data/checkpoint.hpp>

#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::json_lines;
using test::Ran;
using test::TemporaryFolder;

namespace {

struct Translating {
  TemporaryFolder folder;
  std::string file(const std::string& name) const { return (folder.path / name).string(); }
  static bool translates(const std::string& flags) {
    return contains(flags, "--translate") || contains(flags, "--text") || contains(flags, "--alignments");
  }
  Ran run(const std::string& flags) const {
    return test::run("exec env -C " + test::quoted(folder.path.string()) + " " + test::program("translate") + " " +
                     (translates(flags) ? flags : test::starting(flags)));
  }
};

// Two small languages: numbers in words and in digits.
void write_pairs(const Translating& t) {
  const std::vector<std::string> words = {"one", "two", "three", "four"};
  std::string source, target;
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 4; ++b) {
      source += words[static_cast<std::size_t>(a)] + " " + words[static_cast<std::size_t>(b)] + "\n";
      target += std::to_string(a + 1) + " " + std::to_string(b + 1) + "\n";
    }
  for (const char* name : {"train", "val"}) {
    t.folder.write(std::string(name) + ".words", source);
    t.folder.write(std::string(name) + ".numbers", target);
  }
}
const char* const kPairs =
    "--source train.words --target train.numbers --val-source val.words --val-target val.numbers --batch-tokens 32 "
    "--width 16 --hidden 32 --warmup 10 --min-freq 1 ";

}  // namespace

TEST_CASE("translate: it learns from two files, prints BLEU, translates lines and draws an alignment") {
  int number = 0;
  for (const std::string model : {"gru-bahdanau", "transformer", "conv"}) {
    if (!test::is_taken(number++, 3)) continue;
    CAPTURE(model);
    const Translating t;
    write_pairs(t);
    const std::string more = model == "transformer" ? " --heads 2 --dropout 0 --lr 5e-3"
                             : model == "conv"      ? " --layers 2 --dropout 0 --lr 1e-2"
                                                    : " --lr 1e-2";
    Ran ran = t.run(kPairs + ("--model " + model) + more + " --steps 150 --plot loss.svg --log log");
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    CHECK(contains(ran.output, "validation perplexity 1.0"));
    CHECK(contains(ran.output, "% of tokens right"));
    CHECK(contains(ran.output, "BLEU = 0.00 100.0/100.0/0.0/0.0 "));
    CHECK(contains(ran.output, "chrF2 = 100.00\n  nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no"));
    CHECK(contains(ran.output, "nrefs:1|case:mixed|eff:no|tok:none|smooth:exp"));
    CHECK(json_lines(t.file("log")).size() == 150);
    CHECK(contains(bytes_of(t.file("loss.svg")), "<svg"));
    t.folder.write("in.txt", "three one\nfour four\n\n");
    ran = t.run("--translate in.txt --beam 3");
    CHECK(ran.exit_code == 0);
    CHECK(ran.output == "3 1\n4 4\n\n");
    ran = t.run("--alignments a.svg --text 'two three'");
    CHECK(ran.exit_code == 0);
    CHECK(contains(ran.output, "two three\n  2 3\ndrawn: a.svg"));
    const std::string picture = bytes_of(t.file("a.svg"));
    for (const char* label : {">three<", ">3<"}) CHECK(contains(picture, label));
    REQUIRE(t.run("--alignments b.svg --text 'two strange\xFF'").exit_code == 0);  // an unknown word
    CHECK(contains(bytes_of(t.file("b.svg")), ">strange\\xFF<"));
  }
}

TEST_CASE("translate: a line, a file, a folder or standard input is translated, and nothing is trained") {
  const Translating t;
  write_pairs(t);
  REQUIRE(t.run(kPairs + std::string("--lr 1e-2 --steps 150")).exit_code == 0);
  const std::string checkpoint = bytes_of(t.file("translate.h5"));
  const auto check_run = [&](const std::string& flags, int exit_code, const std::string& output) {
    const Ran ran = t.run(flags);
    CAPTURE(flags);
    CHECK(ran.exit_code == exit_code);
    if (exit_code == 0)
      CHECK(ran.output == output);
    else
      CHECK(contains(ran.output, output));
  };
  check_run("--text 'two three'", 0, "2 3\n");
  check_run("--text ''", 0, "");
  CHECK(contains(t.run("--text 'two pink three'").output, "1 of 3 tokens were unknown to the model\n"));
  t.folder.write("in/marked.txt", "\xEF\xBB\xBFtwo one\r\n\r\nthree four");
  check_run("--translate in/marked.txt", 0, "2 1\n\n3 4\n");
  check_run("--translate in", 0, "2 1\n\n3 4\n");
  check_run("--translate - < " + test::quoted(t.file("in/marked.txt")), 0, "2 1\n\n3 4\n");
  check_run("--translate - < /dev/null", 0, "");
  t.folder.write("bad.txt", "two one\n\xFF");
  check_run("--translate bad.txt", 1, "bad.txt is not UTF-8: the byte 0xFF at offset 8");
  check_run("--translate - < " + test::quoted(t.file("bad.txt")), 1,
            "standard input is not UTF-8: the byte 0xFF at offset 8");
  check_run("--translate bad.txt --invalid-utf8 skip", 0,
            "1 line was skipped, because it is not UTF-8 (the first: line 2 of bad.txt)\n2 1\n");
  t.folder.write("none.txt", "");
  check_run("--translate none.txt", 0, "");
  t.folder.write("mark.txt", "\xEF\xBB\xBF");
  check_run("--translate mark.txt", 0, "");
  t.folder.write("old.txt", "two one\rthree four\r");
  check_run("--translate old.txt", 1, "the first line of old.txt ends with a carriage return");
  check_run("--translate old.txt --line-ends any", 0, "2 1\n3 4\n");
  std::filesystem::create_directory(t.folder.path / "empty");
  check_run("--translate empty", 1, "the folder empty has no files");
  std::string line;
  for (int i = 0; i < 1001; ++i) line += "one ";
  t.folder.write("long.txt", "two\n" + line);
  check_run("--translate long.txt", 1,
            "long.txt, line 2 has 1001 tokens, but longest is 1000; split it, or increase longest (--longest)");
  check_run("--translate - < " + test::quoted(t.file("long.txt")), 1, "standard input, line 2 has 1001 tokens");
  check_run("--translate in --longest 1", 1, "in, text 1 has 2 tokens, but longest is 1");
  check_run("--translate train.words --longest 1", 1, "train.words, line 1 has 2 tokens, but longest is 1");
  check_run("--text 'one two' --longest 1", 1, "--text, line 1 has 2 tokens, but longest is 1");
  check_run("--text two --steps 5", 2, "--steps is for training, but --text uses a trained model");
  check_run("--translate in --resume", 2, "--resume is for training, but --translate uses");
  check_run("--alignments a.svg --text two --seed 1", 2, "--seed is for training, but --text uses");
  check_run("--translate in --text two", 2, "--translate and --text cannot be combined");
  check_run("--translate in --alignments a.svg", 2, "--translate and --alignments cannot be combined");
  check_run("--alignments a.svg", 2, "--alignments needs a sentence; give --text");
  CHECK(bytes_of(t.file("translate.h5")) == checkpoint);
}

RELEASE_TEST_CASE(
    "translate: dates are built in, and a run that was resumed ends with the bits of an undisturbed one") {
  const Translating t;
  const std::string flags =
      "--hidden 16 --batch-tokens 512 --eval-every 3 --schedule inverse-sqrt --lr 2e-2 --warmup 1 --beam 1 ";
  Ran ran = t.run(flags + "--steps 6 --checkpoint whole.h5");
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.output, "60000 for training"));
  CHECK(contains(ran.output, "exact: "));
  REQUIRE(t.run(flags + "--steps 3 --checkpoint cut.h5").exit_code == 0);
  ran = t.run("--steps 6 --beam 1 --checkpoint cut.h5 --resume");
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.output, "resuming"));
  const Checkpoint whole = load_checkpoint(t.file("whole.h5")), cut = load_checkpoint(t.file("cut.h5"));
  for (const auto& [name, x] : whole.tensors) CHECK(test::same_bits(x, cut.tensor(name)));
  CHECK(contains(whole.text("settings"), "\"width\":32,"));  // the default for dates
  t.folder.write("in.txt", "see you on the third of May, 2021\n");
  const std::string longest = t.run("--checkpoint cut.h5 --translate in.txt --length-penalty 10").output;
  CHECK(longest.size() > t.run("--checkpoint cut.h5 --translate in.txt --length-penalty 0").output.size());
  ran = t.run("--steps 8 --hidden 32 --checkpoint cut.h5 --resume");
  CHECK(ran.exit_code == 2);
  CHECK(contains(ran.output,
                 "--hidden is 32 but the checkpoint was made with 16; leave it out, or start a new training"));
}

TEST_CASE("translate: pieces of both languages, a mean of kept weights, a best checkpoint, an end by epochs or time") {
  const Translating t;
  write_pairs(t);
  const std::string flags =
      std::string(kPairs).replace(std::string(kPairs).find("--min-freq 1"), 12, "--vocabulary 285");
  Ran ran = t.run(flags +
                  "--model transformer --heads 2 --dropout 0 --attention-dropout 0.1 --norm-first --lr 5e-3 "
                  "--epochs 60 --eval-every 10 --average-last 3 --best best.h5");
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.output, "vocabularies of 285 and 285"));
  CHECK(contains(ran.output, "using the mean of 3 weights"));
  CHECK(contains(ran.output, "one two\n  1 2\n"));
  t.folder.write("in.txt", "four one\n");
  ran = t.run("--translate - --beam 1 < " + test::quoted(t.file("in.txt")));
  CHECK(ran.exit_code == 0);
  CHECK(ran.output == "4 1\n");
  CHECK(load_checkpoint(t.file("best.h5")).tensors.contains("last_weights/kept"));

  ran = t.run(flags +
              "--model gru-luong-dot --directions 1 --input-feeding --minutes 0.01 --checkpoint time.h5 --lr 1e-2");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.output, "validation perplexity"));
  const std::uint64_t step = load_checkpoint(t.file("time.h5")).counter("step");
  CHECK(step > 3);
  ran = t.run("--resume --checkpoint time.h5 --minutes 0.005");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(load_checkpoint(t.file("time.h5")).counter("step") > step);
}

RELEASE_TEST_CASE("translate: killed at random moments, at other numbers of threads, and resumed, to the same bits") {
  for (const std::string model : {"--model gru-luong-general --input-feeding", "--model transformer --heads 2"}) {
    CAPTURE(model);
    const Translating t;
    write_pairs(t);
    const std::string flags = kPairs + model + " --dropout 0.1 --steps " + (test::kSanitized ? "100" : "800") +
                              " --eval-every 40 --average-last 3 --beam 1 "
                              "--checkpoint-every 5 --resume-or-start --log log --checkpoint ";
    Ran ran = t.run(flags + "whole.h5 --threads 1");
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    const std::string output = ran.output;
    std::filesystem::rename(t.file("log"), t.file("whole.log"));
    Rng rng(3);
    int kills = 0;
    for (int run = 0; run < 40 && kills < (test::kSanitized ? 2 : 6); ++run) {
      const std::string seconds = std::to_string((0.03 + 0.15 * rng.uniform()) * (test::kSanitized ? 5 : 1));
      ran = test::run("cd " + test::quoted(t.folder.path.string()) + "; exec timeout -s KILL " + seconds + " " +
                      test::program("translate") + " " + flags + "cut.h5 --threads " +
                      std::to_string(std::array{2, 3, 8, 1}[static_cast<std::size_t>(run % 4)]));
      const bool killed = ran.signal == 9 || ran.exit_code == 137;
      REQUIRE((killed || ran.exit_code == 0));
      kills += killed ? 1 : 0;
      if (!killed) break;
    }
    CHECK(kills > 0);
    ran = t.run(flags + "cut.h5 --threads 2");
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    CHECK((bytes_of(t.file("cut.h5")) == bytes_of(t.file("whole.h5"))));
    CHECK(test::same_losses(t.file("log"), t.file("whole.log")));
    CHECK(test::lines_of(ran.output).back() == test::lines_of(output).back());  // a translation by the mean of weights
  }
}

TEST_CASE("translate: every named model, and named attentions in the three places of a transformer") {
  const Translating t;
  write_pairs(t);
  std::vector<std::string> models;
  for (const char* cell : {"gru", "lstm"})
    for (const char* attention :
         {"none", "bahdanau", "luong-dot", "luong-general", "luong-concat", "luong-location", "local-m", "local-p"})
      models.push_back(std::string(cell) + "-" + attention);
  for (const char* places : {"--encoder-attention linear --decoder-attention favor --cross-attention bahdanau",
                             "--encoder-attention top-k --decoder-attention window --cross-attention luong-concat",
                             "--encoder-attention cosine --decoder-attention luong-general --cross-attention linear"})
    models.push_back("transformer --heads 2 --layers 2 " + std::string(places));
  for (const char* other : {"conv --layers 2 --kernel 5", "bytenet --layers 6"}) models.emplace_back(other);
  int number = 0;
  for (const std::string& model : models) {
    if (!test::is_taken(number++, 6)) continue;
    CAPTURE(model);
    Ran ran = t.run(kPairs + ("--model " + model) + " --steps 2 --beam 2 --checkpoint some.h5");
    INFO(ran.output);
    CHECK(ran.exit_code == 0);
    CHECK(contains(ran.output, "validation perplexity"));
    t.folder.write("in.txt", "one two\nfour\n");
    ran = t.run("--checkpoint some.h5 --translate in.txt --beam 2");
    INFO(ran.output);
    CHECK(ran.exit_code == 0);
    CHECK(test::lines_of(ran.output).size() == 2);
  }
  test::check_refused(t.run(kPairs + std::string("--model transformer --cross-attention window --steps 1")), 2,
                      "--cross-attention");
}

TEST_CASE("translate: convolutional models resume to the same bits, start from weights, and refuse other flags") {
  const Translating t;
  write_pairs(t);
  for (const std::string model : {"conv", "bytenet"}) {
    CAPTURE(model);
    const std::string flags = kPairs + ("--model " + model) + " --layers 2 --schedule constant --eval-every 10 ";
    Ran ran = t.run(flags + "--steps 20 --checkpoint whole.h5");
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    REQUIRE(t.run(flags + "--steps 10 --checkpoint cut.h5").exit_code == 0);
    ran = t.run("--steps 20 --checkpoint cut.h5 --resume");
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    const Checkpoint whole = load_checkpoint(t.file("whole.h5")), cut = load_checkpoint(t.file("cut.h5"));
    for (const auto& [name, x] : whole.tensors) CHECK(test::same_bits(x, cut.tensor(name)));
    CHECK(contains(whole.text("config"), model == "conv" ? "\"model\":\"convs2s\"" : "\"model\":\"bytenet\""));
    CHECK(!contains(whole.text("settings"), "kernel"));
    ran = t.run(
        "--init whole.h5 --steps 1 --source train.words --target train.numbers --val-source val.words "
        "--val-target val.numbers --batch-tokens 32 --checkpoint next.h5");
    INFO(ran.output);
    CHECK(ran.exit_code == 0);
    CHECK(contains(ran.output, model + ": "));
  }
  test::check_refused(t.run("--checkpoint whole.h5 --alignments a.svg --text 'one two'"), 1,
                      "ByteNet: the model has no attention");
  test::check_refused(t.run(kPairs + std::string("--model bytenet --kernel 2")), 2, "--kernel is 2; it must be odd");
  test::check_refused(t.run(kPairs + std::string("--model gru-none --kernel 5")), 2,
                      "--kernel is for convolutional models, but --model is gru-none");
  test::check_refused(t.run(kPairs + std::string("--model conv --heads 2")), 2, "--heads is for a transformer");
  test::check_refused(t.run(kPairs + std::string("--model conv --bridge copy")), 2, "--bridge is for recurrent models");
  test::check_refused(t.run(kPairs + std::string("--model conv --window 3")), 2, "--window is an option of");
}

TEST_CASE("translate: --local-radius is the radius of local attention, in the model and in its checkpoint") {
  const Translating t;
  write_pairs(t);
  const Ran ran = t.run(kPairs + std::string("--model gru-local-p --local-radius 1 --steps 1 --checkpoint some.h5"));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  const Checkpoint saved = load_checkpoint(t.file("some.h5"));
  CHECK(contains(saved.text("config"), "\"local_radius\":1,") != contains(saved.text("config"), "\"local_radius\":1}"));
  CHECK(contains(saved.text("settings"), "\"local-radius\":1,"));
  test::check_refused(t.run("--model gru-bahdanau --local-radius 3"), 2,
                      "--local-radius is an option of the attention mechanism luong-local-m or luong-local-p, but "
                      "--model is gru-bahdanau");
}

TEST_CASE("translate: variants of recurrent decoders are flags, and absent from a checkpoint by default") {
  const Translating t;
  write_pairs(t);
  Ran ran = t.run(kPairs + std::string("--bridge copy --output-from-state --steps 2 --checkpoint some.h5"));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  Checkpoint saved = load_checkpoint(t.file("some.h5"));
  CHECK(contains(saved.text("config"), "\"output_from_state\":true"));
  CHECK(contains(saved.text("config"), "\"bridge\":\"copy\""));
  CHECK(contains(saved.text("settings"), "\"output-from-state\":true"));
  ran = t.run("--resume --checkpoint some.h5 --steps 3");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  REQUIRE(t.run(kPairs + std::string("--steps 1 --checkpoint usual.h5")).exit_code == 0);
  saved = load_checkpoint(t.file("usual.h5"));
  CHECK(!contains(saved.text("settings"), "bridge"));
  CHECK(!contains(saved.text("settings"), "output-from-state"));
  test::check_refused(t.run("--model transformer --bridge copy"), 2, "--bridge is for recurrent models");
}

TEST_CASE("translate: Ctrl-C saves, and tells how to go on") {
  const Translating t;
  write_pairs(t);
  Ran ran =
      test::run("cd " + test::quoted(t.folder.path.string()) + "; : > log; " +
                test::in_background(test::program("translate") + " " + kPairs + "--minutes 5 --log log --beam 2") +
                "while [ $(wc -l < log) -lt 20 ]; do sleep 0.02; done; kill -INT $pid; wait $pid");
  INFO(ran.output);
  CHECK(ran.exit_code == 130);
  const std::string hint = ran.output.substr(ran.output.find("to continue: ") + 13);
  CHECK(contains(hint, "/translate --checkpoint translate.h5 --resume --log log --beam 2"));
  CHECK(load_checkpoint(t.file("translate.h5")).counter("step") == json_lines(t.file("log")).size());
}

TEST_CASE("translate: errors are one sentence") {
  const Translating t;
  write_pairs(t);
  const auto check_run = [&](const std::string& flags, int exit_code, const std::string& text) {
    const Ran ran = t.run(flags);
    CAPTURE(flags);
    INFO(ran.output);
    CHECK(ran.exit_code == exit_code);
    CHECK(contains(ran.output, text));
  };
  check_run("--source train.words", 2, "--source, --target, --val-source and --val-target must be given together");
  check_run("--model gru-tree", 2, "--model");
  check_run(std::string(kPairs) + "--steps 0 --source nothing.txt", 1, "nothing.txt");
  check_run("--translate in.txt", 1, "translate.h5");
  t.folder.write("bad.h5", "no checkpoint");
  check_run("--checkpoint bad.h5 --translate train.words", 1, "bad.h5");
  check_run("--alignments a.gif", 2, "a.gif");
  check_run("--min-freq 2", 2, "--min-freq is for text files, but --source is not given");
  check_run("--heads 2", 2, "--heads is for a transformer, but model is gru-bahdanau (the default)");
  check_run("--model transformer --directions 1", 2,
            "--directions is for recurrent models, but --model is transformer");
  check_run(std::string(kPairs) + "--vocabulary 300", 2, "--min-freq");
  check_run("--minutes 1 --schedule cosine", 2,
            "--schedule is cosine, which depends on the last step; give --steps or --epochs");
}

TEST_CASE("translate: texts may be moved but not changed, and a new training may start from the model") {
  const Translating t;
  write_pairs(t);
  REQUIRE(t.run(std::string(kPairs) + "--steps 4 --eval-every 2 --beam 1 --lr 1e-2").exit_code == 0);
  std::filesystem::create_directory(t.folder.path / "moved");
  for (const char* name : {"train.words", "train.numbers", "val.words", "val.numbers"})
    std::filesystem::rename(t.file(name), t.file(std::string("moved/") + name));
  const std::string moved =
      "--source moved/train.words --target moved/train.numbers --val-source moved/val.words --val-target "
      "moved/val.numbers ";
  Ran ran = t.run("--resume --steps 6 --beam 1");
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.output, "train.words does not exist (translate.h5 was trained on it; give --source to say where"));
  ran = t.run("--resume --steps 6 --batch-tokens 16 --label-smoothing 0.1 --beam 1 " + moved);
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.output, "changed: label-smoothing 0.1, before: 0.0\n"));
  CHECK(contains(ran.output, "changed: batches of 16 tokens, before: 32 tokens\n"));
  const std::string one = bytes_of(t.file("moved/val.numbers"));
  t.folder.write("moved/val.numbers", "9 9" + one.substr(3));
  ran = t.run("--resume --steps 8 --beam 1 " + moved);
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.output, "resume: the validation data of translate.h5 are 16 pairs with the hash "));

  const std::string init = "--init translate.h5 --checkpoint new.h5 --steps 0 --beam 1 " + moved;
  ran = t.run(init + "--hidden 64");
  CHECK(ran.exit_code == 2);
  CHECK(contains(ran.output, "--hidden is 64 but the model of translate.h5 has 32; leave it out"));
  ran = t.run(init);
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  const Checkpoint from = load_checkpoint(t.file("translate.h5")), to = load_checkpoint(t.file("new.h5"));
  for (const auto& [name, x] : from.tensors)
    if (name.starts_with("model/")) CHECK(test::same_bits(x, to.tensor(name)));
  Checkpoint bad = from;
  std::string& settings = bad.texts.at("settings");
  settings.replace(settings.find("\"directions\":2"), 14, "\"directions\":1");
  save_checkpoint(t.file("translate.h5"), bad);
  ran = t.run("--resume --beam 1 " + moved);
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.output, "translate.h5: its settings have false for bidirectional and its config true"));
}
