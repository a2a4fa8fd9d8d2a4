// What an evaluation tells: losses, and whatever else by name.
#include <cmath>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/core/detail/profiler.hpp>
#include <heed/optim/detail/messages.hpp>
#include <heed/optim/detail/metrics.hpp>

namespace heed {

// ---- Of a batch ----

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

// ---- Of a set ----

double evaluate(const std::function<Tensor(const Batch&)>& loss, const EvaluationSet& set, Index batches) {
  const Metrics m = evaluate_metrics([&](const Batch& b) { return Metrics{{"loss", loss(b).item()}}; }, set, batches);
  return m.empty() ? std::nan("") : m.at("loss");
}

Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set, Index batches) {
  return detail::evaluate_metrics(metrics, set, batches, nullptr);
}

namespace detail {
namespace {

// Means over the counted targets of evaluation batches that come in order.
class MetricsMean {
 public:
  void add(Index batch, double counted, const Metrics& metrics);  // Error where it has other numbers than the first
  Metrics value(Index batches) const;                             // Error where no target of so many counted

 private:
  Metrics sums_;
  double counted_ = 0;
};

void MetricsMean::add(Index batch, double counted, const Metrics& metrics) {
  const bool first = counted_ == 0;
  require(metrics.count("loss") == 1 && (first || metrics.size() == sums_.size()), "evaluate: batch ", batch, " has ",
          metrics.size(), " numbers, the first had ", sums_.size(), "; each must have the same, among them the loss");
  for (const auto& [name, value] : metrics) {
    require(first || sums_.count(name) == 1, "evaluate: batch ", batch, " has the number ", name,
            ", which the first had not; each must have the same");
    sums_[name] += counted * value;
  }
  counted_ += counted;
}

Metrics MetricsMean::value(Index batches) const {
  require(batches == 0 || counted_ > 0,
          "evaluate: all targets are ignored: Batch::counted, the number of those that are not, is 0 in each of the ",
          batches, " batches; it must be above 0 in one");
  Metrics means = sums_;
  for (auto& [name, sum] : means) sum /= counted_;
  return means;
}

}  // namespace

Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set, Index batches,
                         Ranks* ranks) {
  const ProfileScope scope("evaluation");
  const NoTape no_tape;
  const Evaluation evaluation;
  const Index n = batches > 0 ? std::min(batches, set.size()) : set.size();
  const Index me = ranks == nullptr ? 0 : ranks->rank(), size = ranks == nullptr ? 1 : ranks->size();
  MetricsMean mean;
  Packed mine;
  for (Index i = me; i < n; i += size) {
    const Batch b = set.batch(i);
    const auto counted = static_cast<double>(b.counted);
    const Metrics told = counted > 0 ? metrics(b) : Metrics();
    if (ranks == nullptr) {
      if (counted > 0) mean.add(i, counted, told);
      continue;
    }
    mine.add(counted), mine.add(static_cast<double>(told.size()));
    for (const auto& [name, value] : told) mine.add(name), mine.add(value);
  }
  if (ranks == nullptr) return mean.value(n);
  std::vector<Packed> all;
  for (std::string& bytes : all_gather(*ranks, mine.bytes())) all.emplace_back(std::move(bytes));
  for (Index i = 0; i < n; ++i) {
    Packed& from = all[static_cast<std::size_t>(i % size)];
    const double counted = from.number();
    Metrics told;
    for (double left = from.number(); left > 0; --left) {
      const std::string name = from.text();
      told[name] = from.number();
    }
    if (counted > 0) mean.add(i, counted, told);
  }
  return mean.value(n);
}

}  // namespace detail
}  // namespace heed
