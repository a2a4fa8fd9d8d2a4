// Recurrent layers: RNN, GRU, LSTM and LSTMN, as cells and as stacks that read whole sequences.
//
// Example:
//
//   Rng rng(1);
//   const GRU encoder({.input = 16, .hidden = 32, .layers = 2, .bidirectional = true}, rng);
//   const Tensor lengths = Tensor::from<std::int32_t>({9, 4});
//   const RecurrentOutput encoded = encoder(rng.normal({2, 9, 16}), {.lengths = lengths});
//   const Tensor y = encoded.y;  // [2, 9, 64], zeros behind the lengths
#pragma once
#include <heed/autograd/recurrent.hpp>
#include <heed/layers/feed_forward.hpp>
#include <heed/layers/linear.hpp>
#include <vector>

namespace heed {

// ---- Cells ----

// One step of one layer. A state is [B, hidden], of an LSTM [B, 2 hidden]: h and then c, side by side. Formulas in
// autograd/recurrent.hpp; weights, biases and their first values, uniform within 1/sqrt(hidden), as PyTorch's.
struct RecurrentCell {
  RecurrentKind kind;
  Parameter weight_ih;  // [gates * hidden, input]
  Parameter weight_hh;  // [gates * hidden, hidden]
  Parameter bias_ih;    // [gates * hidden], or undefined; and so bias_hh
  Parameter bias_hh;

  RecurrentCell(RecurrentKind kind, Exactly<Index> input, Exactly<Index> hidden, Rng& rng, bool bias = true);

  Index hidden() const { return weight_hh.dim(1); }
  // x [B, input] and the state before, or zeros where there is none -> the state after. In a loop, inside WeightReuse.
  Tensor operator()(In x, const Tensor& state = {}) const { return step(sums(x), state); }
  Tensor h(const Tensor& state) const { return state.slice(1, 0, hidden()); }  // [B, hidden]

  // The parts of it: the gates' sums of inputs, of one step or of all at once, [..., input] -> [..., gates * hidden];
  // and what is left of a step.
  Tensor sums(In x) const { return linear(x, weight_ih, bias_ih); }
  Tensor step(In sums, const Tensor& state) const { return recurrent_cell(kind, sums, state, weight_hh, bias_hh); }

  void members(auto&& visit) {
    visit("weight_ih", weight_ih);
    visit("weight_hh", weight_hh);
    visit("bias_ih", bias_ih);
    visit("bias_hh", bias_hh);
  }
};

// ---- Stacks ----

struct RecurrentOptions {
  Index input = 0;
  Index hidden = 0;
  Index layers = 1;
  bool bidirectional = false;
  bool bias = true;
  double dropout = 0;  // between layers, while training
};

struct RecurrentInput {
  // int32 [B]: positions of a row from there on are padding, which has no effect and gets no gradient, whatever it
  // holds; the reverse direction begins at the end of each row. Undefined: all positions are there.
  Tensor lengths = {};
  std::vector<Tensor> states = {};  // what each cell begins with, as RecurrentOutput::states; empty: zeros
};

struct RecurrentOutput {
  Tensor y = {};                    // [B, T, directions * hidden] of the last layer, zeros at padding
  std::vector<Tensor> states = {};  // of each cell after its last step: of each layer, forward and then reverse
};

// Layers of cells; the reverse direction of a bidirectional one reads from the end, and both are the next one's input.
class Recurrent {
 public:
  std::vector<RecurrentCell> cells;  // of each layer, forward and then reverse

  Recurrent(RecurrentKind kind, const RecurrentOptions& options, Rng& rng);

  RecurrentOutput operator()(In x, const RecurrentInput& input = {}) const;  // x [B, T, input]
  // One step of all layers: x [B, input] and the states, which are replaced, -> [B, hidden]. The same as operator() of
  // one position more. Error where the stack is bidirectional.
  Tensor step(In x, std::vector<Tensor>& states) const;
  // The same, given the first layer's sums of inputs, cells[0].sums(x): [B, T, gates * hidden], and [B, gates *
  // hidden]. Not of a bidirectional stack.
  RecurrentOutput run_from(In sums, const RecurrentInput& input = {}) const;
  Tensor step_from(In sums, std::vector<Tensor>& states) const;
  std::vector<Tensor> zero_states(Index batch) const;  // in the dtype of the weights

  RecurrentKind kind() const { return kind_; }
  const RecurrentOptions& options() const { return options_; }
  Index output() const { return options_.hidden * directions(); }  // the width of y
  Index directions() const { return options_.bidirectional ? 2 : 1; }

  void members(MemberVisitor& visit);  // weight_ih_l0, weight_hh_l0, ..., weight_ih_l0_reverse: PyTorch's names

 private:
  RecurrentKind kind_;
  RecurrentOptions options_;
  Dropout drop_;

  // x is the input, or, where `are_sums`, the first layer's sums of it.
  void check_one_direction(In x, const char* asked) const;
  RecurrentOutput run(In x, bool are_sums, const RecurrentInput& input) const;
};

struct GRU : Recurrent {
  GRU(const RecurrentOptions& options, Rng& rng) : Recurrent(RecurrentKind::gru, options, rng) {}
};
struct LSTM : Recurrent {
  LSTM(const RecurrentOptions& options, Rng& rng) : Recurrent(RecurrentKind::lstm, options, rng) {}
};
struct RNN : Recurrent {  // of tanh, Elman 1990
  RNN(const RecurrentOptions& options, Rng& rng) : Recurrent(RecurrentKind::rnn_tanh, options, rng) {}
};

// ---- LSTMN ----

struct LSTMNOptions {
  Index input = 0;
  Index hidden = 0;
  Index units = 0;  // of the attention; 0: hidden
};

// Long short-term memory-network (Cheng, Dong, Lapata, "Long short-term memory-networks for machine reading", 2016,
// section 3.1): an LSTM that in place of the last state has what it attends to among all of its own earlier ones.
//
//   a_ti = v . tanh(W_h h_i + W_x x_t + W_t h~_(t-1))   s_t = softmax_i(a_t)   i < t
//   h~_t = sum_i s_ti h_i    c~_t = sum_i s_ti c_i      h_t, c_t = LSTM(x_t, h~_t, c~_t)
//
// h~ and c~ are zeros at the first step. Time and memory grow with the square of the length.
class LSTMN {
 public:
  RecurrentCell cell;
  Linear memory;    // W_h
  Linear inputs;    // W_x, with the bias of all three
  Linear attended;  // W_t
  Parameter score;  // v, [1, units]

  LSTMN(const LSTMNOptions& options, Rng& rng);

  RecurrentOutput operator()(In x, const RecurrentInput& input = {}) const;  // as Recurrent; without `states`
  // What each step attended to: [B, T, T], row t zero from column t on, as its first. No gradient.
  Tensor attention_weights(In x, const RecurrentInput& input = {}) const;

  void members(auto&& visit) {
    visit("cell", cell);
    visit("memory", memory);
    visit("inputs", inputs);
    visit("attended", attended);
    visit("score", score);
  }

 private:
  RecurrentOutput run(In x, const RecurrentInput& input, std::vector<Tensor>* weights) const;
};

}  // namespace heed
