// Muon: the choice of matrices, and the iteration that makes their singular values nearly equal.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <heed/core/gemm/gemm.hpp>
#include <heed/core/kernels/elementwise/elementwise.hpp>
#include <heed/core/parallel.hpp>
#include <heed/optim/optimizers/adam_step.hpp>
#include <heed/optim/optimizers/optimizers.hpp>
#include <heed/optim/optimizers/with_kernels.hpp>
#include <tuple>
#include <type_traits>

namespace heed {

namespace {

constexpr int kMeanSlot = 2;  // of the momentum, after the slots of AdamW's step

bool orthogonalised(const Shape& shape, bool elementwise) { return shape.rank() == 2 && !elementwise; }

std::optional<Shape> of_matrices(const Shape& shape, bool elementwise) {
  return orthogonalised(shape, elementwise) ? std::optional(shape) : std::nullopt;
}
std::optional<Shape> of_others(const Shape& shape, bool elementwise) {
  return orthogonalised(shape, elementwise) ? std::nullopt : std::optional(shape);
}

// Max multiply-adds per iteration of a matrix that is computed by a single thread, while other threads compute other
// matrices. Larger matrices are computed one after another, each by all threads.
constexpr Index kAloneWork = Index{1} << 28;

// Replaces x [rows, columns] by the result of the iteration. Op: the type of the operands of products, T or bfloat16.
template <class T, class Op>
class NewtonSchulz {
 public:
  // `scratch` has bytes_of(rows, columns) bytes. `here`: products run on this thread alone.
  NewtonSchulz(T* x, Index rows, Index columns, const MuonOptions& options, bool here, char* scratch)
      : x_(x),
        rows_(rows),
        columns_(columns),
        small_(std::min(rows, columns)),
        o_(options),
        here_(here),
        s_(reinterpret_cast<T*>(scratch)),
        x_read_(reinterpret_cast<Op*>(s_ + padded(small_ * small_))),
        s_read_(x_read_ + padded(rows * columns)) {}

  static Index bytes_of(Index rows, Index columns) {
    const Index square = padded(std::min(rows, columns) * std::min(rows, columns));
    return square * static_cast<Index>(sizeof(T)) + (padded(rows * columns) + square) * static_cast<Index>(sizeof(Op));
  }

  void run() {
    const auto& k = kernels::of<T>(kernels::optimizer_table());
    const Index n = rows_ * columns_;
    k.scale(x_, n, 1 / std::max(std::sqrt(k.sum_squares(x_, n)), o_.eps));
    const auto [a, b, c] = o_.ns_coefficients;
    for (int step = 0; step < o_.ns_steps; ++step) {
      read(x_read_, x_, n);
      // s = x x^T or x^T x, whichever is smaller.
      const MatrixIn x = in(x_read_, columns_, 1), xt = in(x_read_, 1, columns_);
      const bool wide = rows_ <= columns_;
      symmetric(wide ? x : xt, wide ? xt : x, wide ? columns_ : rows_, 1, false);
      read(s_read_, s_, small_ * small_);
      // s = b s + c s^2
      k.scale(s_, small_ * small_, b);
      const MatrixIn s = in(s_read_, small_, 1);
      symmetric(s, s, small_, c, true);
      read(s_read_, s_, small_ * small_);
      // x = a x + s x, or a x + x s
      k.scale(x_, n, a);
      multiply({.m = rows_,
                .n = columns_,
                .k = small_,
                .a = wide ? s : x,
                .b = wide ? x : s,
                .c = x_,
                .ldc = columns_,
                .accumulate = true});
    }
  }

 private:
  T* x_;
  Index rows_, columns_, small_;
  const MuonOptions& o_;
  bool here_;
  T* s_;  // [small, small]
  Op *x_read_, *s_read_;

  static Index padded(Index n) { return (n + 31) / 32 * 32; }
  static MatrixIn in(const Op* x, Index row, Index column) { return {x, dtype_of<Op>, row, column}; }
  void multiply(const Gemm& g) const { here_ ? gemm_here(g) : gemm(g); }
  // Copies `from` to an operand of products, and rounds `from` itself, so that all terms of the polynomial use the same
  // matrix. Effects of rounding then vanish where the polynomial is flat, near 1.
  static void read(Op* to, T* from, Index n) {
    if constexpr (std::is_same_v<Op, T>) {
      std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
    } else {
      const kernels::Bf16Kernels& bf16 = kernels::elementwise_table().bf16;
      bf16.round(&to->bits, from, n);
      bf16.widen(from, &to->bits, n);
    }
  }

  // s (+)= alpha p q, which is symmetric. Computes the diagonal and the part right of the diagonal, in blocks of rows,
  // and copies the rest.
  void symmetric(const MatrixIn& p, const MatrixIn& q, Index inner, double alpha, bool add) {
    constexpr Index kBlock = 128;
    for (Index i = 0; i < small_; i += kBlock) {
      const Index block = std::min(kBlock, small_ - i);
      const auto from = [](const MatrixIn& x, Index row, Index column) {
        return MatrixIn{static_cast<const Op*>(x.data) + row * x.row + column * x.column, x.dtype, x.row, x.column};
      };
      multiply({.m = block,
                .n = small_ - i,
                .k = inner,
                .a = from(p, i, 0),
                .b = from(q, 0, i),
                .c = s_ + i * small_ + i,
                .ldc = small_,
                .alpha = alpha,
                .accumulate = add});
      for (Index r = i; r < i + block; ++r)
        for (Index column = i + block; column < small_; ++column) s_[column * small_ + r] = s_[r * small_ + column];
    }
  }
};

// A matrix: the rows of a parameter that form one map.
struct Matrix {
  const WholeParameter* parameter;
  Index begin, rows, columns;

