// Gated attention of one level.
#include "backward.hpp"
#include "forward.hpp"
#include "step.hpp"

namespace heed::kernels::HEED_LEVEL {
namespace gated {

template <class T>
GatedPlan plan(const GatedProblem<T>& p, bool backward) {
  Pieces<T> pieces{nullptr};
  const GatedGradients<T> none{};
  if (backward)
    Backward<T>(p, none, pieces);
  else
    Forward<T>(p, pieces);
  return {state_row(p), state_size(p), kept_states(p), pieces.used};
}

template <class T>
void forward(const GatedProblem<T>& p, const GatedOutputs<T>& to, int64_t b, int64_t h, T* scratch) {
  Pieces<T> pieces{scratch};
  Forward<T>(p, pieces).head(to, b, h);
}

template <class T>
void backward(const GatedProblem<T>& p, const GatedGradients<T>& d, int64_t b, int64_t h, T* scratch) {
  Pieces<T> pieces{scratch};
  Backward<T>(p, d, pieces).head(b, h);
}

template <class T>
void step(const GatedProblem<T>& p, const HeadRows<T>& out, const HeadRows<T>& state, int64_t b, int64_t h,
          T* scratch) {
  Pieces<T> pieces{scratch};
  Step<T>(p, pieces).head(out, state, b, h);
}

template <class T>
constexpr GatedKernels<T> kernels_of() {
  return {plan<T>, forward<T>, backward<T>, step<T>};
}

}  // namespace gated

extern const GatedTable gated_attention_table;
const GatedTable gated_attention_table = {gated::kernels_of<float>(), gated::kernels_of<double>()};

}  // namespace heed::kernels::HEED_LEVEL
