// recurrent_sequence(): all steps of a recurrent cell. Rows of a batch are independent, so each task takes a block of
// rows through all steps, and no step waits for another thread. Backward stores the gates' gradients of all steps, and
// computes the weight's gradient by one product at the end.
#include <algorithm>
#include <heed/autograd/detail/products.hpp>
#include <heed/autograd/detail/recurrent.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/profiler.hpp>
#include <numeric>

namespace heed {
namespace {

using detail::cell_of;
using detail::matrix;
using kernels::CellBackward;
using kernels::CellForward;
using kernels::CellKernels;

template <class T>
T* at(const Tensor& x, Index element) {
  return detail::element_at<T>(x, element);
}

// Rows in processing order, the longest first, so that rows that have not ended are always the first rows of their
// block.
struct Rows {
  std::vector<Index> order, lengths;  // lengths[i] is that of row order[i]
  std::vector<Index> begin;           // begin[i]: total steps of the rows before it in this order
  Index block;                        // rows per task

  Rows(Index batch, Index steps, const Tensor& given, DType type) : order(static_cast<std::size_t>(batch)) {
    std::iota(order.begin(), order.end(), Index{0});
    const auto length = [&](Index b) { return given.defined() ? given.ptr<std::int32_t>()[b] : steps; };
    std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return length(a) > length(b); });
    begin.push_back(0);
    for (const Index b : order) {
      lengths.push_back(length(b));
      begin.push_back(begin.back() + lengths.back());
    }
    // Some more tasks than cores, with enough rows per task that a weight loaded by a core serves several rows.
    const Index step = gemm_row_step(type);
    block = std::clamp<Index>(((batch + 5) / 6 + step - 1) / step, 1, 6) * step;
  }
  Index count() const { return static_cast<Index>(order.size()); }
  Index steps() const { return begin.back(); }  // of all rows
  Index length(Index i) const { return lengths[static_cast<std::size_t>(i)]; }
  Index place(Index i, Index step) const { return begin[static_cast<std::size_t>(i)] + step; }
};

// The left operand of the products, in the type for which the right operand was packed: `wide` or a bfloat16 copy.
struct LeftOperand {
  Tensor wide, narrow;

  LeftOperand(const Tensor& x, DType type) : wide(x) {
    if (type != x.dtype()) narrow = Tensor::empty(x.shape(), type);
  }
  // `rows` rows from `first` on, columns [begin, end).
  MatrixIn rows(Index first, Index rows, Index begin, Index end) const {
    const Tensor part = wide.slice(0, first, first + rows).slice(1, begin, end);
    if (!narrow.defined()) return matrix(part);
    Tensor copy = narrow.slice(0, first, first + rows).slice(1, begin, end);
    detail::copy_values(copy, part);
    return matrix(copy);
  }
};

// The problem of one call, for forward and backward.
struct Sequence {
  RecurrentKind kind;
  Index batch, steps, units, gates, states;
  bool reverse;
  DType type, operand;  // dtype of the results; dtype of the products' operands
  Rows rows;
  bool original() const { return kind == RecurrentKind::gru_original; }
  // Gates in the first product of a step: all, or r and z if c needs a second product.
  Index first_gates() const { return original() ? 2 : gates; }

  Sequence(RecurrentKind k, const Shape& sums, const Tensor& weight, const RecurrentSequence& o, DType operands)
      : kind(k),
        batch(sums[0]),
        steps(sums[1]),
        units(weight.dim(1)),
        gates(recurrent_gates(k)),
        states(recurrent_states(k)),
        reverse(o.reverse),
        type(weight.dtype()),
        operand(operands),
        rows(batch, steps, o.lengths, type) {}

  Index position(Index i, Index step) const { return reverse ? rows.length(i) - 1 - step : step; }
  // The first element of step t of row i in x [batch, x.dim(1), width].
  Index element(const Tensor& x, Index i, Index t) const {
    return (rows.order[static_cast<std::size_t>(i)] * x.dim(1) + t) * x.dim(2);
  }
  template <class F>
  void each_block(const F& f) const {
    detail::count_flops(operand, 2 * static_cast<double>(rows.steps() * gates * units * units));
    const Index blocks = (batch + rows.block - 1) / rows.block;
    parallel_for_each(blocks, 1, [&](Index i) { f(i * rows.block, std::min(batch, (i + 1) * rows.block)); });
  }
  // Rows in [first, last) that have a step of this number.
  Index active(Index first, Index last, Index step) const {
    Index count = 0;
    while (first + count < last && rows.length(first + count) > step) ++count;
    return count;
  }
};

