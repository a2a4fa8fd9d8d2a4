// The checks of decode states: "state", "state copies", "state rows", "ragged state" and "state resumed".
#include <algorithm>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <limits>

namespace heed::detail::conformance {
namespace {

// Outputs of `state` for positions [begin, end), `step` at a time. Overwrites the inputs after each step, to find
// states that keep a reference to them.
Tensor steps(AttentionState& state, const Trial& t, DType dtype, Index begin, Index end, Index step) {
  const NoTape guard;
  std::vector<Tensor> outputs;
  for (Index i = begin; i < end; i += step) {
    const Index next = std::min(end, i + step);
    Trial part = t;
    for (const Part& p : parts(part)) *p.x = p.x->slice(2, i, next).to(dtype).clone();
    Tensor bias = t.call.bias;  // [..., T, S]
    if (bias.defined()) bias = bias.slice(-2, i, next).slice(-1, 0, next).to(dtype).clone();
    const Tensor y = state.apply(part.q, part.k, part.v, {.bias = bias}, part.inputs);
    outputs.push_back(y.detach().clone());
    for (const Part& p : parts(part)) p.x->fill_(7);
  }
  return concatenate(outputs, 2);
}

TensorsByName saved_buffers(AttentionState& state) {
  TensorsByName all;
  for (const NamedBuffer& b : named_buffers(state))
    if (b.buffer->defined()) all[b.name] = b.buffer->detach().clone();
  return all;
}

// Copies buffers into a fresh state. Returns the buffers that the state does not have.
TensorsByName restore(AttentionState& state, TensorsByName buffers) {
  for (const NamedBuffer& b : named_buffers(state)) {
    const auto found = buffers.find(b.name);
    if (found == buffers.end()) continue;
    *b.buffer = found->second;
    buffers.erase(found);
  }
  return buffers;
}

AttentionState cloned(Subject& s, AttentionState& state, DType dtype, Finding& f) {
  TensorsByName kept = saved_buffers(state);
  f.expect(!kept.empty(), "the state names no buffers");
  if (s.options.save_and_load) kept = s.options.save_and_load(kept);
  AttentionState fresh = s.mechanism(dtype).make_state();
  for (const auto& [name, left] : restore(fresh, kept)) f.expect(false, "a new state has no buffer " + name);
  return fresh;
}

// Checks that two states of one mechanism that are stepped alternately are independent.
void check_two_states(Subject& s, Finding& f, Index n) {
  const Trial t = s.trial({n, n}), u = s.trial({n, n}, 1);
  f.about(t);
  for (const DType dtype : {DType::float64, DType::float32}) {
    AttentionState alone = s.mechanism(dtype).make_state(), one = s.mechanism(dtype).make_state(),
                   other = s.mechanism(dtype).make_state();
    const Tensor expected = steps(alone, t, dtype, 0, n, 10);
    std::vector<Tensor> parts;
    for (Index i = 0; i < n; i += 10) {
      parts.push_back(steps(one, t, dtype, i, std::min(n, i + 10), 10));
      steps(other, u, dtype, i, std::min(n, i + 10), 10);
    }
    f.same_bits("a state that is used in turn with another state", concatenate(parts, 2), expected);
  }
}

// Checks that a step throws Error if the numbers of queries and keys differ, because their pairing is ambiguous.
void check_steps_match(Subject& s, Finding& f, Index n) {
  if (n < 3) return;
  const Trial t = s.trial({n, n});
  for (const auto& [queries, keys] : std::vector<std::pair<Index, Index>>{{1, 2}, {2, 1}}) {
    AttentionState state = s.mechanism(DType::float64).make_state();
    steps(state, t, DType::float64, 0, n - 2, n);
    Trial next = t;
    for (const Part& p : parts(next)) *p.x = p.x->slice(2, n - 2, n - 2 + (p.of_keys ? keys : queries));
    bool refused = false;
    try {
      state.apply(next.q, next.k, next.v, {}, next.inputs);
    } catch (const Error&) {
      refused = true;
    }
    f.expect(refused, "a state of " + std::to_string(n - 2) + " positions accepts " + std::to_string(queries) +
                          (queries == 1 ? " query and " : " queries and ") + std::to_string(keys) +
                          (keys == 1 ? " key" : " keys") + "; it must throw Error");
  }
}

// A state of a batch whose rows are at different positions of their sequences, and a separate state for each row.
struct Ragged {
  Subject& s;
  Finding& f;
  const Trial& t;
  DType dtype;
  AttentionState together = s.mechanism(dtype).make_state();
  std::vector<AttentionState> alone;
  std::vector<std::int32_t> seen;

