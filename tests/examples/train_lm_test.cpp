// Runs train_lm and generate: flags, logs, checkpoints, resuming, Ctrl-C.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <heed/data/checkpoint.hpp>
#include <heed/layers/model_config.hpp>

#include "examples/support/command_line.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/examples/programs.hpp"
#include "tests/tools/paths.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::json_lines;
using test::Ran;
using test::Training;

TEST_CASE("train_lm: a whole run leaves a log, a checkpoint, a plot and a sample") {
  const Training t;
  const Ran ran =
      t.run("--steps 40 --eval-every 20 --sample 30 --plot " + t.file("loss.svg") + " --log " + t.file("log"));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  const std::vector<nlohmann::json> log = json_lines(t.file("log"));
  REQUIRE(log.size() == 40);
  for (std::size_t i = 0; i < log.size(); ++i) {
    CHECK(log[i].at("step") == i + 1);
    for (const char* key : {"loss", "lr", "grad_norm", "tokens_per_second"}) CHECK(log[i].at(key).is_number());
    CHECK(log[i].contains("val_loss") == (i == 19 || i == 39));
  }
  CHECK(log[39].at("loss") < log[0].at("loss"));
  CHECK(log[0].at("lr") == 0);
  CHECK(bytes_of(t.file("loss.svg")).find("<svg") != std::string::npos);
  CHECK(contains(ran.output, "step 20/40"));
  CHECK(contains(ran.output, "validation loss"));
  const Checkpoint c = load_checkpoint(t.file("lm.h5"));
  CHECK(c.counter("step") == 40);
  CHECK(test::parse_json(c.text("config")).at("width") == 16);
  const std::string generate = test::program("generate") + " --checkpoint " + t.file("lm.h5");
  const Ran first = test::run(generate + " --prompt 'The quick' --tokens 20 --seed 3 2>/dev/null"),
            again = test::run(generate + " --prompt 'The quick' --tokens 20 --seed 3 2>/dev/null");
  CHECK(first.exit_code == 0);
  CHECK(first.output.rfind("The quick", 0) == 0);
  CHECK(first.output == again.output);
  CHECK(test::run(generate + " --prompt 'The quick' --tokens 20 --seed 4").output != first.output);
  CHECK(contains(test::run(generate + " --prompt 'é'").output, "é"));
  CHECK(test::run(generate + " --prompt 'é'").exit_code == 1);
}

TEST_CASE("train_lm: on the built-in stories, each evaluation has the floor of its own batches") {
  const test::TemporaryFolder folder;
  const Ran ran = test::run("env -C " + test::quoted(folder.path.string()) + " " + test::program("train_lm") +
                            " --layers 1 --heads 2 --width 16 --batch 8 --context 64 --steps 4 --eval-every 2 "
                            "--eval-batches 1 --sample 0");
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  const auto floor_after = [&](const std::string& text) {
    const std::size_t from = ran.output.find(text), at = ran.output.find("floor", from);
    REQUIRE(at < ran.output.size());
    return ran.output.substr(ran.output.find_first_of("0123456789", at), 6);
  };
  CHECK(floor_after("step 4/4") == floor_after("above the"));
  CHECK(floor_after("step 2/4") != floor_after("step 4/4"));
}

