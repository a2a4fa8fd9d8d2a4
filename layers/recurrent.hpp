// Recurrent layers: RNN, GRU, LSTM and LSTMN, as cells and as stacks that process whole sequences.
//
// Example:
//
//   Rng rng(1);
//   const GRU encoder({.input = 16, .hidden = 32, .layers = 2, .bidirectional = true}, rng);
//   const Tensor lengths = Tensor::from<std::int32_t>({9, 4});
//   const RecurrentOutput encoded = encoder(rng.normal({2, 9, 16}), {.lengths = lengths});
//   const Tensor y = encoded.y;  // [2, 9, 64], zeros at padding
#pragma once
#include <heed/autograd/recurrent.hpp>
#include <heed/layers/feed_forward.hpp>
#include <heed/layers/linear.hpp>
#include <string>
#include <vector>

namespace heed {

// ---- Cells ----

// One layer, applied step by step. A state is [B, hidden]; the state of an LSTM is [B, 2 hidden], h followed by c.
// Formulas in autograd/recurrent.hpp. Weights, biases and initial values, uniform in +-1/sqrt(hidden), are as in
// PyTorch.
struct RecurrentCell {
  RecurrentKind kind;   // GRU, LSTM or RNN
  Parameter weight_ih;  // [gates * hidden, input]
  Parameter weight_hh;  // [gates * hidden, hidden]
  Parameter bias_ih;    // [gates * hidden], or undefined; the same for bias_hh
  Parameter bias_hh;    // [gates * hidden], or undefined

  // Throws Error for input or hidden below 1.
  RecurrentCell(RecurrentKind kind, Exactly<Index> input, Exactly<Index> hidden, Rng& rng, bool bias = true);

  Index hidden() const { return weight_hh.dim(1); }  // size of h
  // x [B, input] and a state, or zeros if undefined -> the next state. Use WeightReuse around a loop.
  Tensor operator()(In x, const Tensor& state = {}) const { return step(sums(x), state); }
  Tensor h(const Tensor& state) const { return state.slice(1, 0, hidden()); }  // [B, hidden]

  // The two parts of a step. sums(): the gates' sums of inputs, of one step or of all steps at once, [..., input] ->
  // [..., gates * hidden]. step(): the rest of a step.
  Tensor sums(In x) const { return linear(x, weight_ih, bias_ih); }
  Tensor step(In sums, const Tensor& state) const { return recurrent_cell(kind, sums, state, weight_hh, bias_hh); }

  void members(auto&& visit, const std::string& suffix = {}) {  // PyTorch's names
    visit("weight_ih" + suffix, weight_ih);
    visit("weight_hh" + suffix, weight_hh);
    visit("bias_ih" + suffix, bias_ih);
    visit("bias_hh" + suffix, bias_hh);
  }
};

// ---- Stacks ----

// Options of Recurrent.
struct RecurrentOptions {
  Index input = 0;             // size of x; at least 1
  Index hidden = 0;            // size of the state; at least 1
  Index layers = 1;            // at least 1
  bool bidirectional = false;  // each layer also reads the sequence from its end
  bool bias = true;            // false: cells have no biases
  double dropout = 0;  // between layers, during training
};

// Additional inputs of a Recurrent.
struct RecurrentInput {
  // int32 [B]: number of positions per row. Later positions are padding, which has no effect and gets no gradient,
  // whatever its contents. The reverse direction begins at the end of each row. Undefined: no padding.
  Tensor lengths = {};
  std::vector<Tensor> states = {};  // initial state per cell, in the order of RecurrentOutput::states; empty: zeros
};

// The result of a Recurrent.
struct RecurrentOutput {
  Tensor y = {};                    // [B, T, directions * hidden]: outputs of the last layer, 0 at padding
  std::vector<Tensor> states = {};  // final state per cell: per layer, forward then reverse
};

// A stack of layers. In a bidirectional stack, each layer has a forward cell and a reverse cell, which starts at the
// end. The outputs of both are the input of the next layer.
class Recurrent {
 public:
  std::vector<RecurrentCell> cells;  // per layer: forward, then reverse

  // Throws Error for sizes below 1 and for a dropout outside [0, 1).
  Recurrent(RecurrentKind kind, const RecurrentOptions& options, Rng& rng);

  RecurrentOutput operator()(In x, const RecurrentInput& input = {}) const;  // x [B, T, input]
  // One step of all layers: x [B, input] -> [B, hidden]. Replaces the states. The result is that of operator() for one
  // more position. Throws Error if the stack is bidirectional.
  Tensor step(In x, std::vector<Tensor>& states) const;
  // The same from the first layer's sums of inputs, cells[0].sums(x): [B, T, gates * hidden] and [B, gates * hidden].
  // Throw Error if the stack is bidirectional.
  RecurrentOutput run_from(In sums, const RecurrentInput& input = {}) const;
  Tensor step_from(In sums, std::vector<Tensor>& states) const;
  std::vector<Tensor> zero_states(Index batch) const;  // in the dtype of the weights

