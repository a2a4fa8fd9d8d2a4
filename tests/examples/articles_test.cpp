// Runs the programs of examples/articles.
#include <algorithm>
#include <heed/data/checkpoint.hpp>
#include <heed/io/pretrained.hpp>

#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::Ran;
using test::TemporaryFolder;

namespace {

// A program of examples/articles in a folder.
struct Article {
  std::string name;
  TemporaryFolder folder;

  explicit Article(std::string program) : name(std::move(program)) {}
  std::string file(const std::string& of) const { return (folder.path / of).string(); }
  std::string arguments(const std::string& flags) const {
    return "env -C " + test::quoted(folder.path.string()) + " " + test::program(name, "examples/articles") + " " +
           test::starting(flags);
  }
  Ran run(const std::string& flags) const { return test::run("exec " + arguments(flags)); }
};

// A run leaves the same checkpoint whole, and stopped and resumed at another number of threads.
void check_resumes(const std::string& name, const std::string& flags) {
  const Article whole(name), parts(name);
  const std::string all = flags + " --checkpoint-every 50 --log log ";
  REQUIRE(whole.run(all + "--threads 1").exit_code == 0);
  const Ran stopped = test::run("cd " + parts.folder.path.string() + "; : > log; " +
                                test::in_background(parts.arguments(all + "--threads 2")) +
                                "while [ $(wc -l < log) -lt 20 ]; do sleep 0.01; done; kill -INT $pid; wait $pid");
  INFO(stopped.output);
  CHECK(stopped.exit_code == 130);
  REQUIRE(parts.run("--threads 2 --log log --checkpoint-every 50 --resume").exit_code == 0);
  CHECK((bytes_of(whole.file(name + ".h5")) == bytes_of(parts.file(name + ".h5"))));
}

// Runs a program, and returns the number after `before` in what it prints.
double number_after(const Article& article, const std::string& flags, const std::string& before) {
  const Ran ran = article.run(flags);
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  const std::size_t at = ran.output.rfind(before);
  REQUIRE(at != std::string::npos);
  return std::stod(ran.output.substr(at + before.size()));
}

void check_picture(const Article& article, const std::string& name) {
  CHECK(contains(bytes_of(article.file(name)), "<svg"));
}

}  // namespace

RELEASE_TEST_CASE("speech: learns to hear and draws what it hears") {
  const Article speech("speech");
  CHECK(number_after(speech, "--steps 250 --noise 0.1 --width 48 --layers 1 --held-out 100 --plot heard.svg",
                     "error rate of labels: ") < 20);
  check_picture(speech, "heard.svg");
}

RELEASE_TEST_CASE("neural_turing_machine: learns to copy, and draws copies and weights") {
  const Article machine("neural_turing_machine");
  const std::string flags = "--length 3 --bits 3 --rows 8 --size 6 --hidden 32 --batch 16 --held-out 30 --lr 1e-2 ";
  const std::string told = "wrong bits per sequence of up to 3 vectors: ";  // 3 by chance
  CHECK(number_after(machine, flags + "--steps 600 --plot copy.svg", told) < 1);
  check_picture(machine, "copy.svg");
  check_picture(machine, "copy_heads.svg");
}

RELEASE_TEST_CASE("image_generation: learns digits and draws new ones") {
  const Article images("image_generation");
  CHECK(number_after(images, "--steps 100 --width 32 --layers 1 --held-out 40 --batch 8 --plot digits.svg",
                     "bits per pixel: ") < 1);
  check_picture(images, "digits.svg");
}

RELEASE_TEST_CASE("draw: learns digits and draws new ones stroke by stroke") {
  const Article draw("draw");
  CHECK(number_after(draw, "--steps 150 --hidden 32 --strokes 4 --held-out 50 --plot strokes.svg", "at most ") < 150);
  check_picture(draw, "strokes.svg");
}

RELEASE_TEST_CASE("strided_convolution: names digits from fewer and fewer positions, and draws which pixels matter") {
  const Article digits("strided_convolution");
  const std::string small = "--steps 200 --layers 2 --width 32 --held-out 100 --batch 32 --lr 5e-3 ";
  CHECK(number_after(digits, small + "--kernel 5 --stride 3 --plot digits.svg", "digits recognized: ") > 30);
  check_picture(digits, "digits.svg");
  const Ran even = digits.run("--kernel 2");
  CHECK(even.exit_code == 2);
  CHECK(contains(even.output, "--kernel must be odd"));
}

RELEASE_TEST_CASE("captioner: learns captions with soft and hard attention, and draws where it looks") {
  const Article captioner("captioner");
  for (const std::string attention : {"soft", "hard"}) {
    INFO(attention);
    CHECK(number_after(
              captioner,
              "--steps 60 --hidden 48 --channels 16 --held-out 50 --lr 5e-3 --plot words.svg --attention " + attention,
              "nats per word: ") < 1.1);
    check_picture(captioner, "words.svg");
  }
}

