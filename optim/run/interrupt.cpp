// Records signals that request the end of the program.
#include <heed/optim/run/interrupt.hpp>

namespace heed::detail {
namespace {

volatile std::sig_atomic_t interrupted = 0;

extern "C" void note_interrupt(int) { interrupted = 1; }

}  // namespace

InterruptScope::InterruptScope() {
  interrupted = 0;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler == SIG_IGN) continue;
    struct sigaction now = {};
    now.sa_handler = kSignals[i] == SIGPIPE ? SIG_IGN : note_interrupt;
    now.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
    ::sigaction(kSignals[i], &now, nullptr);
  }
}

InterruptScope::~InterruptScope() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

bool InterruptScope::requested() const { return interrupted != 0; }

}  // namespace heed::detail
