// Runs classify.
#include <algorithm>
#include <heed/data/checkpoint.hpp>
#include <heed/layers/model_config.hpp>

#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::json_lines;
using test::Ran;
using test::TemporaryFolder;

namespace {

struct Classifying {
  TemporaryFolder folder;
  std::string file(const std::string& name) const { return (folder.path / name).string(); }
  std::string arguments(const std::string& flags) const {
    return "env -C " + test::quoted(folder.path.string()) + " " + test::program("classify") +
           " --layers 1 --heads 2 --width 16 --batch 8 --length 12 --depth 2 --held-out 120 " + test::starting(flags);
  }
  Ran run(const std::string& flags) const { return test::run("exec " + arguments(flags)); }
};

}  // namespace

TEST_CASE(
    "classify: a run tells its accuracy, the baseline and some examples, and leaves a log, a plot, a checkpoint") {
  const Classifying c;
  const Ran ran = c.run("--steps 60 --plot accuracy.svg --log log");
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.output, "held-out accuracy "));
  CHECK(contains(ran.output, "always the most common value: "));
  CHECK(contains(ran.output, "checkpoint: classify.h5\ndrawn: accuracy.svg\n"));
  CHECK(contains(ran.output, ": ["));
  CHECK(contains(ran.output, "] = "));
  const std::vector<nlohmann::json> log = json_lines(c.file("log"));
  REQUIRE(log.size() == 60);
  CHECK(log[5].at("val_accuracy").is_number());
  CHECK(log[59].at("loss") < log[0].at("loss"));
  CHECK(contains(bytes_of(c.file("accuracy.svg")), "<svg"));
  CHECK(load_checkpoint(c.file("classify.h5")).counter("step") == 60);
}

TEST_CASE("classify: --steps 0 leaves a checkpoint of the initial weights") {
  const Classifying c;
  const Ran ran = c.run("--steps 0");
  INFO(ran.output);
  CHECK(ran.exit_code == 0);
  CHECK(load_checkpoint(c.file("classify.h5")).counter("step") == 0);
}

TEST_CASE(
    "classify: the options of a mechanism are flags, stored in the checkpoint, and refused with another mechanism") {
  const Classifying c;
  Ran ran = c.run("--steps 2 --attention linformer --linformer-rows 3");
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  const Checkpoint left = load_checkpoint(c.file("classify.h5"));
  CHECK(left.tensor("model/encoder.blocks.0.attention.mechanism.e").shape() == Shape{3, 12});
  CHECK(test::parse_json(left.text("settings")).at("linformer-rows") == 3);
  CHECK(c.run("--steps 2 --attention linformer --linformer-rows 3 --resume").exit_code == 0);
  CHECK(c.run("--steps 2 --resume").exit_code == 0);
  ran = c.run("--steps 2 --linformer-rows 4 --resume");
  CHECK(ran.exit_code == 2);
  CHECK(contains(ran.output, "--linformer-rows is 4 but the checkpoint was made with 3; leave it out"));
  ran = c.run("--steps 2 --attention linformer --window 3");
  CHECK(ran.exit_code == 2);
  CHECK(contains(ran.output,
                 "--window is 3 and --attention is linformer; --attention must be window or longformer or lsh"));
}

RELEASE_TEST_CASE("classify: every mechanism of encoders trains, or says why not") {
  int trained = 0, number = 0;
  for (const std::string& name : mechanism_names(false)) {
    if (!test::is_taken(number++, 4)) continue;
    const Classifying c;
    const Ran ran = c.run("--steps 2 --attention " + name);
    INFO(name << ": " << ran.output);
    if (ran.exit_code == 2)
      CHECK(contains(ran.output, "--attention is " + name + ", which does not support padding: "));
    else
      CHECK(ran.exit_code == 0);
    trained += ran.exit_code == 0 ? 1 : 0;
  }
  if (!test::kSanitized) CHECK(trained == static_cast<int>(mechanism_names(false).size()));  // all support padding
}

RELEASE_TEST_CASE("classify: stopped and resumed, and at any number of threads, the same bits") {
  const Classifying whole, parts;
  const std::string flags = "--attention efficient --steps 3000 --checkpoint-every 50 --log log ";
  REQUIRE(whole.run(flags + "--threads 1").exit_code == 0);
  const Ran stopped = test::run("cd " + parts.folder.path.string() + "; : > log; " +
                                test::in_background(parts.arguments(flags + "--threads 2")) +
                                "while [ $(wc -l < log) -lt 20 ]; do sleep 0.01; done; kill -INT $pid; wait $pid");
  INFO(stopped.output);
  CHECK(stopped.exit_code == 130);
  CHECK(contains(stopped.output,
                 "classify --checkpoint classify.h5 --resume --threads 2 --checkpoint-every 50 --log log"));
  REQUIRE(parts.run(flags + "--threads 2 --resume").exit_code == 0);
  CHECK(test::same_losses(whole.file("log"), parts.file("log")));
  CHECK((bytes_of(whole.file("classify.h5")) == bytes_of(parts.file("classify.h5"))));
}

TEST_CASE("classify: wrong flags say what is right") {
  const Classifying c;
  const auto refused = [&](const std::string& flags, const std::string& sentence, int code = 2) {
    test::check_refused(c.run(flags), code, sentence);
  };
  refused("--attention nothing", "--attention: it is 'nothing'; it must be softmax");
  refused("--heads 3", "--width is 16 and --heads is 3; heads must divide the width");
  refused("--length 3", "a whole number, 4 or more");
  refused("--length 2000 --depth 1", "none of 10000 expressions had 500 to 2000 tokens", 1);
  refused("--plot x.gif", "it must end with .svg or .png");
  REQUIRE(c.run("--steps 2").exit_code == 0);
  refused("--window 3 --resume", "--window is 3 and attention is softmax (stored in classify.h5); --attention must be");
  refused("--window 3",
          "--window is 3 and attention is softmax (the default); --attention must be window or longformer or lsh");
  refused("--seed 7 --resume", "--seed is 7 but the checkpoint was made with 1; leave it out, or start a new training");
  refused("--heads 1 --init classify.h5 --checkpoint other.h5",
          "--heads is 1 but the model of classify.h5 has 2; leave it out");
  const Ran help = test::run(test::program("classify") + " --help");
  CHECK(help.exit_code == 0);
  for (const char* flag : {"--attention", "--layers", "--heads", "--width", "--length", "--steps", "--batch", "--lr",
                           "--seed", "--threads", "--checkpoint", "--checkpoint-every", "--resume", "--log", "--plot"})
    CHECK(contains(help.output, flag));
}
