// The log of a run: its lines, and where it goes on over kills and resumes.
#include <fstream>
#include <heed/optim/detail/run_log.hpp>

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

std::vector<Index> steps_of(const std::filesystem::path& log) {
  std::vector<Index> steps;
  for (const nlohmann::json& entry : test::json_lines(log)) steps.push_back(entry.at("step").get<Index>());
  return steps;
}

}  // namespace

TEST_CASE("run: a log that a resumed run began is gone on with, however often the run is killed") {
  const TemporaryFolder folder;
  const std::filesystem::path log = folder.path / "log";
  RunOptions options{.steps = 3, .checkpoint = folder.path / "m.h5", .start = RunStart::resume_or_start};
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

TEST_CASE("run log: a line per step, in the order of the step's parts, rounded speeds and no number for NaN") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "log";
  {
    detail::RunLog log(file, {});
    log.write({.step = 1, .loss = 2.5, .lr = 0.125, .grad_norm = 3, .tokens_per_second = 1234.56});
    log.write({.step = 2,
               .loss = test::kNaN,
               .lr = 0.25,
               .grad_norm = test::kInf,
               .tokens_per_second = 0.4,
               .others = {{"lr_generator", 0.5}, {"loss_generator", 7}},
               .validation_loss = 1.5,
               .validation_metrics = {{"accuracy", 0.75}}});
  }
  CHECK(bytes_of(file) ==
        "{\"step\":1,\"loss\":2.5,\"lr\":0.125,\"grad_norm\":3.0,\"tokens_per_second\":1235.0}\n"
        "{\"step\":2,\"loss\":null,\"lr\":0.25,\"grad_norm\":null,\"tokens_per_second\":0.0,"
        "\"loss_generator\":7.0,\"lr_generator\":0.5,\"val_loss\":1.5,\"val_accuracy\":0.75}\n");
}

TEST_CASE("run log: what lies behind the last step goes with the first line that is written, not before") {
  const TemporaryFolder folder;
  const std::string two = "{\"step\":1,\"loss\":4}\n{\"step\":2,\"loss\":3}\n",
                    behind = "{\"step\":3,\"loss\":9}\n{\"st";
  const std::filesystem::path file = folder.write("log", two + behind);
  { const detail::RunLog unwritten(file, {4, 3}); }
  CHECK(bytes_of(file) == two + behind);
  {
    detail::RunLog log(file, {4, 3});
    log.write({.step = 3, .loss = 2});
  }
  CHECK(bytes_of(file).starts_with(two + "{\"step\":3,\"loss\":2.0,"));
  CHECK(steps_of(file) == std::vector<Index>{1, 2, 3});
  // Another loss of the last step is of another run; a missing step is told by its number.
  CHECK(test::error_of([&] {
          detail::RunLog(file, {4, 3.5});
        }) == "log: " + file.string() +
                  " is of another run: the loss of step 2 is 3 there and 3.5 in the checkpoint; give the "
                  "log that belongs to it, or another file");
  CHECK(test::error_of([&] {
          detail::RunLog(file, {4, 3, 2, 1});
        }) == "log: " + file.string() +
                  " ends before step 4 but the checkpoint is of step 4; give the log that belongs to it, "
                  "or another file");
  // No losses begin it anew, and no path is no log.
  {
    detail::RunLog log(file, {});
    log.write({.step = 1, .loss = 8});
  }
  CHECK(steps_of(file) == std::vector<Index>{1});
  detail::RunLog("", {1, 2}).write({.step = 3});
}