// Runs all steps of each block of rows: the product of the state with the weight, then the cell. Row i of `now`, `g`
// and `reset` belongs to sequence rows.order[i]. n is the number of units, S the number of states (2 for an LSTM).
template <class T>
struct SequenceForward {
  const Sequence& s;
  const Tensor &sums, &state;   // [B, T, gates n]; [B, S n] or undefined
  const Tensor &weight, &bias;  // [gates n, n]; [gates n]
  const Tensor &out, &kept;     // [B, T + 1, S n]; [B, T, kept gates n] or undefined
  const CellKernels<T>& cell = cell_of<T>(s.kind);
  const Index n = s.units, row = s.gates * n, first_columns = s.first_gates() * n;
  const Tensor w = detail::cast(weight, s.operand);
  // With the transposed rows of w. The original GRU needs two products per step.
  const PackedMatrix first_product = across(0, first_columns);
  const PackedMatrix candidate = s.original() ? across(first_columns, row) : PackedMatrix();
  // [B, S n]; [B, gates n]: the state's part of the gates; [B, n]: r h of the original GRU
  const Tensor now = Tensor::zeros({s.batch, s.states * n}, s.type), g = Tensor::empty({s.batch, row}, s.type);
  const Tensor reset = s.original() ? Tensor::empty({s.batch, n}, s.type) : Tensor();
  const LeftOperand h_operand{now, s.operand}, reset_operand{reset, s.original() ? s.operand : DType::float32};

  void run() const {
    s.each_block([&](Index first, Index last) {
      if (state.defined())
        for (Index i = first; i < last; ++i)
          std::copy_n(at<T>(state, s.rows.order[static_cast<std::size_t>(i)] * s.states * n), s.states * n,
                      at<T>(now, i * s.states * n));
      for (Index step = 0; step < s.rows.length(first); ++step) run_step(first, s.active(first, last, step), step);
      for (Index i = first; i < last; ++i) end(i);
    });
  }

  PackedMatrix across(Index begin, Index end) const {
    return PackedMatrix(matrix(w.slice(0, begin, end).t()), n, end - begin, s.operand);
  }

  CellForward<T> call(Index i, Index step) const {
    const Index t = s.position(i, step), h = i * s.states * n;
    return {.x = at<T>(sums, s.element(sums, i, t)),
            .g = at<T>(g, i * row),
            .h = at<T>(now, h),
            .cell = at<T>(now, h + n),
            .h_next = at<T>(now, h),
            .cell_next = at<T>(now, h + n),
            .kept = kept.defined() ? at<T>(kept, s.element(kept, i, t)) : nullptr};
  }

  // g = h W^T + bias; h = cell(x, g, h), for the rows [first, first + active).
  void run_step(Index first, Index active, Index step) const {
    first_product.multiply_here({.m = active,
                                 .a = h_operand.rows(first, active, 0, n),
                                 .c = at<T>(g, first * row),
                                 .ldc = row,
                                 .bias = bias.raw()});
    if (s.original()) {
      for (Index i = first; i < first + active; ++i) cell.forward_gates(call(i, step), n, at<T>(reset, i * n));
      candidate.multiply_here({.m = active,
                               .a = reset_operand.rows(first, active, 0, n),
                               .c = at<T>(g, first * row + first_columns),
                               .ldc = row,
                               .bias = at<T>(bias, first_columns)});
    }
    for (Index i = first; i < first + active; ++i) {
      cell.forward(call(i, step), n);
      std::copy_n(at<T>(now, i * s.states * n), s.states * n, at<T>(out, s.element(out, i, s.position(i, step))));
    }
  }

  // The outputs of row i after its last step: zeros, then the final state.
  void end(Index i) const {
    const Index begin = s.element(out, i, s.rows.length(i)), final_state = s.element(out, i, s.steps);
    std::fill_n(at<T>(out, begin), final_state - begin, T(0));
    std::copy_n(at<T>(now, i * s.states * n), s.states * n, at<T>(out, final_state));
  }
};

// The gradients. Each is undefined if it is not needed, except `dsums`.
struct SequenceGradients {
  Tensor dsums, dstate;
  Tensor dg, h;              // all steps of all rows: gradients of the state's part of the gates, and the states before
  Tensor dcandidate, reset;  // the same for the original GRU's product with r h
};

// Runs all steps of each block of rows in reverse order. Rows and sizes as in SequenceForward.
template <class T>
struct SequenceBackward {
  const Sequence& s;
  const Tensor &state, &weight, &out, &kept;
  const Tensor& dy;      // [B, T + 1, S n]
  SequenceGradients& d;  // written
  const CellKernels<T>& cell = cell_of<T>(s.kind);
  const Index n = s.units, row = s.gates * n, first_columns = s.first_gates() * n;
  const Tensor w = detail::cast(weight, s.operand);
  const PackedMatrix first_product = back(0, first_columns);  // with the rows of w
  const PackedMatrix candidate = s.original() ? back(first_columns, row) : PackedMatrix();
  // [B, S n]: of the current state; [B, gates n]; [B, n]: of r h of the original GRU
  const Tensor dnow = Tensor::zeros({s.batch, s.states * n}, s.type), dg = Tensor::empty({s.batch, row}, s.type);
  const Tensor dreset = s.original() ? Tensor::empty({s.batch, n}, s.type) : Tensor();
  const LeftOperand dg_operand{dg, s.operand};

