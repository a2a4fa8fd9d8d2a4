// What a run keeps over a resume besides its weights: the moving average, a log of its own, the instruction set.
#include <cmath>
#include <fstream>
#include <tuple>

#include "tests/core/levels.hpp"
#include "tests/data/temporary_folder.hpp"
#include "tests/optim/plane_run.hpp"
#include "tests/tools/json.hpp"

using namespace heed;
using test::bytes_of;
using test::contains;
using test::HeldOutPlane;
using test::Plane;
using test::PlaneRun;
using test::same_bits;
using test::TemporaryFolder;

namespace {

std::vector<Tensor> averages_of(PlaneRun& s) {
  const AveragedWeights inside(s.average);
  return {s.model.up.weight.clone(), s.model.up.bias.clone(), s.model.down.weight.clone(), s.model.down.bias.clone()};
}

bool same_averages(PlaneRun& a, PlaneRun& b) {
  const std::vector<Tensor> x = averages_of(a), y = averages_of(b);
  return std::equal(x.begin(), x.end(), y.begin(), [](const Tensor& s, const Tensor& t) { return same_bits(s, t); });
}

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

std::vector<Index> steps_of(const std::filesystem::path& log) {
  std::vector<Index> steps;
  for (const nlohmann::json& entry : test::json_lines(log)) steps.push_back(entry.at("step").get<Index>());
  return steps;
}

}  // namespace

TEST_CASE("run: a moving average is that of a loop by hand, and evaluated in place of the weights") {
  PlaneRun s, plain, by_hand;
  for (PlaneRun* r : {&s, &plain, &by_hand}) r->model.drop = Dropout{0.0};
  RunOptions options{.steps = 12, .seed = 5, .eval_every = 4, .average = &s.average};
  const RunResult r = s.go(options);
  options.average = nullptr;
  const RunResult without = plain.go(options);

  std::vector<double> losses;
  for (Index step = 0; step < 12; ++step) {
    const Batch b = Plane{}.batch(5, static_cast<std::uint64_t>(step));
    by_hand.optimizer.zero_grad();
    Tape tape;
    tape.backward(by_hand.model.loss(b.inputs, b.targets));
    by_hand.optimizer.set_lr(by_hand.schedule(step));
    by_hand.optimizer.clipped_step(1);
    by_hand.average.update();
    if ((step + 1) % 4 != 0) continue;
    const AveragedWeights inside(by_hand.average);
    losses.push_back(evaluate([&](const Batch& e) { return by_hand.model.loss(e.inputs, e.targets); }, HeldOutPlane{}));
  }
  REQUIRE(r.history.validation_losses.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(r.history.validation_losses[i].second == losses[i]);
    CHECK(r.history.validation_losses[i].second != without.history.validation_losses[i].second);
  }
  CHECK(*r.validation_loss == losses[2]);
  CHECK(s.average.updates() == 12);
  CHECK(same_averages(s, by_hand));
  // The training is that without an average, and the model has its own weights at the end.
  CHECK(r.history.losses == without.history.losses);
  CHECK(same_bits(s.model.up.weight, plain.model.up.weight));
  CHECK_FALSE(same_bits(s.model.up.weight, averages_of(s)[0]));
}

TEST_CASE("run: a moving average is kept over a resume, to the same bits") {
  const TemporaryFolder folder;
  const auto options = [&](const std::string& name, Index steps, PlaneRun& s) {
    return RunOptions{.steps = steps,
                      .eval_every = 4,
                      .average = &s.average,
                      .checkpoint = folder.path / (name + ".h5"),
                      .resume = true};
  };
  PlaneRun whole;
  const RunResult all = whole.go(options("whole", 12, whole));
  const Checkpoint c = load_checkpoint(folder.path / "whole.h5");
  CHECK(c.tensor("average/updates").item<Index>() == 12);
  CHECK(same_bits(c.tensor("average/average.up.weight"), averages_of(whole)[0]));
  CHECK(same_bits(c.tensor("model/up.weight"), whole.model.up.weight));
  for (const Index stop : {1, 4, 8}) {
    PlaneRun first, second;
    const std::string name = "part" + std::to_string(stop);
    first.go(options(name, stop, first));
    const RunResult rest = second.go(options(name, 12, second));
    CHECK(rest.resumed_from == stop);
    CHECK(rest.validation_loss == all.validation_loss);
    CHECK(same_averages(second, whole));
    // Stopped at step 1, the first part ended with an evaluation that the whole run did not make.
    if (stop > 1) CHECK((bytes_of(folder.path / (name + ".h5")) == bytes_of(folder.path / "whole.h5")));
  }
}