TEST_CASE("train_lm: wrong flags say what is right and exit 2") {
  const Training t;
  const auto refused = [&](const std::string& flags, const std::string& sentence) {
    test::check_refused(t.run(flags), 2, sentence);
  };
  refused("--presett nano", "there is no flag --presett; the nearest is --preset");
  refused("stray", "unexpected argument 'stray'; flags begin with --");
  refused("--preset huge", "--preset: it is 'huge'; it must be nano, baby or gpt2");
  refused("--steps many", "--steps: it is 'many'; it must be a whole number, 0 or more");
  refused("--steps 1.5", "a whole number, 0 or more");
  refused("--steps", "--steps needs a value, N");
  refused("--sample=", "--sample needs a value, N");
  refused("--find-nan=maybe", "--find-nan takes no value, but got 'maybe'");
  refused("--trace x.json", "--trace needs --profile");
  refused("--batch 0", "a whole number, 1 or more");
  refused("--threads 2000", "a whole number, from 0 to 1024");
  refused("--seed -1", "a whole number, 0 or more");
  refused("--lr nan", "--lr: it is 'nan'; it must be a number, 0 or more");
  refused("--dropout 1.5", "it must be a number, from 0 to 0.99");
  refused("--bias 3", "it must be true or false");
  refused("--heads 3", "--width is 16 and --heads is 3; heads must divide the width");
  refused("--lr 1e-4 --min-lr 1e-3", "min-lr must be at most lr");
  refused("--steps 10 --warmup 11", "the warm-up must not be longer");
  refused("--dtype f16", "it must be f32 or bf16");
  refused("--layers 0", "--layers: it is '0'; it must be a whole number, 1 or more");
  refused("--feature-map relu",
          "--feature-map is relu and attention is softmax (the default); --attention must be linear");
  const Ran stories = test::run("exec " + t.on_stories("--steps 0 --val-fraction 0.2"));
  CHECK(stories.exit_code == 2);
  CHECK(contains(stories.output, "--val-fraction is 0.2 but --data is not given; the built-in stories are"));
  const Ran help = test::run(test::program("train_lm") + " --help");
  CHECK(help.exit_code == 0);
  for (const char* flag : {"--data",       "--tokenizer",    "--preset",       "--layers",
                           "--heads",      "--width",        "--context",      "--batch",
                           "--accumulate", "--shards",       "--communication-dtype",
                           "--dropout",    "--attention",    "--norm",
                           "--activation", "--positions",    "--steps",        "--lr",
                           "--min-lr",     "--warmup",       "--weight-decay", "--beta1",
                           "--beta2",      "--grad-clip",    "--optimizer",    "--schedule",
                           "--seed",       "--threads",      "--dtype",        "--val-fraction",
                           "--eval-every", "--eval-batches", "--checkpoint",   "--checkpoint-every",
                           "--resume",     "--log",          "--plot",         "--sample",
                           "--prompt",     "--temperature",  "--top-k",        "--top-p"})
    CHECK(contains(help.output, flag));
  for (const std::string& line : test::lines_of(help.output)) {
    INFO(line);
    CHECK(line.size() <= 80);
  }
}

TEST_CASE("train_lm: what would fail after the training is refused before it") {
  const Training t;
  const std::pair<const char*, int> runs[] = {{"--checkpoint /nowhere/lm.h5", 2},
                                              {"--plot /nowhere/loss.svg", 2},
                                              {"--plot loss.gif", 2},
                                              {"--log /nowhere/log", 2},
                                              {"--sample 5 --prompt \u00e9", 1}};
  for (const auto& given : runs) {
    const Ran ran = t.run(std::string("--steps 2 ") + given.first);
    INFO(given.first << ": " << ran.output);
    CHECK(ran.exit_code == given.second);
    CHECK(!contains(ran.output, "step 1/2"));
  }
}

TEST_CASE("train_lm: bad data and bad files are one sentence and exit 1") {
  const Training t;
  const auto refused = [&](const Ran& ran, const std::string& sentence) {
    INFO(ran.output);
    CHECK(ran.exit_code == 1);
    CHECK(contains(ran.output, sentence));
  };
  const std::string program = test::program("train_lm") + " --sample 0 --steps 2 --checkpoint " + t.file("x.h5");
  refused(test::run(program + " --data /nowhere/at/all.txt"), "/nowhere/at/all.txt");
  std::ofstream(t.file("bad.txt")) << "fine until here \xff and on";
  refused(test::run(program + " --data " + t.file("bad.txt")), "16");
  std::ofstream(t.file("short.txt")) << "short";
  CHECK(test::run(program + " --data " + t.file("short.txt")).exit_code == 1);
  refused(t.run("--steps 30 --lr 1e30 --min-lr 0 --warmup 1 --grad-clip 0"), "finite");
  std::ofstream(t.file("lm.h5")) << "no checkpoint";
  refused(t.run("--steps 2 --resume"), "lm.h5");
  refused(test::run(test::program("generate") + " --checkpoint " + t.file("lm.h5")), "lm.h5");
  refused(test::run(test::program("generate") + " --checkpoint " + t.file("none.h5")), "none.h5");
}

