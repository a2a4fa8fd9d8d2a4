// matmul and linear against plain loops, and their gradients.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/kernels/dispatch/dispatch.hpp>
#include <heed/core/memory.hpp>
#include <heed/core/random.hpp>

#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;
using test::on_each_level;

namespace {

Tensor random(const Shape& shape, std::uint64_t seed) { return Rng(seed).normal(shape, 0, 1, DType::float64); }

// [.., m, k] by [.., k, n] with broadcasting, one element at a time.
Tensor naive(const Tensor& a, const Tensor& b) {
  Shape batch;
  REQUIRE(broadcast(a.shape().first(a.rank() - 2), b.shape().first(b.rank() - 2), batch));
  const Index m = a.dim(-2), k = a.dim(-1), n = b.dim(-1);
  const Tensor p = a.expand(batch + Shape{m, k}).to(DType::float64).dense(),
               q = b.expand(batch + Shape{k, n}).to(DType::float64).dense();
  Tensor y = Tensor::zeros(batch + Shape{m, n}, DType::float64);
  for (Index s = 0; s < batch.numel(); ++s)
    for (Index i = 0; i < m; ++i)
      for (Index j = 0; j < n; ++j)
        for (Index l = 0; l < k; ++l)
          y.ptr<double>()[(s * m + i) * n + j] +=
              p.ptr<double>()[(s * m + i) * k + l] * q.ptr<double>()[(s * k + l) * n + j];
  return y;
}

}  // namespace

TEST_CASE("matmul: ranks, batches, broadcasting and views equal plain loops") {
  const Tensor views[][2] = {
      {random({3, 4}, 1), random({4, 5}, 2)},
      {random({2, 3, 4}, 1), random({4, 5}, 2)},
      {random({3, 4}, 1), random({6, 4, 5}, 2)},
      {random({2, 1, 3, 4}, 1), random({7, 4, 2}, 2)},
      {random({4, 3}, 1).t(), random({5, 4}, 2).t()},
      {random({2, 3, 6, 4}, 1).transpose(1, 2), random({2, 6, 4, 3}, 2)},
      {random({2, 3, 2, 2, 5, 4}, 1).permute({2, 0, 3, 1, 4, 5}), random({2, 2, 2, 3, 4, 3}, 2)},
      {random({2, 0, 4}, 1), random({4, 5}, 2)},
      {random({3, 0}, 1), random({0, 5}, 2)},
      {random({5, 9}, 1).slice(1, 1, 9, 2), random({4, 6}, 2).slice(1, 0, 6, 3)},
  };
  for (const auto& v : views) {
    const Tensor y = matmul(v[0], v[1]);
    CHECK(test::close(y, naive(v[0], v[1]), 1e-12, 1e-12));
    CHECK(test::close(matmul(v[0].to(DType::float32), v[1].to(DType::float32)), y, 1e-5, 1e-5));
    if (y.numel() > 0) gradcheck([](const auto& x) { return matmul(x[0], x[1]); }, {v[0], v[1]});
  }
}

TEST_CASE("matmul: vectors") {
  const Tensor a = random({4}, 1), b = random({4}, 2), m = random({4, 3}, 3), s = random({2, 4, 3}, 4);
  CHECK(matmul(a, b).shape() == Shape{});
  CHECK(matmul(a, m).shape() == Shape{3});
  CHECK(matmul(m.t(), a).shape() == Shape{3});
  CHECK(matmul(a, s).shape() == Shape{2, 3});
  CHECK(matmul(s.transpose(1, 2), a).shape() == Shape{2, 3});
  CHECK(test::close(matmul(a, m), naive(a.unsqueeze(0), m).squeeze(0), 1e-12, 1e-12));
  gradcheck([](const auto& x) { return matmul(x[0], x[1]); }, {a, b});
  gradcheck([](const auto& x) { return matmul(x[0], x[1]); }, {s.transpose(1, 2), a});
}

TEST_CASE("matmul of a tensor by itself") {
  gradcheck([](const auto& x) { return matmul(x[0], x[0]); }, {random({3, 3}, 1)});
  gradcheck([](const auto& x) { return matmul(x[0], x[0].t()); }, {random({3, 4}, 1)});
}

