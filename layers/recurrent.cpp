// Recurrent layers: cells, stacks and the LSTMN.
#include <cmath>
#include <heed/autograd/attention.hpp>
#include <heed/autograd/detail/recurrent.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/row_lengths.hpp>
#include <heed/layers/recurrent.hpp>
#include <span>

namespace heed {

// ---- Cells ----

RecurrentCell::RecurrentCell(RecurrentKind k, Exactly<Index> input, Exactly<Index> hidden, Rng& rng, bool bias)
    : kind(k) {
  require(input > 0 && hidden > 0, "RecurrentCell: input is ", input, " and hidden is ", hidden,
          "; both must be 1 or more");
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const auto make = [&](const Shape& shape) {
    Parameter p(Tensor::empty(shape));
    init::uniform_(p, rng, -bound, bound);
    return p;
  };
  const Index rows = recurrent_gates(k) * hidden;
  weight_ih = make({rows, input});
  weight_hh = make({rows, hidden});
  if (bias) bias_ih = make({rows}), bias_hh = make({rows});
}

// ---- Stacks ----

// x [B, T, n] with zeros at padding. Contents of padding must not reach the gradient of weights, where 0 times NaN is
// NaN.
static Tensor without_padding_steps(const char* op, In x, const Tensor& lengths) {
  detail::check_steps(op, x, lengths);
  return detail::rows_without_padding(op, x, lengths);
}

Recurrent::Recurrent(RecurrentKind kind, const RecurrentOptions& o, Rng& rng)
    : kind_(kind), options_(o), drop_{o.dropout} {
  require(o.input > 0 && o.hidden > 0 && o.layers > 0, "Recurrent: input is ", o.input, ", hidden is ", o.hidden,
          " and layers is ", o.layers, "; all must be 1 or more");
  require(o.dropout >= 0 && o.dropout < 1, "Recurrent: dropout is ", o.dropout, "; it must be 0 or more and below 1");
  for (Index layer = 0; layer < o.layers; ++layer)
    for (Index direction = 0; direction < directions(); ++direction)
      cells.emplace_back(kind, layer == 0 ? o.input : output(), o.hidden, rng, o.bias);
}

RecurrentOutput Recurrent::operator()(In x, const RecurrentInput& input) const {
  check(x.rank() == 3 && x.dim(2) == options_.input, x.where(), "Recurrent: x is ", x.tensor(),
        "; it must be [batch, positions, ", options_.input, "]");
  return run(x, false, input);
}

RecurrentOutput Recurrent::run_from(In sums, const RecurrentInput& input) const {
  check_one_direction(sums, "sums of the first layer as input");
  return run(sums, true, input);
}

RecurrentOutput Recurrent::run(In x, bool are_sums, const RecurrentInput& input) const {
  check(input.states.empty() || input.states.size() == cells.size(), x.where(), "Recurrent: the number of states is ",
        input.states.size(), "; it must be ", cells.size(), ", one per cell");
  const Index T = x.dim(1);
  RecurrentOutput out{.y = are_sums ? x.tensor() : without_padding_steps("Recurrent", x, input.lengths), .states = {}};
  for (std::size_t i = 0; i < cells.size();) {
    const bool first_layer = i == 0;
    if (!first_layer) out.y = drop_(out.y);
    std::vector<Tensor> of_layer;
    for (Index direction = 0; direction < directions(); ++direction, ++i) {
      const RecurrentCell& cell = cells[i];
      // The sums of padding are never read.
      const Tensor sums = first_layer && are_sums ? x.tensor() : cell.sums({out.y, x.where()});
      const Tensor all =
          recurrent_sequence(kind_, {sums, x.where()}, input.states.empty() ? Tensor() : input.states[i],
                             cell.weight_hh, cell.bias_hh, {.lengths = input.lengths, .reverse = direction == 1});
      of_layer.push_back(all.slice(1, 0, T).slice(2, 0, options_.hidden));
      out.states.push_back(all.select(1, T));
    }
    out.y = of_layer.size() == 1 ? of_layer[0] : concatenate(of_layer, 2);
  }
  return out;
}

void Recurrent::check_one_direction(In x, const char* feature) const {
  check(!options_.bidirectional, x.where(), "Recurrent: a bidirectional stack does not support ", feature,
        ": its reverse direction begins at the end");
}

Tensor Recurrent::step(In x, std::vector<Tensor>& states) const {
  return step_from({cells[0].sums(x), x.where()}, states);
}

Tensor Recurrent::step_from(In sums, std::vector<Tensor>& states) const {
  check_one_direction(sums, "single steps");
  check(states.size() == cells.size(), sums.where(), "Recurrent: the number of states is ", states.size(),
        "; it must be ", cells.size(), ", one per cell");
  Tensor y;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Tensor of_layer = i == 0 ? sums.tensor() : cells[i].sums({drop_(y), sums.where()});
    states[i] = cells[i].step({of_layer, sums.where()}, states[i]);
    y = cells[i].h(states[i]);
  }
  return y;
}

std::vector<Tensor> Recurrent::zero_states(Index batch) const {
  const Shape shape = {batch, recurrent_states(kind_) * options_.hidden};
  return std::vector<Tensor>(cells.size(), Tensor::zeros(shape, cells[0].weight_hh.dtype()));
}

void Recurrent::members(MemberVisitor& visit) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::size_t layer = i / static_cast<std::size_t>(directions());
    const bool reverse = options_.bidirectional && i % 2 == 1;
    cells[i].members(visit, "_l" + std::to_string(layer) + (reverse ? "_reverse" : ""));
  }
}

// ---- LSTMN ----

