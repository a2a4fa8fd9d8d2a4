// Runs train_lm --model mlm.
#include <algorithm>
#include <heed/data/checkpoint.hpp>
#include <heed/data/tokenizer.hpp>
#include <heed/layers/model_config.hpp>

#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::json_lines;
using test::Ran;
using test::TemporaryFolder;
using test::Training;

TEST_CASE("train_lm --model mlm: a run leaves a log with the accuracy, a checkpoint, and a text filled in") {
  const Training t;
  const Ran ran = t.run("--model mlm --steps 60 --eval-every 30 --sample 40 --plot " + t.file("loss.svg") + " --log " +
                        t.file("log"));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  const std::vector<nlohmann::json> log = json_lines(t.file("log"));
  REQUIRE(log.size() == 60);
  for (std::size_t i = 0; i < log.size(); ++i) {
    const bool evaluated = i == 29 || i == 59;
    CHECK(log[i].contains("val_loss") == evaluated);
    CHECK(log[i].contains("val_accuracy") == evaluated);
    if (evaluated) CHECK((log[i].at("val_accuracy") >= 0 && log[i].at("val_accuracy") <= 1));
  }
  CHECK(log.back().at("loss") < log.front().at("loss"));
  CHECK(contains(ran.output, "accuracy 0."));
  CHECK(!contains(ran.output, "floor"));
  CHECK(contains(ran.output, "held-out text with hidden tokens:\n"));
  CHECK(contains(ran.output, "_"));
  CHECK(contains(ran.output, "{"));
  CHECK(!contains(ran.output, "\x1b"));  // colours are written to terminals only
  const Checkpoint c = load_checkpoint(t.file("lm.h5"));
  const nlohmann::json config = test::parse_json(c.text("config"));
  CHECK(config.at("model") == "mlm");
  // The tokenizer's vocabulary and the mask.
  CHECK(config.at("vocabulary") == Tokenizer::from_json(c.text("tokenizer")).vocabulary_size() + 1);
  CHECK(c.tensor("model/tokens.weight").dim(0) == config.at("vocabulary"));
  CHECK(c.tensor("history/metric.accuracy").dim(0) == 2);

  const Ran generated = test::run(test::program("generate") + " --checkpoint " + t.file("lm.h5"));
  CHECK(generated.exit_code == 1);
  CHECK(contains(generated.output, "a masked model cannot generate text"));
  CHECK(std::count(generated.output.begin(), generated.output.end(), '\n') == 1);

  // The finished run, resumed with a prompt, fills in the prompt.
  const Ran filled = t.run("--model mlm --steps 60 --eval-every 30 --resume --sample 1 --prompt 'The q[MASK]ick'");
  INFO(filled.output);
  CHECK(filled.exit_code == 0);
  CHECK(contains(filled.output, "The q["));
  CHECK(contains(filled.output, "]ick\n"));
}

RELEASE_TEST_CASE("train_lm --model mlm: every mechanism of encoders trains, is saved, and is read again") {
  const Training t;
  int number = 0;
  for (const std::string& name : mechanism_names(false)) {
    if (!test::is_taken(number++, 4)) continue;
    CAPTURE(name);
    const std::string flags = "--model mlm --steps 2 --attention " + name + " --dropout 0.1 --log " + t.file("log");
    const Ran ran = t.run(flags);
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    CHECK(json_lines(t.file("log")).back().contains("val_accuracy"));
    CHECK(test::parse_json(load_checkpoint(t.file("lm.h5")).text("config")).at("attention") == name);
    const std::string saved = bytes_of(t.file("lm.h5"));
    const Ran again = t.run(flags + " --resume --sample 16");
    INFO(again.output);
    CHECK(again.exit_code == 0);
    CHECK(contains(again.output, "resuming"));
    CHECK((bytes_of(t.file("lm.h5")) == saved));
    std::filesystem::remove(t.file("lm.h5"));
  }
}

RELEASE_TEST_CASE("train_lm --model mlm: killed and resumed, and at any number of threads, the same bits") {
  const Training whole;
  const std::string flags =
      "--model mlm --attention linformer --steps 12 --eval-every 4 --checkpoint-every 4 --dropout 0.1 --log log ";
  REQUIRE(whole.run(flags + "--threads 1").exit_code == 0);
  for (const int saved : {1, 2}) {
    const Training parts;
    const Ran killed = parts.killed_at_save(flags + "--threads 2", saved + 1);
    INFO(killed.output);
    CHECK(killed.signal == 9);
    const int step = 4 * saved;  // of 12 steps
    REQUIRE(load_checkpoint(parts.file("lm.h5")).counter("step") == static_cast<std::uint64_t>(step));
    const Ran resumed = parts.run(flags + "--threads 3 --resume");
    INFO(resumed.output);
    REQUIRE(resumed.exit_code == 0);
    CHECK(contains(resumed.output, "resumed at step " + std::to_string(step) + "\n"));
    CHECK(test::same_losses(whole.file("log"), parts.file("log")));
    CHECK((bytes_of(whole.file("lm.h5")) == bytes_of(parts.file("lm.h5"))));
  }
}

TEST_CASE("train_lm --model: combinations that are not possible are refused with the reason") {
  const Training t;
  const auto refused = [&](const std::string& flags, const std::string& sentence, int code = 2) {
    const Ran ran = t.run(flags);
    INFO(flags << ": " << ran.output);
    CHECK(ran.exit_code == code);
    CHECK(contains(ran.output, sentence));
    CHECK(!contains(ran.output, "step 1/"));
  };
  refused("--steps 2 --attention linformer",
          "--attention is linformer and model is lm (the default): attention: linformer has no causal form: its rows "
          "of keys mix all "
          "positions; it is for encoders; use --model mlm");
  refused("--steps 2 --model bert", "--model: it is 'bert'; it must be lm or mlm");
  refused("--steps 2 --model mlm --attention nothing", "--attention: it is 'nothing'; it must be softmax");
  refused("--steps 2 --model mlm --prompt 'The quick'", "there is no [MASK] in 'The quick'", 1);
  refused("--steps 2 --model mlm --prompt 'The quick brown fox [MASK]'", "it has 21 tokens, but the context is 16", 1);
  refused("--steps 2 --model mlm --prompt '\u00e9[MASK]'", "\u00e9", 1);
  REQUIRE(t.run("--steps 2 --model mlm").exit_code == 0);
  refused("--steps 2 --model lm --resume", "--model is \"lm\" but the checkpoint was made with \"mlm\"");
}

TEST_CASE("train_lm --model mlm: the built-in stories") {
  const TemporaryFolder folder;
  const Ran ran =
      test::run("env -C " + test::quoted(folder.path.string()) + " " + test::program("train_lm") +
                " --model mlm --layers 1 --width 16 --heads 2 --batch 2 --steps 2 --eval-batches 1 --sample 200");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(!contains(ran.output, "floor"));
  CHECK(contains(ran.output, "accuracy 0."));
}
