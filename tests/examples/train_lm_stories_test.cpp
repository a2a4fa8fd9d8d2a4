// train_lm on the built-in stories, whose lowest possible loss is known.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <heed/core/parallel.hpp>
#include <heed/data/checkpoint.hpp>
#include <heed/data/tasks.hpp>

#include "examples/support/run_report.hpp"
#include "tests/examples/programs.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::json_lines;
using test::lines_of;
using test::quoted;
using test::Ran;
using test::Training;
namespace fs = std::filesystem;

namespace {

const std::string kSmallModel = "--layers 1 --heads 2 --width 32 --batch 4 ";

// The floor of the 100000 held-out characters of a run with this seed, in windows of the default context; or of the
// first batches of 4.
StoryFloor floor_of_run(std::uint64_t seed, Index batches = 0) {
  const Stories stories;
  const Tokenizer t = ByteTokenizer();
  const std::vector<std::int32_t> ids = t.encode(stories.corpus(2 * seed + 1, 100000));
  return story_floor(stories, WholeSplit(TokenSource(ids, 256), {.batch = 4, .context = 144, .separator = 10}), t,
                     batches);
}

}  // namespace

TEST_CASE("train_lm on stories: lines and plot show the loss with its floor") {
  const Training t;
  const Ran ran = test::run("exec " + t.on_stories(kSmallModel + "--steps 6 --eval-every 3 --eval-batches 2 --seed 2 "
                                                                 "--log log --plot loss.svg"));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  const StoryFloor floor = floor_of_run(2);
  const std::vector<nlohmann::json> log = json_lines(t.file("log"));
  REQUIRE(log.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) CHECK(log[i].contains("val_loss") == (i == 2 || i == 5));
  for (const std::size_t i : {2, 5}) {
    char line[80];
    std::snprintf(line, sizeof line, "step %zu/6  loss %.4f  validation %.4f (floor %.4f)  ", i + 1,
                  log[i].at("loss").get<double>(), log[i].at("val_loss").get<double>(),
                  floor_of_run(2, i == 2 ? 2 : 0).loss);
    CHECK(contains(ran.output, line));
  }
  const double loss = log[5].at("val_loss");
  CHECK(loss > floor.loss - 3 * floor.standard_error);  // no model has a lower loss
  CHECK(loss < 4);                                      // there are about 50 characters
  char line[80];
  std::snprintf(line, sizeof line, "validation loss %.4f, ", loss);
  CHECK(contains(ran.output, line + examples::above_floor(loss, floor) + "\ncheckpoint: lm.h5\ndrawn: loss.svg\n"));
  CHECK(contains(bytes_of(t.file("loss.svg")), "floor: minimum possible loss"));

  // For other texts no floor is known.
  const Ran other = t.run("--steps 2 --eval-every 1 --plot other.svg");
  CHECK(other.exit_code == 0);
  CHECK(!contains(other.output, "floor"));
  CHECK(!contains(bytes_of(t.file("other.svg")), "floor"));
}

RELEASE_TEST_CASE("train_lm on stories: killed and resumed, and at any number of threads, the same bits") {
  const Training whole, parts;
  const std::string flags =
      kSmallModel + "--steps 40 --dropout 0.1 --checkpoint-every 2 --eval-every 15 --eval-batches 1 --log log ";
  REQUIRE(test::run("exec " + whole.on_stories(flags + "--threads 1")).exit_code == 0);
  const Ran killed = test::run("cd " + parts.folder() + "; " + parts.on_stories(flags + "--threads 3") +
                               " & pid=$!; while [ ! -e lm.h5 ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done; "
                               "kill -9 $pid; wait $pid 2>/dev/null; true");
  INFO(killed.output);
  CHECK(load_checkpoint(parts.file("lm.h5")).counter("step") < 40);
  const Ran resumed = test::run("exec " + parts.on_stories("--resume --log log --threads 3"));
  INFO(resumed.output);
  REQUIRE(resumed.exit_code == 0);
  CHECK(contains(resumed.output, "resumed at step "));
  CHECK(contains(resumed.output, "% above the floor of "));
  CHECK(test::same_losses(whole.file("log"), parts.file("log")));
  CHECK((bytes_of(whole.file("lm.h5")) == bytes_of(parts.file("lm.h5"))));
}

RELEASE_TEST_CASE("train_lm: the lines around a run stay within 80 columns, whatever instruction set runs") {
  const Training t;
  const Ran ran = test::run("exec " + t.on_stories("--steps 0"));
  INFO(ran.output);
  REQUIRE(ran.exit_code == 0);
  std::vector<std::string> lines = lines_of(ran.output);
  REQUIRE(lines.size() >= 4);
  CHECK(contains(lines[0], "built-in stories"));
  CHECK(contains(lines[1], "4 layers, 4 heads, width 128, context 144: "));
  const std::size_t at = lines[2].find(std::string("; ") + arch() + ", ");
  REQUIRE(at != std::string::npos);
  lines[2].replace(at, 2 + std::string(arch()).size(), "; avx512_bf16");  // the longest name
  lines[2] += "  ";                                                       // for machines with 100 threads or more
  for (const double loss : {0.2806, 3.4567})
    lines.push_back("validation loss 3.4567, " + examples::above_floor(loss, {0.2688, 0.0025}));
  for (const std::string& line : lines) {
    INFO(line);
    CHECK(line.size() <= 80);
  }
  CHECK(lines[lines.size() - 2] == "validation loss 3.4567, 4.4% above the floor of 0.2688 (standard error 0.0025)");
}

TEST_CASE("train_lm --plot: if gnuplot fails, its reason is printed and an old picture stays") {
  const Training t;
  std::ofstream(t.file("gnuplot"))
      << "#!/bin/sh\ncat > /dev/null\necho '\"-\" line 7: no room for fonts' >&2\nexit 1\n";
  fs::permissions(t.file("gnuplot"), fs::perms::owner_all);
  const std::string path = "PATH=" + quoted(t.folder()) + ":$PATH ";
  Ran ran = test::run(path + t.arguments("--steps 2 --plot loss.svg"));
  INFO(ran.output);
  CHECK(ran.exit_code == 1);
  CHECK(contains(ran.output, "plot: loss.svg could not be drawn; gnuplot: no room for fonts"));
  CHECK_FALSE(fs::exists(t.file("loss.svg")));
  CHECK(fs::exists(t.file("lm.h5")));
  std::ofstream(t.file("loss.svg")) << "old";
  std::ofstream(t.file("gnuplot")) << "#!/bin/sh\ncat > /dev/null\n";
  ran = test::run(path + t.arguments("--steps 2 --plot loss.svg"));
  CHECK(contains(ran.output, "gnuplot: no output, exit status 0"));
  CHECK(bytes_of(t.file("loss.svg")) == "old");
}
