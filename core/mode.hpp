// What the current thread is doing: recording on a tape or not, training or evaluating. Scopes set it and put it back.
// They may end in any order, but on the thread on which they began, or after that thread ended: anything else ends the
// program with a message, as the other thread's mode would point to what is gone.
//
// Example:
//
//   {
//     Evaluation evaluation;  // dropout is off
//     NoTape no_tape;         // and nothing is recorded
//   }
#pragma once
#include <cstdint>

namespace heed {

class Tensor;
class Tape;

namespace detail {

class ModeScope;
class Profiler;   // core/detail/profiler.hpp
struct FirstRun;  // autograd/detail/tape_state.hpp

struct Mode {
  Tape* tape = nullptr;      // the innermost tape that records, null if none
  bool suspended = false;    // inside NoTape: results are constants
  bool training = false;     // dropout acts
  FirstRun* first_run = nullptr;  // of recompute's function, which goes on: what belongs to a tape may not be used
  // How a tape hears of the few copies that core makes by itself (contiguous, clone, to, reshape), also of those under
  // NoTape; null if there is no tape.
  void (*copied)(Tensor& y, const Tensor& x) = nullptr;
  // How a tape hears of copy_(), which it cannot record: Error where a gradient would be lost. Set with `copied`.
  void (*written)(const Tensor& to, const Tensor& from) = nullptr;
  Profiler* profiler = nullptr;  // hears of ops and of the other parts of a step; null if there is none
  ModeScope* scope = nullptr;  // the one that began last, of those that have not ended
};

Mode& mode();  // of this thread

// A change of the mode for as long as this lives. Where a scope ends before one that began later, as the old tape does
// in tape = std::make_unique<Tape>(), the changes of the later ones are made anew without it.
class ModeScope {
 public:
  using Change = void (*)(Mode& m, void* of);
  explicit ModeScope(Change change, void* of = nullptr);
  ~ModeScope() { end(); }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

  void end() noexcept;             // once; the thread that it began on must be this one, or gone
  bool is_of_this_thread() const;  // false also once it or its thread ended

 private:
  Change change_;
  void* of_;
  Mode* home_;   // of its thread; null once this or the thread ended
  Mode before_;  // as it is outside of this scope

  Mode inside();
  Mode without(const ModeScope& ended);  // inside of this scope, which began after the one that ends
};

}  // namespace detail

inline bool is_training() { return detail::mode().training; }

// Suspends recording: what is computed inside is constant for every tape.
class NoTape {
 public:
  NoTape();

 private:
  detail::ModeScope scope_;
};

// Suspends training: dropout passes everything through. Recording goes on as it was.
class Evaluation {
 public:
  Evaluation();

 private:
  detail::ModeScope scope_;
};

}  // namespace heed
