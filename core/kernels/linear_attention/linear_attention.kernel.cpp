// Linear attention at one level: the steps of forward and backward, and the table.
#include "linear_attention.hpp"

#include "backward.hpp"

namespace heed::kernels::HEED_LEVEL::linear {
namespace {

template <class T, class S>
LinearPlan plan(const LinearProblem<T, S>& p) {
  Pieces<T> all{nullptr};
  const LinearGradients<T, S> none{};
  const Backward<T, S> backward(p, none, all);  // the larger scratch
  return plan_of(p, state_size(p), all.used);
}

template <class T, class S>
void clear(const LinearProblem<T, S>& p, T* state) {
  memset(state, 0, static_cast<size_t>(state_size(p)) * sizeof(T));
}

template <class T, class S>
void add(const LinearProblem<T, S>& p, T* state, T* more) {
  for (long i = 0; i < state_size(p); ++i) state[i] += more[i];
}

template <class T, class S>
void sum_keys(const LinearProblem<T, S>& p, int64_t b, int64_t h, int64_t step, T* state, T* scratch) {
  Pieces<T> pieces{scratch};
  const Forward<T, S> x(p, pieces);
  sum_key_rows(p, b, h, keys_of_step(p, step, plan(p).key_steps), x.k, x.v, state_at(p, state));
}

template <class T, class S>
void sum_queries(const LinearProblem<T, S>& p, const LinearGradients<T, S>& d, int64_t b, int64_t h, int64_t step,
                 T* state, T* scratch) {
  if (step < plan(p).key_steps) return;
  Pieces<T> pieces{scratch};
  Backward<T, S> x(p, d, pieces);
  const Range rows = rows_of_step(p, step);
  const long end = rows.first + rows.count;
  for (long i = rows.first; i < end; i += kChunk) {
    load_mapped(p.q, {b, h, i, part(i, end)}, p.width, p.map, p.queries, x.q);
    x.load_output(b, h, i, part(i, end));
    add_to<T>(p, state_at(p, state), part(i, end), x.q, x.g, x.u, nullptr);
  }
}

template <class T, class S>
void forward(const LinearProblem<T, S>& p, const HeadRows<S>& out, T* norm, T* kept, const LinearStep& at, T* state,
             T* scratch) {
  const int64_t b = at.b, h = at.h, step = at.step;
  Pieces<T> pieces{scratch};
  Forward<T, S> x(p, pieces);
  const LinearPlan steps = plan(p);
  const Range rows = rows_of_step(p, step);
  if (step < steps.key_steps) return sum_key_rows(p, b, h, rows, x.k, x.v, state_at(p, state));
  const long query_step = step - steps.key_steps;
  if (query_step == 0) clear_keyless(p, out, norm, p.eps, b, h);
  if (kept != nullptr && query_step < steps.kept) copy_state(p, kept_state(p, kept, steps, b, h, step), state);
  x.queries(out, norm, b, h, rows, next_of(p, at.next, b, steps, kept), state_at(p, state));
}

template <class T, class S>
void backward(const LinearProblem<T, S>& p, const LinearGradients<T, S>& d, const LinearStep& at, T* state,
              T* scratch) {
  const int64_t b = at.b, h = at.h, step = at.step;
  Pieces<T> pieces{scratch};
  Backward<T, S> x(p, d, pieces);
  const LinearPlan steps = plan(p);
  const Range rows = rows_of_step(p, step);
  const Sums<T> after = state_at(p, state);
  if (step >= steps.key_steps) {
    const long query_step = step - steps.key_steps;
    const T* kept = kept_state(p, d.kept, steps, b, h, step);
    x.queries(b, h, rows, next_of(p, at.next, b, steps, d.kept), kept, after);
    if (query_step == 0) add_keyless(p, d, x.dq, b, h);
    return;
  }
  const long end = rows.first + rows.count;
  for (long j = rows.first; j < end; j += kChunk) {
    load_keys(p, b, h, j, part(j, end), x.k, x.v);
    x.keys(b, h, j, part(j, end), false, after, nullptr);
  }
}

template <class T, class S = T>
constexpr LinearKernels<T, S> kernels_of() {
  return {plan<T, S>,     clear<T, S>,       add<T, S>,     add<T, S>,
          sum_keys<T, S>, sum_queries<T, S>, forward<T, S>, backward<T, S>};
}

}  // namespace
}  // namespace heed::kernels::HEED_LEVEL::linear

namespace heed::kernels::HEED_LEVEL {
extern const LinearFeatureTable linear_attention_table;
const LinearFeatureTable linear_attention_table = {{linear::kernels_of<float>(), linear::kernels_of<double>()},
                                                   linear::kernels_of<float, uint16_t>()};
}  // namespace heed::kernels::HEED_LEVEL
