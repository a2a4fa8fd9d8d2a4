// recompute: equal gradients with less memory for any inputs, and equal conditions for both runs of the function.
#include <heed/core/dry_run.hpp>
#include <heed/heed.hpp>
#include <utility>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::same_bits;

namespace {

using List = std::vector<Tensor>;
using OfList = std::function<Tensor(const List&)>;

Parameter parameter(std::initializer_list<double> values) { return Parameter(Tensor::from<double>(values)); }

// The message of backward() if `write` runs between f and backward().
std::string error_after(const OfList& f, const std::function<void()>& write) {
  Tape tape;
  const Tensor loss = sum(recompute(f, {tape.watch(Tensor::from<double>({1, 2}))}));
  write();
  return error_of([&] { tape.backward(loss); });
}

}  // namespace

TEST_CASE("recompute gives the same gradients and keeps only its inputs") {
  const auto deep = [](const Tensor& x, const Parameter& w) {
    Tensor y = x;
    for (int i = 0; i < 5; ++i) y = y * w * y;
    return y;
  };
  Parameter w(Rng(1).uniform({1000}, 0.5, 1.5, DType::float64));
  const Tensor x = Rng(2).uniform({1000}, 0.5, 1.2, DType::float64);
  std::vector<Tensor> grads;
  std::vector<std::size_t> bytes;
  for (const bool again : {false, true}) {
    w.zero_grad();
    Tape tape;
    const Tensor in = tape.watch(x);
    const Tensor y = again ? recompute([&](const auto& v) { return deep(v[0], w); }, {in}) : deep(in, w);
    bytes.push_back(tape.saved_bytes());
    tape.backward(sum(y));
    grads.push_back(w.grad().clone());
    grads.push_back(tape.grad(in).clone());
  }
  CHECK(same_bits(grads[0], grads[2]));
  CHECK(same_bits(grads[1], grads[3]));
  CHECK(bytes[1] < bytes[0] / 4);
  CHECK(bytes[1] >= 8000);
}

TEST_CASE("recompute with parameters only, with views and unused inputs") {
  Parameter w = parameter({2, 3});
  Tape tape;
  const Tensor constant = Tensor::from<double>({1, 2});
  tape.backward(sum(recompute([&](const auto& x) { return (w * x[0]).slice(0, 1, 2); }, {constant})));
  CHECK(w.grad().to_vector<double>() == std::vector<double>{0, 2});
}

TEST_CASE("recompute given a parameter, and a view of one") {
  Parameter w = parameter({2, 3}), frozen = parameter({5, 7});
  frozen.requires_grad_(false);
  Tape tape;
  const auto f = [](const auto& x) { return x[0] * x[1] * x[2]; };
  tape.backward(sum(recompute(f, {w, w.slice(0, 0, 1).expand({2}), frozen})));
  CHECK(w.grad().to_vector<double>() == std::vector<double>{2 * 2 * 5 + 3 * 7, 2 * 7});
}

TEST_CASE("recompute: a parameter that was written to before backward is an error") {
  Parameter w = parameter({2, 3});
  w.set_path("blocks.3.mlp.weight");
  const OfList f = [&](const List& v) { return v[0] * w; };
  CHECK(error_after(f, [] {}).empty());
  const std::string error = error_after(f, [&] { w.fill_(7); });
  CHECK(
      contains(error, "recompute: a tensor that its derivative needs, [2] float64, was written to before backward()"));
  CHECK(contains(error, "(blocks.3.mlp, recompute_test.cpp:"));

  Rng rng(1);
  Linear layer(2, 2, rng);
  SGD optimizer(named_parameters(layer), {.lr = 0.1});
  const OfList g = [&](const List& v) { return layer(v[0].to(DType::float32)); };
  CHECK(error_after(g, [] {}).empty());  // also computes the gradients for the step
  CHECK(contains(error_after(g, [&] { optimizer.step(); }), "was written to before backward()"));
  CHECK(error_after(g, [] {}).empty());
}