  Ragged(Subject& subject, Finding& finding, const Trial& trial, DType type)
      : s(subject), f(finding), t(trial), dtype(type) {
    for (Index b = 0; b < t.q.dim(0); ++b) alone.push_back(s.mechanism(dtype).make_state());
    seen.resize(alone.size());
  }

  // The next counts[b] positions of row b, padded to `count`: keys and values with NaN.
  Trial next(const std::vector<std::int32_t>& counts, Index count) const {
    const auto batch = static_cast<Index>(seen.size());
    Trial padded = t;
    for (const Part& p : parts(padded)) {
      const Tensor x = *p.x;
      const double padding = p.of_keys ? std::numeric_limits<double>::quiet_NaN() : 0.5;
      *p.x = Tensor::full({batch, x.dim(1), count, x.dim(3)}, padding, dtype);
      for (Index b = 0; b < batch; ++b) {
        const Index from = seen[static_cast<std::size_t>(b)], n = counts[static_cast<std::size_t>(b)];
        if (n > 0) (*p.x)[b].slice(1, 0, n).copy_(x[b].slice(1, from, from + n).to(dtype));
      }
    }
    return padded;
  }

  // Feeds the next counts[b] positions of row b, padded to the max count, and compares with a step of that row alone.
  void step(const std::vector<std::int32_t>& counts) {
    const NoTape guard;
    const Index batch = static_cast<Index>(seen.size()), count = *std::max_element(counts.begin(), counts.end());
    const Index longest = *std::max_element(seen.begin(), seen.end());
    const Trial padded = next(counts, count);
    const bool with_bias = t.call.bias.defined();
    AttentionCall call{.key_lengths = Tensor::from(counts, {batch})};
    if (with_bias) call.bias = Tensor::zeros({batch, t.q.dim(1), count, longest + count}, dtype);
    std::vector<Tensor> expected;
    for (Index b = 0; b < batch; ++b) {
      const auto row = static_cast<std::size_t>(b);
      const Index from = seen[row], end = from + counts[row];
      if (from == end) {
        expected.emplace_back();
        continue;
      }
      Trial part = t;
      for (const Part& p : parts(part)) *p.x = p.x->slice(0, b, b + 1).slice(2, from, end).to(dtype).contiguous();
      AttentionCall own;
      if (with_bias) {
        own.bias = t.call.bias.slice(-2, from, end).slice(-1, 0, end).to(dtype).contiguous();
        call.bias[b].slice(1, 0, end - from).slice(2, 0, end).copy_(own.bias);
      }
      expected.push_back(alone[row].apply(part.q, part.k, part.v, own, part.inputs));
    }
    const Tensor y = together.apply(padded.q, padded.k, padded.v, call, padded.inputs);
    f.finite("rows of different lengths, with their padding", y);
    compare(y, expected, counts, count);
  }