LSTMN::LSTMN(const LSTMNOptions& o, Rng& rng)
    : cell(RecurrentKind::lstm, o.input, o.hidden, rng),
      memory(o.hidden, o.units == 0 ? o.hidden : o.units, rng, {.bias = false}),
      inputs(o.input, memory.weight.dim(0), rng),
      attended(o.hidden, memory.weight.dim(0), rng, {.bias = false}),
      score(Tensor::empty({1, memory.weight.dim(0)})),
      span_(o.span) {
  require(o.span >= 0, "LSTMN: span is ", o.span, "; it must be 1 or more, or 0 for all positions");
  const double bound = 1 / std::sqrt(static_cast<double>(score.dim(1)));
  init::uniform_(score, rng, -bound, bound);
}

// W_x x + W_t h~ as one query of one head, [B, 1, 1, units].
Tensor LSTMN::query(const Tensor& projected, const Tensor& recalled) const {
  return (projected + attended(cell.h(recalled))).unsqueeze(1).unsqueeze(1);
}

RecurrentOutput LSTMN::run(In x, const RecurrentInput& input, std::vector<Tensor>* weights) const {
  check(x.rank() == 3 && x.dim(2) == cell.weight_ih.dim(1), x.where(), "LSTMN: x is ", x.tensor(),
        "; it must be [batch, positions, ", cell.weight_ih.dim(1), "]");
  check(input.states.empty(), x.where(),
        "LSTMN: the input has states; it must have none, as the memory is empty at the start");
  const Index B = x.dim(0), T = x.dim(1), H = cell.hidden();
  const Tensor rows = without_padding_steps("LSTMN", x, input.lengths);
  const Tensor sums = cell.sums({rows, x.where()}), projected = inputs({rows, x.where()});
  const Tensor nothing = Tensor::zeros({B, 2 * H}, rows.dtype());
  const WeightReuse reuse;
  Tensor recalled = nothing;         // h~ and c~
  std::vector<Tensor> states, keys;  // h and c of each step; W_h h
  for (Index t = 0; t < T; ++t) {
    if (t > 0) {
      const auto n = static_cast<std::size_t>(seen(t));
      const Tensor q = query(projected.select(1, t), recalled);
      const Tensor k = stack(std::span(keys).last(n), 1).unsqueeze(1);
      const Tensor v = stack(std::span(states).last(n), 1).unsqueeze(1);
      recalled = additive_attention(q, k, v, score).select(1, 0).select(1, 0);
      if (weights != nullptr) {
        const Tensor one_each =
            one_hot(Tensor::arange(seen(t)), seen(t), rows.dtype()).expand({B, 1, seen(t), seen(t)});
        weights->push_back(additive_attention(q, k, one_each, score).select(1, 0).select(1, 0));
      }
    }
    states.push_back(cell.step({sums.select(1, t), x.where()}, recalled));
    keys.push_back(memory(cell.h(states.back())));
  }
  if (T == 0) return {.y = sums.slice(2, 0, H), .states = {nothing}};
  const Tensor all = stack(states, 1), y = all.slice(2, 0, H);
  if (!input.lengths.defined()) return {.y = y, .states = {all.select(1, T - 1)}};
  // The last state of a row is at index `length` of the states with zeros in front.
  const Tensor from_nothing = concatenate({nothing.unsqueeze(1), all}, 1);
  const Tensor places = input.lengths.unsqueeze(1).unsqueeze(1).expand({B, 1, 2 * H});
  return {.y = without_padding_steps("LSTMN", y, input.lengths),
          .states = {gather(from_nothing, 1, places.dense()).select(1, 0)}};
}

Tensor LSTMN::step(In x, LSTMNState& state) const {
  check(x.rank() == 2 && x.dim(1) == cell.weight_ih.dim(1), x.where(), "LSTMN: x is ", x.tensor(),
        "; one step takes [batch, ", cell.weight_ih.dim(1), "]");
  const bool first = !state.states.defined();
  check(first || state.states.dim(0) == x.dim(0), x.where(), "LSTMN: x is ", x.tensor(), " and the state holds ",
        state.states, "; the batch must be the same");
  Tensor recalled = Tensor::zeros({x.dim(0), 2 * cell.hidden()}, x.dtype());
  if (!first)
    recalled =
        additive_attention(query(inputs(x), state.recalled), state.keys.unsqueeze(1), state.states.unsqueeze(1), score)
            .select(1, 0)
            .select(1, 0);
  const Tensor next = cell.step({cell.sums(x), x.where()}, recalled);
  const auto appended = [&](const Tensor& before, const Tensor& row) {
    const Tensor one = row.unsqueeze(1), all = first ? one : concatenate({before, one}, 1);
    return all.slice(1, all.dim(1) - seen(all.dim(1)), all.dim(1));
  };
  state = {appended(state.states, next), appended(state.keys, memory(cell.h(next))), recalled};
  return cell.h(next);
}

void LSTMNState::members(MemberVisitor& visit) {
  visit.buffer("states", states), visit.buffer("keys", keys), visit.buffer("recalled", recalled);
}

RecurrentOutput LSTMN::operator()(In x, const RecurrentInput& input) const { return run(x, input, nullptr); }

Tensor LSTMN::attention_weights(In x, const RecurrentInput& input) const {
  const NoTape no_tape;
  std::vector<Tensor> weights;
  run(x, input, &weights);
  Tensor all = Tensor::zeros({x.dim(0), x.dim(1), x.dim(1)}, x.dtype());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Index t = static_cast<Index>(i) + 1;
    Tensor row = all.select(1, t).slice(1, t - seen(t), t);
    row.copy_(weights[i]);
  }
  return all;
}

}  // namespace heed
