// The state of a run between two steps: names of its parts, and the rank that writes files.
#include <heed/optim/run/state.hpp>

#include "tests/optim/plane_run.hpp"
#include "tests/optim/thread_ranks.hpp"

using namespace heed;
using test::on_ranks;
using test::PlaneRun;

TEST_CASE("run state: in a checkpoint, parts of the first update have plain names, others a name or number") {
  PlaneRun a, b, c;
  RunParts parts;
  parts.updates.push_back({a.optimizer, a.schedule, {}, "unused"});
  parts.updates.push_back({b.optimizer, b.schedule});
  parts.updates.push_back({c.optimizer, c.schedule, {}, "x"});
  const RunOptions options;
  const detail::RunState run(std::move(parts), options);
  CHECK(run.done == 0);
  CHECK(run.named("optimizer", 0) == "optimizer");
  CHECK(run.named("optimizer", 1) == "optimizer.2");
  CHECK(run.named("schedule", 2) == "schedule.x");
}

TEST_CASE("run state: files are the first rank's") {
  const auto file_of = [](Ranks* ranks) {
    PlaneRun s;
    RunParts parts;
    parts.updates.push_back({s.optimizer, s.schedule});
    const RunOptions options{.shards = 2, .ranks = {.communicator = ranks}};
    return detail::RunState(std::move(parts), options).of_first("log");
  };
  CHECK(file_of(nullptr) == "log");
  CHECK(on_ranks(2, [&](Ranks& ranks) {
          require(file_of(&ranks) == (ranks.rank() == 0 ? "log" : ""), "another file");
        }).empty());
}

TEST_CASE("run state: weights are kept every keep_every steps, or with checkpoints") {
  CHECK(detail::keep_every({}) == 0);
  CHECK(detail::keep_every({.checkpoint = {.every = 5}}) == 5);
  CHECK(detail::keep_every({.keep_every = 2, .checkpoint = {.every = 5}}) == 2);
}