  void run() const {
    s.each_block([&](Index first, Index last) {
      for (Index i = first; i < last; ++i) begin(i);
      for (Index step = s.rows.length(first) - 1; step >= 0; --step) {
        const Index active = s.active(first, last, step);
        run_step(first, active, step);
        if (!d.dg.defined()) continue;
        for (Index i = first; i < first + active; ++i) keep(i, step);
      }
      if (d.dstate.defined())
        for (Index i = first; i < last; ++i)
          std::copy_n(at<T>(dnow, i * s.states * n), s.states * n, state_of(d.dstate, i));
    });
  }

  PackedMatrix back(Index begin, Index end) const {
    return PackedMatrix(matrix(w.slice(0, begin, end)), end - begin, n, s.operand);
  }
  T* state_of(const Tensor& x, Index i) const {
    return at<T>(x, s.rows.order[static_cast<std::size_t>(i)] * s.states * n);
  }

  CellBackward<T> call(Index i, Index step) const {
    const Index t = s.position(i, step), here = s.element(out, i, t);
    const T* before = step > 0 ? at<T>(out, s.element(out, i, s.position(i, step - 1))) : state_of(state, i);
    T* dh = at<T>(dnow, i * s.states * n);
    return {.kept = kept.defined() ? at<T>(kept, s.element(kept, i, t)) : nullptr,
            .h = before,
            .h_next = at<T>(out, here),
            .cell = before != nullptr ? before + n : nullptr,
            .cell_next = at<T>(out, here + n),
            .dh = dh,
            .dcell = dh + n,
            .dx = at<T>(d.dsums, s.element(d.dsums, i, t)),
            .dg = s.kind == RecurrentKind::gru ? at<T>(dg, i * row) : nullptr};
  }

  // Row i: the gradient of the final state, and zeros for dsums after the last step.
  void begin(Index i) const {
    std::copy_n(at<T>(dy, s.element(dy, i, s.steps)), s.states * n, at<T>(dnow, i * s.states * n));
    const Index end = s.element(d.dsums, i, s.rows.length(i));
    std::fill_n(at<T>(d.dsums, end), s.element(d.dsums, i, s.steps) - end, T(0));
  }

  // dh += dy; dx, dg, dh = the cell's derivative; dh += dg W, for the rows [first, first + active).
  void run_step(Index first, Index active, Index step) const {
    for (Index i = first; i < first + active; ++i) {
      const CellBackward<T> c = call(i, step);
      const T* from = at<T>(dy, s.element(dy, i, s.position(i, step)));
      for (Index j = 0; j < s.states * n; ++j) c.dh[j] += from[j];
      cell.backward(c, n);
      if (c.dg == nullptr) std::copy_n(c.dx, row, at<T>(dg, i * row));
    }
    if (s.original()) {
      candidate.multiply_here({.m = active,
                               .a = dg_operand.rows(first, active, first_columns, row),
                               .c = at<T>(dreset, first * n),
                               .ldc = n});
      for (Index i = first; i < first + active; ++i) {
        const CellBackward<T> c = call(i, step);
        cell.backward_gates(c, n, at<T>(dreset, i * n));
        std::copy_n(c.dx, first_columns, at<T>(dg, i * row));
      }
    }
    first_product.multiply_here({.m = active,
                                 .a = dg_operand.rows(first, active, 0, first_columns),
                                 .c = at<T>(dnow, first * s.states * n),
                                 .ldc = s.states * n,
                                 .accumulate = true});
  }

  // The operands of the weight's gradient from a step of row i: dg and h and, for the original GRU, dg of c and r h.
  void keep(Index i, Index step) const {
    const Index place = s.rows.place(i, step);
    const CellBackward<T> c = call(i, step);
    std::copy_n(at<T>(dg, i * row), first_columns, at<T>(d.dg, place * first_columns));
    if (c.h != nullptr)
      std::copy_n(c.h, n, at<T>(d.h, place * n));
    else
      std::fill_n(at<T>(d.h, place * n), n, T(0));
    if (!s.original()) return;
    std::copy_n(at<T>(dg, i * row + first_columns), n, at<T>(d.dcandidate, place * n));
    for (Index j = 0; j < n; ++j) at<T>(d.reset, place * n)[j] = c.h != nullptr ? c.kept[j] * c.h[j] : T(0);
  }
};

