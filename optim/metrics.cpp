// What an evaluation tells: losses, and whatever else by name.
#include <cmath>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/optim/detail/run_ranks.hpp>
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
  return detail::evaluate_metrics(metrics, set, batches, nullptr);
}

}  // namespace heed
