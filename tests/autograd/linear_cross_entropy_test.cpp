// linear_cross_entropy against cross_entropy of plain loops: values, gradients, chunks of rows, memory and tied
// weights.
#include <heed/autograd/detail/tape_state.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/memory.hpp>

#include "tests/autograd/fused_support.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using List = std::vector<Tensor>;

// x weight^T + bias in plain loops, and its derivative.
Tensor naive_linear(In x, In weight, In bias) {
  const auto d = static_cast<std::size_t>(x.dim(-1)), classes = static_cast<std::size_t>(weight.dim(0)),
             rows = static_cast<std::size_t>(x.rows());
  const std::vector<double> xs = x->to_vector<double>(), ws = weight->to_vector<double>();
  const std::vector<double> bs = bias->defined() ? bias->to_vector<double>() : std::vector<double>(classes);
  std::vector<double> z(rows * classes);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < classes; ++c) {
      z[r * classes + c] = bs[c];
      for (std::size_t k = 0; k < d; ++k) z[r * classes + c] += xs[r * d + k] * ws[c * d + k];
    }
  Tensor y = Tensor::from(z, x.shape().with(-1, weight.dim(0)));
  record("naive_linear", x.where(), y, {x, weight, bias}, saved(x.tensor(), weight.tensor()),
         [d, classes, rows](Grads& g, const Tensor& dy, const Tensor& xt, const Tensor& wt) {
           const std::vector<double> u = xt.to_vector<double>(), w = wt.to_vector<double>(),
                                     dz = dy.to_vector<double>();
           std::vector<double> dx(u.size()), dw(w.size()), db(classes);
           for (std::size_t r = 0; r < rows; ++r)
             for (std::size_t c = 0; c < classes; ++c) {
               db[c] += dz[r * classes + c];
               for (std::size_t k = 0; k < d; ++k) {
                 dx[r * d + k] += dz[r * classes + c] * w[c * d + k];
                 dw[c * d + k] += dz[r * classes + c] * u[r * d + k];
               }
             }
           g.add(0, Tensor::from(dx, xt.shape()));
           g.add(1, Tensor::from(dw, wt.shape()));
           if (g.needs(2)) g.add(2, Tensor::from(db, {static_cast<Index>(classes)}));
         });
  return y;
}

// Compares the fused op in the dtype of x with cross_entropy of plain loops in float64.
void check_against_composed(Index rows, Index d, Index classes, DType dtype, bool with_bias,
                            const CrossEntropyOptions& o, double tolerance) {
  CAPTURE(rows);
  CAPTURE(d);
  CAPTURE(classes);
  const Tensor x = normal({rows, d}, 1, dtype), w = Rng(2).normal({classes, d}, 0, 0.3, dtype),
               b = normal({classes}, 3, dtype);
  Tensor t = Rng(4).integers({rows}, 0, classes);
  if (rows > 2) t.mutable_data<std::int32_t>()[1] = -100;
  const Tensor dy = normal({rows}, 5, dtype);
  const auto fused = [&](const List& in) {
    return linear_cross_entropy(in[0], in[1], with_bias ? in[2] : Tensor(), t, o);
  };
  CrossEntropyOptions o64 = o;
  if (o.weight.defined()) o64.weight = o.weight.to(DType::float64);
  const auto composed = [&](const List& in) {
    return cross_entropy(naive_linear(in[0], in[1], with_bias ? in[2] : Tensor()), t, o64);
  };
  const Run got = run(fused, {x, w, b}, dy);
  const Run expected =
      run(composed, {x.to(DType::float64), w.to(DType::float64), b.to(DType::float64)}, dy.to(DType::float64));
  CHECK(worst(got.y, expected.y, tolerance, 4 * tolerance) <= 1);
  for (std::size_t i = 0; i < (with_bias ? 3 : 2); ++i)
    CHECK(worst(got.gradients[i], expected.gradients[i], 4 * tolerance, 8 * tolerance) <= 1);
  CHECK(with_bias == got.gradients[2].defined());
}

}  // namespace

TEST_CASE("linear_cross_entropy equals cross_entropy of all logits, on every level") {
  on_each_level([] {
    for (const Reduction r : {Reduction::none, Reduction::mean, Reduction::sum}) {
      for (const DType dtype : {DType::float32, DType::float64}) {
        const double tolerance = dtype == DType::float32 ? 2e-6 : 1e-14;
        const Tensor weight = Rng(6).uniform({17}, 0.5, 1.5, dtype);
        for (const Index classes : {1, 2, 16, 17, 33})
          check_against_composed(5, 3, classes, dtype, classes % 2 == 0, {.reduction = r}, tolerance);
        check_against_composed(9, 8, 17, dtype, true, {.label_smoothing = 0.2, .weight = weight, .reduction = r},
                               tolerance);
        check_against_composed(1, 1, 17, dtype, false, {.label_smoothing = 0.2, .weight = weight, .reduction = r},
                               tolerance);
      }
    }
  });
}

