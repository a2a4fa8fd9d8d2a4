// User-defined ops through record() and Grads: every way to give a gradient, limits and errors. Also the NaN finder: it
// names the op whose result or derivative first has a NaN or a new infinity, and accepts infinities from inputs.
// recompute_test.cpp tests it inside recompute().
#include <heed/heed.hpp>
#include <sstream>

#include "tests/autograd/small_ops.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using List = std::vector<Tensor>;
using Derivative = void (*)(Grads& d, const Tensor& dy);

// y = the sum of all inputs (of one shape), with the given derivative.
Tensor total(const std::vector<Tensor>& inputs, Derivative f, const char* name = "total") {
  Tensor y = Tensor::zeros(inputs[0].shape(), inputs[0].dtype());
  for (const Tensor& x : inputs) detail::add_values(y, x);
  record(name, Where::current(), y, Inputs(std::span<const Tensor>(inputs)), saved(), f);
  return y;
}

void run_backward(Derivative f) {
  Parameter w(Tensor::ones({2, 3}));
  Tape tape;
  const Tensor y = total({w}, f);
  tape.backward(y, Tensor::ones({2, 3}));
}

}  // namespace

TEST_CASE("record: gradients may be added, in parts, or broadcast, of either dtype and any strides") {
  const Derivative ways[] = {
      [](Grads& d, const Tensor& dy) { d.add(0, dy); },
      [](Grads& d, const Tensor& dy) { d.add(0, dy * 0.25), d.add(0, dy * 0.75); },
      [](Grads& d, const Tensor& dy) { d.add(0, dy.t().contiguous().t()); },
      [](Grads& d, const Tensor& dy) {
        d.add(0, dy.unsqueeze(0).expand({4, 3, 5}) / 4);
      },  // dimensions that expand() repeats are summed
      [](Grads& d, const Tensor& dy) {
        Target t = d.dense(0);
        if (!t.accumulate) t.gradient.zero_();
        detail::add_values(t.gradient, dy);
      },
      [](Grads& d, const Tensor& dy) {
        Target t = d.strided(0);
        if (!t.accumulate) t.gradient.zero_();
        detail::add_values(t.gradient, dy);
      },
  };
  for (const Derivative f : ways) {
    gradcheck([f](const List& x) { return total({x[0]}, f); }, {normal({3, 5})});
    gradcheck([f](const List& x) { return total({x[0].t()}, f); }, {normal({5, 3})});
    gradcheck([f](const List& x) { return total({x[0].expand({3, 5})}, f); }, {normal({5})});
    gradcheck([f](const List& x) { return total({x[0].slice(1, 1, 6)}, f) + x[0].slice(1, 0, 5); }, {normal({3, 7})});
  }
  // A float32 gradient for a float64 parameter, and vice versa.
  for (const DType t : {DType::float32, DType::float64}) {
    Parameter w(Tensor::ones({3}, t));
    Tape tape;
    const Tensor y = total({w}, [](Grads& d, const Tensor& dy) {
      d.add(0, dy.to(dy.dtype() == DType::float32 ? DType::float64 : DType::float32));
    });
    tape.backward(y, Tensor::from({1, 2, 3}).to(t));
    CHECK(w.grad().dtype() == t);
    CHECK(w.grad().to_vector<double>() == std::vector<double>{1, 2, 3});
  }
}

TEST_CASE("record: up to 64 inputs, and needs() reports the inputs that need a gradient") {
  std::vector<Tensor> inputs;
  for (int i = 0; i < 64; ++i) inputs.push_back(normal({2}, static_cast<std::uint64_t>(i)));
  Tape tape;
  for (int i = 0; i < 64; i += 3) inputs[static_cast<std::size_t>(i)] = tape.watch(inputs[static_cast<std::size_t>(i)]);
  const Tensor y = total(inputs, [](Grads& d, const Tensor& dy) {
    for (int i = 0; i < 64; ++i) {
      CHECK(d.needs(i) == (i % 3 == 0));
      if (i % 3 != 0) CHECK(!d.strided(i));
      d.add(i, dy * static_cast<double>(i));
    }
  });
  tape.backward(y, Tensor::ones({2}, DType::float64));
  for (int i = 0; i < 64; i += 3) CHECK(tape.grad(inputs[static_cast<std::size_t>(i)]).at({1}) == i);
  inputs.push_back(normal({2}));
  CHECK(contains(error_of([&] { Inputs all{std::span<const Tensor>(inputs)}; }),
                 "record: 65 inputs; an op has at most 64: split it up"));
  const Tensor x = inputs[0];
  const auto many = [&] {
    Inputs({x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x,
            x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x});
  };
  CHECK(contains(error_of(many), "record: 65 inputs; an op has at most 64: split it up"));
}

