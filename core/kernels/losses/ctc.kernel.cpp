// CTC: the probability of all paths through the states of a sequence, and its derivative. Sums are sums of logarithms,
// so that paths of any probability count.
#include "ctc.hpp"

#include "../simd/lane_sums.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace {

using Row = Batch<double>;

// log(e^a + e^b + e^c)
Row log_sum(Row a, Row b, Row c) {
  const Row top = quick_max(quick_max(a, b), c);
  const Row base = select(top > minus_infinity<double>(), top, Row(0.));
  return base + log(exp(a - base) + exp(b - base) + exp(c - base));
}

// The index of state 0 in a row.
constexpr int64_t kFirst = 8;

template <class T>
struct Lattice {
  const CtcSequence<T>& x;
  int64_t row, states;
  double *skip, *emit;  // skip: 0 if a path may go from s - 2 to s, else -inf; emit: the log probabilities of a step

  // The rest of the work memory follows at emit + row.
  Lattice(const CtcSequence<T>& sequence, double* work)
      : x(sequence), row(ctc_row(sequence.count)), states(2 * sequence.count + 1), skip(work), emit(work + row) {
    clear(skip), clear(emit);
    for (int64_t i = 1; i < x.count; ++i)
      if (x.labels[i] != x.labels[i - 1]) skip[kFirst + 2 * i + 1] = 0;
  }
  int32_t label(int64_t s) const { return s % 2 == 0 ? x.blank : x.labels[s / 2]; }
  void clear(double* states_of) const {
    for (int64_t i = 0; i < row; ++i) states_of[i] = -kInfinity<double>;
  }
  void emit_step(int64_t t) const {
    const T* p = x.log_probs + t * x.classes;
    for (int64_t s = 0; s < states; ++s) emit[kFirst + s] = static_cast<double>(p[label(s)]);
  }

  // before[s] = log of the probability of all beginnings of paths that are in state s at step t, with step t. `last` is
  // the row of the previous step, null for step 0.
  void step_forward(int64_t t, const double* last, double* before) const {
    emit_step(t);
    clear(before);
    if (last == nullptr) {
      before[kFirst] = emit[kFirst];
      if (states > 1) before[kFirst + 1] = emit[kFirst + 1];
      return;
    }
    for (int64_t i = kFirst; i < kFirst + states; i += kWidth<double>) {
      const Row sum = log_sum(load(last + i), load(last + i - 1), load(last + i - 2) + load(skip + i));
      store(before + i, load(emit + i) + sum);
    }
  }
  // log of the probability of all paths, from the row of the last step.
  double total(const double* before) const {
    const double *end = before + kFirst + states - 1, other = states > 1 ? end[-1] : -kInfinity<double>;
    return first_lane(log_sum(Row(*end), Row(other), minus_infinity<double>()));
  }
  // after[s] becomes the log of the probability of all ends of paths that are in state s at a step, without that step;
  // it was that of the next step, whose emissions are given.
  void step_backward(double* after) const {
    for (int64_t i = 0; i < row; i += kWidth<double>) store(after + i, load(after + i) + load(emit + i));
    for (int64_t i = kFirst; i < kFirst + states; i += kWidth<double>)  // reads only what is not written yet
      store(after + i, log_sum(load(after + i), load(after + i + 1), load(after + i + 2) + load(skip + i + 2)));
  }
};

template <class T>
double forward(const CtcSequence<T>& x, double* work) {
  const Lattice<T> lattice(x, work);
  if (x.steps == 0) return x.count == 0 ? 0. : kInfinity<double>;
  double* rows[] = {lattice.emit + lattice.row, lattice.emit + 2 * lattice.row};
  for (int64_t t = 0; t < x.steps; ++t) lattice.step_forward(t, t == 0 ? nullptr : rows[(t - 1) % 2], rows[t % 2]);
  return -lattice.total(rows[(x.steps - 1) % 2]);
}

// The derivative by the log probability of class c at step t is -P(the path is in c at t | labels).
template <class T>
void backward(const CtcSequence<T>& x, double scale, T* gradient, bool accumulate, double* work) {
  if (x.steps == 0) return;
  const Lattice<T> lattice(x, work);
  const int64_t row = lattice.row, states = lattice.states;
  double *after = lattice.emit + row, *before = after + row;
  for (int64_t t = 0; t < x.steps; ++t)
    lattice.step_forward(t, t == 0 ? nullptr : before + (t - 1) * row, before + t * row);
  const double total = lattice.total(before + (x.steps - 1) * row);
  lattice.clear(after);
  after[kFirst + states - 1] = 0;
  if (states > 1) after[kFirst + states - 2] = 0;
  for (int64_t t = x.steps - 1; t >= 0; --t) {
    T* to = gradient + t * x.classes;
    if (!accumulate) memset(to, 0, static_cast<size_t>(x.classes) * sizeof *to);
    double* share = before + t * row;
    for (int64_t i = 0; i < row; i += kWidth<double>)
      store(share + i, Row(-scale) * exp(load(share + i) + load(after + i) - Row(total)));
    double blanks = 0;
    for (int64_t s = 0; s < states; s += 2) blanks += share[kFirst + s];
    to[x.blank] += static_cast<T>(blanks);
    for (int64_t s = 1; s < states; s += 2) to[lattice.label(s)] += static_cast<T>(share[kFirst + s]);
    if (t == 0) break;
    lattice.emit_step(t);
    lattice.step_backward(after);
  }
}

template <class T>
constexpr CtcKernels<T> kernels_of = {forward<T>, backward<T>};

}  // namespace

extern const CtcTable ctc_table;
const CtcTable ctc_table = {kernels_of<float>, kernels_of<double>};

}  // namespace heed::kernels::HEED_LEVEL
