// Kernels of ctc_loss(): sums over the paths of one sequence, in float64.
#pragma once
#include <stdint.h>

#include "../dispatch/dispatch.hpp"

namespace heed::kernels {

// The labels of a sequence, with a blank before, between and after them, are its states 0, 1, ..., 2 * count.
template <class T>
struct CtcSequence {
  const T* log_probs;  // [steps, classes]
  int64_t steps, classes;
  const int32_t* labels;  // [count], without blanks
  int64_t count;
  int32_t blank;
};

// Numbers of a row of states: 8 before the states, and 8 or more after them, are -inf.
constexpr int64_t ctc_row(int64_t count) { return 8 + (2 * count + 1 + 7) / 8 * 8 + 8; }
// Numbers of work memory, aligned to 64 bytes, of each kernel.
constexpr int64_t ctc_forward_work(int64_t count) { return 4 * ctc_row(count); }
constexpr int64_t ctc_backward_work(int64_t steps, int64_t count) { return (steps + 4) * ctc_row(count); }

template <class T>
struct CtcKernels {
  // -log of the sum of the probabilities of all paths.
  double (*forward)(const CtcSequence<T>& x, double* work);
  // gradient [steps, classes] = (or +=, if `accumulate`) scale times the derivative of the loss.
  void (*backward)(const CtcSequence<T>& x, double scale, T* gradient, bool accumulate, double* work);
};

using CtcTable = FloatTable<CtcKernels>;
const CtcTable& ctc_table();  // for the level in use

}  // namespace heed::kernels
