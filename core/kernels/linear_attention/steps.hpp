// The steps of linear attention at one level, and the kernels of one kind. Included only by kernels of linear
// attention.
#pragma once
#include "backward.hpp"

namespace heed::kernels::HEED_LEVEL::linear {

template <LinearKind kKind, class T, class S>
struct Steps {
  using Problem = LinearProblem<T, S>;
  using Gradients = LinearGradients<T, S>;

  static LinearPlan plan(const Problem& p) {
    Pieces<T> all{nullptr};
    const Gradients none{};
    const Backward<T, S, kKind> backward(p, none, all);  // the larger scratch
    const CausalSides at = alignment(p);
    const long rows = step_rows(p), key_steps = (at.prefix + rows - 1) / rows,
               needed_steps = (p.queries - at.keyless + rows - 1) / rows,
               query_steps = needed_steps > 0 ? needed_steps : 1, kept = p.causal ? query_steps : 1;
    return {key_steps, key_steps + query_steps, state_row(p), whole_vectors<T>(p.width), state_size<kKind>(p), kept,
            all.used};
  }

  static void clear(const Problem& p, T* state) {
    memset(state, 0, static_cast<size_t>(state_size<kKind>(p)) * sizeof(T));
    if constexpr (kKind != LinearKind::features)
      for (long c = 0; c < p.width; c += kWidth<T>) store_aligned(state_at(p, state).m + c, minus_infinity<T>());
  }

  template <Sum kSum>
  static void add(const Problem& p, T* state, T* more) {
    if constexpr (kKind != LinearKind::features)
      add_state(p, kSum, state_at(p, state), state_at(p, more));
    else
      for (long i = 0; i < state_size<kKind>(p); ++i) state[i] += more[i];
  }

  static void sum_keys(const Problem& p, const LinearStep& at, T* state, T* scratch) {
    Pieces<T> pieces{scratch};
    Forward<T, S, kKind> x(p, pieces);
    x.sum_keys(at.b, at.h, keys_of_step(p, at.step, plan(p).key_steps), state_at(p, state));
  }

  static void sum_queries(const Problem& p, const Gradients& d, const LinearStep& at, T* state, T* scratch) {
    const LinearPlan steps = plan(p);
    if (at.step < steps.key_steps) return;
    Pieces<T> pieces{scratch};
    Backward<T, S, kKind> x(p, d, pieces);
    const T* kept = kept_state(p, d.kept, steps, at.b, at.h, at.step);
    x.sum_queries(at.b, at.h, rows_of_step(p, at.step), kept, state_at(p, state));
  }

  static void forward(const Problem& p, const HeadRows<S>& out, T* norm, T* kept, const LinearStep& at, T* state,
                      T* scratch) {
    const int64_t b = at.b, h = at.h, step = at.step;
    Pieces<T> pieces{scratch};
    Forward<T, S, kKind> x(p, pieces);
    const LinearPlan steps = plan(p);
    const Range rows = rows_of_step(p, step);
    const Sums<T> sums = state_at(p, state);
    if (step < steps.key_steps) return x.sum_keys(b, h, rows, sums);
    const long query_step = step - steps.key_steps;
    if (query_step == 0) clear_keyless(p, out, norm, b, h);
    if (kept != nullptr && query_step < steps.kept) copy_state<kKind>(p, kept_state(p, kept, steps, b, h, step), state);
    x.queries(out, norm, b, h, rows, next_of(p, at.next, b, steps, kept), sums);
  }

  static void backward(const Problem& p, const Gradients& d, const LinearStep& at, T* state, T* scratch) {
    const int64_t b = at.b, h = at.h, step = at.step;
    Pieces<T> pieces{scratch};
    Backward<T, S, kKind> x(p, d, pieces);
    const LinearPlan steps = plan(p);
    const Range rows = rows_of_step(p, step);
    const Sums<T> after = state_at(p, state);
    if (step < steps.key_steps) return x.key_rows(b, h, rows, after);
    x.queries(b, h, rows, next_of(p, at.next, b, steps, d.kept), kept_state(p, d.kept, steps, b, h, step), after);
    if (step == steps.key_steps) add_keyless(p, d, x.dq, b, h);
  }
};

template <LinearKind kKind, class T, class S = T>
constexpr LinearKernels<T, S> kernels_of() {
  using Of = Steps<kKind, T, S>;
  return {Of::plan,
          Of::clear,
          Of::template add<Sum::of_keys>,
          Of::template add<Sum::of_queries>,
          Of::sum_keys,
          Of::sum_queries,
          Of::forward,
          Of::backward};
}

}  // namespace heed::kernels::HEED_LEVEL::linear
