// Checks of decode states, and of what is refused.
#include <algorithm>
#include <heed/autograd/shape_ops.hpp>
#include <heed/layers/attention/conformance_subject.hpp>

namespace heed::detail::conformance {
namespace {

// What `state` gives for positions [begin, end), `step` at a time.
Tensor steps(AttentionState& state, const Trial& t, DType dtype, Index begin, Index end, Index step) {
  const NoTape guard;
  std::vector<Tensor> parts;
  for (Index i = begin; i < end; i += step) {
    const Index next = std::min(end, i + step);
    const auto part = [&](const Tensor& x) { return x.slice(2, i, next).to(dtype); };
    parts.push_back(state.apply(part(t.q), part(t.k), part(t.v)).detach());
  }
  return concatenate(parts, 2);
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

// A step takes as many queries as keys: which of them belong together would be a guess.
void check_steps_match(Subject& s, Finding& f, Index n) {
  if (n < 3) return;
  const Trial t = s.trial({n, n});
  for (const auto& [queries, keys] : std::vector<std::pair<Index, Index>>{{1, 2}, {2, 1}}) {
    AttentionState state = s.mechanism(DType::float64).make_state();
    steps(state, t, DType::float64, 0, n - 2, n);
    const auto next = [&](const Tensor& x, Index count) { return x.slice(2, n - 2, n - 2 + count); };
    bool refused = false;
    try {
      state.apply(next(t.q, queries), next(t.k, keys), next(t.v, keys));
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
  if (!s.can().state) return;
  f.expect(s.can().causal, "a state is declared, but causal attention, which it goes on with, is not");
  const Index n = std::min<Index>(150, s.options.longest);
  for (const bool grouped : {false, true})
    for (const DType dtype : {DType::float64, DType::float32}) {
      if (grouped && !s.can().grouped) continue;
      Trial t = s.trial({n, n, 2, grouped});
      t.call.causal = true;
      const Tensor whole = s.out(t, dtype);
      for (const Index step : {1, 7, 64, 1000}) {
        AttentionState state = s.mechanism(dtype).make_state();
        const std::string name = std::string(name_of(dtype)) + (grouped ? ", grouped heads" : "") + ", steps of " +
                                 std::to_string(std::min(step, n));
        f.close(name, steps(state, t, dtype, 0, n, step), whole,
                dtype == DType::float64 ? kRounding : s.options.float32_tolerance,
                dtype == DType::float32 && s.can().discrete ? 0.05 : 0);
        f.expect(state.length() == n, name + ": the state has seen " + std::to_string(n) + " positions but says " +
                                          std::to_string(state.length()));
      }
    }
  check_steps_match(s, f, n);
}

void check_state_resumed(Subject& s, Finding& f) {
  if (!s.can().state) return;
  const Index n = std::min<Index>(100, s.options.longest), half = n * 2 / 3;
  for (const DType dtype : {DType::float32, DType::float64})
    for (const Index step : {1, 5}) {
      const Trial t = s.trial({n, n});
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

void check_refuses(Subject& s, Finding& f) {
  const AttentionCapabilities& can = s.can();
  AttentionMechanism& m = s.mechanism(DType::float64);
  const Index n = std::min<Index>(6, s.options.longest);
  const Trial t = s.trial({n, n});
  const auto refuses = [&](bool has, const std::string& what, const std::function<void()>& ask) {
    if (has) return;
    std::string error;
    try {
      ask();
    } catch (const Error& e) {
      error = e.what();
    }
    f.expect(error.find(what) != std::string::npos && error.find(m.name()) != std::string::npos,
             what + (error.empty() ? ": was not refused" : ": the error does not name it: " + error));
  };
  const auto call = [&](const AttentionCall& c) { return [&, c] { m.apply(t.q, t.k, t.v, c); }; };
  refuses(can.causal, "causal", call({.causal = true}));
  refuses(can.key_mask, "key mask", call({.key_lengths = Tensor::full({2}, 1, DType::int32)}));
  refuses(can.key_mask, "key mask", call({.key_mask = Tensor::ones({2, n}, DType::bool8)}));
  refuses(can.full_mask, "mask", call({.mask = Tensor::ones({n, n}, DType::bool8)}));
  // With one position a bias of pairs is one of keys.
  refuses(can.bias || n == 1, "bias", call({.bias = Tensor::ones({n, n}, DType::float64)}));
  refuses(can.bias || can.key_bias, "bias", call({.bias = Tensor::ones({1, n}, DType::float64)}));
  refuses(can.dropout, "dropout", call({.dropout = 0.5}));
  refuses(can.weights, "weights", [&] { m.weights(t.q, t.k, {}); });
  refuses(can.state, "state", [&] { m.make_state(); });
  const Trial longer = s.trial({n, n + 1}), shared = s.trial({n, n, 2, true});
  refuses(can.cross, "queries and keys", [&] { m.apply(longer.q, longer.k, longer.v, {}); });
  if (s.options.heads % 2 == 0) refuses(can.grouped, "heads", [&] { m.apply(shared.q, shared.k, shared.v, {}); });
}

}  // namespace heed::detail::conformance
