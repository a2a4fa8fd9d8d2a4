// Evaluations: the loss and other metrics, per batch and over sets.
#include <algorithm>
#include <cmath>
#include <heed/autograd/detail/loss_weight.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/core/profiler.hpp>
#include <heed/optim/run/metrics.hpp>
#include <sstream>

namespace heed {

// ---- Metrics of a batch ----

double classification_accuracy(const Tensor& logits, const Tensor& targets) {
  const NoTape no_tape;
  const Tensor best = argmax(logits.detach(), -1);
  require(best.shape() == targets.shape() && targets.dtype() == DType::int32, "classification_accuracy: logits are ",
          logits, " and targets are ", targets, "; targets must be int32 with the leading axes of the logits");
  const std::vector<std::int32_t> predicted = best.to_vector<std::int32_t>(), truth = targets.to_vector<std::int32_t>();
  double right = 0, counted = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    if (truth[i] == kIgnoreIndex) continue;
    counted += 1;
    right += predicted[i] == truth[i] ? 1 : 0;
  }
  return counted > 0 ? right / counted : std::nan("");
}

Metrics classification_metrics(const Tensor& logits, const Tensor& targets) {
  const NoTape no_tape;
  return {{"loss", cross_entropy(logits.detach(), targets).item()},
          {"accuracy", classification_accuracy(logits, targets)}};
}

// ---- Metrics of a set ----

double evaluate(const std::function<Tensor(const Batch&)>& loss, const EvaluationSet& set, Index batches) {
  const Metrics m = evaluate_metrics([&](const Batch& b) { return Metrics{{"loss", loss(b).item()}}; }, set, batches);
  return m.empty() ? std::nan("") : m.at("loss");
}

Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set, Index batches) {
  return detail::evaluate_metrics(metrics, set, batches, detail::RunRanks());
}

namespace detail {
namespace {

// Means over the targets of evaluation batches, which are added in order.
class MetricsMean {
 public:
  // `weight`: the divisor of the loss. Other metrics are means over `counted` targets. Throws Error if the metrics
  // differ from those of the first batch, or if there is no "loss".
  void add(Index batch, double counted, double weight, const Metrics& metrics);
  // Throws Error if no target counted in this number of batches, or if the weights add up to 0. `empty`: no batch had a
  // tensor, for the message.
  Metrics value(Index batches, bool empty) const;

 private:
  struct Sum {
    double sum = 0, weight = 0;
  };
  std::map<std::string, Sum> sums_;
  Metrics first_;  // of the first batch
  Index first_batch_ = 0;
};

void MetricsMean::add(Index batch, double counted, double weight, const Metrics& metrics) {
  if (!metrics.contains("loss"))
    fail("evaluate: batch ", batch, " has the metrics ", names_of(metrics),
         ", but no \"loss\"; metrics must include it");
  if (sums_.empty()) first_ = metrics, first_batch_ = batch;
  const auto same_name = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (!std::ranges::equal(metrics, first_, same_name))
    fail("evaluate: batch ", batch, " has the metrics ", names_of(metrics), ", but batch ", first_batch_, " has ",
         names_of(first_), "; all batches must have the same metrics");
  for (const auto& [name, value] : metrics) {
    Sum& s = sums_[name];
    const double of_value = name == "loss" ? weight : counted;
    if (of_value == 0 || (weight == 0 && std::isnan(value))) continue;  // a mean over nothing
    s.sum += of_value * value;
    s.weight += of_value;
  }
}

Metrics MetricsMean::value(Index batches, bool empty) const {
  if (batches == 0) return {};
  require(!sums_.empty() || !empty, "evaluate: all ", batches, " batches are empty: they have no tensors, and ",
          "Batch::counted is 0; the evaluation set must fill them");
  require(!sums_.empty(), "evaluate: all targets are ignored: Batch::counted, the number of other targets, is 0 ",
          "in all ", batches, " batches; it must be above 0 in at least one");
  require(sums_.at("loss").weight > 0, "evaluate: the target weights of all ", batches, " batches add up to ",
          sums_.at("loss").weight, "; at least one must be above 0");
  Metrics means;
  for (const auto& [name, s] : sums_) means[name] = s.sum / s.weight;
  return means;
}

// The results of an evaluation batch. If `counted` is 0, there are none.
struct OfBatch {
  bool has_tensors;
  double counted, weight = 0;  // of the loss
  Metrics metrics = {};

