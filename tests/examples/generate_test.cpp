// Runs generate: its flags, and samples equal to those of train_lm and the library.
#include <algorithm>
#include <fstream>
#include <heed/layers/language_model.hpp>
#include <set>

#include "tests/examples/programs.hpp"

using namespace heed;
using test::contains;
using test::lines_of;
using test::Ran;
using test::Training;

namespace {

// A model trained for a few steps, and programs that write with it. Standard error is left out.
struct Writer {
  Training training;
  Writer() { REQUIRE(training.run("--steps 60 --lr 1e-2").exit_code == 0); }

  std::string generated(const std::string& flags) const {
    return written("exec " + test::program("generate") + " --checkpoint " + training.file("lm.h5") + " --tokens 40 " +
                   flags);
  }
  std::string sampled(const std::string& flags) const {  // the sample of the finished training
    return written(training.command("--steps 60 --lr 1e-2 --resume --sample 40 " + flags));
  }

 private:
  static std::string written(const std::string& command) {
    const Ran ran = test::run(command + " 2>/dev/null");
    INFO(command);
    CHECK(ran.exit_code == 0);
    return ran.output;
  }
};

}  // namespace

TEST_CASE("generate: temperature, top-k and top-p choose as the library does, and as train_lm's sample") {
  const Writer w;
  const LanguageModel lm = load_language_model(w.training.file("lm.h5"));
  const std::pair<const char*, SamplingOptions> cases[] = {
      {"", {.temperature = 0.8}},
      {"--temperature 0", {.temperature = 0}},
      {"--temperature 2.5", {.temperature = 2.5}},
      {"--top-k 3", {.temperature = 0.8, .top_k = 3}},
      {"--top-p 0.4", {.temperature = 0.8, .top_p = 0.4}},
      {"--temperature 1.5 --top-k 5 --top-p 0.9", {.temperature = 1.5, .top_k = 5, .top_p = 0.9}}};
  std::set<std::string> different;
  for (const auto& item : cases) {
    INFO(item.first);
    Rng rng(1, 2);
    const std::vector<std::int32_t> ids = generate(lm.model, lm.tokenizer.encode("The "), 40, item.second, rng);
    const std::string text = w.generated(std::string("--prompt 'The ' ") + item.first);
    CHECK(text == "The " + lm.tokenizer.decode(ids) + "\n");
    CHECK(w.sampled(std::string("--prompt 'The ' ") + item.first) == text);
    different.insert(text);
  }
  CHECK(different.size() == std::size(cases));
}

TEST_CASE("generate: --top-k 1, a tiny --top-p and --temperature 0 take the likeliest token for any seed") {
  const Writer w;
  const std::string greedy = w.generated("--temperature 0");
  CHECK(greedy.size() > 20);
  for (const char* flags :
       {"--top-k 1", "--top-k 1 --seed 9 --temperature 3", "--top-p 1e-6", "--temperature 0 --seed 9"})
    CHECK(w.generated(flags) == greedy);
  CHECK(w.generated("--seed 9") != w.generated("--seed 8"));
  CHECK(w.sampled("--top-k 1") == greedy);
  CHECK(w.generated("--tokens 0 --prompt 'The '") == "The \n");
}

TEST_CASE("generate: several prompts give separate texts, each of which ends at --stop") {
  const Writer w;
  const LanguageModel lm = load_language_model(w.training.file("lm.h5"));
  TextOptions options{.count = 40, .sampling = {.temperature = 0.8}, .stop = {"o", "q"}};
  const std::vector<std::string> texts = generate_text(lm, {"The ", "fox", "dog "}, options);
  CHECK(w.generated("--prompt 'The ' --prompt fox --prompt 'dog ' --stop o --stop q") ==
        texts[0] + "\n" + texts[1] + "\n" + texts[2] + "\n");
  CHECK(w.generated("--prompt 'The ' --stop o --stop q") == texts[0] + "\n");
  CHECK((texts[0].ends_with("o") || texts[0].ends_with("q") || texts[0].size() == 44));
}

