// The progress output of a run.
#include <algorithm>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/profiler.hpp>
#include <heed/optim/run/run_progress.hpp>

namespace heed::detail {

RunProgress::RunProgress(const RunState& run) : run_(run), resumed_(run.done) {
  std::FILE* file = run.options.output.progress;
  if (file != nullptr && run.ranks.is_first()) progress_.emplace(file);
}

void RunProgress::evaluated(bool whole) {
  const EvaluationOptions& e = run_.options.evaluation;
  floor_ = whole ? e.floor : e.batches_floor;
}

void RunProgress::show(const RunStep& s, const RunSteps& steps, double seconds, bool last) {
  if (!progress_) return;
  const RunOptions& o = run_.options;
  const ProfileScope scope("progress");
  ProgressState p;
  p.step = run_.done;
  p.steps = o.steps;
  p.loss = s.loss;
  for (const auto& [name, value] : s.others)
    if (name.starts_with("loss_")) p.other_losses[name.substr(5)] = value;
  if (!run_.history.validation_losses.empty()) p.validation_loss = run_.history.validation_losses.back().second;
  if (!run_.history.validation_metrics.empty()) p.validation_metrics = run_.history.validation_metrics.back();
  p.floor = floor_;
  p.tokens_per_second = steps.tokens_per_second();
  p.samples_per_second = steps.samples_per_second();
  if (o.output.flops_per_token > 0 && steps.seconds() > 1) {
    const double flops = o.output.flops_per_token * steps.read_per_second();
    // A peak below `flops` was measured while other work disturbed it, and is measured again. This is done four times
    // at most, because flops_per_token may be wrong.
    if (flops > peak_ && peaks_measured_++ < 4) peak_ = std::max(peak_, peak_flops(o.precision));
    p.share_of_peak = flops / peak_;
  }
  p.seconds_left = seconds / static_cast<double>(run_.done - resumed_) * static_cast<double>(o.steps - run_.done);
  if (o.seconds > 0) p.seconds_left = std::max(0.0, std::min(p.seconds_left, o.seconds - seconds));
  progress_->update(p, s.validation_loss.has_value() || run_.done == resumed_ + 1 || last);
}

void RunProgress::show_resumed(const std::string& saved_on, const std::vector<std::string>& changes) {
  if (!progress_ || resumed_ == 0) return;
  progress_->message("resumed at step " + std::to_string(resumed_));
  for (const std::string& change : changes) progress_->message("changed: " + change);
  if (!saved_on.empty() && !kernels::same_bits(saved_on.c_str(), arch()))
    progress_->message("the checkpoint was saved on " + saved_on + " but this run uses " + arch() +
                       "; its bits differ from those of a run with only one of them");
}

}  // namespace heed::detail