TEST_CASE("run: a checkpoint with an average goes on with one, and one without does without") {
  const TemporaryFolder folder;
  const std::filesystem::path with = folder.path / "with.h5", without = folder.path / "without.h5";
  PlaneRun s;
  s.go({.steps = 2, .average = &s.average, .checkpoint = with});
  s.go({.steps = 2, .checkpoint = without});
  const Tensor before = s.model.up.weight.clone();
  CHECK(s.refusal({.steps = 4, .checkpoint = with, .resume = true}) ==
        "resume: " + with.string() +
            " has an average of the weights but this run has none; both must have one, or neither");
  CHECK(s.refusal({.steps = 4, .average = &s.average, .checkpoint = without, .resume = true}) ==
        "resume: " + without.string() +
            " has no average of the weights but this run has one; both must have one, or neither");
  CHECK(same_bits(s.model.up.weight, before));
  WeightAverage other(std::vector<NamedParameter>{{"up.weight", &s.model.up.weight}}, 0.9);
  CHECK(contains(s.refusal({.steps = 4, .average = &other, .checkpoint = with, .resume = true}),
                 "WeightAverage: the state has 'average.down.bias', which is unknown here"));
  const AveragedWeights inside(s.average);
  CHECK(s.refusal({.steps = 4, .average = &s.average}) ==
        "run: the model has the averages inside; swap back before the run");
}

TEST_CASE("run: a log that a resumed run began is gone on with, however often the run is killed") {
  const TemporaryFolder folder;
  const std::filesystem::path log = folder.path / "log";
  RunOptions options{.steps = 3, .checkpoint = folder.path / "m.h5", .resume = true};
  PlaneRun().go(options);
  options.log = log;
  const auto resumed = [&](Index steps) {
    options.steps = steps;
    return PlaneRun().go(options).resumed_from;
  };
  // Killed twice before a checkpoint: in the first line, and when it had three.
  std::ofstream(log) << "{\"step\":4,\"lo";
  CHECK(resumed(3) == 3);
  CHECK(bytes_of(log).empty());
  CHECK(resumed(3) == 3);  // and when there was none
  std::ofstream(log) << "{\"step\":4}\n{\"step\":5}\n{\"step\":6}\n{\"st";
  CHECK(resumed(5) == 3);
  CHECK(steps_of(log) == std::vector<Index>{4, 5});
  CHECK(test::json_lines(log)[0].contains("loss"));
  // Zeros where the power went before the blocks were written; no log begins so, with bytes that are no text.
  const std::string zeros(40, '\0');
  for (const std::string& left : {zeros, zeros + "\"}\n{\"step\":7}\n", "{\"st" + zeros + "{\"step\":7}\n"}) {
    TemporaryFolder other;
    options.log = other.write("log", left);
    CHECK(resumed(5) == 5);
    CHECK(bytes_of(options.log).empty());
  }
  options.log = folder.write("foreign", zeros + "\1\2");
  CHECK(contains(PlaneRun().refusal(options), " ends before step 1 but the checkpoint is of step 5"));
  CHECK(bytes_of(options.log).size() == 42);
  options.log = log;
  // Killed twice behind it.
  for (const Index steps : {7, 8}) {
    const Index from = steps == 7 ? 5 : 7;
    std::ofstream(log, std::ios::app) << "{\"step\":" << from + 1 << "}\n{\"step\":";
    CHECK(resumed(steps) == from);
  }
  CHECK(steps_of(log) == std::vector<Index>{4, 5, 6, 7, 8});
  for (const nlohmann::json& entry : test::json_lines(log)) CHECK(entry.contains("loss"));
}

