// Checks of decode states.
#include <algorithm>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/conformance/subject.hpp>

namespace heed::detail::conformance {
namespace {

// What `state` gives for positions [begin, end), `step` at a time. The inputs of a step are overwritten after it.
Tensor steps(AttentionState& state, const Trial& t, DType dtype, Index begin, Index end, Index step) {
  const NoTape guard;
  std::vector<Tensor> outputs;
  for (Index i = begin; i < end; i += step) {
    const Index next = std::min(end, i + step);
    Trial part = t;
    for (const Part& p : parts(part)) *p.x = p.x->slice(2, i, next).to(dtype).clone();
    Tensor bias = t.call.bias;  // of pairs, [T, S]
    if (bias.defined()) bias = bias.slice(-2, i, next).slice(-1, 0, next).to(dtype).clone();
    const Tensor y = state.apply(part.q, part.k, part.v, {.bias = bias}, part.inputs);
    outputs.push_back(y.detach().clone());
    for (const Part& p : parts(part)) p.x->fill_(7);
  }
  return concatenate(outputs, 2);
}

NamedTensors saved_buffers(AttentionState& state) {
  NamedTensors all;
  for (const NamedBuffer& b : named_buffers(state))
    if (b.buffer->defined()) all[b.name] = b.buffer->detach().clone();
  return all;
}

// Puts them into a fresh state; the names that it does not have remain.
NamedTensors restore(AttentionState& state, NamedTensors buffers) {
  for (const NamedBuffer& b : named_buffers(state)) {
    const auto found = buffers.find(b.name);
    if (found == buffers.end()) continue;
    *b.buffer = found->second;
    buffers.erase(found);
  }
  return buffers;
}

AttentionState cloned(Subject& s, AttentionState& state, DType dtype, Finding& f) {
  NamedTensors kept = saved_buffers(state);
  f.expect(!kept.empty(), "the state names no buffers");
  if (s.options.save_and_load) kept = s.options.save_and_load(kept);
  AttentionState fresh = s.mechanism(dtype).make_state();
  for (const auto& [name, left] : restore(fresh, kept)) f.expect(false, "a fresh state has no buffer " + name);
  return fresh;
}

// Two states of one mechanism that take turns know nothing of each other.
void check_two_states(Subject& s, Finding& f, Index n) {
  const Trial t = s.trial({n, n}), u = s.trial({n, n}, 1);
  f.about(t);
  for (const DType dtype : {DType::float64, DType::float32}) {
    AttentionState alone = s.mechanism(dtype).make_state(), one = s.mechanism(dtype).make_state(),
                   other = s.mechanism(dtype).make_state();
    const Tensor wanted = steps(alone, t, dtype, 0, n, 10);
    std::vector<Tensor> parts;
    for (Index i = 0; i < n; i += 10) {
      parts.push_back(steps(one, t, dtype, i, std::min(n, i + 10), 10));
      steps(other, u, dtype, i, std::min(n, i + 10), 10);
    }
    f.same_bits("a state beside another one", concatenate(parts, 2), wanted);
  }
}

// A step takes as many queries as keys: which of them belong together would be a guess.
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
    f.expect(refused, "a state of " + std::to_string(n - 2) + " positions takes " + std::to_string(queries) +
                          (queries == 1 ? " query and " : " queries and ") + std::to_string(keys) +
                          (keys == 1 ? " key" : " keys") + "; it must throw an Error");
  }
}

}  // namespace

void check_state(Subject& s, Finding& f) {
  if (!f.declared(s.can().state, "decode state")) return;
  f.expect(s.can().causal, "a state is declared, but causal attention, which it goes on with, is not");
  const auto check = [&](const Trial& t, DType dtype, std::initializer_list<Index> lengths) {
    f.about(t);
    const Index n = t.q.dim(2);
    const Tensor whole = s.out(t, dtype);
    for (const Index step : lengths) {
      AttentionState state = s.mechanism(dtype).make_state();
      const std::string name =
          std::string(name_of(dtype)) + ", steps of " + std::to_string(std::min(step, n)) + " against all at once";
      f.close(name, steps(state, t, dtype, 0, n, step), whole,
              dtype == DType::float64 ? kRounding : s.options.float32_tolerance,
              dtype == DType::float32 ? share_of(s) : 0);
      f.expect(state.length() == n, name + ": the state has seen " + std::to_string(n) + " positions but says " +
                                        std::to_string(state.length()));
    }
  };
  const Index n = s.at_most(150);
  for (const Index shared : s.sharings())
    for (const DType dtype : {DType::float64, DType::float32}) {
      const Trial t = s.asked(s.trial({n, n, 2, shared}), {"causal", {.causal = true}});
      check(t, dtype, {1, 7, 64, 1000});
      if (!s.can().bias) continue;
      const Tensor bias = Rng(s.options.seed, 97).normal({s.options.heads, n, n}).to(DType::float64);
      check(s.asked(t, {"causal with bias", {.causal = true, .bias = bias}}), dtype, {1, 64});
    }
  if (s.takes(600, f)) {
    const Trial t = s.asked(s.trial({600, 600, 1}), {"causal", {.causal = true}});
    check(t, DType::float64, {100});
    check(t, DType::float32, {1});
  }
  check_two_states(s, f, n);
  check_steps_match(s, f, n);
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
      f.expect(fresh.length() == half, name + ": the resumed state has seen " + std::to_string(half) +
                                           " positions but says " + std::to_string(fresh.length()));
      const Tensor resumed = steps(fresh, t, dtype, half, n, step);
      f.same_bits(name, resumed, steps(state, t, dtype, half, n, step));
    }
}

}  // namespace heed::detail::conformance