TEST_CASE("backward from a view, expanded or not, starts with the elements of the view") {
  const auto gradient = [](Tensor (*view)(const Tensor&)) {
    Tape tape;
    const Tensor x = tape.watch(Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3}));
    const Tensor y = view(x * 2);
    Tensor dy = Tensor::arange(y.numel(), DType::float32).view(y.shape());
    tape.backward(y, dy);
    return tape.grad(x).to_vector<double>();
  };
  using Values = std::vector<double>;
  CHECK(gradient([](const Tensor& x) { return x.t(); }) == Values{0, 4, 8, 2, 6, 10});
  CHECK(gradient([](const Tensor& x) { return x[1]; }) == Values{0, 0, 0, 0, 2, 4});
  CHECK(gradient([](const Tensor& x) { return x[0].expand({2, 3}); }) == Values{6, 10, 14, 0, 0, 0});
  CHECK(gradient([](const Tensor& x) {
          return x.select(1, 2).unsqueeze(1).expand({2, 2});
        }) == Values{0, 0, 2, 0, 0, 10});
  CHECK(gradient([](const Tensor& x) { return x.expand({2, 2, 3}); }) == Values{12, 16, 20, 24, 28, 32});
  CHECK(gradient([](const Tensor& x) { return x.slice(0, 0, 0); }) == Values{0, 0, 0, 0, 0, 0});
  CHECK(gradient([](const Tensor& x) { return x[1][2].expand({3}); }) == Values{0, 0, 0, 0, 0, 6});
}

TEST_CASE("the NaN finder names the module of a gradient too") {
  Parameter w(Tensor::from({4, 0}));
  w.set_path("blocks.1.scale.weight");
  for (const bool in_place : {false, true}) {
    Tape tape({.find_nan = true});
    const Tensor y = in_place ? sqrt(w) : total({w}, [](Grads& d, const Tensor& dy) { d.add(0, dy / 0); });
    const std::string error = error_of([&] { tape.backward(y, Tensor::ones({2})); });
    CHECK(contains(error, in_place ? "sqrt: a gradient of shape [2] holds inf at element 1"
                                   : "total: a gradient of shape [2] holds inf at element 0"));
    CHECK(contains(error, "it is the first that is not finite (blocks.1.scale, record_test.cpp:"));
  }
}

TEST_CASE("record: y has a gradient however its values were computed, and counts as unrecorded without a tape") {
  const auto mine = [](In z, bool detached) {
    Tensor y;
    if (detached) {
      y = z->detach().clone();
    } else {
      const NoTape guard;
      y = z * 1.;
    }
    record("mine", z.where(), y, {z}, saved(), [](Grads& d, const Tensor& dy) { d.add(0, dy); });
    return y;
  };
  for (const bool detached : {false, true}) {
    Parameter w(Tensor::from({2, 3}));
    const Tensor before = mine(w, detached);
    CHECK(before.is_unrecorded());
    Tape tape;
    CHECK(contains(error_of([&] { before * 2; }), "was computed from parameters before the tape began"));
    const Tensor y = mine(w, detached);
    tape.backward(sum(y * y));
    CHECK(w.grad().to_vector<double>() == std::vector<double>{4, 6});

    Parameter v(Tensor::from({2, 3}));
    Tape second;
    const auto f = [&](const List& x) { return mine(v, detached) * x[0]; };
    second.backward(sum(recompute(f, {Tensor::from({5, 7})})));
    CHECK(v.grad().to_vector<double>() == std::vector<double>{5, 7});
  }
}

TEST_CASE("record: an op that is refused leaves nothing on the tape") {
  Parameter w(Tensor::ones({2, 3}));
  Tape tape;
  Tensor y = Tensor::ones({3, 2}).t();
  CHECK(contains(error_of([&] {
                   record("view", Where::current(), y, {w}, saved(), [](Grads& d, const Tensor& dy) { d.add(0, dy); });
                 }),
                 "view: record: y is"));
  CHECK(tape.steps() == 0);
  tape.backward(sum(w * 2));
  CHECK(w.grad().to_vector<double>() == std::vector<double>(6, 2.));
}