TEST_CASE("run: a checkpoint of another instruction set is told, and gone on from") {
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
           ": its bits may differ from those of a run on one instruction set (HEED_ARCH chooses it)\n";
  };
  testing::on_each_level([&] {
    PlaneRun().go(first);
    std::filesystem::copy_file(first.checkpoint, folder.path / "first.h5",
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(load_checkpoint(first.checkpoint).text("instruction_set") == arch());
    PlaneRun same, other, unknown;
    CHECK(contains(told(same, rest), "resumed at step 2\nstep 3/3"));
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

TEST_CASE("run: a checkpoint whose parts are not of one step is refused before anything of it is loaded") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "x.h5";
  PlaneRun s;
  RunOptions options{.steps = 6, .eval_every = 3, .checkpoint = file};
  s.go(options);
  options.resume = true;
  const Checkpoint good = load_checkpoint(file);
  const auto refused = [&](const std::string& sentence, auto&& change) {
    INFO(sentence);
    Checkpoint c = good;
    change(c);
    save_checkpoint(file, c);
    PlaneRun fresh;
    const Tensor before = fresh.model.up.weight.clone();
    CHECK(fresh.refusal(options) == sentence);
    CHECK(same_bits(fresh.model.up.weight, before));
    CHECK(fresh.optimizer.step_count() == 0);
  };
  const std::string name = file.string(), of = " of " + name, row = "; it must be a row of float64";
  const auto numbers = [](std::vector<double> x) { return Tensor::from(x, {static_cast<Index>(x.size())}); };
  refused("resume: history/loss" + of + " has 6 numbers; it must have 5", [](Checkpoint& c) { c.counters["step"] = 5; });
  refused("resume: " + name + " is of step 7 but its optimizer of step 6; they must be of one step",
          [](Checkpoint& c) { c.counters["step"] = 7; });
  refused("resume: " + name + " is of step 9223372036854775808; it must be at most 1099511627776",
          [](Checkpoint& c) { c.counters["step"] = std::uint64_t{1} << 63; });
  refused("resume: " + name + " is of step 6 but its optimizer of step 5; they must be of one step",
          [](Checkpoint& c) { c.tensors["optimizer/step_count"] = Tensor::scalar(5, DType::int32); });
  refused("resume: the optimizer in " + name + " took -1 steps with a parameter and 6 in all; each must be from 0 to that",
          [&](Checkpoint& c) {
            const Tensor steps = good.tensor("optimizer/steps").clone();
            steps.slice(0, 0, 1).fill_(-1);
            c.tensors["optimizer/steps"] = steps;
          });
  refused("resume: the counts of the optimizer in " + name +
              " are [1] int32 and [4] int32; they must be one number and a row of int32",
          [](Checkpoint& c) { c.tensors["optimizer/step_count"] = Tensor::zeros({1}, DType::int32); });
  refused("resume: history/loss" + of + " is [6] float32" + row,
          [](Checkpoint& c) { c.tensors["history/loss"] = Tensor::zeros({6}); });
  refused("resume: history/loss" + of + " is [2, 3] float64" + row,
          [](Checkpoint& c) { c.tensors["history/loss"] = Tensor::zeros({2, 3}, DType::float64); });
  refused("resume: history/validation_loss" + of + " has 1 numbers; it must have 2",
          [&](Checkpoint& c) { c.tensors["history/validation_loss"] = numbers({1}); });
  refused("resume: history/metric.accuracy" + of + " has 3 numbers; it must have 2",
          [&](Checkpoint& c) { c.tensors["history/metric.accuracy"] = numbers({1, 2, 3}); });
  for (const auto& [first, second, told] :
       {std::tuple{3.0, 7.0, "7"}, {6.0, 3.0, "3"}, {2.5, 6.0, "2.5"}, {-1.0, 6.0, "-1"}, {3.0, std::nan(""), "nan"}})
    refused("resume: " + name + " tells of an evaluation after step " + told +
                "; its evaluations must be after whole steps, in order, up to 6",
            [&, steps = numbers({first, second})](Checkpoint& c) { c.tensors["history/validation_step"] = steps; });
  save_checkpoint(file, good);
  PlaneRun again;
  CHECK(again.go(options).resumed_from == 6);
}
