// The engine, with small ops of its own: what is recorded, what is an error, where gradients go.
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/random.hpp>
#include <sstream>
#include <thread>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::same_bits;

namespace {

Tensor times(In a, In b) {
  const Tensor p = a->dense(), q = b->dense();
  Tensor y = Tensor::empty(a.shape(), a.dtype());
  for (Index i = 0; i < y.numel(); ++i)
    visit_dtype(y.dtype(), [&](auto t) {
      using T = decltype(t);
      if constexpr (std::is_floating_point_v<T>) y.ptr<T>()[i] = p.ptr<T>()[i] * q.ptr<T>()[i];
    });
  record("times", a.where(), y, {a, b}, saved(a.tensor(), b.tensor()),
         [](Grads& d, const Tensor& dy, const Tensor& u, const Tensor& v) {
           if (d.wants(0)) d.add(0, times(dy, v));
           if (d.wants(1)) d.add(1, times(dy, u));
         });
  return y;
}

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

Tensor total(In a) {
  double sum = 0;
  for (double v : a->to_vector<double>()) sum += v;
  Tensor y = Tensor::scalar(sum, a.dtype());
  record("total", a.where(), y, {a}, saved(),
         [shape = a.shape()](Grads& d, const Tensor& dy) { d.add(0, dy.expand(shape)); });
  return y;
}

Parameter parameter(std::initializer_list<double> values, const Shape& shape) {
  return Parameter(Tensor::from<double>(values, shape));
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

TEST_CASE("an expanded view sums over what it repeats") {
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
  CHECK(contains(error_of([&] { times(gone, w); }), "was computed on a tape that is gone"));
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
  CHECK(contains(error_of([&] { tape.backward(loss); }), "this tape ran backward already"));
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
  CHECK(contains(error_of([&] { times(w, Tensor::from<double>({NAN, 1})); }), "(blocks.3.norm, tape_test.cpp:"));
}

TEST_CASE("gradcheck finds a wrong derivative and names it") {
  const auto wrong = [](const std::vector<Tensor>& x) {
    Tensor y = x[0].detach().clone().with_node(0);
    record("wrong", Where::current(), y, {x[0]}, saved(), [](Grads& d, const Tensor& dy) {
      d.add(0, times(dy, Tensor::from<double>({1, 1, 1.001})));
    });
    return y;
  };
  const std::string message = error_of([&] { gradcheck(wrong, {Tensor::from<double>({1, 2, 3})}); });
  CHECK(contains(message, "element 2 of input 0"));
  Parameter w = parameter({1, 2}, {2});
  gradcheck([&] { return times(w, w); }, std::vector<NamedParameter>{{"layer.w", &w}});
}

TEST_CASE("a tape prints itself and gives its gradient memory back") {
  Parameter w = parameter({2, 3}, {2});
  w.set_path("w");
  const std::size_t before = memory_use().current;
  {
    Tape tape;
    const Tensor y = total(times(times(w, w), w));
    std::ostringstream out;
    tape.print(out);
    CHECK(contains(out.str(), "times"));
    CHECK(contains(out.str(), "w [2], w [2]"));
    CHECK(contains(out.str(), "3 steps keep"));
    tape.backward(y);
    std::ostringstream after;
    tape.print(after);
    CHECK(contains(after.str(), "ran and is gone"));
  }
  CHECK(memory_use().current <= before + 1024);  // the parameter's gradient stays
}

TEST_CASE("a tape as a graph: a box a step, an ellipse a leaf, an arrow an input that wants a gradient") {
  Parameter w = parameter({2, 3}, {2}), nameless = parameter({4, 5}, {2});
  w.set_path("mlp.weight");
  Tape tape;
  const Tensor x = tape.watch(Tensor::from<double>({6, 7}));
  const Tensor y = total(times(times(w, times(x, Tensor::from<double>({1, 1}))), nameless));
  const std::string begin = "digraph tape {\n  rankdir=TB;\n  node [fontname=\"sans-serif\"];\n";
  CHECK(tape.graph() == begin +
                            "  n1 [shape=box, label=\"times\\n[2]\"];\n"
                            "  n0 -> n1;\n"
                            "  n3 [shape=box, label=\"times\\n[2]\"];\n"
                            "  n2 -> n3;\n"
                            "  n1 -> n3;\n"
                            "  n5 [shape=box, label=\"times\\n[2]\"];\n"
                            "  n3 -> n5;\n"
                            "  n4 -> n5;\n"
                            "  n6 [shape=box, label=\"total\\n[]\"];\n"
                            "  n5 -> n6;\n"
                            "  n0 [shape=ellipse, label=\"%0\\n[2]\"];\n"
                            "  n2 [shape=ellipse, label=\"mlp.weight\\n[2]\"];\n"
                            "  n4 [shape=ellipse, label=\"%4\\n[2]\"];\n"
                            "}\n");
  tape.backward(y);
  CHECK(tape.graph() == begin + "}\n");  // what ran is gone
}

TEST_CASE("parts that make up a value are written without zeroing it first, and a part left out counts as zero") {
  for (int left_out = -1; left_out < 3; ++left_out) {
    for (int i = 0; i < 4; ++i) Tensor::full({2, 3, 4}, 77, DType::float64);  // what the pool hands out next
    Tape tape;
    const Tensor x = tape.watch(Tensor::ones({2, 3, 4}, DType::float64));
    const Tensor a = x.select(1, 0), b = x.select(1, 1), c = x.select(1, 2);
    Tensor y = Tensor::full({2, 4}, 3, DType::float64);
    record("sum", Where::current(), y, {a, b, c}, saved(), [left_out](Grads& d, const Tensor& dy) {
      std::vector<Tensor> held;  // targets must stay valid while others are asked for
      for (int i = 0; i < 3; ++i) {
        if (i == left_out) continue;
        if (i == 1) {
          d.add(i, dy);
          continue;
        }
        const Target t = d.strided(i);
        CHECK(!t.accumulate);
        Tensor into = t.gradient;
        detail::copy_values(into, dy);
        held.push_back(into);
      }
    });
    tape.backward(y, Tensor::ones({2, 4}, DType::float64));
    const Tensor g = tape.grad(x);
    for (Index i = 0; i < 3; ++i)
      CHECK(same_bits(g.select(1, i), Tensor::full({2, 4}, i == left_out ? 0 : 1, DType::float64)));
  }
}
