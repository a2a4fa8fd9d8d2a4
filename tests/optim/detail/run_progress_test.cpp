// What a person sees of a run: from where it goes on, and the floor beside an evaluation.
#include <cstdio>
#include <heed/optim/detail/run_progress.hpp>
#include <string>

#include "tests/core/levels.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"

using namespace heed;
using test::contains;
using test::PlaneRun;
using test::same_bits;
using test::TemporaryFolder;

namespace {

// What a run writes for people.
std::string told(PlaneRun& s, RunOptions options) {
  std::FILE* file = std::tmpfile();
  options.progress = file;
  s.go(options);
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("run: a checkpoint of another instruction set is gone on from, and told where that has other bits") {
  const TemporaryFolder folder;
  const RunOptions first{.steps = 2, .checkpoint = folder.path / "m.h5"};
  RunOptions rest = first;
  rest.steps = 3;
  rest.resume = true;
  const auto saved_on = [&](const std::string& level) {  // empty: by a program that does not tell
    Checkpoint c = load_checkpoint(folder.path / "first.h5");
    c.texts["instruction_set"] = level;
    if (level.empty()) c.texts.erase("instruction_set");
    save_checkpoint(rest.checkpoint, c);
  };
  const auto sentence = [](const std::string& there) {
    return "the checkpoint was saved on " + there + " and this run is on " + arch() +
           ": its bits differ from those of a run on one of them\n";
  };
  test::on_each_level([&] {
    PlaneRun().go(first);
    std::filesystem::copy_file(first.checkpoint, folder.path / "first.h5",
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(load_checkpoint(first.checkpoint).text("instruction_set") == arch());
    PlaneRun same, other, unknown;
    CHECK(contains(told(same, rest), "resumed at step 2\nstep 3/3"));
    for (const std::string level : {"baseline", "avx2", "avx512", "avx512_bf16", "neon"}) {
      PlaneRun there;
      saved_on(level);
      const bool alike = level == arch() || (level != "baseline" && kernels::fuses(kernels::level()));
      CHECK(contains(told(there, rest), "resumed at step 2\n" + (alike ? "" : sentence(level)) + "step 3/3"));
    }
    saved_on("sse9");
    CHECK(contains(told(other, rest), "resumed at step 2\n" + sentence("sse9") + "step 3/3"));
    CHECK(same_bits(other.model.up.weight, same.model.up.weight));
    CHECK(load_checkpoint(rest.checkpoint).text("instruction_set") == arch());
    saved_on("");
    CHECK(contains(told(unknown, rest), "resumed at step 2\nstep 3/3"));
  });
}

TEST_CASE("run: the floor beside an evaluation is that of its batches") {
  const TemporaryFolder folder;
  RunOptions options{.steps = 4,
                     .eval_every = 2,
                     .eval_batches = 1,
                     .checkpoint = folder.path / "m.h5",
                     .resume = true,
                     .floor = 0.25,
                     .eval_floor = 0.125};
  PlaneRun s;
  std::string text = told(s, options);
  CHECK(contains(text, "step 1/4  loss "));
  CHECK(contains(text.substr(text.find("step 2/4")), " (floor 0.1250)  "));
  CHECK(contains(text.substr(text.find("step 4/4")), " (floor 0.2500)  "));
  // Which batches the loss in a checkpoint was of is not known.
  options.steps = 6;
  PlaneRun resumed;
  text = told(resumed, options);
  const std::string line = text.substr(text.find("step 5/6"), text.find("step 6/6") - text.find("step 5/6"));
  CHECK(contains(line, "validation "));
  CHECK_FALSE(contains(line, "floor"));
  // As many as the whole set has are the whole set; without a floor of some batches none is shown.
  for (const Index batches : {3, 2}) {
    PlaneRun other;
    text = told(other, {.steps = 4, .eval_every = 2, .eval_batches = batches, .floor = 0.25});
    const std::string two = text.substr(text.find("step 2/4"), text.find("step 4/4") - text.find("step 2/4"));
    CHECK(contains(two, "validation "));
    CHECK(contains(two, "(floor 0.2500)") == (batches == 3));
  }
}
