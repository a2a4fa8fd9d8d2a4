// Kernels of recurrent cells: all units of one row, forward and backward, without the matrix products.
//
// A row has n units. Each gate's sum has two parts: `x` from the input and `g` from the state, each [gates][n], biases
// included.
//
//   RNN           h' = f(x + g), f = tanh or relu
//   GRU           r = s(x_r + g_r)   z = s(x_z + g_z)   c = tanh(x_c + r g_c)   h' = (1 - z) c + z h
//   original GRU  the same, except c = tanh(x_c + g_c), where g_c is a product of r h (Cho et al. 2014)
//   LSTM          i = s(x_i + g_i)   f = s(x_f + g_f)   c~ = tanh(x_c + g_c)   o = s(x_o + g_o)
//                 c' = f c + i c~    h' = o tanh(c')
//
// s is the logistic function. The order of gates is PyTorch's: r, z, c and i, f, c~, o.
#pragma once
#include "dispatch/dispatch.hpp"

namespace heed::kernels {

template <class T>
struct CellForward {
  const T* x;
  const T* g;
  const T* h;     // before the step; null: zeros
  const T* cell;  // of an LSTM, before the step; null: zeros
  T* h_next;
  T* cell_next;  // of an LSTM
  T* kept;       // for backward: [kept_gates][n]; null: nothing is kept
};

template <class T>
struct CellBackward {
  const T* kept;
  const T* h;          // before the step; null: zeros
  const T* h_next;     // the result of the step
  const T* cell;       // of an LSTM, before the step; null: zeros
  const T* cell_next;  // of an LSTM
  // The gradients of h_next and cell_next, replaced by those of h and cell, without the part of dh through g.
  T* dh;
  T* dcell;
  T* dx;  // [gates][n]
  T* dg;  // [gates][n] for a GRU, where it differs from dx; else null
};

// The original GRU takes two calls, with a product between them. Forward: `forward_gates` computes r and z and returns
// r h; then `forward` uses g_c only. Backward: `backward` computes dx of c and z; `backward_gates` computes dx of r
// from d(r h).
template <class T>
struct CellKernels {
  int gates, kept_gates;
  void (*forward)(const CellForward<T>&, long n);
  void (*backward)(const CellBackward<T>&, long n);
  void (*forward_gates)(const CellForward<T>&, long n, T* reset_h);
  void (*backward_gates)(const CellBackward<T>&, long n, const T* dreset_h);
};

template <class T>
struct RecurrentKernels {
  CellKernels<T> rnn_tanh, rnn_relu, gru, gru_original, lstm;
};

using RecurrentTable = FloatTable<RecurrentKernels>;
const RecurrentTable& recurrent_table();  // for the level in use

}  // namespace heed::kernels
