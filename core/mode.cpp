// The mode of a thread, and the scopes that change it. Scopes may end in any order.
#include <heed/core/check.hpp>
#include <heed/core/mode.hpp>

namespace heed {
namespace detail {

Mode& mode() {
  thread_local Mode m;
  return m;
}

ModeScope::ModeScope(Change change, void* of) : change_(change), of_(of), home_(&mode()) {
  // A scope that outlives its thread has no mode to restore.
  struct ThreadEnd {
    ~ThreadEnd() {
      for (ModeScope* s = mode().scope; s != nullptr; s = s->before_.scope) s->home_ = nullptr;
      mode() = Mode();
    }
  };
  thread_local ThreadEnd thread_end;
  before_ = *home_;
  *home_ = inside();
}

Mode ModeScope::inside() {
  Mode m = before_;
  m.scope = this;
  change_(m, of_);
  return m;
}

Mode ModeScope::without(const ModeScope& ended) {
  before_ = before_.scope == &ended ? ended.before_ : before_.scope->without(ended);
  return inside();
}

bool ModeScope::is_of_this_thread() const { return home_ == &mode(); }

void ModeScope::end() noexcept {
  if (home_ == nullptr) return;
  require(is_of_this_thread(),
          "Tape: a Tape, NoTape, Evaluation or Profile ends on another thread than it began on, and that thread is ",
          "still running; it must end on the thread where it began");
  *home_ = home_->scope == this ? before_ : home_->scope->without(*this);
  home_ = nullptr;
}

}  // namespace detail

NoTape::NoTape() : scope_([](detail::Mode& m, void*) { m.tape = nullptr, m.suspended = true; }) {}
Evaluation::Evaluation() : scope_([](detail::Mode& m, void*) { m.training = false; }) {}

}  // namespace heed
