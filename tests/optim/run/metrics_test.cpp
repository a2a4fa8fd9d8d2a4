// Evaluations with several ranks.
#include <heed/optim/run/metrics.hpp>

#include "tests/optim/thread_ranks.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::on_ranks;

TEST_CASE("metrics: an evaluation of several ranks has the numbers of one process, and its errors on all") {
  struct Set {
    Index size() const { return 7; }
    Batch batch(Index i) const { return {Tensor::scalar(static_cast<double>(i)), {}, i == 3 ? 0 : 1 + i % 3}; }
  };
  const auto metrics_of = [](const Batch& b) {
    const double x = b.inputs.item();
    return Metrics{{"loss", 0.1 * x + 1e-3}, {"other", 1 / (x + 3)}};
  };
  const Metrics one = evaluate_metrics(metrics_of, Set{}), some = evaluate_metrics(metrics_of, Set{}, 5);
  for (const int size : {1, 2, 3, 8})
    CHECK(on_ranks(size, [&](Ranks& ranks) {
            const detail::RunRanks all({.communicator = &ranks}, size);
            require(detail::evaluate_metrics(metrics_of, Set{}, 0, all) == one, "other numbers");
            require(detail::evaluate_metrics(metrics_of, Set{}, 5, all) == some, "other numbers of some");
          }).empty());
  const auto missing = [&](const Batch& b) {
    Metrics m = metrics_of(b);
    if (b.inputs.item() == 2) m.erase("other");
    return m;
  };
  const auto on_two = [](const auto& metrics, const EvaluationSet& set) {
    return on_ranks(2, [&](Ranks& ranks) {
      detail::evaluate_metrics(metrics, set, 0, detail::RunRanks({.communicator = &ranks}, 2));
    });
  };
  const auto reasons = on_two(missing, Set{});
  CHECK(reasons.size() == 2);
  for (const auto& [rank, reason] : reasons)
    CHECK(contains(reason, "evaluate: batch 2 has the metrics \"loss\", but batch 0 has \"loss\" and \"other\""));
  struct Uncounted {  // only the batches of rank 1 have tensors
    Index size() const { return 4; }
    Batch batch(Index i) const { return {i % 2 == 1 ? Tensor::scalar(1) : Tensor(), {}, 0}; }
  };
  const auto uncounted = on_two(metrics_of, Uncounted{});
  CHECK(uncounted.size() == 2);
  for (const auto& [rank, reason] : uncounted) CHECK(contains(reason, "evaluate: all targets are ignored"));
}