TEST_CASE("linear: any leading axes, with and without bias, from views") {
  const Tensor w = random({5, 4}, 1), b = random({5}, 2);
  for (const Tensor& x :
       {random({4}, 3), random({7, 4}, 3), random({2, 3, 4}, 3), random({2, 4, 3}, 3).transpose(1, 2),
        random({2, 3, 8}, 3).slice(2, 2, 6), random({3, 2, 4}, 3).transpose(0, 1), random({0, 4}, 3)}) {
    const Tensor expected = naive(x.reshape({x.rows(), 4}), w.t()).view(x.shape().first(x.rank() - 1) + Shape{5});
    CHECK(test::close(linear(x, w, Tensor()), expected, 1e-12, 1e-12));
    if (x.numel() == 0) continue;
    gradcheck([](const auto& v) { return linear(v[0], v[1], v[2]); }, {x, w, b});
    gradcheck([](const auto& v) { return linear(v[0], v[1], Tensor()); }, {x, w});
  }
}

TEST_CASE("products in float32 agree with float64 on every instruction set") {
  const kernels::Level running = kernels::level();
  for (int l = 0; l < kernels::kLevels; ++l) {
    if (!kernels::available(static_cast<kernels::Level>(l))) continue;
    kernels::set_level(static_cast<kernels::Level>(l));
    for (const Index n : {1, 3, 4, 5, 15, 16, 17, 33}) {
      const Tensor x = random({9, n}, 1), w = random({n + 1, n}, 2), b = random({n + 1}, 3), dy = random({9, n + 1}, 4);
      std::vector<Tensor> exact, rough;
      for (const DType t : {DType::float64, DType::float32}) {
        Tape tape;
        const Tensor u = tape.watch(x.to(t)), v = tape.watch(w.to(t)), c = tape.watch(b.to(t));
        const Tensor y = linear(u, v, c);
        tape.backward(y, dy.to(t));
        (t == DType::float64 ? exact : rough) = {y, tape.grad(u), tape.grad(v), tape.grad(c)};
      }
      for (std::size_t i = 0; i < exact.size(); ++i) CHECK(test::close(rough[i], exact[i], 1e-5, 1e-5));
    }
  }
  kernels::set_level(running);
}

TEST_CASE("MatmulPrecision rounds operands and keeps float32 results and gradients") {
  const Tensor x = random({6, 40}, 1).to(DType::float32), w = random({8, 40}, 2).to(DType::float32);
  Parameter weight(w);
  const Tensor rounded =
      linear(x.to(DType::bfloat16).to(DType::float32), w.to(DType::bfloat16).to(DType::float32), Tensor());
  const Tensor plain = linear(x, w, Tensor());
  Tape tape;
  const MatmulPrecision precision(DType::bfloat16);
  const Tensor y = linear(x, weight, Tensor());
  CHECK(y.dtype() == DType::float32);
  CHECK(test::close(y, rounded, 1e-5, 1e-5));
  CHECK(!test::close(y, plain, 1e-5, 1e-5));
  tape.backward(y, Tensor::ones(y.shape()));
  CHECK(weight.grad().dtype() == DType::float32);
  CHECK(test::close(weight.grad(), matmul(Tensor::ones({6, 8}).t(), x.to(DType::bfloat16).to(DType::float32)), 1e-5,
                    1e-5));
  CHECK(contains(error_of([] { MatmulPrecision wrong(DType::float64); }),
                 "operands are float64; they must be float32 or bfloat16"));
}

TEST_CASE("bfloat16 tensors multiply") {
  const Tensor a = random({3, 40}, 1).to(DType::bfloat16), b = random({40, 5}, 2).to(DType::bfloat16);
  CHECK(test::close(matmul(a, b), naive(a, b), 1e-5, 1e-5));
  CHECK(test::close(matmul(a, b.to(DType::float32)), naive(a, b), 1e-5, 1e-5));
}

TEST_CASE("int32 tensors multiply exactly, and wrap around") {
  for (const auto& [a, b] :
       {std::pair{Rng(1).integers({3, 4}, -9, 9), Rng(2).integers({4, 5}, -9, 9)},
        std::pair{Rng(1).integers({2, 1, 3, 6}, -9, 9).transpose(-1, -2), Rng(2).integers({4, 3, 2}, -9, 9)},
        std::pair{Rng(1).integers({70, 90}, -9, 9), Rng(2).integers({90, 300}, -9, 9)},
        std::pair{Tensor::zeros({3, 0}, DType::int32), Tensor::zeros({0, 2}, DType::int32)}}) {
    const Tensor y = matmul(a, b);
    CHECK(y.dtype() == DType::int32);
    CHECK(test::same_bits(y, naive(a, b).to(DType::int32)));
  }
  const Tensor row = Tensor::from<std::int32_t>({3, 2});
  CHECK(matmul(row, row).item() == 13);
  // 3 (2^31 - 1) + 3 = 2^32 + 2^31
  CHECK(matmul(Tensor::from<std::int32_t>({2147483647, 1}), Tensor::from<std::int32_t>({3, 3})).item() == -2147483648.);
}