TEST_CASE("linear_cross_entropy in two chunks of rows is the sum of two in one") {
  const Index rows = 128, classes = 250000;  // 32 million logits; a chunk holds 2^24
  const Tensor x = normal({rows, 2}, 1, DType::float32), w = normal({classes, 2}, 2, DType::float32);
  const Tensor b = normal({classes}, 3, DType::float32), t = Rng(4).integers({rows}, 0, classes),
               dy = normal({rows}, 5, DType::float32);
  for (const Reduction r : {Reduction::sum, Reduction::none}) {
    const auto part = [&](Index begin, Index end) {
      const auto f = [&](const List& in) {
        return linear_cross_entropy(in[0], in[1], in[2], t.slice(0, begin, end), {.reduction = r});
      };
      return run(f, {x.slice(0, begin, end).clone(), w, b}, dy.slice(0, begin, end).clone());
    };
    const Run whole = part(0, rows), low = part(0, rows / 2), high = part(rows / 2, rows);
    CHECK(same_bits(whole.gradients[0].slice(0, 0, rows / 2), low.gradients[0]));
    CHECK(same_bits(whole.gradients[0].slice(0, rows / 2, rows), high.gradients[0]));
    for (std::size_t i = 1; i < 3; ++i) {
      Tensor sum = low.gradients[i].to(DType::float64);
      detail::add_values(sum, high.gradients[i]);
      CHECK(close(whole.gradients[i], sum, 1e-5, 1e-9));
    }
  }
}

TEST_CASE("linear_cross_entropy passes gradcheck") {
  const Tensor x = normal({2, 3, 4}, 7), w = normal({5, 4}, 8), b = normal({5}, 9),
               t = Tensor::from<std::int32_t>({0, 4, -100, 1, 1, 2}, {2, 3});
  for (const Reduction r : {Reduction::none, Reduction::mean, Reduction::sum}) {
    gradcheck(
        [&](const List& in) {
          return linear_cross_entropy(in[0], in[1], in[2], t, {.label_smoothing = 0.1, .reduction = r});
        },
        {x, w, b});
    gradcheck(
        [&](const List& in) {
          return linear_cross_entropy(in[0].transpose(0, 1), in[1].t(), Tensor(), t.t(), {.reduction = r});
        },
        {x, normal({4, 5}, 10)});
    // Two uses, so that gradients are summed, and a factor of 3, so that dy is not 1.
    gradcheck(
        [&](const List& in) {
          const Tensor one = linear_cross_entropy(in[0], in[1], Tensor(), t, {.reduction = r}),
                       two = linear_cross_entropy(in[0], in[1], in[2], t, {.reduction = r});
          Tensor y = Tensor::empty(one.shape(), one.dtype());
          for (Index i = 0; i < y.numel(); ++i) y.ptr<double>()[i] = one.ptr<double>()[i] + 3 * two.ptr<double>()[i];
          record("sum", Where::current(), y, {one, two}, saved(), [](Grads& d, const Tensor& dy) {
            Tensor three = dy.clone();
            for (Index i = 0; i < three.numel(); ++i) three.mutable_data<double>()[i] *= 3;
            d.add(0, dy);
            d.add(1, three);
          });
          return y;
        },
        {x, w, b});
  }
}

