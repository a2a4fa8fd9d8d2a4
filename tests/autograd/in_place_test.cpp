// Memory that is written to: what would lose a gradient is an Error, and gradients that were handed out stay as they
// are.
#include <heed/heed.hpp>
#include <type_traits>
#include <utility>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

constexpr DType kDouble = DType::float64;

std::vector<double> values_of(const Tensor& x) { return x.to_vector<double>(); }

}  // namespace

// x[0] = y, p.grad() = y and their like would set a handle that is gone at once. Named handles are set.
static_assert(!std::is_assignable_v<Tensor, Tensor> && !std::is_assignable_v<Tensor, const Tensor&>);
static_assert(!std::is_assignable_v<decltype(std::declval<Tensor&>()[0]), Tensor>);
static_assert(!std::is_assignable_v<decltype(std::declval<Parameter&>().grad()), Tensor>);
static_assert(std::is_assignable_v<Tensor&, Tensor> && std::is_assignable_v<Tensor&, const Tensor&>);
static_assert(std::is_nothrow_move_constructible_v<Tensor> && std::is_nothrow_move_assignable_v<Tensor>);

TEST_CASE("in place: an op whose input was written to since it was computed is an Error") {
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
    const std::string written = "was written to after it was computed or watched, so its gradient would be of values";
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

TEST_CASE("in place: a loss and an input that is watched must not be written to either, a parameter may be") {
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
    CHECK(error_of([&] { tape.watch(x) + w; }).empty());  // watched anew
  }
  Tape tape;
  Tensor h = w * 2;
  const Tensor y = h * 5 + w;  // which keep neither h nor w
  h.zero_();
  w.fill_(3);
  tape.backward(sum(y + w));
  CHECK(values_of(w.grad()) == std::vector<double>{12, 12});
}

TEST_CASE("in place: copy_ of what wants a gradient is an Error while a tape records") {
  Parameter w(Tensor::from({3, 4})), v(Tensor::from({5, 6})), frozen(Tensor::from({7, 8}));
  frozen.requires_grad_(false);
  Tensor out = Tensor::zeros({3, 2}), ids = Tensor::zeros({2}, DType::int32);
  const Tensor before = w * 2;
  out[0].copy_(before);  // no tape records
  Tape tape;
  const Tensor in = tape.watch(Tensor::ones({2})), h = in * 2, whole = w;
  for (const Tensor* x : {&in, &h, &before, &whole}) {
    CHECK(contains(error_of([&] { out[1].copy_(*x); }),
                   "copy_: from, [2] float32, wants a gradient, which would be lost"));
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
  CHECK(contains(error_of([&] { recompute(f, {Tensor::ones({2})}); }), "copy_: from, [2] float32, wants a gradient"));
}

TEST_CASE("gradients: each value that is watched has memory of its own") {
  Tape tape;
  const Tensor a = tape.watch(Tensor::ones({2})), b = tape.watch(Tensor::ones({2})), c = Tensor::from({1, 2});
  const Tensor y = tape.watch(a + b), z = tape.watch(Tensor::ones({2}));
  Tensor constant = Tensor::zeros({2});
  record("constant", Where::current(), constant, {z}, saved(c),
         [](Grads& d, const Tensor&, const Tensor& kept) { d.add(0, kept); });
  tape.backward(y + constant, Tensor::from({3, 4}));
  Tensor da = tape.grad(a), dz = tape.grad(z);
  da.fill_(7), dz.fill_(7);
  CHECK(values_of(tape.grad(b)) == std::vector<double>{3, 4});
  CHECK(values_of(tape.grad(y)) == std::vector<double>{3, 4});
  CHECK(values_of(c) == std::vector<double>{1, 2});
}

TEST_CASE("gradients: zero_grad leaves the old gradient to whoever holds it, and else its memory serves again") {
  Parameter w(Tensor::ones({2}));
  const auto step = [&](double by) {
    Tape tape;
    tape.backward(sum(w * by));
  };
  step(2);
  {
    const Tensor first = w.grad();
    w.zero_grad();
    step(3);
    CHECK(values_of(first) == std::vector<double>{2, 2});
    CHECK(values_of(w.grad()) == std::vector<double>{3, 3});
    Tape tape;
    const Tensor loss = sum(w * 5), second = w.grad();  // taken when the tape knew w already
    w.zero_grad();
    tape.backward(loss);
    CHECK(values_of(second) == std::vector<double>{3, 3});
    CHECK(values_of(w.grad()) == std::vector<double>{5, 5});
    const Tensor live = w.grad();
    step(1);  // no zero_grad(): added to
    CHECK(values_of(live) == std::vector<double>{6, 6});
  }
  const void* at = w.grad().raw();
  w.zero_grad();
  step(4);
  CHECK(w.grad().raw() == at);
}
