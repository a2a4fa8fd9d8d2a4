// The mode of the current thread: recording on a tape or not, training or evaluating. Scopes change the mode and
// restore it. They may end in any order. A scope must end on the thread on which it began, or after that thread has
// ended. Otherwise the program ends with a message, because the mode of that thread would point to freed objects.
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
class Profiler;   // core/profiler.hpp
struct FirstRun;  // autograd/detail/tape_state.hpp

// The mode of one thread, read by ops.
struct Mode {
  Tape* tape = nullptr;      // innermost tape that records; null if none
  bool suspended = false;    // inside NoTape: results are constants
  bool training = false;     // dropout acts
  bool second_run = false;   // in the second run of recompute()'s function, which repeats the first
  FirstRun* first_run = nullptr;  // set in the first run of recompute()'s function, which may not use values of a tape
  // Notifies the tape of a copy made in core, by contiguous(), clone(), to() or reshape(), also inside NoTape. Null if
  // there is no tape.
  void (*copied)(Tensor& y, const Tensor& x) = nullptr;
  // Notifies the tape of copy_(), which it cannot record. Throws Error if a gradient would be lost. Set with `copied`.
  void (*written)(const Tensor& to, const Tensor& from) = nullptr;
  Profiler* profiler = nullptr;  // notified of ops and of other parts of a step; null if none
  ModeScope* scope = nullptr;    // latest scope that has not ended
};

Mode& mode();  // of this thread

// Changes the mode in its scope. A scope may end before a later one, as the old tape does in
// tape = std::make_unique<Tape>(). The changes of the later scopes are then applied again without the ended one.
class ModeScope {
 public:
  using Change = void (*)(Mode& m, void* of);
  explicit ModeScope(Change change, void* of = nullptr);
  ~ModeScope() { end(); }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

  void end() noexcept;             // on the thread of the scope, or after that thread ended; a second call does nothing
  bool is_of_this_thread() const;  // false once the scope or its thread has ended

 private:
  Change change_;
  void* of_;
  Mode* home_;   // mode of the scope's thread; null once the scope or the thread has ended
  Mode before_;  // mode outside this scope

  Mode inside();                         // mode inside this scope
  Mode without(const ModeScope& ended);  // removes an earlier scope that ended; returns the mode inside this scope
};

}  // namespace detail

// Whether this thread trains: a Tape turns training on, an Evaluation turns it off. Dropout acts only in training.
inline bool is_training() { return detail::mode().training; }

// Suspends recording in its scope: values computed there are constants for every tape.
class NoTape {
 public:
  NoTape();  // begins the scope on this thread

 private:
  detail::ModeScope scope_;
};

// Turns training off in its scope: dropout passes its input through. Recording is not affected.
class Evaluation {
 public:
  Evaluation();  // begins the scope on this thread

 private:
  detail::ModeScope scope_;
};

}  // namespace heed
