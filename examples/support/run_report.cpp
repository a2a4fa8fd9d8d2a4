// Prints and draws the results of a run.
#include "examples/support/run_report.hpp"

#include <cstdio>
#include <heed/core/check.hpp>
#include <heed/optim/run/options.hpp>
#include <heed/plot/plot.hpp>

namespace heed::examples {

std::string above_floor(double loss, const StoryFloor& floor) {
  const double percent = 100 * (loss / floor.loss - 1);
  return detail::formatted("%.*f%% above the floor of %.4f (standard error %.4f)", percent < 100 ? 1 : 0, percent,
                           floor.loss, floor.standard_error);
}

void plot_accuracy(const std::filesystem::path& file, const RunResult& result, double baseline) {
  Series held_out{"held-out", {}, Series::line}, majority{"always the most common answer", {}, Series::dashed};
  const RunHistory& h = result.history;
  for (std::size_t i = 0; i < h.validation_metrics.size(); ++i)
    if (const auto found = h.validation_metrics[i].find("accuracy"); found != h.validation_metrics[i].end())
      held_out.points.emplace_back(static_cast<double>(h.validation_losses[i].first), found->second);
  majority.points = {{1, baseline}, {static_cast<double>(result.steps), baseline}};
  plot(file, {"Accuracy by step", "step", "accuracy"}, {held_out, majority});
}

void print_stopped(const RunResult& result, Index steps, const std::string& command) {
  const std::string of = steps < kUntilStopped ? " of " + std::to_string(steps) : "";
  std::fprintf(stderr, "stopped after step %lld%s; to continue: %s\n", static_cast<long long>(result.steps), of.c_str(),
               command.c_str());
}

}  // namespace heed::examples