TEST_CASE("train_lm: every kind of model, optimizer, schedule, tokenizer and precision trains") {
  const Training t;
  int number = 0;
  for (const char* flags :
       {"--norm rms --activation swiglu --positions rope", "--activation relu --positions sinusoidal --bias true",
        "--activation silu --positions none --dropout 0.1", "--positions relative",
        "--optimizer sgd --schedule constant --lr 0.1", "--optimizer adam --schedule linear",
        "--optimizer rmsprop --schedule inverse-sqrt", "--optimizer adagrad --schedule step --lr 0.01",
        "--optimizer adafactor", "--optimizer muon", "--recipe fast", "--recipe fast --optimizer adamw --lr 3e-3",
        "--optimizer lion --schedule one-cycle --lr 1e-3", "--attention linear",
        "--attention linear --feature-map softplus --dropout 0.1 --positions rope", "--schedule plateau --eval-every 5",
        "--tokenizer byte", "--dtype bf16", "--accumulate 3",
        "--activation gelu-tanh --eval-batches 1 --val-fraction 0.3"}) {
    if (!test::is_taken(number++, 3)) continue;
    const Ran ran = t.run(std::string("--steps 30 --log ") + t.file("log") + " " + flags);
    INFO(flags << ": " << ran.output);
    REQUIRE(ran.exit_code == 0);
    const std::vector<nlohmann::json> log = json_lines(t.file("log"));
    CHECK(log.back().at("loss") < log.front().at("loss"));
    CHECK(log.back().contains("val_loss"));
    const Ran text = test::run(test::program("generate") + " --tokens 30 --checkpoint " + t.file("lm.h5"));
    CHECK(text.exit_code == 0);
  }
}

RELEASE_TEST_CASE("train_lm: every causal mechanism trains, is saved and generates") {
  const Training t;
  int number = 0;
  for (const std::string& name : mechanism_names()) {
    if (!test::is_taken(number++, 5)) continue;
    CAPTURE(name);
    const std::string flags = "--attention " + name + " --dropout 0.1 --log " + t.file("log");
    const Ran ran = t.run("--steps 20 " + flags);
    INFO(ran.output);
    REQUIRE(ran.exit_code == 0);
    const std::vector<nlohmann::json> log = json_lines(t.file("log"));
    CHECK(log.back().at("loss") < log.front().at("loss"));
    CHECK(test::parse_json(load_checkpoint(t.file("lm.h5")).text("config")).at("attention") == name);
    const Ran text = test::run(test::program("generate") + " --tokens 40 --checkpoint " + t.file("lm.h5"));
    CHECK(text.exit_code == 0);
    std::filesystem::remove(t.file("lm.h5"));
  }
}

RELEASE_TEST_CASE("train_lm: bf16 stays near float32") {
  const Training t;
  std::vector<double> last;
  for (const char* dtype : {"f32", "bf16"}) {
    REQUIRE(t.run(std::string("--steps 60 --dtype ") + dtype + " --log " + t.file("log")).exit_code == 0);
    last.push_back(json_lines(t.file("log")).back().at("val_loss"));
  }
  CHECK(last[0] != last[1]);
  CHECK(std::fabs(last[0] - last[1]) < 0.05);
}

