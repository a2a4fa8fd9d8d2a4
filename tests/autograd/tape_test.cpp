// The tape, tested with small ops: recording, errors, gradients, and writes to memory that would lose a gradient.
#include <heed/autograd/detail/tape_state.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/random.hpp>
#include <heed/heed.hpp>
#include <sstream>
#include <thread>
#include <type_traits>
#include <utility>

#include "tests/autograd/small_ops.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// The same derivative, written through dense() and strided() targets.
Tensor times_in_place(In a, In b) {
  Tensor y;
  {
    const NoTape guard;
    y = times(a, b).with_node(0);
  }
  record("times_in_place", a.where(), y, {a, b}, saved(a.tensor(), b.tensor()),
         [](Grads& d, const Tensor& dy, const Tensor& u, const Tensor& v) {
           const Target targets[2] = {d.strided(0), d.dense(1)};
           const Tensor values[2] = {times(dy, v), times(dy, u)};
           for (int i = 0; i < 2; ++i) {
             if (!targets[i]) continue;
             Tensor into = targets[i].gradient;
             if (targets[i].accumulate)
               detail::add_values(into, values[i]);
             else
               detail::copy_values(into, values[i]);
           }
         });
  return y;
}

}  // namespace

TEST_CASE("gradients accumulate over uses and backwards until zero_grad") {
  Parameter w = parameter({2, 3}, {2});
  for (int i = 1; i <= 2; ++i) {
    Tape tape;
    tape.backward(total(times(w, w)));
    CHECK(w.grad().at({0}) == 4.0 * i);
    CHECK(w.grad().at({1}) == 6.0 * i);
  }
  w.zero_grad();
  CHECK(!w.grad().defined());
  Tape tape;
  tape.backward(total(times(w, Tensor::from<double>({1, 1}))));
  CHECK(w.grad().at({1}) == 1);
}

TEST_CASE("views need no step: their gradient is written into their part") {
  Parameter w = parameter({1, 2, 3, 4, 5, 6}, {2, 3});
  Tape tape;
  const Tensor y = total(times(w.t().slice(0, 1, 3), Tensor::from<double>({1, 2, 3, 4}, {2, 2})));
  CHECK(tape.steps() == 2);
  tape.backward(y);
  CHECK(w.grad().to_vector<double>() == std::vector<double>{0, 1, 3, 0, 2, 4});
}

TEST_CASE("the gradient of an expanded view is summed over the repetitions") {
  Parameter w = parameter({1, 2}, {2, 1});
  Tape tape;
  tape.backward(total(times(w.expand({2, 3}), Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}))));
  CHECK(w.grad().to_vector<double>() == std::vector<double>{6, 15});
}

TEST_CASE("targets: one tensor given twice, overlapping and disjoint views") {
  const std::function<Tensor(const std::vector<Tensor>&)> cases[] = {
      [](const auto& x) { return times_in_place(x[0], x[0]); },
      [](const auto& x) { return times_in_place(x[0].slice(1, 0, 2), x[0].slice(1, 2, 4)); },
      [](const auto& x) { return times_in_place(x[0].slice(1, 0, 3), x[0].slice(1, 1, 4)); },
      [](const auto& x) { return times_in_place(x[0].slice(0, 0, 2), x[0].slice(0, 1, 3)); },
      [](const auto& x) { return times_in_place(x[0].slice(1, 0, 3).t(), x[0].slice(1, 0, 3)); },
      [](const auto& x) {
        return times_in_place(x[0].select(0, 0).expand({3, 4}), x[0]);
      },
      [](const auto& x) {
        const Tensor y = times(x[0], x[0]);
        return times_in_place(times_in_place(y, x[0]), y);
      },
  };
  const Tensor x = Rng(3).normal({3, 4}, 0, 1, DType::float64);
  for (const auto& f : cases) gradcheck(f, {x});
  gradcheck(cases[0], {x.slice(1, 1, 2)});
}

