// The checks of decode states whose rows have equal lengths: "state", "state copies", "state rows" and "state resumed".
#include <algorithm>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

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
    Trial next = with_queries(t, n - 2, n - 2 + queries);
    for (const NamedBuffer& p : key_parts(next)) *p.buffer = p.buffer->slice(2, n - 2, n - 2 + keys);
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

}  // namespace

Tensor steps(AttentionState& state, const Trial& t, DType dtype, Index begin, Index end, Index step) {
  const NoTape guard;
  std::vector<Tensor> outputs;
  for (Index i = begin; i < end; i += step) {
    const Index next = std::min(end, i + step);
    Trial part = t;
    for (const NamedBuffer& p : parts(part)) *p.buffer = p.buffer->slice(2, i, next).to(dtype).clone();
    Tensor bias = t.call.bias;  // [..., T, S]
    if (bias.defined()) bias = bias.slice(-2, i, next).slice(-1, 0, next).to(dtype).clone();
    const Tensor y = state.apply(part.q, part.k, part.v, {.bias = bias}, part.inputs);
    outputs.push_back(y.detach().clone());
    for (const NamedBuffer& p : parts(part)) p.buffer->fill_(7);
  }
  return concatenate(outputs, 2);
}

AttentionState resumed(Subject& s, Finding& f, AttentionState& state, DType dtype) {
  TensorsByName kept;
  for (const NamedBuffer& b : named_buffers(state))
    if (b.buffer->defined()) kept[b.name] = b.buffer->detach().clone();
  f.expect(!kept.empty(), "the state names no buffers");
  if (s.options.save_and_load) kept = s.options.save_and_load(kept);
  AttentionState fresh = s.mechanism(dtype).make_state();
  for (const NamedBuffer& b : named_buffers(fresh))
    if (const auto found = kept.extract(b.name); !found.empty()) *b.buffer = found.mapped();
  for (const auto& [name, left] : kept) f.expect(false, "a new state has no buffer " + name);
  return fresh;
}

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
  for (const DType dtype : {DType::float64, DType::float32}) {
    AttentionState never_picked = s.mechanism(dtype).make_state();
    steps(never_picked, t, dtype, 0, half, 7);
    const Tensor whole = steps(never_picked, t, dtype, half, n, 4);
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
      f.same_bits("a state whose rows were picked", steps(state, t, dtype, half, n, 4), whole);
    }
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
      AttentionState fresh = resumed(s, f, state, dtype);
      const std::string name = std::string(name_of(dtype)) + ", steps of " + std::to_string(step);
      f.expect(fresh.length() == half, name + ": length() of the resumed state is " + std::to_string(fresh.length()) +
                                           " after " + std::to_string(half) + " positions");
      const Tensor continued = steps(fresh, t, dtype, half, n, step);
      f.same_bits(name, continued, steps(state, t, dtype, half, n, step));
    }
}

}  // namespace heed::detail::conformance