RELEASE_TEST_CASE("train_lm: bitwise the same at 1, 2, 3 and 8 threads") {
  const Training t;
  std::string losses, checkpoint;
  for (const int threads : {1, 2, 3, 8}) {
    // Large enough that every kernel is divided among threads.
    REQUIRE(t.run("--steps 6 --width 96 --heads 3 --layers 2 --context 64 --batch 24 --dropout 0.1 --eval-every 3 "
                  "--threads " +
                  std::to_string(threads) + " --log " + t.file("log"))
                .exit_code == 0);
    std::string now;
    for (nlohmann::json& entry : json_lines(t.file("log"))) {
      entry.erase("tokens_per_second");
      now += entry.dump() + "\n";
    }
    const std::string bytes = bytes_of(t.file("lm.h5"));
    if (threads == 1) losses = now, checkpoint = bytes;
    CHECK(now == losses);
    CHECK((bytes == checkpoint));
    std::filesystem::remove(t.file("lm.h5"));
  }
}

TEST_CASE("train_lm: --resume takes the settings from the checkpoint and refuses others") {
  const Training t;
  REQUIRE(t.run("--steps 12 --checkpoint-every 4").exit_code == 0);
  const Ran other = t.run("--optimizer lion --resume");
  CHECK(other.exit_code == 2);
  CHECK(contains(other.output,
                 "--optimizer is \"lion\" but the checkpoint was made with \"adamw\"; leave it out, or start a new "
                 "training from its weights with --init"));
  const std::string plain =
      "cd " + t.folder() + "; exec " + test::program("train_lm") + " --sample 0 --resume --checkpoint lm.h5";
  const Ran same = test::run(plain);
  INFO(same.output);
  CHECK(same.exit_code == 0);
  CHECK(contains(same.output, "resuming"));
  std::ofstream(t.file("text.txt"), std::ios::app) << "more\n";
  const Ran changed = test::run(plain);
  CHECK(changed.exit_code == 1);
  CHECK(contains(changed.output, "they must be the same"));
}

RELEASE_TEST_CASE("train_lm: Ctrl-C finishes the step, saves and says how to go on, to the same log, plot and bits") {
  const Training whole, stopped;
  // A run of about 2 s. The names of files need quotes in a shell.
  const std::string flags =
      "--steps 400 --layers 3 --width 64 --context 64 --eval-every 100 --eval-batches 1 --checkpoint-every 350 "
      "--threads 2 --log 'my log' --plot \"it's.svg\" --sample 5 --prompt '' --top-k 2";
  const Ran undisturbed = whole.run(flags);
  REQUIRE(undisturbed.exit_code == 0);
  CHECK(contains(undisturbed.output, "checkpoint: lm.h5\ndrawn: it's.svg\n"));
  const Ran ran =
      test::run("cd " + stopped.folder() + "; : > 'my log'; " + test::in_background(stopped.arguments(flags)) +
                "while [ $(wc -l < 'my log') -lt 30 ]; do sleep 0.02; done; kill -INT $pid; wait $pid");
  INFO(ran.output);
  CHECK(ran.exit_code == 130);
  const std::string before = "to continue: ", hint = ran.output.substr(ran.output.find(before) + before.size());
  CHECK(hint ==
        examples::shell_word(test::in_build("examples/train_lm")) +
            " --checkpoint lm.h5 --resume --threads 2 --checkpoint-every 350 --log 'my log' --plot 'it'\\''s.svg' "
            "--sample 5 --prompt '' --top-k 2\n");
  const std::uint64_t step = load_checkpoint(stopped.file("lm.h5")).counter("step");
  CHECK(step >= 30);
  CHECK(step < 400);
  CHECK(json_lines(stopped.file("my log")).size() == step);
  std::filesystem::remove(stopped.file("it's.svg"));
  const Ran rest = test::run("cd " + stopped.folder() + "; exec " + hint);
  INFO(rest.output);
  REQUIRE(rest.exit_code == 0);
  CHECK(test::same_losses(whole.file("my log"), stopped.file("my log")));
  CHECK((bytes_of(whole.file("lm.h5")) == bytes_of(stopped.file("lm.h5"))));
  CHECK((bytes_of(whole.file("it's.svg")) == bytes_of(stopped.file("it's.svg"))));
  CHECK(test::lines_of(rest.output).back() == test::lines_of(undisturbed.output).back());  // the sample
}