  Index work() const { return rows * columns * std::min(rows, columns); }
  template <class T, class Op>
  Index scratch_bytes() const {
    return rows * columns * static_cast<Index>(sizeof(T)) + 64 + NewtonSchulz<T, Op>::bytes_of(rows, columns);
  }
};

// Makes the step of one matrix. `scratch` has scratch_bytes() bytes.
template <class T, class Op>
void step_of(const Matrix& matrix, const MuonOptions& o, bool here, char* scratch) {
  const auto& k = kernels::of<T>(kernels::optimizer_table());
  const WholeParameter& p = *matrix.parameter;
  const Index rows = matrix.rows, columns = matrix.columns, n = rows * columns, begin = matrix.begin * columns;
  T *u = reinterpret_cast<T*>(scratch), *mean = p.states[kMeanSlot].ptr<T>() + begin;
  std::memcpy(u, p.gradient.ptr<T>() + begin, static_cast<std::size_t>(n) * sizeof(T));
  if (p.gradient_scale != 1) k.scale(u, n, p.gradient_scale);
  k.average(mean, u, n, 1 - o.momentum);
  if (o.nesterov)
    k.average(u, mean, n, o.momentum);
  else
    std::memcpy(u, mean, static_cast<std::size_t>(n) * sizeof(T));
  NewtonSchulz<T, Op>(u, rows, columns, o, here, scratch + (n * static_cast<Index>(sizeof(T)) + 63) / 64 * 64).run();
  const double a = static_cast<double>(rows), b = static_cast<double>(columns);
  const double ratio =
      o.adjust_lr_fn == AdjustLr::original ? std::sqrt(std::max(1.0, a / b)) : 0.2 * std::sqrt(std::max(a, b));
  // p -= lr ratio (u + weight_decay / ratio p)
  Tensor values = p.values;
  k.sgd(values.ptr<T>() + begin, u, nullptr, n,
        {.gradient_scale = 1,
         .l2 = p.weight_decay / ratio,
         .momentum = 0,
         .undampened = 1,
         .nesterov = false,
         .lr = p.lr * ratio});
}

// Makes the steps of all matrices of type T. Small matrices are distributed among the threads, by decreasing cost.
template <class T, class Op>
void steps_of(std::span<WholeParameter> all, const MuonOptions& o) {
  std::size_t matrices = 0;
  for (const WholeParameter& p : all) matrices += std::max<std::size_t>(1, p.parts.size());
  Scratch<Matrix> small(matrices);
  std::size_t count = 0;
  Index bytes = 0;
  const auto add = [&](const Matrix& m) {
    if (m.rows * m.columns == 0) return;
    if (m.work() <= kAloneWork) {
      small[count++] = m;
      bytes = std::max(bytes, m.scratch_bytes<T, Op>());
    } else {
      Scratch<char> scratch(static_cast<std::size_t>(m.scratch_bytes<T, Op>()));
      step_of<T, Op>(m, o, false, scratch.data());
    }
  };
  for (WholeParameter& p : all) {
    if (p.done || !orthogonalised(p.values.shape(), p.elementwise) || p.values.dtype() != dtype_of<T>) continue;
    p.done = true;
    const Index columns = p.values.dim(1);
    if (p.parts.empty()) add({&p, 0, p.values.dim(0), columns});
    Index begin = 0;
    for (const Index rows : p.parts) add({&p, begin, rows, columns}), begin += rows;
  }
  if (count == 0) return;
  std::sort(small.data(), small.data() + count, [](const Matrix& a, const Matrix& b) {
    return std::tuple(-a.work(), a.parameter, a.begin) < std::tuple(-b.work(), b.parameter, b.begin);
  });
  ThreadScratch<char> scratch(bytes);
  parallel_for_each(static_cast<Index>(count), 1,
                    [&](Index i) { step_of<T, Op>(small[static_cast<std::size_t>(i)], o, true, scratch.mine()); });
}

}  // namespace

Muon::Muon(const ParameterGroups& parameters, MuonOptions o)
    : Optimizer("Muon", parameters, o.lr, o.weight_decay,
                {{"exp_avg", 0, of_others}, {"exp_avg_sq", 0, of_others}, {"momentum_buffer", 0, of_matrices}}),
      options_(o) {
  check_option(o.momentum >= 0 && o.momentum <= 1, "momentum", o.momentum, "from 0 to 1");
  check_option(o.eps >= 0, "eps", o.eps, "0 or more");
  check_option(o.ns_steps >= 0 && o.ns_steps < 100, "ns_steps", o.ns_steps, "0 or more and below 100");
  for (const double c : o.ns_coefficients) check_option(true, "one of ns_coefficients", c, "finite");
  check_option(o.betas[0] >= 0 && o.betas[0] < 1, "betas[0]", o.betas[0], "at least 0 and below 1");
  check_option(o.betas[1] >= 0 && o.betas[1] < 1, "betas[1]", o.betas[1], "at least 0 and below 1");
  check_option(o.adamw_eps >= 0, "adamw_eps", o.adamw_eps, "0 or more");
}

bool Muon::needs_whole(const Shape& shape, bool elementwise) const { return orthogonalised(shape, elementwise); }

void Muon::update(const UpdateChunk& chunk) const {
  detail::adam_step(chunk, options_.betas, options_.adamw_eps, true);
}

void Muon::update_wholes(std::span<WholeParameter> parameters) const {
  steps_of<float, bfloat16>(parameters, options_);
  steps_of<double, double>(parameters, options_);
}

}  // namespace heed