TEST_CASE("linear_cross_entropy: bfloat16 operands, one row, no rows, a single needed gradient") {
  const Tensor x = normal({6, 16}, 11, DType::float32).to(DType::bfloat16),
               w = normal({7, 16}, 12, DType::float32).to(DType::bfloat16);
  const Tensor t = Rng(13).integers({6}, 0, 7);
  const auto fused = [&](const List& in) { return linear_cross_entropy(in[0], in[1], Tensor(), t); };
  const Run wide = run(fused, {x.to(DType::float32), w.to(DType::float32)});
  Parameter weight(w.to(DType::float32));
  {
    Tape tape;
    const Tensor y = linear_cross_entropy(x, weight, Tensor(), t);
    CHECK(y.dtype() == DType::float32);
    CHECK(close(y, wide.y));
    tape.backward(y);
    CHECK(close(weight.grad(), wide.gradients[1]));
  }
  CHECK(close(linear_cross_entropy(x, w, Tensor(), t), wide.y));

  const Tensor row = x.to(DType::float32)[0];
  CHECK(linear_cross_entropy(row, w.to(DType::float32), Tensor(), t[0], {.reduction = Reduction::none}).shape() ==
        Shape{});
  const Tensor none = Tensor::zeros({0}, DType::int32);
  const Run empty = run(
      [&](const List& in) {
        return linear_cross_entropy(Tensor::zeros({0, 16}), in[0], Tensor(), none, {.reduction = Reduction::sum});
      },
      {w.to(DType::float32)});
  CHECK(empty.y.item() == 0);
  CHECK(same_bits(empty.gradients[0], Tensor::zeros({7, 16})));
  const Tensor xs = x.to(DType::float32), ws = w.to(DType::float32);
  CHECK(same_bits(run([&](const List& in) { return fused({in[0], ws}); }, {xs}).gradients[0], wide.gradients[0]));
  CHECK(same_bits(run([&](const List& in) { return fused({xs, in[0]}); }, {ws}).gradients[0], wide.gradients[1]));
}

TEST_CASE("linear_cross_entropy has the same bits at any number of threads") {
  const Tensor x = normal({300, 40}, 14, DType::float32), w = normal({1111, 40}, 15, DType::float32),
               b = normal({1111}, 16, DType::float32);
  const Tensor t = Rng(17).integers({300}, 0, 1111);
  same_at_any_threads([&] {
    const Run r = run([&](const List& in) { return linear_cross_entropy(in[0], in[1], in[2], t); }, {x, w, b});
    return List{r.y, r.gradients[0], r.gradients[1], r.gradients[2]};
  });
}

TEST_CASE("linear_cross_entropy: errors") {
  const Tensor x = Tensor::zeros({2, 4}), w = Tensor::zeros({3, 4}), t = Tensor::from<std::int32_t>({0, 3});
  const auto message = [](In a, In b, In c, In d, const CrossEntropyOptions& o = {}) {
    return error_of([&] { linear_cross_entropy(a, b, c, d, o); });
  };
  CHECK(contains(message(x, w, Tensor(), t),
                 "linear_cross_entropy: targets[1] is 3; it must be in [0, 3) or ignore_index, -100 "
                 "(linear_cross_entropy_test.cpp:"));
  CHECK(
      contains(message(x, w.t(), Tensor(), t),
               "linear_cross_entropy: x is [2, 4] float32 but weight is [4, 3] float32; weight must be [C, D], where D "
               "is the last axis of x"));
  CHECK(contains(message(x, w.to(DType::float64), Tensor(), t), "both must be float64, or each float32 or bfloat16"));
  CHECK(contains(message(x, w, Tensor::zeros({4}), t),
                 "linear_cross_entropy: weight is [3, 4] float32 but bias is [4] float32; it must be [3] float32"));
  CHECK(contains(message(x, w, Tensor(), t.unsqueeze(0)),
                 "but targets are [1, 2] int32; targets must have the shape of x without its last axis"));
  CHECK(contains(message(x, w, Tensor(), t.to(DType::float32)),
                 "linear_cross_entropy: targets are [2] float32; they must be int32"));
  CHECK(contains(message(x, w, Tensor(), t, {.label_smoothing = -1}), "label_smoothing is -1; it must be in [0, 1]"));
}

TEST_CASE("linear_cross_entropy: in bfloat16 it is cross_entropy of linear, values and gradients") {
  const Tensor x = normal({20, 16}, 11, DType::float32), w = normal({7, 16}, 12, DType::float32),
               b = normal({7}, 13, DType::float32), t = random_ids({20}, 7, 14);
  const MatmulPrecision precision(DType::bfloat16);
  const Run got = run([&](const auto& in) { return linear_cross_entropy(in[0], in[1], in[2], t); }, {x, w, b});
  const Run expected = run([&](const auto& in) { return cross_entropy(linear(in[0], in[1], in[2]), t); }, {x, w, b});
  CHECK(close(got.y, expected.y, 1e-6, 1e-6));
  for (std::size_t i = 0; i < 3; ++i) CHECK(close(got.gradients[i], expected.gradients[i], 1e-5, 1e-6));
}

