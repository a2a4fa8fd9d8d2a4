// Shows the progress of run(): fills the progress line from its state. Private to optim/run.
#pragma once
#include <heed/optim/run/progress.hpp>
#include <heed/optim/run/steps.hpp>
#include <optional>
#include <string>
#include <vector>

namespace heed::detail {

// Shows the progress of a run on rank 0 if OutputOptions::progress is set.
class RunProgress {
 public:
  explicit RunProgress(const RunState& run);  // the run continues from its current state

  // Reports that the run continues from a checkpoint of this instruction set (empty: unknown), and the differences.
  void show_resumed(const std::string& saved_on, const std::vector<std::string>& changes);
  void evaluated(bool whole);  // call before an evaluation of all batches, or else of EvaluationOptions::batches
  // `seconds`: time since the run began. `last`: no step follows.
  void show(const RunStep& step, const RunSteps& steps, double seconds, bool last);
  bool pipe_is_broken() const { return progress_ && progress_->pipe_is_broken(); }  // it has no reader
  void message(const std::string& text) {
    if (progress_) progress_->message(text);
  }
  void close() {
    if (progress_) progress_->close();
  }

 private:
  const RunState& run_;
  Index resumed_;  // steps done before this run
  std::optional<Progress> progress_;
  std::optional<double> floor_;  // for the batches of the last evaluation in this process
  double peak_ = 0;              // flops per second of the machine; 0: not measured yet
  int peaks_measured_ = 0;
};

}  // namespace heed::detail
