// recurrent_cell(): one step of a recurrent cell.
#include <heed/autograd/detail/recurrent.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/core/parallel.hpp>

namespace heed {

using detail::cell_of;

void detail::check_cell(const char* op, RecurrentKind kind, In sums, In state, In weight, In bias, const char* axes) {
  const Index gates = recurrent_gates(kind), states = recurrent_states(kind);
  check(weight.rank() == 2 && weight.dim(0) == gates * weight.dim(1) && weight.dim(1) > 0, sums.where(), op,
        ": weight_hh is ", weight.tensor(), "; it must be [", gates, " * units, units]");
  const Index n = weight.dim(1);
  const DType type = weight.dtype();
  check((type == DType::float32 || type == DType::float64) && sums.dtype() == type && sums.dim(-1) == gates * n,
        sums.where(), op, ": the sums are ", sums.tensor(), " and weight_hh is ", weight.tensor(),
        "; both must be float32 or both float64, and the sums must be [", axes, ", ", gates * n, "]");
  check(!bias->defined() || (bias.shape() == Shape{gates * n} && bias.dtype() == type), sums.where(), op,
        ": bias_hh is ", bias.tensor(), "; it must be ", Shape{gates * n}, " ", type);
  const Shape of_state = {sums.dim(0), states * n};
  check(!state->defined() || (state.shape() == of_state && state.dtype() == type), sums.where(), op, ": the state is ",
        state.tensor(), "; it must be ", of_state, " ", type);
}

Index recurrent_gates(RecurrentKind kind) { return cell_of<float>(kind).gates; }
Index recurrent_states(RecurrentKind kind) { return kind == RecurrentKind::lstm ? 2 : 1; }

namespace {

Index cell_grain(Index gates, Index units) { return grain_for(4 * gates * units); }

template <class T>
void step_forward(RecurrentKind kind, const Tensor& sums, const Tensor& g, const Tensor& state, const Tensor& y,
                  const Tensor& kept) {
  const kernels::CellKernels<T>& cell = cell_of<T>(kind);
  const Index states = recurrent_states(kind), n = y.dim(1) / states, row = cell.gates * n;
  parallel_for_each(y.dim(0), cell_grain(cell.gates, n), [&](Index b) {
    const Index s = b * states * n;
    cell.forward({.x = detail::element_at<T>(sums, b * row),
                  .g = detail::element_at<T>(g, b * row),
                  .h = detail::element_at<T>(state, s),
                  .cell = detail::element_at<T>(state, s + n),
                  .h_next = detail::element_at<T>(y, s),
                  .cell_next = detail::element_at<T>(y, s + n),
                  .kept = detail::element_at<T>(kept, b * cell.kept_gates * n)},
                 n);
  });
}

// On entry, dstate holds dy. dg is undefined if it equals dsums.
template <class T>
void step_backward(RecurrentKind kind, const Tensor& kept, const Tensor& state, const Tensor& y, const Tensor& dstate,
                   const Tensor& dsums, const Tensor& dg) {
  const kernels::CellKernels<T>& cell = cell_of<T>(kind);
  const Index states = recurrent_states(kind), n = y.dim(1) / states, row = cell.gates * n;
  parallel_for_each(y.dim(0), cell_grain(cell.gates, n), [&](Index b) {
    const Index s = b * states * n;
    cell.backward({.kept = detail::element_at<T>(kept, b * cell.kept_gates * n),
                   .h = detail::element_at<T>(state, s),
                   .h_next = detail::element_at<T>(y, s),
                   .cell = detail::element_at<T>(state, s + n),
                   .cell_next = detail::element_at<T>(y, s + n),
                   .dh = detail::element_at<T>(dstate, s),
                   .dcell = detail::element_at<T>(dstate, s + n),
                   .dx = detail::element_at<T>(dsums, b * row),
                   .dg = detail::element_at<T>(dg, b * row)},
                  n);
  });
}

// The original GRU, made of ops: its candidate is a product of another gate's result.
Tensor original_cell(In sums, const Tensor& h, In weight, In bias) {
  const Index n = weight.dim(1);
  const Tensor b = bias.tensor();
  const auto part = [&](Index first, Index last, const Tensor& x) {
    return sums->slice(1, first, last) +
           linear({x, sums.where()}, weight->slice(0, first, last), b.defined() ? b.slice(0, first, last) : b);
  };
  const Tensor gates = sigmoid(part(0, 2 * n, h)), z = gates.slice(1, n, 2 * n);
  const Tensor c = tanh(part(2 * n, 3 * n, gates.slice(1, 0, n) * h));
  return c + z * (h - c);
}

}  // namespace

Tensor recurrent_cell(RecurrentKind kind, In sums_in, In state_in, In weight, In bias) {
  constexpr const char* op = "recurrent_cell";
  check(sums_in.rank() == 2, sums_in.where(), op, ": the sums are ", sums_in.tensor(), "; they must be [batch, gates]");
  detail::check_cell(op, kind, sums_in, state_in, weight, bias, "batch");
  const Index n = weight.dim(1), states = recurrent_states(kind), rows = sums_in.dim(0);
  const DType type = sums_in.dtype();
  const Tensor state = state_in->defined() ? state_in->contiguous() : Tensor::zeros({rows, states * n}, type);
  const Tensor h = states == 1 ? state : state.slice(1, 0, n);
  if (kind == RecurrentKind::gru_original) return original_cell(sums_in, h, weight, bias);
  const Tensor sums = sums_in->contiguous(), g = linear({h, sums_in.where()}, weight, bias);
  Tensor y = Tensor::empty({rows, states * n}, type), kept;
  detail::with_float(type, [&]<class T>(T) {
    if (needs_gradient({sums, g, state})) kept = Tensor::empty({rows, cell_of<T>(kind).kept_gates * n}, type);
    step_forward<T>(kind, sums, g, state, y, kept);
  });
  record(op, sums_in.where(), y, {sums, g, state}, saved(kept, state, y),
         [kind](Grads& d, const Tensor& dy, const Tensor& gates, const Tensor& before, const Tensor& after) {
           const Tensor dstate = dy.clone();
           const Index columns = recurrent_gates(kind) * after.dim(1) / recurrent_states(kind);
           const Tensor dsums = Tensor::empty({dy.dim(0), columns}, dy.dtype());
           const Tensor dg = kind == RecurrentKind::gru ? Tensor::empty(dsums.shape(), dy.dtype()) : Tensor();
           detail::with_float(dy.dtype(),
                              [&]<class T>(T) { step_backward<T>(kind, gates, before, after, dstate, dsums, dg); });
           d.add(0, dsums);
           d.add(1, dg.defined() ? dg : dsums);
           d.add(2, dstate);
         });
  return y;
}

}  // namespace heed