  // As a text, and from it.
  std::string packed() const {
    Packed p;
    p.add(has_tensors ? 1 : 0), p.add(counted), p.add(weight);
    for (const auto& [name, value] : metrics) p.add(name), p.add(value);
    return p.bytes();
  }
  static OfBatch unpacked(std::string bytes) {
    Packed p(std::move(bytes));
    OfBatch m{.has_tensors = p.number() > 0, .counted = p.number()};
    m.weight = p.number();
    while (!p.at_end()) {
      const std::string name = p.text();
      m.metrics[name] = p.number();
    }
    return m;
  }
};

OfBatch measure(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set, Index i) {
  const Batch b = set.batch(i);
  OfBatch m{.has_tensors = has_tensors(b), .counted = static_cast<double>(b.counted)};
  if (b.counted == 0) return m;
  const LossWeights weights;
  m.metrics = metrics(b);
  const auto loss = m.metrics.find("loss");
  if (loss == m.metrics.end()) return m;  // MetricsMean::add() throws Error, on all ranks
  m.weight = weights.of("evaluate", loss->second, m.counted);
  if (m.weight != 0 && std::isnan(loss->second))
    if (const std::string empty = empty_tensor(b); !empty.empty())
      fail("evaluate: the loss of batch ", i, " is nan: ", empty);
  return m;
}

}  // namespace

std::string names_of(const Metrics& metrics) {
  std::string names;
  std::size_t left = metrics.size();
  for (const auto& [name, value] : metrics) {
    names += "\"" + name + "\"";
    if (--left > 0) names += left == 1 ? " and " : ", ";
  }
  return names.empty() ? "none" : names;
}

void check_monitor(const std::string& monitor, const Metrics& metrics) {
  if (metrics.contains(monitor)) return;
  fail("run: evaluation.monitor is \"", monitor, "\", but the ",
       metrics.size() == 1 ? "only metric is " : "metrics are ", names_of(metrics));
}

bool has_tensors(const Batch& b) {
  return b.inputs.defined() || b.targets.defined() ||
         std::ranges::any_of(b.others, [](const auto& x) { return x.second.defined(); });
}

std::string empty_tensor(const Batch& b) {
  std::ostringstream text;
  const auto check_tensor = [&](std::string_view name, const Tensor& x) {
    if (text.view().empty() && x.defined() && x.numel() == 0)
      text << "the " << name << " of its batch have shape " << x.shape() << ", without elements";
  };
  check_tensor("inputs", b.inputs), check_tensor("targets", b.targets);
  for (const auto& [name, x] : b.others) check_tensor(name, x);
  return text.str();
}

Metrics evaluate_metrics(const std::function<Metrics(const Batch&)>& metrics, const EvaluationSet& set, Index batches,
                         const RunRanks& ranks) {
  const ProfileScope scope("evaluation");
  const NoTape no_tape;
  const Evaluation evaluation;
  const Index n = batches > 0 ? std::min(batches, set.size()) : set.size();
  MetricsMean mean;
  bool empty = true;
  ranks.each_in_order(
      n, [&](Index i) { return measure(metrics, set, i).packed(); },
      [&](Index i, std::string bytes) {
        const OfBatch m = OfBatch::unpacked(std::move(bytes));
        empty = empty && !m.has_tensors;
        if (m.counted > 0) mean.add(i, m.counted, m.weight, m.metrics);
      });
  return mean.value(n, empty);
}

}  // namespace detail
}  // namespace heed