// The weight's gradient is computed with the loss, in the memory of the parameter's gradient.
TEST_CASE("linear_cross_entropy: a gradient that was computed with the loss is kept apart from all others") {
  Rng rng(7);
  const Tensor x = rng.normal({40, 12}), target = rng.integers({40}, 0, 9);
  Parameter weight(rng.normal({9, 12}));
  const auto loss_of = [&](double factor) { return linear_cross_entropy(x * factor, weight, Tensor(), target); };
  const auto one = [&](double factor) {  // the gradient of one loss alone
    weight.zero_grad();
    Tape tape;
    tape.backward(loss_of(factor));
    const NoTape no_tape;
    return weight.grad().clone();
  };
  const Tensor first = one(1), second = one(2);
  CHECK(test::worst(first, second, 0, 1e-3) > 1);

  SUBCASE("two losses on one tape") {
    weight.zero_grad();
    Tape tape;
    const Tensor a = loss_of(1), b = loss_of(2);
    tape.backward(a + b);
    CHECK(test::close(weight.grad(), Tensor(first + second).detach(), 1e-5, 1e-6));
  }
  SUBCASE("another use of the weight whose derivative runs first, and one whose derivative runs last") {
    for (const bool before : {false, true}) {
      weight.zero_grad();
      Tape tape;
      Tensor other = before ? sum(weight * 3.0) : Tensor();
      const Tensor loss = loss_of(1);
      if (!before) other = sum(weight * 3.0);
      tape.backward(loss + other);
      CHECK(test::close(weight.grad(), Tensor(first + 3.0).detach(), 1e-5, 1e-6));
    }
  }
  SUBCASE("a loss that is never taken backward, then one that is") {
    weight.zero_grad();
    {
      Tape tape;
      loss_of(2);
    }
    CHECK(test::same_bits(one(1), first));
  }
  SUBCASE("gradients of steps that add up") {
    one(2);
    Tape tape;
    tape.backward(loss_of(1));
    CHECK(test::close(weight.grad(), Tensor(first + second).detach(), 1e-5, 1e-6));
  }
  SUBCASE("a gradient that somebody holds keeps its values") {
    one(1);
    const Tensor held = weight.grad();
    weight.zero_grad();
    Tape tape;
    tape.backward(loss_of(2));
    CHECK(test::same_bits(held, first));
    CHECK(test::same_bits(weight.grad(), second));
  }
  SUBCASE("a loss that is scaled before backward") {
    weight.zero_grad();
    Tape tape;
    tape.backward(loss_of(1) * 0.25);
    CHECK(test::close(weight.grad(), Tensor(first * 0.25).detach(), 1e-6, 1e-7));
  }
}

TEST_CASE("linear_cross_entropy: with gradient hooks, tied weights' gradient completes last, with the same bits") {
  Rng rng(7);
  const Tensor ids = rng.integers({40}, 0, 9), target = rng.integers({40}, 0, 9);
  for (const DType products : {DType::float32, DType::bfloat16}) {
    const MatmulPrecision precision(products);
    Parameter weight(rng.normal({9, 12})), hidden(rng.normal({12, 12})), bias(rng.normal({9}));
    Parameter* const all[] = {&weight, &hidden, &bias};
    const auto loss_of = [&] {
      return 0.5 * linear_cross_entropy(linear(embedding(ids, weight), hidden, Tensor()), weight, bias, target);
    };
    std::vector<Tensor> at_once;
    {
      Tape tape;
      tape.backward(loss_of());
    }
    for (Parameter* p : all) at_once.push_back(p->grad().clone()), p->zero_grad();
    std::vector<const Parameter*> order;
    {
      Tape tape;
      bool before = false;
      tape.state().completed = [&](const Tensor& p) {
        if (p.shares_storage(hidden)) before = weight.grad().defined();
        for (const Parameter* known : all)
          if (p.shares_storage(*known)) order.push_back(known);
      };
      tape.backward(loss_of());
      CHECK(!before);
    }
    CHECK(order == std::vector<const Parameter*>{&bias, &hidden, &weight});
    for (std::size_t i = 0; i < at_once.size(); ++i) CHECK(test::same_bits(all[i]->grad(), at_once[i]));
  }
}

TEST_CASE("linear_cross_entropy: the weight's gradient takes no memory besides the parameter's gradient") {
  Rng rng(7);
  const Tensor x = rng.normal({8, 400}), target = rng.integers({8}, 0, 5000);
  Parameter weight(rng.normal({5000, 400}));
  for (int step = 0; step < 2; ++step) {
    weight.zero_grad();
    Tape tape;
    const std::size_t before = memory_use().current;
    const Tensor loss = linear_cross_entropy(x, weight, Tensor(), target);
    if (step > 0) CHECK(memory_use().current - before < 5000 * 400 * sizeof(float) / 2);
    tape.backward(loss);
  }
}
