#include "examples/support/run_report.hpp"

#include <cstdio>

#include "examples/support/plot.hpp"

namespace heed::examples {

void plot_losses(const std::filesystem::path& file, const RunResult& result, const std::optional<StoryFloor>& floor) {
  Series training{"training", {}, Series::thin_line}, validation{"validation", {}, Series::line},
      least{"floor: no model can be below", {}, Series::dashed};
  for (std::size_t i = 0; i < result.history.losses.size(); ++i)
    training.points.emplace_back(static_cast<double>(i + 1), result.history.losses[i]);
  for (const auto& [step, loss] : result.history.validation_losses)
    validation.points.emplace_back(static_cast<double>(step), loss);
  if (floor) least.points = {{1, floor->loss}, {static_cast<double>(result.steps), floor->loss}};
  plot(file, {"Loss by step", "step", "loss, nats a token"}, {training, validation, least});
}

std::string above_floor(double loss, const StoryFloor& floor) {
  const double percent = 100 * (loss / floor.loss - 1);
  char text[160];
  std::snprintf(text, sizeof text, "%.*f%% above the floor of %.4f (standard error %.4f)", percent < 100 ? 1 : 0,
                percent, floor.loss, floor.standard_error);
  return text;
}

void plot_accuracy(const std::filesystem::path& file, const RunResult& result, double baseline) {
  Series held_out{"held-out", {}, Series::line}, least{"always the commonest answer", {}, Series::dashed};
  const RunHistory& h = result.history;
  for (std::size_t i = 0; i < h.validation_metrics.size(); ++i)
    if (const auto found = h.validation_metrics[i].find("accuracy"); found != h.validation_metrics[i].end())
      held_out.points.emplace_back(static_cast<double>(h.validation_losses[i].first), found->second);
  least.points = {{1, baseline}, {static_cast<double>(result.steps), baseline}};
  plot(file, {"Accuracy by step", "step", "share of right answers"}, {held_out, least});
}

void say_stopped(const RunResult& result, Index steps, const std::string& command) {
  std::fprintf(stderr, "stopped after step %lld of %lld; to go on: %s\n", static_cast<long long>(result.steps),
               static_cast<long long>(steps), command.c_str());
}

}  // namespace heed::examples