TEST_CASE("record: errors") {
  const Tensor outer = Tensor::ones({2, 3});
  check_errors({
      {"total: the gradient of input 0 is [3, 2] float32; it must be floating and have the input's shape, [2, 3], or "
       "one "
       "that this broadcasts to (record_test.cpp:",
       [] { run_backward([](Grads& d, const Tensor& dy) { d.add(0, dy.t()); }); }},
      {"total: the gradient of input 0 is [3] float32",
       [] { run_backward([](Grads& d, const Tensor& dy) { d.add(0, dy[0]); }); }},
      {"total: the gradient of input 0 is undefined",
       [] { run_backward([](Grads& d, const Tensor&) { d.add(0, {}); }); }},
      {"total: the gradient of input 0 is [2, 3] int32",
       [] { run_backward([](Grads& d, const Tensor& dy) { d.add(0, dy.to(DType::int32)); }); }},
      {"total: gradient of input 1; the op has 1 input, counted from 0 (record_test.cpp:",
       [] { run_backward([](Grads& d, const Tensor& dy) { d.add(1, dy); }); }},
      {"total: gradient of input 3; the op has 1 input",
       [] { run_backward([](Grads& d, const Tensor&) { d.needs(3); }); }},
      {"total: gradient of input -1; the op has 1 input",
       [] { run_backward([](Grads& d, const Tensor&) { d.dense(-1); }); }},
      {"total: gradient of input 2; the op has 2 inputs, counted from 0",
       [] {
         Parameter w(Tensor::ones({2}));
         Tape tape;
         tape.backward(sum(total({w, w}, [](Grads& d, const Tensor&) { d.strided(2); })));
       }},
      {"view: record: y is [2, 3] float32 with strides [1, 2]; it must be contiguous, in new storage (record_test.cpp:",
       [] {
         Parameter w(Tensor::ones({2, 3}));
         Tape tape;
         Tensor y = Tensor::ones({3, 2}).t();
         record("view", Where::current(), y, {w}, saved(), [](Grads&, const Tensor&) {});
       }},
      {"total: the tape already ran backward; create a new Tape, or use NoTape or detach() where no gradient is needed "
       "(record_test.cpp:",
       [] {
         Parameter w(Tensor::ones({2, 3}));
         Tape tape;
         tape.backward(sum(w));
         total({w}, [](Grads&, const Tensor&) {});
       }},
      {"backward: y is [2, 3] float32 and dy is [3] float32; dy must be floating and have the shape of y",
       [] {
         Parameter w(Tensor::ones({2, 3}));
         Tape tape;
         tape.backward(w * 2, Tensor::ones({3}));
       }},
      {"and dy is undefined; dy must be floating and have the shape of y",
       [] {
         Parameter w(Tensor::ones({}));
         Tape tape;
         tape.backward(w * 2, Tensor());
       }},
      {"and dy is [] int32; dy must be floating and have the shape of y",
       [] {
         Parameter w(Tensor::ones({}));
         Tape tape;
         tape.backward(w * 2, Tensor::scalar(1, DType::int32));
       }},
      {"backward: the loss is undefined; it must have one element", [] { Tape().backward(Tensor()); }},
      {"watch: x is undefined; it must be floating", [] { Tape().watch(Tensor()); }},
      {"watch: x is [2] int32; it must be floating", [] { Tape().watch(Tensor::arange(2)); }},
      {"watch: x is a parameter; its gradient is in grad() of the parameter",
       [] { Tape().watch(Parameter(Tensor::ones({2}))); }},
      {"grad: x, [2, 3] float32, is not watched by this tape; call watch() before backward()",
       [&] { Tape().grad(outer); }},
      {"more than 16 gradients that cannot be written in place",
       [] {
         const Tensor x = Tensor::ones({1});
         Tape tape;
         const Tensor w = tape.watch(x);
         const Tensor y = total(std::vector<Tensor>(20, w), [](Grads& d, const Tensor&) {
           for (int i = 0; i < 20; ++i) d.dense(i).gradient.zero_();
         });
         tape.backward(y);
       }},
      {"add: more than 16 gradients in addition to those written in place",
       [] {
         Tape tape;
         const Tensor w = tape.watch(Tensor::ones({1}));
         const Tensor y = total({w}, [](Grads& d, const Tensor& dy) {
           d.dense(0).gradient.zero_();
           for (int i = 0; i < 20; ++i) d.add(0, dy);
         });
         tape.backward(y);
       }},
  });
}

