// Functions that run twice, once in forward and once in backward: what recompute() and reversible() share.
#pragma once
#include <heed/autograd/detail/tape_state.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/core/random.hpp>
#include <utility>

namespace heed::detail {

// The state that a function's results depend on, besides tensors. Saved before the first run, restored for the second.
struct RunConditions {
  Rng random = default_rng();
  bool training = is_training();
  DType precision = matmul_precision();
  bool find_nan = mode().tape->state().options.find_nan;
};

// Hash of the bits of x's values, in row-major order. 0 in a dry run, whose values are undefined.
std::uint64_t hash_of_values(const Tensor& x);

// The first run: f() records nothing, and rejects tensors that belong to a tape.
template <class F>
Tensor run_unrecorded(FirstRun& first_run, const F& f) {
  const ModeScope scope([](Mode& m, void* run) { m.tape = nullptr, m.first_run = static_cast<FirstRun*>(run); },
                        &first_run);
  return f();
}

// The second run, on the tape that records now.
template <class F>
Tensor run_again(const RunConditions& conditions, const F& f) {
  const Rng now = std::exchange(default_rng(), conditions.random);
  struct Restore {
    const Rng& rng;
    ~Restore() { default_rng() = rng; }
  } restore{now};
  bool training = conditions.training;
  const ModeScope mode(
      [](Mode& m, void* on) { m.training = *static_cast<const bool*>(on), m.second_run = true; }, &training);
  const MatmulPrecision scope(conditions.precision);
  return f();
}

}  // namespace heed::detail
