// Recurrent cells: one op for a single step, and one op for all steps of a batch of sequences.
//
// linear() computes the input's part of the gates, x W_ih^T + b_ih, in one product for all steps. These ops compute the
// rest. Weights have PyTorch's layout.
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

// The cell. With n units, the previous state h, g = W_hh h + b_hh, the input's sums x, and the logistic function s:
//
//   rnn_tanh, rnn_relu  h' = f(x + g)                                                        (Elman 1990)
//   gru                 r = s(x_r + g_r)   z = s(x_z + g_z)   c = tanh(x_c + r g_c)          (as in PyTorch and cuDNN)
//                       h' = (1 - z) c + z h
//   gru_original        as gru, but c = tanh(x_c + W_c (r h) + b_c)                          (Cho et al. 2014, eq. 8)
//   lstm                i = s(x_i + g_i)   f = s(x_f + g_f)   c~ = tanh(x_c + g_c)   o = s(x_o + g_o)
//                       c' = f c + i c~    h' = o tanh(c')     (Hochreiter and Schmidhuber 1997; Gers et al. 2000)
//
// The order of gates is that of the formulas: r, z, c and i, f, c~, o.
enum class RecurrentKind { rnn_tanh, rnn_relu, gru, gru_original, lstm };

Index recurrent_gates(RecurrentKind kind);  // gates per unit: 1, 3 or 4
// Numbers per unit in a state: 1, or 2 for an LSTM, whose state is h followed by c.
Index recurrent_states(RecurrentKind kind);

// One step: sums [B, gates n], state [B, states n] or undefined (zeros), weight_hh [gates n, n], bias_hh [gates n] or
// undefined -> the next state [B, states n]. float32 or float64. Inside WeightReuse the weight is packed once for all
// steps. Throws Error for other shapes and types.
Tensor recurrent_cell(RecurrentKind kind, In sums, In state, In weight_hh, In bias_hh);

// Options of recurrent_sequence().
struct RecurrentSequence {
  Tensor lengths =
      {};  // int32 [B], each from 0 to T: steps of row b from lengths[b] on are padding; undefined: no padding
  bool reverse = false;  // from the last step of each row to its first
};

// All steps: sums [B, T, gates n] -> [B, T + 1, states n]. The result holds, at t < T, the state after the step that
// read position t, and zeros at padding. At T it holds the last state of each row, or its initial `state` if the row
// has no step. Padding has no effect and gets no gradient, whatever its values. Rows that have ended take no time. A
// row has the same bits in any batch and at any number of threads. Throws Error for other shapes and types, and for
// lengths out of range.
Tensor recurrent_sequence(RecurrentKind kind, In sums, In state, In weight_hh, In bias_hh,
                          const RecurrentSequence& options = {});

}  // namespace heed
