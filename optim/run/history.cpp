// The step and the history of a run in its checkpoint.
#include <cmath>
#include <heed/data/text.hpp>
#include <heed/optim/run/history.hpp>
#include <optional>

namespace heed::detail {
namespace {

// A metric is stored in history/metric.NAME, one number per evaluation; NaN if an evaluation does not have the metric.
const std::string kMetrics = "history/metric.";
const std::string kLosses = "history/loss.";  // of updates with their own loss, one number per step

// A row of the history. `count`: the required number of values, if known.
std::vector<double> row(const Checkpoint& c, const std::string& path, std::optional<std::size_t> count = {}) {
  const Tensor& x = c.tensor(path);
  require(x.rank() == 1 && x.dtype() == DType::float64, "resume: ", printable(path), " of ", c.source, " is ",
          x.shape(), " ", x.dtype(), "; it must be a float64 vector");
  const std::size_t found = static_cast<std::size_t>(x.numel());
  require(!count || found == *count, "resume: ", printable(path), " of ", c.source, " has ", found,
          " numbers; it must have ", count.value_or(found));
  return x.to_vector<double>();
}

}  // namespace

void store_history(const RunHistory& history, Checkpoint& c) {
  std::vector<double> steps, values;
  for (const auto& [step, loss] : history.validation_losses) {
    steps.push_back(static_cast<double>(step));
    values.push_back(loss);
  }
  c.tensors["history/loss"] = Tensor::from(history.losses);
  c.tensors["history/validation_step"] = Tensor::from(steps);
  c.tensors["history/validation_loss"] = Tensor::from(values);
  for (const auto& [name, losses] : history.other_losses) c.tensors[kLosses + name] = Tensor::from(losses);
  std::map<std::string, std::vector<double>> metrics;
  for (std::size_t i = 0; i < history.validation_metrics.size(); ++i)
    for (const auto& [name, value] : history.validation_metrics[i])
      metrics.try_emplace(name, history.validation_metrics.size(), std::nan("")).first->second[i] = value;
  for (const auto& [name, column] : metrics) c.tensors[kMetrics + name] = Tensor::from(column);
}

Index step_of(const Checkpoint& c, const std::vector<std::string>& optimizers) {
  constexpr std::uint64_t kMaxStep = std::uint64_t{1} << 40;
  const std::uint64_t step = c.counter("step");
  require(step <= kMaxStep, "resume: ", c.source, " is at step ", step, "; it must be at most ", kMaxStep);
  for (const std::string& section : optimizers) {
    const Tensor &count = c.tensor(section + "/step_count"), &steps = c.tensor(section + "/steps");
    require(count.rank() == 0 && count.dtype() == DType::int32 && steps.rank() == 1 && steps.dtype() == DType::int32,
            "resume: step_count and steps of ", section, " in ", c.source, " are ", count, " and ", steps,
            "; they must be an int32 scalar and an int32 vector");
    const Index counted = count.item<Index>();
    require(counted >= static_cast<Index>(step), "resume: ", c.source, " is at step ", step, " but its ", section,
            " made ", counted, " steps; it must have made at least ", step);
    for (const std::int32_t n : steps.to_vector<std::int32_t>())
      require(n >= 0 && n <= counted, "resume: the ", section, " in ", c.source, " made ", n,
              " steps with a parameter; this must be from 0 to all its steps, ", counted);
  }
  return static_cast<Index>(step);
}

RunHistory load_history(const Checkpoint& c, Index step) {
  RunHistory history;
  history.losses = row(c, "history/loss", static_cast<std::size_t>(step));
  const std::vector<double> steps = row(c, "history/validation_step"),
                            values = row(c, "history/validation_loss", steps.size());
  double before = 0;
  for (std::size_t i = 0; i < steps.size(); before = steps[i++]) {
    require(steps[i] >= before && steps[i] <= static_cast<double>(step) && steps[i] == std::floor(steps[i]),
            "resume: ", c.source, " has an evaluation after step ", steps[i],
            "; evaluations must be after whole steps, in order, up to ", step);
    history.validation_losses.emplace_back(static_cast<Index>(steps[i]), values[i]);
  }
  history.validation_metrics.resize(steps.size());
  for (const auto& [path, tensor] : c.tensors) {
    if (path.starts_with(kLosses))
      history.other_losses[path.substr(kLosses.size())] = row(c, path, static_cast<std::size_t>(step));
    if (!path.starts_with(kMetrics)) continue;
    const std::vector<double> metric = row(c, path, steps.size());
    for (std::size_t i = 0; i < metric.size(); ++i)
      if (!std::isnan(metric[i])) history.validation_metrics[i][path.substr(kMetrics.size())] = metric[i];
  }
  return history;
}

Index best_evaluation(const RunHistory& history, const EvaluationOptions& options, Index from) {
  const std::string& name = options.monitor;
  Index best = -1;
  double value = 0;
  for (std::size_t i = 0; i < history.validation_losses.size(); ++i) {
    const Metrics& metrics = history.validation_metrics[i];
    if (history.validation_losses[i].first <= from) continue;
    if (name != "loss" && metrics.count(name) == 0) continue;  // evaluations of an older run may not have it
    const double x = name == "loss" ? history.validation_losses[i].second : metrics.at(name);
    if (std::isnan(x) || (best >= 0 && (options.maximize ? x <= value : x >= value))) continue;
    best = static_cast<Index>(i), value = x;
  }
  return best;
}

}  // namespace heed::detail
