// Signals that ask a program to end, noted, so that work in hand is finished and saved. Internal.
#pragma once
#include <signal.h>

#include <array>
#include <csignal>

namespace heed::detail {

// While it lives, Ctrl-C, SIGTERM and SIGHUP are noted once, and a second one of a kind ends the program as ever. What
// was ignored before (by nohup, or of a script's background jobs) stays ignored. Writing into a pipe that nobody reads
// is an error then and no signal.
class InterruptScope {
 public:
  explicit InterruptScope(bool on = true);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  bool asked() const;

 private:
  static constexpr std::array<int, 4> kSignals = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  bool on_;
  std::array<struct sigaction, kSignals.size()> before_ = {};
};

}  // namespace heed::detail