TEST_CASE("errors of products show the arguments and the rule") {
  CHECK(contains(error_of([] {
                   linear(Tensor::ones({32, 128}), Tensor::ones({256, 64}), Tensor());
                 }),
                 "linear: x is [32, 128] float32 but weight is [256, 64] float32; the last axis of x must match the "
                 "last axis of weight, [out, in] (matmul_test.cpp:"));
  CHECK(contains(error_of([] {
                   linear(Tensor::ones({2, 4}), Tensor::ones({3, 4}, DType::float64), Tensor());
                 }),
                 "both must be float64, or each float32 or bfloat16"));
  CHECK(contains(error_of([] {
                   linear(Tensor::ones({2, 4}), Tensor::ones({3, 4}), Tensor::ones({4}));
                 }),
                 "bias must be [3] float32"));
  CHECK(contains(error_of([] {
                   matmul(Tensor::ones({2, 4}), Tensor::ones({3, 4}));
                 }),
                 "the last axis of a must match the second last (or only) axis of b"));
  CHECK(contains(error_of([] {
                   matmul(Tensor::ones({2, 3, 4}), Tensor::ones({3, 4, 2}));
                 }),
                 "the axes before must broadcast"));
  CHECK(contains(error_of([] { matmul(Tensor::ones({9}), Tensor::ones({3})); }),
                 "matmul: a is [9] float32 and b is [3] float32; the last axis of a must match the second last (or "
                 "only) axis of b,"));
  CHECK(contains(error_of([] {
                   matmul(Tensor::ones({9}), Tensor::ones({2, 3, 4}));
                 }),
                 "matmul: a is [9] float32 and b is [2, 3, 4] float32;"));
  CHECK(contains(error_of([] {
                   matmul(Tensor::ones({2, 3, 4}), Tensor::ones({3}));
                 }),
                 "matmul: a is [2, 3, 4] float32 and b is [3] float32;"));
  CHECK(contains(error_of([] { matmul(Tensor::scalar(1), Tensor::ones({3})); }), "both must have 1 axis or more"));
  CHECK(contains(error_of([] {
                   matmul(Tensor::ones({2, 2}, DType::int32), Tensor::ones({2, 2}));
                 }),
                 "must be float64, or int32, or each float32 or bfloat16"));
  Parameter weight(Tensor::ones({256, 64}));
  weight.set_path("blocks.2.mlp.up.weight");
  CHECK(contains(error_of([&] {
                   linear(Tensor::ones({32, 128}), weight, Tensor());
                 }),
                 "(blocks.2.mlp.up, matmul_test.cpp:"));
}

TEST_CASE("a weight that is used several times has the same values and gradients with one stacked product") {
  const Tensor w = random({5, 5}, 1) * 0.3, b = random({5}, 2), x = random({6, 5}, 3);
  struct Result {
    Tensor y, dx, dw, db;
  };
  const auto steps = [&](bool reused, DType dtype) {
    Parameter weight(w.to(dtype)), bias(b.to(dtype));
    Tape tape;
    std::optional<WeightReuse> reuse;
    if (reused) reuse.emplace();
    const Tensor in = tape.watch(x.to(dtype));
    Tensor y = in;
    for (int i = 0; i < 4; ++i) y = linear(y, weight, bias);
    reuse.reset();  // the scope may end before backward
    CHECK(tape.steps() == (reused ? 5 : 4));
    tape.backward(y, x.to(dtype));
    return Result{y.detach(), tape.grad(in), weight.grad(), bias.grad()};
  };
  for (const DType dtype : {DType::float64, DType::float32}) {
    const double tolerance = dtype == DType::float64 ? 1e-13 : 1e-5;
    const Result plain = steps(false, dtype), reused = steps(true, dtype);
    CHECK(test::close(reused.y, plain.y, tolerance, tolerance));
    CHECK(test::close(reused.dx, plain.dx, tolerance, tolerance));
    CHECK(test::close(reused.dw, plain.dw, tolerance, tolerance));
    CHECK(test::close(reused.db, plain.db, tolerance, tolerance));
  }
  const MatmulPrecision precision(DType::bfloat16);
  const Result plain = steps(false, DType::float32), reused = steps(true, DType::float32);
  CHECK(test::close(reused.y, plain.y, 1e-5, 1e-5));
  CHECK(test::close(reused.dw, plain.dw, 1e-5, 1e-5));
}

