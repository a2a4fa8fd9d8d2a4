// Shared by the two recurrent ops: the kernels of a cell, and checks of arguments.
#pragma once
#include <heed/autograd/recurrent.hpp>
#include <heed/core/kernels/recurrent.hpp>

namespace heed::detail {

template <class T>
const kernels::CellKernels<T>& cell_of(RecurrentKind kind) {
  const auto& all = kernels::of<T>(kernels::recurrent_table());
  switch (kind) {
    case RecurrentKind::rnn_tanh: return all.rnn_tanh;
    case RecurrentKind::rnn_relu: return all.rnn_relu;
    case RecurrentKind::gru: return all.gru;
    case RecurrentKind::gru_original: return all.gru_original;
    default: return all.lstm;
  }
}

template <class T>
T* element_at(const Tensor& x, Index element) {
  return x.defined() ? x.ptr<T>() + element : nullptr;
}

// Checks the arguments of both ops. Throws Error that begins with `op`. `axes` of the sums: "batch" or "batch, steps".
void check_cell(const char* op, RecurrentKind kind, In sums, In state, In weight, In bias, const char* axes);
// Checks the lengths of the rows of x [batch, steps, ...], if they are defined. Throws Error that begins with `op`.
void check_steps(const char* op, In x, const Tensor& lengths);

}  // namespace heed::detail