  // Compares the outputs of a step with those of each row alone, and adds the counts to `seen`.
  void compare(const Tensor& y, const std::vector<Tensor>& expected, const std::vector<std::int32_t>& counts,
               Index count) {
    const auto batch = static_cast<Index>(seen.size());
    for (Index b = 0; b < batch; ++b) {
      const auto row = static_cast<std::size_t>(b);
      const std::string what = std::string(name_of(dtype)) + ", rows of different lengths: row " + std::to_string(b) +
                               ", " + std::to_string(counts[row]) + " of " + std::to_string(count) +
                               " positions after " + std::to_string(seen[row]) + ", against that row alone";
      if (counts[row] > 0)
        f.close(what, y.slice(0, b, b + 1).slice(2, 0, counts[row]), expected[row],
                dtype == DType::float64 ? kRounding : s.options.float32_tolerance,
                dtype == DType::float32 ? share_of(s) : 0);
      seen[row] += counts[row];
    }
    f.expect(together.lengths().shape() == Shape{batch} &&
                 together.lengths().to_vector<double>() == std::vector<double>(seen.begin(), seen.end()),
             "lengths() of the state is " + describe(together.lengths()) + " after a step with key_lengths " +
                 describe(Tensor::from(counts, {batch})));
  }
};

}  // namespace

void check_state(Subject& s, Finding& f) {
  if (!f.declared(s.can().state, "decode state")) return;
  f.expect(s.can().causal, "a state is declared without causal attention, which it requires");
  const auto check = [&](Subject& of, const Trial& t, DType dtype, std::initializer_list<Index> lengths) {
    f.about(t);
    const Index n = t.q.dim(2);
    const Tensor whole = of.out(t, dtype);
    for (const Index step : lengths) {
      AttentionState state = of.mechanism(dtype).make_state();
      const std::string name =
          std::string(name_of(dtype)) + ", steps of " + std::to_string(std::min(step, n)) + " against all at once";
      f.close(name, steps(state, t, dtype, 0, n, step), whole,
              dtype == DType::float64 ? kRounding : s.options.float32_tolerance,
              dtype == DType::float32 ? share_of(s) : 0);
      f.expect(state.length() == n, name + ": length() of the state is " + std::to_string(state.length()) + " after " +
                                        std::to_string(n) + " positions");
    }
  };
  const Index n = s.at_most(150);
  for (const Index shared : s.sharings())
    for (const DType dtype : {DType::float64, DType::float32}) {
      const Trial t = s.with_call(s.trial({n, n, 2, shared}), {"causal", {.causal = true}});
      if (shared == 1)
        check(s, t, dtype, {1, 7, 64, 1000});
      else
        check(s, t, dtype, {1, 64});
      if (!s.can().bias) continue;
      const Tensor bias = Rng(s.options.seed, 97).normal({s.options.heads, n, n}).to(DType::float64);
      check(s, s.with_call(t, {"causal with bias", {.causal = true, .bias = bias}}), dtype, {1, 64});
    }
  if (s.takes(600, f)) {
    Subject& of = s.of_few_heads();
    const Trial t = of.with_call(of.trial({600, 600, 1}), {"causal", {.causal = true}});
    check(of, t, DType::float64, {100});
    check(of, t, DType::float32, {1});
  }
  check_two_states(s, f, n);
  check_steps_match(s, f, n);
}

void check_state_copies(Subject& s, Finding& f) {
  if (!f.declared(s.can().state, "decode state")) return;
  const Index n = s.at_most(60), half = n / 2;
  const Trial t = s.trial({n, n}), u = s.trial({n, n}, 1);
  f.about(t);
  for (const DType dtype : {DType::float64, DType::float32}) {
    const auto begun = [&] {
      AttentionState state = s.mechanism(dtype).make_state();
      if (half > 0) steps(state, t, dtype, 0, half, 7);
      return state;
    };
    AttentionState state = begun(), one = begun(), other = begun();
    AttentionState copy = state;
    for (Index i = half; i < n; i += 3) {  // alternately
      const Index end = std::min(n, i + 3);
      f.same_bits("a state that was copied", steps(state, t, dtype, i, end, 2), steps(one, t, dtype, i, end, 2));
      f.same_bits("a copy of a state", steps(copy, u, dtype, i, end, 2), steps(other, u, dtype, i, end, 2));
    }
    f.expect(copy.length() == n, "length() of a copied state is " + std::to_string(copy.length()) + " after " +
                                     std::to_string(n) + " positions");
  }
}

void check_state_rows(Subject& s, Finding& f) {
  if (!f.declared(s.can().state, "decode state")) return;
  const Index n = s.at_most(60), half = n / 2;
  if (half == 0) return f.leave_out("longest is 1");
  const Trial t = s.trial({n, n, 3});
  for (const DType dtype : {DType::float64, DType::float32})
    for (const std::vector<std::int32_t>& rows : {std::vector<std::int32_t>{2, 0, 2}, {1}, {0, 1, 2, 1, 0}}) {
      const auto count = static_cast<Index>(rows.size());
      const Trial expected = pick_rows(t, Tensor::from(rows, {count}));
      f.about(expected);
      AttentionState state = s.mechanism(dtype).make_state(), alone = s.mechanism(dtype).make_state();
      steps(state, t, dtype, 0, half, 7);
      steps(alone, expected, dtype, 0, half, 7);
      AttentionState chosen = state.rows(Tensor::from(rows, {count}));
      f.expect(chosen.lengths().shape() == Shape{count} && chosen.length() == half,
               "lengths() of " + std::to_string(count) + " rows of a state is " + describe(chosen.lengths()) +
                   " after " + std::to_string(half) + " positions");
      const Tensor before = steps(chosen, expected, dtype, half, n, 4);
      f.close(std::string(name_of(dtype)) + ", picked rows of a state", before,
              steps(alone, expected, dtype, half, n, 4), rounding(dtype));
      AttentionState whole = s.mechanism(dtype).make_state();
      steps(whole, t, dtype, 0, half, 7);
      f.same_bits("a state whose rows were picked", steps(state, t, dtype, half, n, 4),
                  steps(whole, t, dtype, half, n, 4));
    }
}

void check_ragged_state(Subject& s, Finding& f) {
  if (!f.declared(s.can().state, "decode state") || !f.declared(s.can().key_mask, "key mask") || !s.takes(20, f))
    return;
  const auto n = static_cast<std::int32_t>(s.at_most(60));
  const auto check = [&](const Trial& t, DType dtype) {
    f.about(t);
    Ragged rows(s, f, t, dtype);
    rows.step({n / 2, n / 4, 0});  // prompts
    for (int i = 0; i < 3; ++i) rows.step({1, 1, 1});
    rows.step({1, 0, 1});  // one row gets no position
    rows.step({1, 3, 2});
    AttentionState less = rows.together.rows(Tensor::from<std::int32_t>({2, 0}, {2}));
    f.expect(less.lengths().to_vector<double>() ==
                 std::vector<double>{static_cast<double>(rows.seen[2]), static_cast<double>(rows.seen[0])},
             "lengths() of rows 2 and 0 of a state is " + describe(less.lengths()) + ", lengths() of the state is " +
                 describe(rows.together.lengths()));
    rows.step({2, 2, 2});
  };
  for (const Index shared : s.sharings())
    for (const DType dtype : {DType::float64, DType::float32}) {
      const Trial t = s.trial({n, n, 3, shared});
      check(t, dtype);
      if (!s.can().bias) continue;
      const Tensor bias = Rng(s.options.seed, 98).normal({s.options.heads, n, n}).to(DType::float64);
      check(s.with_call(t, {"with bias", {.bias = bias}}), dtype);
    }
}

void check_state_resumed(Subject& s, Finding& f) {
  if (!f.declared(s.can().state, "decode state")) return;
  const Index n = s.at_most(100), half = n * 2 / 3;
  for (const DType dtype : {DType::float32, DType::float64})
    for (const Index step : {1, 5}) {
      const Trial t = s.trial({n, n});
      f.about(t);
      AttentionState state = s.mechanism(dtype).make_state();
      if (half > 0) steps(state, t, dtype, 0, half, 7);
      AttentionState fresh = cloned(s, state, dtype, f);
      const std::string name = std::string(name_of(dtype)) + ", steps of " + std::to_string(step);
      f.expect(fresh.length() == half, name + ": length() of the resumed state is " + std::to_string(fresh.length()) +
                                           " after " + std::to_string(half) + " positions");
      const Tensor resumed = steps(fresh, t, dtype, half, n, step);
      f.same_bits(name, resumed, steps(state, t, dtype, half, n, step));
    }
}

}  // namespace heed::detail::conformance