TEST_CASE("copies that core makes are recorded") {
  gradcheck(
      [](const auto& x) {
        return times(x[0].t().contiguous(), x[0].t().reshape({4, 3}));
      },
      {Rng(1).normal({3, 4}, 0, 1, DType::float64)});
  Parameter w(Tensor::from({1, 2}));
  Tape tape;
  tape.backward(total(times(w.to(DType::float64), Tensor::from<double>({3, 4}))));
  CHECK(w.grad().dtype() == DType::float32);
  CHECK(w.grad().to_vector<float>() == std::vector<float>{3, 4});
}

TEST_CASE("detach, freezing and NoTape stop gradients") {
  Parameter w = parameter({2}, {1}), frozen = parameter({5}, {1});
  frozen.requires_grad_(false);
  Tape tape;
  Tensor constant;
  {
    const NoTape guard;
    constant = times(w, w);
  }
  tape.backward(total(times(times(w, w.detach()), times(constant, frozen))));
  CHECK(w.grad().item() == 2.0 * 4 * 5);
  CHECK(!frozen.grad().defined());
}

TEST_CASE("training and recording are separate") {
  CHECK(!is_training());
  Tape tape;
  CHECK(is_training());
  {
    const Evaluation evaluation;
    CHECK(!is_training());
    CHECK(detail::mode().tape == &tape);
  }
  {
    const NoTape guard;
    CHECK(is_training());
  }
  CHECK(is_training());
}

TEST_CASE("every way to lose a gradient silently is an error") {
  Parameter w = parameter({2, 3}, {2});
  const Tensor before = times(w, w);
  Tensor gone;
  {
    Tape tape;
    gone = times(w, w);
    CHECK(contains(error_of([&] { tape.backward(gone); }),
                   "backward: the loss is [2] float64; it must have one element"));
  }
  Tape tape;
  const Tensor y = times(w, w);
  CHECK(contains(error_of([&] { times(before, w); }), "was computed from parameters before the tape began"));
  CHECK(contains(error_of([&] { times(gone, w); }), "was computed on a tape that no longer exists"));
  CHECK(error_of([&] { times(before.detach(), w); }).empty());
  {
    Tape inner;
    CHECK(contains(error_of([&] { times(y, w); }), "belongs to an outer tape"));
    CHECK(contains(error_of([&] { inner.backward(total(Tensor::ones({1}))); }), "was not computed on this tape"));
  }
  std::string other;
  std::thread([&] { other = error_of([&] { times(y, y); }); }).join();
  CHECK(contains(other, "belongs to a tape of another thread"));
  CHECK(contains(error_of([&] { recompute([&](const auto& x) { return times(x[0], y); }, {w}); }),
                 "was not given to recompute()"));
  const Tensor loss = total(y);
  w.mutable_data<double>()[0] = 7;
  CHECK(contains(error_of([&] { tape.backward(loss); }),
                 "times: a tensor that its derivative needs, [2] float64, was written to before backward()"));
  CHECK(contains(error_of([&] { tape.backward(loss); }), "this tape already ran backward"));
}

namespace {

constexpr DType kDouble = DType::float64;

}  // namespace

TEST_CASE("in place: a write to the input of an op after the op has run is an Error") {
  Parameter w(Tensor::ones({2, 3}, kDouble));
  const Tensor b = Tensor::full({2, 3}, 2, kDouble);
  struct Case {
    std::string name;
    std::function<void(Tensor&)> write;
  };
  const Case cases[] = {
      {"zero_", [](Tensor& h) { h.zero_(); }},
      {"fill_ of a view", [](Tensor& h) { h.t()[1].fill_(3); }},
      {"copy_ into a part", [](Tensor& h) { h[0].copy_(Tensor::zeros({3}, kDouble)); }},
      {"mutable_data", [](Tensor& h) { h.mutable_data<double>()[0] = 7; }},
      {"of what was detached", [](Tensor& h) { h.detach().zero_(); }},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    Tape tape;
    Tensor h = w + b;
    const Tensor unwritten = w + b;
    c.write(h);
    const std::string written =
        "was written to after it was computed or watched, so its gradient would belong to the old values";
    CHECK(contains(error_of([&] { mul(h, b); }), "mul: an input, [2, 3] float64, " + written));
    CHECK(contains(error_of([&] { sum(h[1]); }), "sum: an input, [3] float64, " + written));
    CHECK(contains(error_of([&] { h.t().contiguous(); }), "clone: an input, [3, 2] float64, " + written));
    CHECK(tape.steps() == 2);
    CHECK(error_of([&] { mul(h.detach(), b); }).empty());
    w.zero_grad();
    tape.backward(sum(unwritten + h.detach()));
    CHECK(values_of(w.grad()) == std::vector<double>(6, 1.));
  }
}