TEST_CASE("the NaN finder names the op and the path of the first bad value") {
  Parameter w = parameter({1, 0}, {2});
  w.set_path("blocks.3.norm.weight");
  const std::string message = error_of([&] {
    Tape tape({.find_nan = true});
    times(times(w, w), Tensor::from<double>({1, INFINITY}));
  });
  CHECK(contains(message, "times: the result"));
  Tape tape({.find_nan = true});
  CHECK(contains(error_of([&] { times(w, Tensor::from<double>({NAN, 1})); }), "(blocks.3.norm, record_test.cpp:"));
}

namespace {

// The NaN finder's message for f and its derivative, for the parameter w = {0, 1, 2, 3} of shape [2, 2].
std::string found(const std::function<Tensor(const Tensor&)>& f, double dy = 1) {
  Parameter w(Tensor::from<double>({0, 1, 2, 3}, {2, 2}));
  return error_of([&] {
    Tape tape({.find_nan = true});
    const Tensor y = f(w);
    tape.backward(y, Tensor::full(y.shape(), dy, y.dtype()));
  });
}

Tensor upper() { return Tensor::from<bool>({0, 1, 0, 0}, {2, 2}); }

}  // namespace

TEST_CASE("find_nan: an infinity that was given is not reported, as in masks of attention") {
  const Tensor bias = Tensor::from<double>({0, -kInf, 0, 0}, {2, 2});
  CHECK(found([](const Tensor& w) { return softmax(masked_fill(w, upper(), -kInf), -1); }) == "");
  CHECK(found([](const Tensor& w) { return softmax(where(upper(), -kInf, w), -1); }) == "");
  CHECK(found([](const Tensor& w) { return softmax(where(logical_not(upper()), w, -kInf), -1); }) == "");
  CHECK(found([&](const Tensor& w) { return softmax(where(upper(), bias, w), -1); }) == "");
  CHECK(found([&](const Tensor& w) { return softmax((w + bias).t().contiguous().t(), -1); }) == "");
  CHECK(found([](const Tensor& w) {
          const auto masked = [](const std::vector<Tensor>& x) { return masked_fill(x[0] * 2, upper(), -kInf); };
          return softmax(recompute(masked, {w}), -1);
        }) == "");
}

TEST_CASE("find_nan: an infinity that results from finite inputs or numbers is reported") {
  CHECK(contains(found([](const Tensor& w) { return log(w); }),
                 "log: the result of shape [2, 2] holds -inf at element 0; it is the first that is not finite"));
  CHECK(contains(found([](const Tensor& w) { return exp(masked_fill(w, upper(), 1e4)); }),
                 "exp: the result of shape [2, 2] holds inf at element 1"));
  CHECK(contains(
      found([](const Tensor& w) { return recompute([](const std::vector<Tensor>& x) { return log(x[0]); }, {w}); }),
      "log: the result of shape [2, 2] holds -inf at element 0"));
  CHECK(contains(found([](const Tensor& w) { return sqrt(w); }), "sqrt: a gradient of shape [2, 2] holds inf"));
}

TEST_CASE("find_nan: a NaN is reported, also next to an infinity that was given, and if NaN itself was given") {
  CHECK(contains(found([](const Tensor& w) {
                   const Tensor y = masked_fill(w, upper(), kInf);
                   return y - y;
                 }),
                 "sub: the result of shape [2, 2] holds nan at element 1"));
  CHECK(contains(found([](const Tensor& w) {
                   return w * Tensor::from<double>({kInf, kInf});
                 }),
                 "mul: the result of shape [2, 2] holds nan at element 0"));
  CHECK(contains(found([](const Tensor& w) {
                   return w + Tensor::from<double>({kInf, kNaN});
                 }),
                 "add: the result of shape [2, 2] holds nan at element 1; it is the first"));
}

TEST_CASE("find_nan: gradients, if dy or a saved tensor has an infinity") {
  CHECK(found([](const Tensor& w) { return w * 2; }, kInf) == "");
  CHECK(contains(found([](const Tensor& w) { return w * 2; }, kNaN), "mul: a gradient of shape [2, 2] holds nan"));
  CHECK(contains(found([](const Tensor& w) { return w * w; }, kInf),  // 0 * inf
                 "mul: a gradient of shape [2, 2] holds nan at element 0"));
  const Tensor factor = Tensor::from<double>({1, -kInf});
  CHECK(found([&](const Tensor& w) { return w.slice(0, 1, 2) * factor; }) == "");
}
