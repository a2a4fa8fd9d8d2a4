// What a person sees of a run. Internal.
#pragma once
#include <heed/optim/detail/run_steps.hpp>
#include <optional>
#include <string>
#include <vector>

namespace heed::detail {

// Shows the progress of a run where it is to be shown, and on the first rank.
class RunProgress {
 public:
  explicit RunProgress(const RunState& run);  // which goes on from here

  // Of a run that continues from a checkpoint of this instruction set (empty: unknown), and what differs.
  void say_resumed(const std::string& saved_on, const std::vector<std::string>& changes);
  void evaluated(bool whole);  // on all batches, or on RunOptions::eval_batches
  // `seconds`: since the run began, for all that it does. `last`: no step comes after this one.
  void show(const RunStep& step, const RunSteps& steps, double seconds, bool last);
  bool pipe_is_broken() const { return progress_ && progress_->pipe_is_broken(); }  // who read it has gone
  void say(const std::string& text) {
    if (progress_) progress_->message(text);
  }
  void close() {
    if (progress_) progress_->close();
  }

 private:
  const RunState& run_;
  Index resumed_;  // steps that were done before
  std::optional<Progress> progress_;
  std::optional<double> floor_;  // of the batches that the last evaluation of this process saw
  double peak_ = 0;              // flops of the machine; 0: not measured yet
  int peaks_measured_ = 0;
};

}  // namespace heed::detail
