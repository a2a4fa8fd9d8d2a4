// Progress lines of a run: messages after a resume, and the floor of an evaluation.
#include <cstdio>
#include <heed/optim/run/run_progress.hpp>
#include <string>

#include "tests/core/levels.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"

using namespace heed;
using test::contains;
using test::PlaneRun;
using test::progress_of;
using test::same_bits;
using test::TemporaryFolder;

TEST_CASE("run: a checkpoint of another instruction set is resumed, with a message if the bits may differ") {
  const TemporaryFolder folder;
  const RunOptions first{.steps = 2, .checkpoint = {.path = folder.path / "m.h5", .start = RunStart::overwrite}};
  RunOptions rest = first;
  rest.steps = 3;
  rest.checkpoint.start = RunStart::resume_or_start;
  const auto saved_on = [&](const std::string& level) {  // empty: by a program that does not save the instruction set
    Checkpoint c = load_checkpoint(folder.path / "first.h5");
    c.texts["instruction_set"] = level;
    if (level.empty()) c.texts.erase("instruction_set");
    save_checkpoint(rest.checkpoint.path, c);
  };
  const std::string resumed = "resumed at step 2\nchanged: steps 3, before: 2\n";
  const auto sentence = [](const std::string& there) {
    return "the checkpoint was saved on " + there + " but this run uses " + arch() +
           "; its bits differ from those of a run with only one of them\n";
  };
  test::on_each_level([&] {
    PlaneRun().go(first);
    std::filesystem::copy_file(first.checkpoint.path, folder.path / "first.h5",
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(load_checkpoint(first.checkpoint.path).text("instruction_set") == arch());
    PlaneRun same, other, unknown;
    CHECK(contains(progress_of(same, rest), resumed + "step 3/3"));
    for (const std::string level : {"baseline", "avx2", "avx512", "avx512_bf16", "neon"}) {
      PlaneRun there;
      saved_on(level);
      const bool alike = level == arch() || (level != "baseline" && kernels::fuses(kernels::level()));
      CHECK(contains(progress_of(there, rest), resumed + (alike ? "" : sentence(level)) + "step 3/3"));
    }
    saved_on("sse9");
    CHECK(contains(progress_of(other, rest), resumed + sentence("sse9") + "step 3/3"));
    CHECK(same_bits(other.model.up.weight, same.model.up.weight));
    CHECK(load_checkpoint(rest.checkpoint.path).text("instruction_set") == arch());
    saved_on("");
    CHECK(contains(progress_of(unknown, rest), resumed + "step 3/3"));
  });
}

TEST_CASE("run: the floor of an evaluation is the floor of its batches") {
  const TemporaryFolder folder;
  RunOptions options{.steps = 4,
                     .evaluation = {.every = 2, .batches = 1, .floor = 0.25, .batches_floor = 0.125},
                     .checkpoint = {.path = folder.path / "m.h5", .start = RunStart::resume_or_start}};
  PlaneRun s;
  std::string text = progress_of(s, options);
  CHECK(contains(text, "step 1/4  loss "));
  CHECK(contains(text.substr(text.find("step 2/4")), " (floor 0.1250)  "));
  CHECK(contains(text.substr(text.find("step 4/4")), " (floor 0.2500)  "));
  // A checkpoint does not record the batches of its loss.
  options.steps = 6;
  PlaneRun resumed;
  text = progress_of(resumed, options);
  const std::string line = text.substr(text.find("step 5/6"), text.find("step 6/6") - text.find("step 5/6"));
  CHECK(contains(line, "validation "));
  CHECK_FALSE(contains(line, "floor"));
  // If `batches` covers the whole set, its floor applies. Without a floor for some batches, none is shown.
  for (const Index batches : {3, 2}) {
    PlaneRun other;
    text = progress_of(other, {.steps = 4, .evaluation = {.every = 2, .batches = batches, .floor = 0.25}});
    const std::string two = text.substr(text.find("step 2/4"), text.find("step 4/4") - text.find("step 2/4"));
    CHECK(contains(two, "validation "));
    CHECK(contains(two, "(floor 0.2500)") == (batches == 3));
  }
}

TEST_CASE("run: speeds and losses have the unit of the trained data") {
  struct Result {
    std::string line, unit;
    RunStep last;
  };
  const auto go = [](auto& model, Dataset data, std::function<Tensor(const Batch&)> loss) {
    SGD optimizer(named_parameters(model), {.lr = 0.01});
    Schedule schedule("constant", {.lr = 0.01});
    Result r;
    RunOptions o{.steps = 2};
    o.after_step = [&](RunStep& s) { r.last = s; };
    std::FILE* file = o.output.progress = std::tmpfile();
    r.unit = run(model, optimizer, schedule, std::move(data), {}, o, std::move(loss)).loss_unit;
    std::rewind(file);
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) r.line += static_cast<char>(c);
    std::fclose(file);
    return r;
  };
  Rng rng(1);
  const CopyTask task({.batch = 4, .length = 8});
  GPT gpt(
      {.vocabulary = task.vocabulary(), .context = 8, .blocks = {.layers = 1, .attention = {.width = 16, .heads = 2}}},
      rng);
  const Result tokens = go(gpt, task, [&](const Batch& b) { return gpt.loss(b.inputs, b.targets); });
  CHECK(contains(tokens.line, " tokens/s"));
  CHECK(tokens.unit == "nats per token");
  CHECK(tokens.last.tokens_per_second == doctest::Approx(8 * tokens.last.samples_per_second));

  const TensorDataset points({{"inputs", rng.normal({20, 3})}, {"targets", rng.integers({20}, 0, 2)}});
  Linear classifier(3, 2, rng), line(3, 3, rng);
  const Result classes = go(classifier, SampleBatches(points, {.rows = 5}),
                            [&](const Batch& b) { return cross_entropy(classifier(b.inputs), b.targets); });
  CHECK(contains(classes.line, " samples/s"));
  CHECK(classes.unit == "nats");
  CHECK(classes.last.tokens_per_second == 0);
  CHECK(classes.last.samples_per_second > 0);

  const TensorDataset numbers({{"inputs", rng.normal({20, 3})}, {"targets", rng.normal({20, 3})}});
  const Result regression = go(line, SampleBatches(numbers, {.rows = 5}),
                               [&](const Batch& b) { return mse_loss(line(b.inputs), b.targets); });
  CHECK(contains(regression.line, " samples/s"));
  CHECK(regression.unit.empty());

  // One class per text: tokens have no targets.
  const TensorDataset texts({{"inputs", rng.integers({20, 6}, 0, 9)}, {"targets", rng.integers({20}, 0, 2)}});
  Embedding table(9, 2, rng);
  const Result text = go(table, SampleBatches(texts, {.rows = 5}),
                         [&](const Batch& b) { return cross_entropy(mean(table(b.inputs), {1}), b.targets); });
  CHECK(contains(text.line, " samples/s"));
  CHECK(text.unit == "nats");
  // A cross-entropy plus another term has no unit.
  const Result both = go(classifier, SampleBatches(points, {.rows = 5}), [&](const Batch& b) {
    return cross_entropy(classifier(b.inputs), b.targets) + sum(square(classifier.weight));
  });
  CHECK(both.unit.empty());
}
