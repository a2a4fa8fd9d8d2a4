// What the current thread is doing: recording on a tape or not, training or evaluating. Scopes set it and put it back.
#pragma once
#include <cstdint>

namespace heed {

class Tensor;
class Tape;

namespace detail {

struct FirstRun;  // autograd/tape_state.hpp

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
};

Mode& mode();  // of this thread

}  // namespace detail

inline bool is_training() { return detail::mode().training; }

// Suspends recording: what is computed inside is constant for every tape.
class NoTape {
 public:
  NoTape();
  ~NoTape();
  NoTape(const NoTape&) = delete;
  NoTape& operator=(const NoTape&) = delete;

 private:
  detail::Mode previous_;
};

// Suspends training: dropout passes everything through. Recording goes on as it was.
class Evaluation {
 public:
  Evaluation() : previous_(detail::mode().training) { detail::mode().training = false; }
  ~Evaluation() { detail::mode().training = previous_; }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;

 private:
  bool previous_;
};

}  // namespace heed
