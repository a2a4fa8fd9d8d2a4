#include <heed/optim/run_history.hpp>
//
#include <algorithm>
#include <cmath>

namespace heed::detail {
namespace {

// Metrics stand in history/metric.NAME, one number an evaluation; NaN where the evaluation had none of the name.
const std::string kMetrics = "history/metric.";

Tensor to_tensor(const std::vector<double>& values) {
  return Tensor::from(values, {static_cast<Index>(values.size())});
}

void store_metrics(const RunHistory& history, Checkpoint& c) {
  std::map<std::string, std::vector<double>> columns;
  for (std::size_t i = 0; i < history.validation_metrics.size(); ++i)
    for (const auto& [name, value] : history.validation_metrics[i])
      columns.try_emplace(name, history.validation_metrics.size(), std::nan("")).first->second[i] = value;
  for (const auto& [name, values] : columns) c.tensors[kMetrics + name] = to_tensor(values);
}

void load_metrics(const Checkpoint& c, RunHistory& history) {
  history.validation_metrics.assign(history.validation_losses.size(), {});
  for (const auto& [path, tensor] : c.tensors) {
    if (!path.starts_with(kMetrics)) continue;
    const std::vector<double> values = tensor.to_vector<double>();
    for (std::size_t i = 0; i < std::min(values.size(), history.validation_metrics.size()); ++i)
      if (!std::isnan(values[i])) history.validation_metrics[i][path.substr(kMetrics.size())] = values[i];
  }
}

}  // namespace

void store_history(const RunHistory& history, Checkpoint& c) {
  std::vector<double> steps, values;
  for (const auto& [step, loss] : history.validation_losses) {
    steps.push_back(static_cast<double>(step));
    values.push_back(loss);
  }
  c.tensors["history/loss"] = to_tensor(history.losses);
  c.tensors["history/validation_step"] = to_tensor(steps);
  c.tensors["history/validation_loss"] = to_tensor(values);
  store_metrics(history, c);
}

RunHistory load_history(const Checkpoint& c) {
  RunHistory history;
  history.losses = c.tensor("history/loss").to_vector<double>();
  const std::vector<double> steps = c.tensor("history/validation_step").to_vector<double>(),
                            values = c.tensor("history/validation_loss").to_vector<double>();
  for (std::size_t i = 0; i < steps.size(); ++i)
    history.validation_losses.emplace_back(static_cast<Index>(steps[i]), values[i]);
  load_metrics(c, history);
  return history;
}

}  // namespace heed::detail
