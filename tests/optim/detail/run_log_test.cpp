// The log of a run, over kills and resumes.
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

std::vector<Index> steps_of(const std::filesystem::path& log) {
  std::vector<Index> steps;
  for (const nlohmann::json& entry : test::json_lines(log)) steps.push_back(entry.at("step").get<Index>());
  return steps;
}

}  // namespace

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
