// Checks of calls beside each other: nothing is kept from one to the next, and nothing that is given is written to.
#include <algorithm>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/layers/attention/conformance/subject.hpp>
#include <heed/layers/model.hpp>

namespace heed::detail::conformance {
namespace {

// Tensors of a trial that a mechanism is given.
std::vector<std::pair<const char*, Tensor>> inputs_of(const Trial& t) {
  std::vector<std::pair<const char*, Tensor>> all = {{"q", t.q}, {"k", t.k}, {"v", t.v}, {"dy", t.dy}};
  for (const auto& [name, x] : {std::pair{"key_lengths", t.call.key_lengths}, std::pair{"key_mask", t.call.key_mask},
                                std::pair{"mask", t.call.mask}, std::pair{"bias", t.call.bias}})
    if (x.defined()) all.emplace_back(name, x);
  return all;
}

void check_not_written(Subject& s, Finding& f, Trial t, DType dtype) {
  for (Tensor* x : {&t.q, &t.k, &t.v, &t.dy, &t.call.key_lengths, &t.call.key_mask, &t.call.mask, &t.call.bias})
    if (x->defined()) *x = x->clone();
  std::vector<Tensor> before;
  for (const auto& [name, x] : inputs_of(t)) before.push_back(x.clone());
  NamedTensors buffers;
  for (const NamedBuffer& b : named_buffers(s.mechanism(dtype))) buffers[b.name] = b.buffer->clone();
  s.run(t, dtype);
  s.out(t, dtype);
  std::size_t i = 0;
  for (const auto& [name, x] : inputs_of(t)) f.same_bits(std::string(name) + " after a call", x, before[i++]);
  for (const NamedBuffer& b : named_buffers(s.mechanism(dtype)))
    f.same_bits("the buffer " + b.name + " after a call", *b.buffer, buffers.at(b.name));
}

// Two calls on one tape: outputs and gradients of the inputs are those of each alone.
void check_two_on_a_tape(Subject& s, Finding& f, const Trial& t, const Trial& u) {
  AttentionMechanism& m = s.mechanism(DType::float64);
  const Outcome one = s.run(t), other = s.run(u);
  Tape tape;
  const Trial* trials[] = {&t, &u};
  Tensor watched[2][3], y[2], loss;
  for (int i = 0; i < 2; ++i) {
    const Trial& x = *trials[i];
    watched[i][0] = tape.watch(x.q), watched[i][1] = tape.watch(x.k), watched[i][2] = tape.watch(x.v);
    y[i] = m.apply(watched[i][0], watched[i][1], watched[i][2], x.call);
    const Tensor part = sum(y[i] * x.dy);
    loss = loss.defined() ? loss + part : part;
  }
  f.same_bits("the first of two calls on a tape", y[0].detach(), one.out);
  f.same_bits("the second of two calls on a tape", y[1].detach(), other.out);
  if (loss.node() == 0) return;
  tape.backward(loss);
  const char* names[] = {"q", "k", "v"};
  for (int i = 0; i < 2; ++i)
    for (int x = 0; x < 3; ++x) {
      const Tensor& wanted = (i == 0 ? one : other).gradients.at(names[x]);
      f.close("two calls on a tape, gradient of " + std::string(names[x]), or_zeros(tape.grad(watched[i][x]), wanted),
              wanted, kRounding);
    }
  for (const NamedParameter& p : named_parameters(m)) {
    Tensor sum = one.gradients.at("parameter " + p.name).clone();
    add_values(sum, other.gradients.at("parameter " + p.name));
    f.close("two calls on a tape, gradient of " + p.name, or_zeros(p.parameter->grad(), sum), sum, kRounding);
    p.parameter->zero_grad();
  }
}

// Other values in the same memory, after a call that the tape still holds or that is over.
void check_memory_reused(Subject& s, Finding& f, const Trial& t, const Trial& u, DType dtype) {
  Trial x = in_dtype(t, dtype);
  for (Tensor* p : {&x.q, &x.k, &x.v}) *p = p->clone();
  const Tensor y = s.out(x, dtype), before = y.clone();
  const Trial from = in_dtype(u, dtype);
  copy_values(x.q, from.q), copy_values(x.k, from.k), copy_values(x.v, from.v);
  const Tensor again = s.out(x, dtype).clone();
  f.same_bits("a call of memory that held other values", again, s.out(s.asked(u, {t.name, t.call}), dtype));
  f.same_bits("an output after its inputs were overwritten, and other calls", y, before);
}

}  // namespace

void check_calls(Subject& s, Finding& f) {
  const Index n = s.at_most(40), few = std::max<Index>(1, n / 3);
  for (const Variant& v : s.ends({n, n})) {
    const Trial t = s.asked(s.trial({n, n}), v), u = s.asked(s.trial({n, n}, 1), v),
                smaller = s.trial({few, few, 1}, 2);
    for (const DType dtype : {DType::float64, DType::float32}) {
      f.about(t);
      check_not_written(s, f, in_dtype(t, dtype), dtype);
      const Outcome first = s.run(t, dtype);
      f.same_bits("the same call again", s.run(t, dtype), first);
      s.run(smaller, dtype);
      f.same_bits("the same call after one of other lengths", s.run(t, dtype), first);
      s.run(u, dtype);
      f.same_bits("the same call after one of other values", s.run(t, dtype), first);
      f.same_bits("the output without a tape", s.out(t, dtype), first.out);
      check_memory_reused(s, f, t, u, dtype);
    }
    check_two_on_a_tape(s, f, t, u);
    check_two_on_a_tape(s, f, t, smaller);
    check_two_on_a_tape(s, f, smaller, t);
  }
}

}  // namespace heed::detail::conformance