TEST_CASE("recompute: a write to any tensor that its function reads, in any way, is an Error") {
  Parameter w = parameter({2, 3}), other = parameter({1, 1});
  Tensor c = Tensor::from<double>({1, 3}), mask = Tensor::from<bool>({1, 0}),
         at = Tensor::from<std::int32_t>({1, 0, 1, 0});
  const Tensor logits = Tensor::from<double>({1, 2, 3, 4}, {2, 2});
  struct Case {
    std::string name;
    Tensor* written;
    OfList f;
  };
  const Case cases[] = {
      {"as an input", &c, [&](const List& v) { return v[0] * c; }},
      {"as a view", &c, [&](const List& v) { return v[0] * c[1]; }},
      {"by copy_", &c,
       [&](const List& v) {
         Tensor own = Tensor::zeros({2}, DType::float64);
         own.copy_(c);
         return v[0] * own;
       }},
      {"as what is saved", &mask, [&](const List& v) { return where(mask, v[0], 0); }},
      {"as a copy", &w,
       [&](const List& v) {
         return v[0] * w.expand({2, 2}).t().contiguous();
       }},
      {"detached", &w, [&](const List& v) { return v[0] * w.detach().clone(); }},
      {"under NoTape", &w,
       [&](const List& v) {
         const NoTape guard;
         return v[0].detach() * w.clone();
       }},
      {"to compare", &c, [&](const List& v) { return where(c > 2., v[0], 0); }},
      {"to test", &c, [&](const List& v) { return where(isfinite(c), v[0], 0); }},
      {"as the places of values", &at, [&](const List& v) { return index_select(v[0], 0, at.slice(0, 0, 4, 2)); }},
      {"as a target", &at, [&](const List& v) { return cross_entropy(logits * v[0], at.slice(0, 0, 4, 2)); }},
  };
  for (const Case& k : cases) {
    INFO(k.name);
    const OfList f = [&k, &other](const List& v) { return sum(k.f(v)) * other; };  // always has a gradient
    CHECK(error_after(f, [] {}) == "");
    CHECK(contains(error_after(f, [&] { k.written->zero_(); }), "was written to before backward()"));
  }
  CHECK(contains(error_after(
                     [&](const List& v) {
                       const Tensor y = v[0] * c;
                       c.fill_(2);
                       return y;
                     },
                     [] {}),
                 "was written to before backward()"));
  CHECK(error_after(
            [](const List& v) {
              Tensor own = Tensor::ones({2}, DType::float64);
              own.fill_(2);
              return v[0] * own;
            },
            [] {})
            .empty());
}

TEST_CASE("recompute: a function that gives another result when it runs again is an error") {
  Parameter w = parameter({2, 3});
  Rng own(5);
  const OfList noisy = [&](const List& v) { return v[0] * w + own.normal({2}, 0, 1, DType::float64); };
  const std::string error = error_after(noisy, [] {});
  CHECK(contains(error, "recompute: f returned another result when it ran again, [2] float64, so gradients would"));
  CHECK(contains(error, "draw random numbers from default_rng(), and change nothing that the second run reads"));
  CHECK(contains(error, "recompute_test.cpp:"));
  const OfList restored = [&](const List& v) { return v[0] * w + default_rng().normal({2}, 0, 1, DType::float64); };
  CHECK(error_after(restored, [] {}) == "");

  // Every bit of every element counts, also in results of many blocks.
  const Index n = 40001;
  const std::function<Tensor(const Tensor&)> changes[] = {
      [](const Tensor& y) { return -y; },
      [&](const Tensor& y) {
        return concatenate({y.slice(0, n - 1, n), y.slice(0, 1, n - 1), y.slice(0, 0, 1)}, 0);
      },
      [&](const Tensor& y) {
        return concatenate({y.slice(0, 8192, n), y.slice(0, 0, 8192)}, 0);
      },
      [&](const Tensor& y) {
        return concatenate({y.slice(0, 0, n - 1), y.slice(0, n - 1, n) * (1 + 4e-16)}, 0);
      },
      [&](const Tensor& y) {
        return concatenate({y.slice(0, 0, 1) * 0., y.slice(0, 1, n)}, 0);
      },
      [&](const Tensor& y) { return y.slice(0, 0, n - 1); },
      [](const Tensor& y) { return y.to(DType::float32); },
      [](const Tensor& y) { return y; },
  };
  const Tensor x = Rng(3).normal({n}, 0, 1, DType::float64);
  for (std::size_t i = 0; i < std::size(changes); ++i) {
    CAPTURE(i);
    int runs = 0;
    Tape tape;
    const OfList f = [&](const List& v) { return ++runs == 2 ? changes[i](v[0] * 2) : v[0] * 2; };
    const Tensor loss = sum(recompute(f, {tape.watch(x)}));
    const bool refused = contains(error_of([&] { tape.backward(loss); }), "f returned another result");
    CHECK(refused == (i + 1 < std::size(changes)));
  }
}

TEST_CASE("recompute: results in a dry run, which are undefined, are not compared") {
  int runs = 0;
  const auto f = [&](const List& in) { return in[0] * static_cast<double>(++runs); };
  detail::dry_run([&] {
    Tape tape;
    tape.backward(sum(recompute(f, {tape.watch(Tensor::from<double>({1, 2}))})));
  });
  CHECK(runs == 2);
}

