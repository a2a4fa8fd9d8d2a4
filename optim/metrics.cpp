#include <algorithm>
#include <cmath>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/core/detail/profiler.hpp>
#include <heed/optim/run_loop.hpp>

namespace heed {

double classification_accuracy(const Tensor& logits, const Tensor& targets) {
  const NoTape no_tape;
  const Tensor best = argmax(logits.detach(), -1);
  require(best.shape() == targets.shape() && targets.dtype() == DType::int32, "classification_accuracy: logits are ",
          logits, " and targets ", targets, "; targets must be int32 of the logits' leading axes");
  const std::vector<std::int32_t> said = best.to_vector<std::int32_t>(), truth = targets.to_vector<std::int32_t>();
  double right = 0, counted = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if (truth[i] == kIgnoreIndex) continue;
    counted += 1;
    right += said[i] == truth[i] ? 1 : 0;
  }
  return counted > 0 ? right / counted : std::nan("");
}

Metrics classification_metrics(const Tensor& logits, const Tensor& targets) {
  const NoTape no_tape;
  return {{"loss", cross_entropy(logits.detach(), targets).item()},
          {"accuracy", classification_accuracy(logits, targets)}};
}

double evaluate(const std::function<Tensor(const Batch&)>& loss, const EvaluationSet& set, Index batches) {
  const Metrics m = evaluate_metrics([&](const Batch& b) { return Metrics{{"loss", loss(b).item()}}; }, set, batches);
  return m.empty() ? std::nan("") : m.at("loss");
}

Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set, Index batches) {
  const detail::ProfileScope scope("evaluation");
  const NoTape no_tape;
  const Evaluation evaluation;
  const Index n = batches > 0 ? std::min(batches, set.size()) : set.size();
  Metrics sums;
  double counted = 0;
  for (Index i = 0; i < n; ++i) {
    const Batch b = set.batch(i);
    const auto weight = static_cast<double>(b.counted);
    if (weight == 0) continue;
    const Metrics of_batch = metrics(b);
    const bool first = counted == 0;
    require(of_batch.count("loss") == 1 && (first || of_batch.size() == sums.size()), "evaluate: batch ", i, " has ",
            of_batch.size(), " numbers, the first had ", sums.size(), "; each must have the same, among them the loss");
    for (const auto& [name, value] : of_batch) {
      require(first || sums.count(name) == 1, "evaluate: batch ", i, " has the number ", name,
              ", which the first had not; each must have the same");
      sums[name] += weight * value;
    }
    counted += weight;
  }
  require(n == 0 || counted > 0,
          "evaluate: all targets are ignored: Batch::counted, the number of those that are not, is 0 in each of the ",
          n, " batches; it must be above 0 in one");
  for (auto& [name, sum] : sums) sum /= counted;
  return sums;
}

}  // namespace heed