TEST_CASE("a weight is packed again after a write, and uses without a gradient are left out") {
  Parameter w(random({3, 3}, 1));
  const Tensor x = random({2, 3}, 2);
  const WeightReuse reuse;
  const Tensor before = linear(x, w, Tensor());
  w.copy_(w.detach() * 2);
  CHECK(test::close(linear(x, w, Tensor()), before * 2, 1e-14, 1e-14));
  Tape tape;
  const WeightReuse of_tape;
  const Tensor used = linear(x, w, Tensor()), unused = linear(x * 3, w, Tensor());
  tape.backward(used, x);
  CHECK(test::close(w.grad(), matmul(x.t(), x), 1e-13, 1e-13));
}

TEST_CASE("linear: a result in bfloat16 is that in float32, rounded once, with the same gradients of the same dy") {
  on_each_level([] {
    for (const DType precision : {DType::float32, DType::bfloat16})
      for (const Index rows : {1, 3, 50, 300}) {
        const MatmulPrecision scope(precision);
        Rng rng(5);
        const Tensor x = rng.normal({rows, 70}), dy = rng.normal({rows, 130}).to(DType::bfloat16);
        Parameter weight(rng.normal({130, 70})), bias(rng.normal({130}));
        const auto run = [&](std::optional<DType> result, Tensor& y) {
          weight.zero_grad(), bias.zero_grad();
          Tape tape;
          y = linear(x, weight, bias, result);
          tape.backward(sum(y.to(DType::float32) * dy.to(DType::float32)));
          const NoTape no_tape;
          return std::vector<Tensor>{weight.grad().clone(), bias.grad().clone()};
        };
        Tensor wide, narrow;
        const auto expected = run({}, wide), got = run(DType::bfloat16, narrow);
        CHECK(test::same_bits(narrow.detach(), wide.detach().to(DType::bfloat16)));
        for (std::size_t i = 0; i < expected.size(); ++i) CHECK(test::same_bits(got[i], expected[i]));
        const WeightReuse reuse;
        CHECK(test::same_bits(linear(x, weight, bias, DType::bfloat16).detach(),
                              linear(x, weight, bias).detach().to(DType::bfloat16)));
      }
  });
  const Tensor x = Tensor::zeros({2, 3}), w = Tensor::zeros({4, 3});
  CHECK(contains(error_of([&] { linear(x, w, Tensor(), DType::int32); }),
                 "and the result's dtype is int32; it must be float32 or bfloat16"));
  CHECK(contains(error_of([&] { linear(x.to(DType::float64), w.to(DType::float64), Tensor(), DType::bfloat16); }),
                 "and the result's dtype is bfloat16; it must be float64"));
}

TEST_CASE("linear: an input that backward computes again is not kept, and leaves the same bits") {
  for (const DType precision : {DType::float32, DType::bfloat16})
    for (const bool reuses : {false, true}) {
      const MatmulPrecision scope(precision);
      Rng rng(5);
      const Tensor x = rng.normal({300, 70}), dy = rng.normal({300, 4});
      Parameter weight(rng.normal({4, 70}));
      std::size_t kept[2] = {};
      std::vector<Tensor> gradients[2];
      for (const bool again : {false, true}) {
        weight.zero_grad();
        Tape tape;
        std::optional<WeightReuse> reuse;
        if (reuses) reuse.emplace();
        const Tensor from = tape.watch(x);
        const std::size_t before = memory_use().current;
        const Recomputed squares{from, [](const Recomputed& r) { return square(r.from); }};
        const Tensor y = linear(square(from), weight, Tensor(), {}, again ? squares : Recomputed());
        kept[again ? 1 : 0] = memory_use().current - before;
        reuse.reset();
        tape.backward(y, dy);
        gradients[again ? 1 : 0] = {tape.grad(from).detach().clone(), weight.grad().clone()};
      }
      CAPTURE(reuses);
      for (const std::size_t i : {0, 1}) CHECK(test::same_bits(gradients[1][i], gradients[0][i]));
      if (!reuses) CHECK(kept[1] + 300 * 70 * (precision == DType::float32 ? 4 : 2) <= kept[0]);
    }
}
