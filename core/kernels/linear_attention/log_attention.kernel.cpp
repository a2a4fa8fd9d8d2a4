// Linear attention of features given by their logarithms, at one level: the steps, and the table.
#include "log_attention.hpp"

#include "log_backward.hpp"

namespace heed::kernels::HEED_LEVEL::logs {
namespace {

template <class T, LinearKind kKind>
LinearPlan plan(const LinearProblem<T>& p) {
  Pieces<T> all{nullptr};
  const LinearGradients<T> none{};
  const Backward<T, kKind> backward(p, none, all);  // the larger scratch
  return plan_of(p, log_state_size(p), all.used);
}

template <class T>
void clear(const LinearProblem<T>& p, T* state) {
  memset(state, 0, static_cast<size_t>(log_state_size(p)) * sizeof(T));
  const LogState<T> s = log_state_at(p, state);
  for (long c = 0; c < p.width; c += kWidth<T>) store_aligned(s.m + c, minus_infinity<T>());
}

template <class T, Sum kSum>
void add(const LinearProblem<T>& p, T* state, T* more) {
  add_state(p, kSum, log_state_at(p, state), log_state_at(p, more));
}

template <class T, LinearKind kKind>
void sum_keys(const LinearProblem<T>& p, int64_t b, int64_t h, int64_t step, T* state, T* scratch) {
  Pieces<T> pieces{scratch};
  Forward<T, kKind> x(p, pieces);
  x.sum_keys(b, h, keys_of_step(p, step, plan<T, kKind>(p).key_steps), log_state_at(p, state));
}

template <class T, LinearKind kKind>
void sum_queries(const LinearProblem<T>& p, const LinearGradients<T>& d, int64_t b, int64_t h, int64_t step, T* state,
                 T* scratch) {
  const LinearPlan steps = plan<T, kKind>(p);
  if (step < steps.key_steps) return;
  Pieces<T> pieces{scratch};
  Backward<T, kKind> x(p, d, pieces);
  x.sum_queries(b, h, rows_of_step(p, step), kept_state(p, d.kept, steps, b, h, step), log_state_at(p, state));
}

template <class T, LinearKind kKind>
void forward(const LinearProblem<T>& p, const HeadRows<T>& out, T* norm, T* kept, const LinearStep& at, T* state,
             T* scratch) {
  const int64_t b = at.b, h = at.h, step = at.step;
  Pieces<T> pieces{scratch};
  Forward<T, kKind> x(p, pieces);
  const LinearPlan steps = plan<T, kKind>(p);
  const Range rows = rows_of_step(p, step);
  const LogState<T> sums = log_state_at(p, state);
  if (step < steps.key_steps) return x.sum_keys(b, h, rows, sums);
  const long query_step = step - steps.key_steps;
  if (query_step == 0) clear_keyless(p, out, norm, T(0), b, h);
  if (kept != nullptr && query_step < steps.kept)
    memcpy(kept_state(p, kept, steps, b, h, step), state, static_cast<size_t>(steps.state_size) * sizeof(T));
  x.queries(out, norm, b, h, rows, sums);
}

template <class T, LinearKind kKind>
void backward(const LinearProblem<T>& p, const LinearGradients<T>& d, const LinearStep& at, T* state, T* scratch) {
  const int64_t b = at.b, h = at.h, step = at.step;
  Pieces<T> pieces{scratch};
  Backward<T, kKind> x(p, d, pieces);
  const LinearPlan steps = plan<T, kKind>(p);
  const Range rows = rows_of_step(p, step);
  const LogState<T> after = log_state_at(p, state);
  if (step >= steps.key_steps) {
    x.queries(b, h, rows, kept_state(p, d.kept, steps, b, h, step), after);
    if (step == steps.key_steps) add_keyless(p, d, x.dq, b, h);
    return;
  }
  const long end = rows.first + rows.count;
  for (long j = rows.first; j < end; j += kChunk) {  // relative to the maxima of the first queries
    load_log_keys(p, b, h, j, part(j, end), x.k, x.v);
    exp_keys(p, part(j, end), x.k, after.m);
    x.keys(b, h, j, part(j, end), false, after);
  }
}

template <class T, LinearKind kKind>
constexpr LinearKernels<T> kernels_of() {
  return {plan<T, kKind>,        clear<T>,          add<T, Sum::of_keys>, add<T, Sum::of_queries>, sum_keys<T, kKind>,
          sum_queries<T, kKind>, forward<T, kKind>, backward<T, kKind>};
}

}  // namespace
}  // namespace heed::kernels::HEED_LEVEL::logs

namespace heed::kernels::HEED_LEVEL {
extern const LogTable log_attention_table;
const LogTable log_attention_table = {
    {logs::kernels_of<float, LinearKind::logs>(), logs::kernels_of<double, LinearKind::logs>()},
    {logs::kernels_of<float, LinearKind::efficient>(), logs::kernels_of<double, LinearKind::efficient>()}};
}  // namespace heed::kernels::HEED_LEVEL