TEST_CASE("in place: a write to a loss or a watched input is an Error, a write to a parameter is not") {
  Parameter w(Tensor::ones({2}, kDouble));
  {
    Tape tape;
    Tensor loss = sum(w);
    loss.zero_();
    CHECK(contains(error_of([&] { tape.backward(loss); }), "backward: y, [] float64, was written to after it was"));
  }
  {
    Tensor x = Tensor::ones({2}, kDouble);
    Tape tape;
    const Tensor in = tape.watch(x);
    x.fill_(3);
    CHECK(contains(error_of([&] { in + w; }), "add: an input, [2] float64, was written to after it was"));
    CHECK(error_of([&] { tape.watch(x) + w; }).empty());  // watched again
  }
  Tape tape;
  Tensor h = w * 2;
  const Tensor y = h * 5 + w;  // these ops save neither h nor w
  h.zero_();
  w.fill_(3);
  tape.backward(sum(y + w));
  CHECK(values_of(w.grad()) == std::vector<double>{12, 12});
}

TEST_CASE("in place: copy_ of a tensor that needs a gradient is an Error while a tape records") {
  Parameter w(Tensor::from({3, 4})), v(Tensor::from({5, 6})), frozen(Tensor::from({7, 8}));
  frozen.requires_grad_(false);
  Tensor out = Tensor::zeros({3, 2}), ids = Tensor::zeros({2}, DType::int32);
  const Tensor before = w * 2;
  out[0].copy_(before);  // no tape records
  Tape tape;
  const Tensor in = tape.watch(Tensor::ones({2})), h = in * 2, whole = w;
  for (const Tensor* x : {&in, &h, &before, &whole}) {
    CHECK(contains(error_of([&] { out[1].copy_(*x); }),
                   "copy_: from, [2] float32, requires a gradient, which would be lost"));
  }
  CHECK(contains(error_of([&] { v.copy_(h); }), "use stack() or concatenate(), or detach() it"));
  CHECK(values_of(out) == std::vector<double>{6, 8, 0, 0, 0, 0});
  CHECK(values_of(v) == std::vector<double>{5, 6});

  out[0].copy_(h.detach());
  out[1].copy_(frozen);
  ids.copy_(h);  // int32 has no gradient
  v.copy_(w);    // as copy_values() of a model does
  {
    const NoTape off;
    out[2].copy_(h);
  }
  CHECK(values_of(out) == std::vector<double>{2, 2, 7, 8, 2, 2});
  CHECK(values_of(ids) == std::vector<double>{2, 2});
  CHECK(values_of(v) == std::vector<double>{3, 4});

  const auto f = [&](const std::vector<Tensor>& x) {
    Tensor y = Tensor::zeros({2});
    y.copy_(x[0] * w);
    return y;
  };
  CHECK(
      contains(error_of([&] { recompute(f, {Tensor::ones({2})}); }), "copy_: from, [2] float32, requires a gradient"));
}