TEST_CASE("recompute: both runs see inputs with the same strides, so that sums have the same bits, nested too") {
  Parameter w = parameter({2});
  const Tensor base = Rng(7).normal({300, 500}), wide = Rng(8).normal({300, 2, 500});
  const OfList sums = [](const List& v) { return mean(v[0] * 1.f) + mean(v[0], {0}) + sum(v[0]) + sum(v[1]); };
  const OfList plain = [&](const List& v) { return sums(v) * w.to(DType::float32); };
  const OfList nested = [&](const List& v) { return plain({recompute(sums, {v[0].t(), v[1]}), v[1].t()}); };
  for (const OfList& f : {plain, nested}) {
    for (const Tensor& view : {base.t(), wide.select(1, 1).t(), base[0].expand({300, 500})}) {
      Tape tape;
      const Tensor x = tape.watch(base.dense()),
                   loss = sum(recompute(f, {view, x.t()})) + sum(recompute(f, {x.t(), view}));
      CHECK(error_of([&] { tape.backward(loss); }) == "");
    }
  }
}

TEST_CASE("recompute holds nothing that its function makes") {
  const Index n = 1 << 15;
  const std::size_t bytes = n * 8;
  Parameter w(Tensor::ones({n}, DType::float64));
  Tape tape;
  const Tensor x = tape.watch(Tensor::ones({n}, DType::float64));
  const OfList f = [&](const List& v) {
    Tensor y = v[0];
    for (int i = 0; i < 20; ++i) y = y * Tensor::full({n}, 0.5, DType::float64) + w;
    return y;
  };
  reset_peak_memory();
  const std::size_t before = memory_use().current;
  const Tensor y = recompute(f, {x});
  CHECK(memory_use().current - before < bytes * 3 / 2);  // y
  CHECK(memory_use().peak - before < bytes * 6);
  CHECK(tape.saved_bytes() < bytes * 3 / 2);  // x
}

TEST_CASE("recompute: both runs use the MatmulPrecision of the call, their derivatives that of backward") {
  Parameter a(Rng(1).normal({8, 8})), b(Rng(2).normal({8, 8}));
  const Tensor x = Rng(3).normal({4, 8});
  const OfList f = [&](const List& v) { return matmul(tanh(matmul(v[0], a)), b); };
  const auto gradients = [&](DType forward, DType backward, bool again) {
    a.zero_grad(), b.zero_grad();
    Tape tape;
    const Tensor in = tape.watch(x);
    Tensor y;
    {
      const MatmulPrecision scope(forward);
      y = again ? recompute(f, {in}) : f({in});
      CHECK(matmul_precision() == forward);
    }
    CHECK(matmul_precision() == DType::float32);
    const MatmulPrecision scope(backward);
    tape.backward(sum(y * y));
    CHECK(matmul_precision() == backward);
    return List{a.grad().clone(), b.grad().clone(), tape.grad(in).clone()};
  };
  const DType full = DType::float32, half = DType::bfloat16;
  for (const DType forward : {full, half}) {
    for (const DType backward : {full, half}) {
      const List plain = gradients(forward, backward, false), again = gradients(forward, backward, true);
      for (std::size_t i = 0; i < plain.size(); ++i) CHECK(same_bits(plain[i], again[i]));
    }
  }
  CHECK(!same_bits(gradients(full, full, false)[2], gradients(half, full, false)[2]));
}

TEST_CASE("recompute: both runs train or evaluate, whatever is on when backward begins") {
  Parameter w = parameter({1, 1, 1, 1, 1, 1, 1, 1});
  const OfList f = [&](const List& v) { return dropout(v[0] * w, 0.5); };
  const Tensor x = Tensor::full({8}, 3, DType::float64);
  for (const bool evaluate : {false, true}) {
    w.zero_grad();
    Tape tape;
    Tensor y;
    if (evaluate) {
      const Evaluation evaluation;
      y = recompute(f, {x});
    } else {
      y = recompute(f, {x});
    }
    CHECK(is_training());
    const auto values = y.to_vector<double>();
    CHECK((values == std::vector<double>(8, 3.)) == evaluate);
    const bool was_training = std::exchange(detail::mode().training, evaluate);
    tape.backward(sum(y));
    detail::mode().training = was_training;
    CHECK(w.grad().to_vector<double>() == values);  // 3 for kept elements, doubled in training; else 0
  }
}

TEST_CASE("recompute: the NaN finder names the op inside, and its module") {
  Parameter w = parameter({4, 0});
  w.set_path("blocks.1.scale.weight");
  const auto error = [&](double shift, bool find_nan) {
    return error_of([&] {
      Tape tape({.find_nan = find_nan});
      w.fill_(shift);
      tape.backward(sum(recompute([&](const List& v) { return v[0] * sqrt(w); }, {Tensor::ones({2}, DType::float64)})));
    });
  };
  CHECK(contains(error(-1, true), "sqrt: the result of shape [2] holds nan at element 0; it is the first"));
  CHECK(contains(error(-1, true), "(blocks.1.scale, recompute_test.cpp:"));
  CHECK(contains(error(0, true), "sqrt: a gradient of shape [2] holds inf at element 0; it is the first"));
  CHECK(contains(error(0, true), "(blocks.1.scale, recompute_test.cpp:"));
  for (const double shift : {-1., 0.}) CHECK(error(shift, false).empty());
  CHECK(error(1, true).empty());
}