// dW = dg^T x over all steps.
Tensor weight_gradient(const Tensor& dg, const Tensor& x, DType operand) {
  const Tensor a = dg.to(operand), b = x.to(operand);
  const Tensor dw = Tensor::empty({dg.dim(1), x.dim(1)}, dg.dtype());
  detail::product_gradient({dw, false}, a.t(), b);
  return dw;
}

void add_sequence_gradients(Grads& grads, const Sequence& s, const Tensor& state, const Tensor& weight,
                            const Tensor& out, const Tensor& kept, const Tensor& dy) {
  const Index n = s.units, columns = s.first_gates() * n, all = s.rows.steps();
  const auto make = [&](Index width) { return Tensor::empty({all, width}, s.type); };
  SequenceGradients d;
  d.dsums = Tensor::empty({s.batch, s.steps, s.gates * n}, s.type);
  if (grads.needs(1)) d.dstate = Tensor::empty({s.batch, s.states * n}, s.type);
  const bool of_weight = grads.needs(2) || grads.needs(3);
  if (of_weight) d.dg = make(columns), d.h = make(n);
  if (of_weight && s.original()) d.dcandidate = make(n), d.reset = make(n);
  detail::with_float(s.type, [&]<class T>(T) { SequenceBackward<T>{s, state, weight, out, kept, dy, d}.run(); });
  grads.add(0, d.dsums);
  if (grads.needs(1)) grads.add(1, d.dstate);
  const auto both = [&](const Tensor& gates, const Tensor& candidate) {
    return s.original() ? concatenate({gates, candidate}, 0) : gates;
  };
  if (grads.needs(2))
    grads.add(2, both(weight_gradient(d.dg, d.h, s.operand),
                      s.original() ? weight_gradient(d.dcandidate, d.reset, s.operand) : Tensor()));
  if (grads.needs(3)) grads.add(3, both(sum(d.dg, {0}), s.original() ? sum(d.dcandidate, {0}) : Tensor()));
}

}  // namespace

void detail::check_steps(const char* op, In x, const Tensor& lengths) {
  if (!lengths.defined()) return;
  const Index batch = x.dim(0), steps = x.dim(1);
  check(lengths.shape() == Shape{batch} && lengths.dtype() == DType::int32, x.where(), op, ": lengths are ", lengths,
        "; they must be int32 [", batch, "]");
  const Tensor dense = lengths.dense();
  for (Index b = 0; b < batch; ++b) {
    const std::int32_t length = dense.ptr<std::int32_t>()[b];
    check(length >= 0 && length <= steps, x.where(), op, ": the length of row ", b, " is ", length,
          "; it must be from 0 to ", steps, ", the number of steps");
  }
}

Tensor recurrent_sequence(RecurrentKind kind, In sums_in, In state_in, In weight_in, In bias_in,
                          const RecurrentSequence& options) {
  constexpr const char* op = "recurrent_sequence";
  check(sums_in.rank() == 3, sums_in.where(), op, ": the sums are ", sums_in.tensor(),
        "; they must be [batch, steps, gates * units]");
  detail::check_cell(op, kind, sums_in, state_in, weight_in, bias_in, "batch, steps");
  detail::check_steps(op, sums_in, options.lengths);
  RecurrentSequence o = options;
  o.lengths = o.lengths.dense();
  const Tensor sums = sums_in->dense(), state = state_in->dense(), weight = weight_in->dense(), bias = bias_in->dense();
  const DType type = sums.dtype(), operand = type == DType::float32 ? matmul_precision() : type;
  const Sequence s(kind, sums.shape(), weight, o, operand);
  Tensor out = Tensor::empty({s.batch, s.steps + 1, s.states * s.units}, type), kept;
  detail::with_float(type, [&]<class T>(T) {
    const Index kept_gates = cell_of<T>(kind).kept_gates;
    if (s.original() || needs_gradient({sums_in, state_in, weight_in, bias_in}))
      kept = Tensor::empty({s.batch, s.steps, kept_gates * s.units}, type);
    SequenceForward<T>{s, sums, state, weight, bias, out, kept}.run();
  });
  record(op, sums_in.where(), out, {sums_in, state_in, weight_in, bias_in}, saved(state, weight, out, kept, o.lengths),
         [kind, shape = sums.shape(), reverse = o.reverse, operand](Grads& d, const Tensor& dy, const Tensor& first,
                                                                    const Tensor& w, const Tensor& y,
                                                                    const Tensor& gates, const Tensor& lengths) {
           const Sequence again(kind, shape, w, {lengths, reverse}, operand);
           add_sequence_gradients(d, again, first, w, y, gates, dy);
         });
  return out;
}

}  // namespace heed
