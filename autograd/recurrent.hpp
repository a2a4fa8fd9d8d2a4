// Recurrent cells: one step, and all steps of a batch of sequences, as one op each.
//
// The gates' sums of the inputs, x W_ih^T + b_ih, are one product for all steps and come from linear(); these ops do
// what is left. Weights have the layout of PyTorch's.
//
// Example:
//
//   Rng rng(1);
//   const Index units = 8, gates = 3 * units;
//   const Tensor x = rng.normal({2, 5, 4}), w_ih = rng.normal({gates, 4}), w_hh = rng.normal({gates, units});
//   const Tensor sums = linear(x, w_ih, Tensor());
//   const Tensor lengths = Tensor::from<std::int32_t>({5, 3});
//   const Tensor all = recurrent_sequence(RecurrentKind::gru, sums, Tensor(), w_hh, Tensor(), {.lengths = lengths});
//   const Tensor y = all.slice(1, 0, 5), last = all.select(1, 5);  // [2, 5, 8], [2, 8]
#pragma once
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/record.hpp>

namespace heed {

// With n units, g = W_hh h + b_hh of the state h before, x the input's sums, and s the logistic function:
//
//   rnn_tanh, rnn_relu  h' = f(x + g)                                                        (Elman 1990)
//   gru                 r = s(x_r + g_r)   z = s(x_z + g_z)   c = tanh(x_c + r g_c)          (as PyTorch's and cuDNN's)
//                       h' = (1 - z) c + z h
//   gru_original        the same but for c = tanh(x_c + W_c (r h) + b_c)                     (Cho et al. 2014, eq. 8)
//   lstm                i = s(x_i + g_i)   f = s(x_f + g_f)   c~ = tanh(x_c + g_c)   o = s(x_o + g_o)
//                       c' = f c + i c~    h' = o tanh(c')           (Hochreiter and Schmidhuber 1997; Gers et al.
//                       2000)
//
// In gates' rows the order is that of the formulas: r, z, c and i, f, c~, o.
enum class RecurrentKind { rnn_tanh, rnn_relu, gru, gru_original, lstm };

Index recurrent_gates(RecurrentKind kind);  // 1, 3 or 4
// Tensors of units in a state: 1, or 2 of an LSTM, whose state is h and then c, side by side.
Index recurrent_states(RecurrentKind kind);

// One step: sums [B, gates n], state [B, states n] or undefined (zeros), weight_hh [gates n, n], bias_hh [gates n] or
// undefined -> the state after it. float32 or float64. Inside WeightReuse the weight is packed once for all steps.
Tensor recurrent_cell(RecurrentKind kind, In sums, In state, In weight_hh, In bias_hh);

struct RecurrentSequence {
  Tensor lengths =
      {};  // int32 [B], each from 0 to T: a row's steps from there on are padding; undefined: all are there
  bool reverse = false;  // from the last step of each row to its first
};

// All steps: sums [B, T, gates n] -> [B, T + 1, states n]: at t < T the state after the step that read position t,
// zeros at padding, and at T the last state of each row, that of its `state` where it has no step. Padding has no
// effect and gets no gradient, whatever it holds. Rows that have ended take no time. A row's values are the same to the
// bit in any batch, and at any number of threads.
Tensor recurrent_sequence(RecurrentKind kind, In sums, In state, In weight_hh, In bias_hh,
                          const RecurrentSequence& options = {});

}  // namespace heed
