// The check "calls": no call depends on earlier calls, and no argument is written to.
#include <algorithm>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/layers/attention/detail/conformance_subject.hpp>
#include <heed/layers/model.hpp>

namespace heed::detail::conformance {
namespace {

void check_not_written(Subject& s, Finding& f, Trial t, DType dtype) {
  const Arguments inputs(named_buffers(t)), buffers(named_buffers(s.mechanism(dtype)));
  const Tensor out = s.out(t, dtype);
  inputs.check(f, s.run(t, dtype).out), inputs.check(f, out), buffers.check(f, out);
}

// Checks that two calls on one tape have the outputs and gradients of each call alone.
void check_two_on_a_tape(Subject& s, Finding& f, const Trial& t, const Trial& u) {
  AttentionMechanism& m = s.mechanism(DType::float64);
  const Outcome one = s.run(t), other = s.run(u);
  Tape tape;
  Trial trials[] = {t, u};
  Tensor y[2], loss;
  for (int i = 0; i < 2; ++i) {
    for (const NamedBuffer& p : parts(trials[i])) *p.buffer = tape.watch(*p.buffer);
    y[i] = applied(m, trials[i]);
    const Tensor part = sum(y[i] * trials[i].dy);
    loss = loss.defined() ? loss + part : part;
  }
  f.same_bits("the first of two calls on a tape", y[0].detach(), one.out);
  f.same_bits("the second of two calls on a tape", y[1].detach(), other.out);
  if (loss.node() == 0) return;
  tape.backward(loss);
  for (int i = 0; i < 2; ++i)
    for (const NamedBuffer& p : parts(trials[i])) {
      const Tensor& expected = (i == 0 ? one : other).gradients.at(p.name);
      f.close("two calls on a tape, gradient of " + p.name, or_zeros(tape.grad(*p.buffer), expected), expected,
              kRounding);
    }
  for (const NamedParameter& p : named_parameters(m)) {
    Tensor sum = one.gradients.at("parameter " + p.name).clone();
    add_values(sum, other.gradients.at("parameter " + p.name));
    f.close("two calls on a tape, gradient of " + p.name, or_zeros(p.parameter->grad(), sum), sum, kRounding);
    p.parameter->zero_grad();
  }
}

// Overwrites the inputs of a call and calls again. The second call must use the new values, and the first output must
// not change.
void check_memory_reused(Subject& s, Finding& f, const Trial& t, const Trial& u, DType dtype) {
  Trial x = in_dtype(t, dtype);
  const std::vector<NamedBuffer> all = parts(x);
  for (const NamedBuffer& p : all) *p.buffer = p.buffer->clone();
  const Tensor y = s.out(x, dtype), before = y.clone();
  Trial from = in_dtype(u, dtype);
  const std::vector<NamedBuffer> others = parts(from);
  for (std::size_t i = 0; i < all.size(); ++i) detail::copy_values(*all[i].buffer, *others[i].buffer);
  const Tensor again = s.out(x, dtype).clone();
  f.same_bits("a call with memory that held other values", again, s.out(s.with_call(u, {t.name, t.call}), dtype));
  f.same_bits("an output after its inputs were overwritten and other calls were made", y, before);
}

}  // namespace

void check_calls(Subject& s, Finding& f) {
  const Index n = s.at_most(40), few = std::max<Index>(1, n / 3);
  for (const Variant& v : s.ends({n, n})) {
    const Trial t = s.with_call(s.trial({n, n}), v), u = s.with_call(s.trial({n, n}, 1), v),
                smaller = s.trial({few, few, 1}, 2);
    for (const DType dtype : {DType::float64, DType::float32}) {
      f.about(t);
      check_not_written(s, f, in_dtype(t, dtype), dtype);
      const Outcome first = s.run(t, dtype);
      f.same_bits("the same call again", s.run(t, dtype), first);
      s.run(smaller, dtype);
      f.same_bits("the same call after a call with other lengths", s.run(t, dtype), first);
      s.run(u, dtype);
      f.same_bits("the same call after a call with other values", s.run(t, dtype), first);
      f.same_bits("the output without a tape", s.out(t, dtype), first.out);
      check_memory_reused(s, f, t, u, dtype);
    }
    check_two_on_a_tape(s, f, t, u);
    check_two_on_a_tape(s, f, t, smaller);
    check_two_on_a_tape(s, f, smaller, t);
  }
  for (const Variant& v : s.ends({1, 1}))  // with one key the output equals its value
    for (const DType dtype : {DType::float64, DType::float32}) {
      const Trial t = in_dtype(s.with_call(s.trial({1, 1}), v), dtype);
      f.about(t);
      check_not_written(s, f, t, dtype);
    }
}

}  // namespace heed::detail::conformance