RELEASE_TEST_CASE("non_local: learns classes of scenes with a block, and draws where a position looks") {
  const Article images("non_local");
  // A third of the images by chance.
  CHECK(number_after(images, "--steps 160 --channels 16 --held-out 200 --lr 4e-3 --plot looks.svg", "accuracy: ") > 38);
  check_picture(images, "looks.svg");
}

RELEASE_TEST_CASE("prune, quantize, linearize and distill begin with a model of train_lm") {
  const test::Training lm;
  REQUIRE(lm.run("--steps 60").exit_code == 0);
  const std::string files = " --data " + lm.file("text.txt") + " --held-out 1 --model " + lm.file("lm.h5");
  const Article prune("prune"), distill("distill"), quantize("quantize");
  const std::string told = "without 90% of the weights, ";
  CHECK(number_after(prune, "--share 0.9 --steps 20 --plot p.svg" + files, told) > 0);
  check_picture(prune, "p.svg");
  const Checkpoint pruned = load_checkpoint(prune.file("prune.h5"));
  const std::vector<float> weight = pruned.tensor("model/blocks.0.mlp.up.weight").to_vector<float>();
  const auto zeros = static_cast<double>(std::ranges::count(weight, 0.f));
  CHECK(zeros / static_cast<double>(weight.size()) == doctest::Approx(0.9).epsilon(0.01));

  // Another mechanism raises the loss, and some steps with it lower the loss again.
  const Article linearize("linearize");
  const double converted = number_after(linearize, "--steps 30 --lr 2e-3" + files, "before, ");
  CHECK(converted > number_after(linearize, "--steps 0 --overwrite" + files, "text: "));
  CHECK(converted > number_after(linearize, "--steps 30 --lr 2e-3 --overwrite" + files, "attention, "));

  CHECK(number_after(distill, "--steps 20 --data " + lm.file("text.txt") + " --teacher " + lm.file("lm.h5"),
                     "student ") > 0);
  const Ran sizes = test::run("exec " + test::program("quantize", "examples/articles") + " --data " +
                              lm.file("text.txt") + " --model " + lm.file("lm.h5") + " --plot " + lm.file("sizes.svg"));
  INFO(sizes.output);
  CHECK(sizes.exit_code == 0);
  for (const char* type : {"float32", "bfloat16", "q8_0"}) CHECK(contains(sizes.output, std::string("\n") + type));
  CHECK(contains(bytes_of(lm.file("sizes.svg")), "<svg"));
}

RELEASE_TEST_CASE("lstmn: learns stories, tells one, and draws which words a word attends to") {
  const Article lstmn("lstmn");
  for (const std::string span : {"0", "4"}) {
    // Words drawn evenly have a loss above 3.
    CHECK(number_after(lstmn, "--steps 160 --hidden 48 --held-out 50 --plot words.svg --span " + span,
                       "held-out loss per word: ") < 2.2);
    CHECK(contains(bytes_of(lstmn.file("words.svg")), "(begin)"));
  }
}

RELEASE_TEST_CASE("funnel: fills in hidden words, and draws what pooled positions attend to") {
  const Article funnel("funnel");
  const std::string small =
      "--steps 150 --width 32 --heads 2 --layers 1 --decoder-layers 1 --stories 1 --held-out 50 --batch 16 --lr 5e-3 ";
  for (const std::string flags : {"--blocks 3 --plot pooled.svg", "--blocks 1", "--blocks 2 --pool max"})
    CHECK(number_after(funnel, small + flags, "hidden words found: ") > 25);
  check_picture(funnel, "pooled.svg");
  CHECK(contains(funnel.run("--steps 0 --held-out 1 --blocks 3").output, "compute 69% of the positions"));
  test::check_refused(funnel.run("--blocks 1 --plot a.svg"), 2, "--plot needs --blocks 2 or more");
  test::check_refused(funnel.run("--heads 5"), 2, "--width must be a multiple of --heads");
}

RELEASE_TEST_CASE("bert: finds hidden words and next texts, draws where heads look, and is written for transformers") {
  const Article bert("bert");
  const std::string small = "--steps 400 --width 32 --layers 2 --batch 32 --held-out 200 --lr 8e-3 ";
  CHECK(number_after(bert, small + "--plot heads.svg", "hidden words found: ") > 38);  // full stops are a fifth
  check_picture(bert, "heads.svg");
  CHECK(number_after(bert, "--resume --save folder", "right about the next text: ") > 62);
  const Pretrained written = load_pretrained(bert.folder.path / "folder");
  CHECK(written.next_sentence.has_value());
  CHECK(written.lm.tokenizer.decode(written.lm.tokenizer.encode("Where is the map?")) == "Where is the map?");
  test::check_refused(bert.run("--heads 5"), 2, "--width must be a multiple of --heads");
}