TEST_CASE("generate: without a prompt it begins with a line feed, or else a space or the first token") {
  using Ids = std::vector<std::int32_t>;
  const auto begins = [](const std::string& text) { return prompt_tokens(CharTokenizer(text), ""); };
  CHECK(begins("\t\n a") == Ids{1});
  CHECK(begins("\t\va a") == Ids{2});
  CHECK(begins("ba") == Ids{0});
  CHECK(prompt_tokens(ByteTokenizer(), "") == Ids{10});
  CHECK(contains(test::error_of([] { prompt_tokens(CharTokenizer("ba"), "\n"); }), "U+000A"));

  // One line without a line feed, as in text8.
  const Training t;
  std::string text = test::bytes_of(t.file("text.txt"));
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::ofstream(t.file("text.txt")) << text;
  const Ran trained = t.run("--steps 5 --sample 10");
  INFO(trained.output);
  REQUIRE(trained.exit_code == 0);
  const LanguageModel lm = load_language_model(t.file("lm.h5"));
  Rng rng(1, 2);
  const std::string sample =
      lm.tokenizer.decode(generate(lm.model, lm.tokenizer.encode(" "), 10, {.temperature = 0.8}, rng)) + "\n";
  CHECK(test::run(test::program("generate") + " --tokens 10 --checkpoint " + t.file("lm.h5")).output == sample);
  CHECK(trained.output.ends_with(sample));
}

RELEASE_TEST_CASE("generate: the same text at 1 and 3 threads") {
  const Training t;
  REQUIRE(t.run("--steps 3 --width 96 --heads 3 --layers 2 --context 64").exit_code == 0);
  const std::string command = "exec " + test::program("generate") + " --checkpoint " + t.file("lm.h5") +
                              " --tokens 100 --temperature 1 --threads ";
  const Ran one = test::run(command + "1"), three = test::run(command + "3");
  CHECK(one.exit_code == 0);
  CHECK(one.output.size() > 100);
  CHECK(one.output == three.output);
}

TEST_CASE("generate: wrong flags are one line that says what is right, and exit 2") {
  const auto refused = [](const std::string& flags, const std::string& sentence) {
    const Ran ran = test::run("exec " + test::program("generate") + " " + flags);
    test::check_refused(ran, 2, sentence);
    CHECK(contains(ran.output, "(generate --help lists the flags)"));
  };
  refused("--token 3", "there is no flag --token; the nearest is --tokens");
  refused("stray", "unexpected argument 'stray'; flags begin with --");
  refused("--tokens many", "--tokens: it is 'many'; it must be a whole number, 0 or more");
  refused("--temperature -1", "--temperature: it is '-1'; it must be a number, 0 or more");
  refused("--top-k 1.5", "--top-k: it is '1.5'; it must be a whole number, 0 or more");
  refused("--top-p 0", "--top-p: it is '0'; it must be a number, from 1e-06 to 1");
  refused("--top-p 1.1", "--top-p: it is '1.1'; it must be a number, from 1e-06 to 1");
  refused("--threads 1025", "--threads: it is '1025'; it must be a whole number, from 0 to 1024");
  refused("--seed -1", "--seed: it is '-1'; it must be a whole number, 0 or more");
  refused("--prompt", "--prompt");
  refused("--prompt a b", "unexpected argument 'b'");
  const Ran help = test::run(test::program("generate") + " --help");
  CHECK(help.exit_code == 0);
  for (const char* flag :
       {"--checkpoint", "--prompt", "--stop", "--tokens", "--temperature", "--top-k", "--top-p", "--seed", "--threads"})
    CHECK(contains(help.output, flag));
  for (const std::string& line : lines_of(help.output)) CHECK(line.size() <= 80);
}

TEST_CASE("generate: weights that are rounded to q8_0 are those of the library, and stderr tells the error") {
  const Training training;
  REQUIRE(test::run(training.on_stories("--data text.txt --layers 1 --heads 2 --width 32 --context 16 --steps 20"))
              .exit_code == 0);
  const LanguageModel lm = load_language_model(training.file("lm.h5"), DType::q8_0);
  Rng rng(1, 2);
  const Tokens ids = generate(lm.model, lm.tokenizer.encode("The "), 40, {.temperature = 0}, rng);
  const Ran ran = test::run("exec " + test::program("generate") + " --checkpoint " + training.file("lm.h5") +
                            " --prompt 'The ' --temperature 0 --tokens 40 --dtype q8_0");
  CHECK(contains(ran.output, "The " + lm.tokenizer.decode(ids) + "\n"));
  CHECK(contains(ran.output, "weights were rounded to q8_0, with a relative error of 0.00"));
  CHECK(contains(test::run("exec " + test::program("generate") + " --dtype q4_0").output, "stored"));
}
