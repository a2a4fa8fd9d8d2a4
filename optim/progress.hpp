// What a person sees of a running training: one live line in a terminal, plain lines elsewhere.
#pragma once
#include <cstdio>
#include <heed/core/dtype.hpp>
#include <heed/optim/metrics.hpp>
#include <optional>
#include <string>

namespace heed {

struct ProgressState {
  Index step = 0, steps = 0;
  double loss = 0;                             // of this step
  Metrics other_losses = {};                   // of its further updates, by their names
  std::optional<double> validation_loss = {};  // the last one
  Metrics validation_metrics = {};             // what else the last evaluation told
  std::optional<double> floor = {};            // what no model can go below
  double tokens_per_second = 0;
  double share_of_peak = 0;  // 0: not known
  double seconds_left = 0;
};

// At most 80 columns where `brief`, for the usual terminal.
std::string progress_line(const ProgressState& state, bool brief = false);

// Writes to `file`. In a terminal the line is redrawn in place at most ten times per second; elsewhere a line is printed
// at evaluations, at the first and last step, and whenever `quiet_seconds` have passed.
class Progress {
 public:
  explicit Progress(std::FILE* file, double quiet_seconds = 30);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const ProgressState& state, bool important);
  void message(const std::string& text);  // a line of its own, above the live one
  void close();                           // ends the live line
  // Whether `file` is a pipe that nobody reads any more (where SIGPIPE does not end the program).
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