TEST_CASE("the completed hook runs for each parameter when its gradient is complete") {
  Parameter first = parameter({2}, {1}), tied = parameter({3}, {1}), inside = parameter({5}, {1});
  Parameter last = parameter({7}, {1});
  Tape tape;
  const Tensor x = times(first, tied);
  const Tensor y = recompute([&](const std::vector<Tensor>& in) { return times(times(in[0], inside), last); }, {x});
  const Tensor loss = total(times(times(y, last), tied));
  std::vector<std::pair<const Parameter*, double>> reported;
  tape.state().completed = [&](const Tensor& p) {
    for (const Parameter* known : {&first, &tied, &inside, &last})
      if (p.shares_storage(*known)) reported.emplace_back(known, known->grad().item());
  };
  tape.backward(loss);
  // loss = first tied^2 inside last^2. The recomputed function reads inside and last.
  using Reported = std::vector<std::pair<const Parameter*, double>>;
  CHECK(reported == Reported{{&last, 2.0 * 9 * 5 * 2 * 7},
                             {&inside, 2.0 * 9 * 49},
                             {&tied, 2.0 * 2 * 3 * 5 * 49},
                             {&first, 9.0 * 5 * 49}});
}

TEST_CASE("add_later: with the hook, a late gradient is computed before the earlier op that reads the parameter") {
  Parameter first = parameter({2}, {1}), tied = parameter({3}, {1}), middle = parameter({5}, {1});
  std::vector<std::string> order;
  std::vector<std::string>* const to = &order;
  const auto noted = [&](In x, const char* name) {
    Tensor y;
    {
      const NoTape guard;
      y = x * 1;
    }
    record("noted", x.where(), y, {x}, saved(),
           [to, name](Grads& d, const Tensor& dy) { to->push_back(name), d.add(0, dy); });
    return y;
  };
  const auto times_later = [&](In x, In p) {
    Tensor y;
    {
      const NoTape guard;
      y = times(x, p).with_node(0);
    }
    record("times_later", x.where(), y, {x, p}, saved(x.tensor(), p.tensor()),
           [to](Grads& d, const Tensor& dy, const Tensor& u, const Tensor& v) {
             d.add(0, times(dy, v));
             d.add_later(1, [to, dy, u] {
               to->push_back("late");
               return times(dy, u);
             });
           });
    return y;
  };
  struct Case {
    bool completed, tie, inside;  // inside: a recomputed function reads the parameter earlier
    std::vector<std::string> order;
  };
  const Case cases[] = {{false, true, false, {"late", "middle", "first"}},
                        {true, true, false, {"middle", "first", "late"}},
                        {true, true, true, {"middle", "first", "late"}},
                        {true, false, false, {"late", "middle", "first"}}};
  for (const Case& c : cases) {
    INFO(c.completed, c.tie, c.inside);
    for (Parameter* p : {&first, &tied, &middle}) p->zero_grad();
    order.clear();
    Tape tape;
    const auto use = [&](const std::vector<Tensor>& in) { return c.tie ? times(in[0], tied) : in[0] * 1; };
    const Tensor x = first * 1;
    const Tensor h = noted(c.inside ? recompute(use, {x}) : use({x}), "first");
    const Tensor loss = total(times_later(noted(times(h, middle), "middle"), tied));
    bool reported = false;
    if (c.completed)
      tape.state().completed = [&](const Tensor& p) {
        if (p.shares_storage(tied)) reported = true, CHECK(tied.grad().item() == (c.tie ? 60 : 10));
      };
    tape.backward(loss);
    CHECK(reported == c.completed);
    CHECK(order == c.order);
    CHECK(tied.grad().item() == (c.tie ? 2 * 2 * 3 * 5 : 2 * 5));
  }
  // If a derivative throws before the late gradient is computed, the late gradient is dropped.
  Tape tape;
  const Tensor x = times(first, tied);
  Tensor bad;
  {
    const NoTape guard;
    bad = x * 1;
  }
  record("bad", Where::current(), bad, {x}, saved(), [](Grads&, const Tensor&) { fail("it failed"); });
  const Tensor loss = total(times_later(bad, tied));
  tape.state().completed = [](const Tensor&) {};
  order.clear();
  CHECK(error_of([&] { tape.backward(loss); }) == "it failed");
  CHECK(order.empty());
}