  // The arguments of the constructor.
  const RecurrentOptions& options() const { return options_; }
  Index output() const { return options_.hidden * directions(); }  // width of y
  Index directions() const { return options_.bidirectional ? 2 : 1; }  // 2 if bidirectional, otherwise 1

  void members(MemberVisitor& visit);  // weight_ih_l0, weight_hh_l0, ..., weight_ih_l0_reverse: PyTorch's names

 private:
  RecurrentKind kind_;
  RecurrentOptions options_;
  Dropout drop_;

  // x is the input or, if `are_sums`, the first layer's sums of inputs.
  void check_one_direction(In x, const char* feature) const;
  RecurrentOutput run(In x, bool are_sums, const RecurrentInput& input) const;
};

// The stacks by kind. RNN uses tanh (Elman 1990).
struct GRU : Recurrent {
  GRU(const RecurrentOptions& options, Rng& rng) : Recurrent(RecurrentKind::gru, options, rng) {}  // as Recurrent
};
struct LSTM : Recurrent {
  LSTM(const RecurrentOptions& options, Rng& rng) : Recurrent(RecurrentKind::lstm, options, rng) {}  // as Recurrent
};
struct RNN : Recurrent {
  RNN(const RecurrentOptions& options, Rng& rng) : Recurrent(RecurrentKind::rnn_tanh, options, rng) {}  // as Recurrent
};

// ---- LSTMN ----

// Options of LSTMN.
struct LSTMNOptions {
  Index input = 0;   // size of x
  Index hidden = 0;  // size of h and of c
  Index units = 0;  // size of the attention's hidden layer; 0: hidden
  Index span = 0;   // max number of earlier positions that a step attends to, the last ones; 0: all
};

// The memory of an LSTMN between single steps.
struct LSTMNState {
  Tensor states = {}, keys = {};  // h and c, W_h h of the last n positions: [B, n, 2 hidden] and [B, n, units]
  Tensor recalled = {};           // h~ and c~ of the last step, [B, 2 hidden]

  void members(MemberVisitor& visit);  // states, keys, recalled: for pick_rows()
};

// Long short-term memory-network (Cheng, Dong, Lapata, "Long short-term memory-networks for machine reading", 2016,
// section 3.1): an LSTM that replaces the previous state by a sum of all its earlier states, weighted by attention.
//
//   a_ti = v . tanh(W_h h_i + W_x x_t + W_t h~_(t-1))   s_t = softmax_i(a_t)   t - span <= i < t
//   h~_t = sum_i s_ti h_i    c~_t = sum_i s_ti c_i      h_t, c_t = LSTM(x_t, h~_t, c~_t)
//
// h~ and c~ are zeros at the first step. Time and memory grow with the square of the length, or with length times span.
class LSTMN {
 public:
  RecurrentCell cell;  // LSTM, without attention
  Linear memory;    // W_h
  Linear inputs;    // W_x; has the bias of all three
  Linear attended;  // W_t
  Parameter score;  // v, [1, units]

  // Initial values of the score are uniform in +-1/sqrt(units), others as in Linear and RecurrentCell. Throws Error for
  // sizes below 1 and for a negative span.
  LSTMN(const LSTMNOptions& options, Rng& rng);

  RecurrentOutput operator()(In x, const RecurrentInput& input = {}) const;  // as Recurrent, but without `states`
  // One step: x [B, input] -> h [B, hidden]. Replaces the state, which is empty at the start. The result is that of
  // operator() for one more position.
  Tensor step(In x, LSTMNState& state) const;
  // The weights s of each step: [B, T, T], where row t is 0 from column t on and before column t - span. No gradient.
  Tensor attention_weights(In x, const RecurrentInput& input = {}) const;

  void members(auto&& visit) {  // cell, memory, inputs, attended, score
    visit("cell", cell);
    visit("memory", memory);
    visit("inputs", inputs);
    visit("attended", attended);
    visit("score", score);
  }

  Index span() const { return span_; }  // 0: all earlier positions

 private:
  Index span_;

  // Positions that step t attends to.
  Index seen(Index t) const { return span_ > 0 && span_ < t ? span_ : t; }
  Tensor query(const Tensor& projected, const Tensor& recalled) const;
  RecurrentOutput run(In x, const RecurrentInput& input, std::vector<Tensor>* weights) const;
};

}  // namespace heed
