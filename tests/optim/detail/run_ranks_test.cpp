// What ranks tell each other: numbers that all then have, and what must not differ.
#include <heed/optim/detail/run_ranks.hpp>

#include "tests/optim/plane_run.hpp"
#include "tests/optim/thread_ranks.hpp"

using namespace heed;
using test::contains;
using test::HeldOutPlane;
using test::on_ranks;
using test::Plane;

TEST_CASE("run_ranks: sums, answers and losses are the same on all") {
  for (const int size : {1, 2, 3}) {
    CHECK(on_ranks(size, [&](Ranks& all) {
            detail::RunRanks ranks(&all, 5);
            double numbers[] = {1, static_cast<double>(all.rank())};
            ranks.sum(numbers);
            require(numbers[0] == size && numbers[1] == size * (size - 1) / 2, "another sum");
            require(ranks.any(all.rank() == size - 1) && !ranks.any(false), "another answer");
            ranks.start_sum({1.0 + all.rank(), 10});
            require(ranks.finish_sum() == std::vector<double>{size * (size + 1) / 2.0, 10.0 * size}, "another sum");
            // 1e16 + 1 + 1 + 1 - 1e16, of five shards in their order, is 0 and nothing else.
            const std::vector<double> losses = {1e16, 1, 1, 1, -1e16};
            bool flags[] = {all.rank() == size - 1, false, all.rank() == 0};
            ranks.start_sum_of_shards({losses.begin() + ranks.begin(), losses.begin() + ranks.end()}, flags);
            ranks.start_sum({0.5});  // beside it
            require(ranks.finish_sum() == std::vector<double>{size / 2.0}, "another sum");
            const double sum = ranks.finish_sum_of_shards(flags);
            require(flags[0] && !flags[1] && flags[2], "another flag");
            require(sum == (((1e16 + 1) + 1) + 1) - 1e16, "another order");
          }).empty());
  }
}

TEST_CASE("run_ranks: an evaluation has the numbers of one process, and its errors on all") {
  struct Set {
    Index size() const { return 7; }
    Batch batch(Index i) const { return {Tensor::scalar(static_cast<double>(i)), {}, i == 3 ? 0 : 1 + i % 3}; }
  };
  const auto told = [](const Batch& b) {
    const double x = b.inputs.item();
    return Metrics{{"loss", 0.1 * x + 1e-3}, {"other", 1 / (x + 3)}};
  };
  const Metrics one = evaluate_metrics(told, Set{}), some = evaluate_metrics(told, Set{}, 5);
  for (const int size : {1, 2, 3, 8})
    CHECK(on_ranks(size, [&](Ranks& ranks) {
            require(detail::evaluate_metrics(told, Set{}, 0, &ranks) == one, "other numbers");
            require(detail::evaluate_metrics(told, Set{}, 5, &ranks) == some, "other numbers of some");
          }).empty());
  const auto missing = [&](const Batch& b) {
    Metrics m = told(b);
    if (b.inputs.item() == 2) m.erase("other");
    return m;
  };
  const auto reasons = on_ranks(2, [&](Ranks& ranks) { detail::evaluate_metrics(missing, Set{}, 0, &ranks); });
  CHECK(reasons.size() == 2);
  for (const auto& [rank, reason] : reasons)
    CHECK(contains(reason, "evaluate: batch 2 has 1 numbers, the first had 2"));
}

TEST_CASE("run_ranks: those that differ are refused, and each is told") {
  using Change = std::function<void(int rank, RunOptions&, double& lr, std::uint64_t& weights)>;
  const auto reasons = [](const Change& change) {
    return on_ranks(2, [&](Ranks& ranks) {
      RunOptions o{.steps = 1, .shards = 2, .ranks = &ranks};
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
  const std::string told =
      "run: ranks differ in seed: it is 1 on rank 0 (thread 0) and 7 on rank 1 (thread 1); it must be the same on all";
  CHECK(seed == std::map<int, std::string>{{0, told}, {1, told}});
  const auto difference = [&](auto change) { return reasons(change)[1]; };
  CHECK(contains(difference([](int rank, RunOptions&, double& lr, std::uint64_t&) { lr += rank; }),
                 "ranks differ in optimizer: it is AdamW 0.01"));
  CHECK(contains(difference([](int rank, RunOptions&, double&, std::uint64_t& weights) {
                   weights += static_cast<std::uint64_t>(rank);
                 }),
                 "ranks differ in the model's weights"));
  CHECK(contains(difference([](int rank, RunOptions& o, double&, std::uint64_t&) {
                   o.texts["note"] = rank == 0 ? "a" : "b";
                 }),
                 "ranks differ in the text note: it is a on rank 0"));
}

