// Properties that must be equal on all ranks of a run.
#include <heed/optim/run/properties.hpp>

#include "tests/optim/plane_run.hpp"
#include "tests/optim/thread_ranks.hpp"

using namespace heed;
using test::contains;
using test::HeldOutPlane;
using test::on_ranks;
using test::Plane;

TEST_CASE("run properties: different values on ranks are refused, and each is named") {
  using Change = std::function<void(int rank, RunOptions&, double& lr, std::uint64_t& weights)>;
  const auto reasons = [](const Change& change) {
    return on_ranks(2, [&](Ranks& ranks) {
      RunOptions o{.steps = 1, .shards = 2, .ranks = {.communicator = &ranks}};
      double lr = 1e-2;
      std::uint64_t weights = 3;
      change(ranks.rank(), o, lr, weights);
      Rng rng(weights);
      test::Regression model(rng);
      AdamW optimizer(named_parameters(model), {.lr = lr});
      Schedule schedule("constant", {.lr = lr});
      run(model, optimizer, schedule, Plane{}, HeldOutPlane{}, o);
    });
  };
  CHECK(reasons([](int, RunOptions&, double&, std::uint64_t&) {}).empty());
  const auto seed = reasons([](int rank, RunOptions& o, double&, std::uint64_t&) { o.seed = rank == 0 ? 1 : 7; });
  const std::string expected =
      "run: ranks differ in seed: it is 1 on rank 0 (thread 0) and 7 on rank 1 (thread 1); it must be the same on all "
      "ranks";
  CHECK(seed == std::map<int, std::string>{{0, expected}, {1, expected}});
  const auto difference = [&](auto change) { return reasons(change)[1]; };
  CHECK(contains(difference([](int rank, RunOptions&, double& lr, std::uint64_t&) { lr += rank; }),
                 "ranks differ in optimizer: it is AdamW 0.01"));
  CHECK(contains(difference([](int rank, RunOptions&, double&, std::uint64_t& weights) {
                   weights += static_cast<std::uint64_t>(rank);
                 }),
                 "ranks differ in the model's weights"));
  CHECK(contains(difference([](int rank, RunOptions& o, double&, std::uint64_t&) {
                   o.checkpoint.texts["note"] = rank == 0 ? "a" : "b";
                 }),
                 "ranks differ in the text note: it is a on rank 0"));
}
