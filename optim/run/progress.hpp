// The progress line of a run, in a terminal, a file or a pipe. run() prints it if OutputOptions::progress is set. Your
// own loop can print one, too.
//
// Example:
//
//   Progress progress(stdout);
//   for (Index step = 1; step <= 3; ++step)
//     progress.update({.step = step, .steps = 3, .loss = 1.0 / static_cast<double>(step)}, step == 3);
//   progress.message("done");
#pragma once
#include <cstdio>
#include <heed/core/dtype.hpp>
#include <heed/optim/run/evaluation.hpp>
#include <optional>
#include <string>

namespace heed {

// The values that a progress line shows.
struct ProgressState {
  Index step = 0, steps = 0;                   // steps: kUntilStopped if unknown
  double loss = 0;                             // of this step
  Metrics other_losses = {};                   // of the further updates of the step, by name
  std::optional<double> validation_loss = {};  // of the last evaluation
  Metrics validation_metrics = {};             // other metrics of the last evaluation
  std::optional<double> floor = {};            // lower bound of the validation loss
  double tokens_per_second = 0;                // for models of sequences
  double samples_per_second = 0;               // shown if tokens_per_second is 0
  double share_of_peak = 0;                    // 0: unknown
  double seconds_left = 0;                     // estimate; shown before the last step
};

// The text of a progress line. `brief`: shortened for a terminal of 80 columns.
std::string progress_line(const ProgressState& state, bool brief = false);

// Writes the progress of a run to `file`. In a terminal, one line is redrawn in place, at most ten times per second.
// Elsewhere, a line is printed for each important update and when `quiet_seconds` have passed since the last line.
class Progress {
 public:
  // `quiet_seconds`: longest time without a line if `file` is not a terminal.
  explicit Progress(std::FILE* file, double quiet_seconds = 30);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const ProgressState& state, bool important);  // important: always shown
  void message(const std::string& text);                    // prints its own line, above the progress line
  void close();                                             // ends the progress line
  // Whether `file` is a pipe without a reader. This is noticed only if SIGPIPE does not end the program.
  bool pipe_is_broken() const { return broken_; }

 private:
  std::FILE* file_;
  bool terminal_, open_ = false, broken_ = false;
  double quiet_seconds_, last_ = -1e300;
  ProgressState state_;
  void draw();
  void flush();
};

}  // namespace heed
