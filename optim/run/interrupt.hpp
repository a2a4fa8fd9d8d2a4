// Records signals that request the end of the program, so that current work is finished and saved. For run() and for
// the programs of this repository; not installed.
#pragma once
#include <signal.h>

#include <array>
#include <csignal>

namespace heed::detail {

// During its lifetime, the first Ctrl-C, SIGTERM or SIGHUP is recorded; a second signal of the same kind ends the
// program. Signals that were ignored before (by nohup, or in background jobs of scripts) stay ignored. Writing to a
// pipe without a reader gives an error and no signal.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  bool requested() const;  // whether a signal was recorded

 private:
  static constexpr std::array<int, 4> kSignals = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  std::array<struct sigaction, kSignals.size()> before_ = {};  // actions to restore
};

}  // namespace heed::detail