RELEASE_TEST_CASE("power_bert: learns how many words each layer needs, and answers with these alone") {
  const Article power("power_bert");
  const std::string small = "--steps 150 --layers 2 --width 32 --heads 2 --held-out 100 --batch 32 --lr 5e-3 ";
  const std::string right = "right answers: ";
  CHECK(number_after(power, small, right) > 25);  // of 30 places
  CHECK(number_after(power, "--init power_bert.h5 --steps 60 --search 3 --held-out 50 --checkpoint s.h5 --plot r.svg",
                     "train with --keep ") < 40);
  check_picture(power, "r.svg");
  CHECK(number_after(power, "--init power_bert.h5 --steps 60 --keep 12,4 --checkpoint k.h5 --plot k.svg", right) > 25);
  check_picture(power, "k.svg");
  CHECK(number_after(power, "--init power_bert.h5 --steps 60 --pool mean --checkpoint m.h5", right) > 25);
  const Ran kept = power.run("--init power_bert.h5 --steps 0 --keep 12,4 --held-out 5 --checkpoint n.h5");
  CHECK(contains(kept.output, "word vectors per layer: 12,4, 20% of all"));
  test::check_refused(power.run("--keep 3,2,1"), 2, "--keep is 3,2,1; it must be a number for each layer");
  test::check_refused(power.run("--keep 4,3,2,1 --search 1"), 2, "only one of --keep, --search and --pool mean may be");
  test::check_refused(power.run("--plot a.svg"), 2, "--plot needs --keep or --search");
}

RELEASE_TEST_CASE("programs of articles: stopped and resumed, and at any number of threads, the same bits") {
  check_resumes("speech", "--steps 600 --width 16 --heads 2 --layers 1 --batch 4 --held-out 20 --attention linear");
  check_resumes("neural_turing_machine", "--steps 200 --length 4 --bits 3 --rows 8 --size 6 --hidden 16 --held-out 5");
  check_resumes("image_generation", "--steps 200 --width 16 --heads 2 --layers 1 --batch 2 --held-out 20");
  check_resumes("lstmn", "--steps 300 --hidden 16 --span 5 --batch 4 --held-out 20");
  check_resumes("funnel", "--steps 300 --width 16 --heads 2 --layers 1 --stories 1 --batch 4 --held-out 20");
  check_resumes("bert", "--steps 300 --width 16 --heads 2 --layers 2 --batch 4 --held-out 20 --dropout 0.1");
  check_resumes("power_bert", "--steps 300 --width 16 --heads 2 --layers 2 --batch 4 --held-out 20 --keep 9,3");
  check_resumes("strided_convolution", "--steps 200 --layers 2 --width 16 --batch 4 --held-out 20");
  check_resumes("captioner", "--steps 100 --hidden 16 --channels 8 --batch 2 --held-out 10 --attention hard");
  check_resumes("non_local", "--steps 200 --channels 8 --batch 2 --held-out 20 --block em --bases 4");
  check_resumes("draw", "--steps 200 --hidden 16 --strokes 3 --batch 4 --held-out 20");
}

RELEASE_TEST_CASE("programs of articles: --profile prints where the time goes, and a run resumes with more steps") {
  const Article speech("speech");
  const std::string small = "--width 16 --heads 2 --layers 1 --batch 4 --held-out 4 --examples 20 ";
  Ran ran = speech.run(small + "--steps 20 --profile 3");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.output, "ctc_loss"));
  ran = speech.run("--steps 24 --resume");
  CHECK(ran.exit_code == 0);
  CHECK(load_checkpoint(speech.file("speech.h5")).counter("step") == 24);
}

TEST_CASE("programs of articles: wrong flags and files of other programs are refused") {
  if (!test::has_program("articles/speech")) return;
  const Article speech("speech"), draw("draw"), captioner("captioner"), images("non_local");
  test::check_refused(captioner.run("--attention linear"), 2, "--attention: it is 'linear'; it must be soft or hard");
  test::check_refused(images.run("--block softmax"), 2, "--block: it is 'softmax'; it must be gaussian, embedded, dot");
  test::check_refused(images.run("--block em --subsample"), 2,
                      "--subsample is given and the block is em; the block must");
  test::check_refused(images.run("--block none --plot looks.svg"), 2, "--plot is given and there is no block");
  test::check_refused(speech.run("--width 30"), 2, "the width is 30 and there are 4 heads; the width must be even");
  test::check_refused(speech.run("--attention top-k"), 2, "--attention: it is 'top-k'; it must be softmax, linear or");
  REQUIRE(draw.run("--steps 0 --held-out 1").exit_code == 0);
  test::check_refused(draw.run("--resume --hidden 7"), 2, "--hidden is 7 but the checkpoint was made with 96");
  test::check_refused(speech.run("--init " + draw.file("draw.h5")), 1, "is not a checkpoint of speech");
}
