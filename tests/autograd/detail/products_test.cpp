// Ops with quantized weights, against the same ops with the numbers of the weights.
#include <functional>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/embedding.hpp>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/matmul.hpp>
#include <heed/autograd/reductions.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/members.hpp>
#include <optional>
#include <string>

#include "tests/core/quantized_samples.hpp"
#include "tests/support.hpp"

using namespace heed;
using heed::test::close, heed::test::contains, heed::test::error_of, heed::test::kQuantizedTypes, heed::test::normal,
    heed::test::random_blocks, heed::test::same_bits;

namespace {

// The loss of f(x) for a parameter x, and its gradient.
struct QuantizedRun {
  Tensor y, dx;
};
template <class F>
QuantizedRun differentiated(const Tensor& x, const F& f) {
  Parameter p(x.clone());
  Tape tape;
  const Tensor y = f(p);
  tape.backward(sum(square(y)));
  return {y.detach(), p.grad()};
}

}  // namespace

TEST_CASE("linear: a quantized weight gives the results and gradients of its numbers") {
  for (const DType type : kQuantizedTypes)
    for (const Index rows : {1, 5, 70}) {
      const Tensor w = random_blocks({48, 96}, type, 1), numbers = w.to(DType::float32),
                   bias = normal({48}, 2, DType::float32), x = normal({rows, 96}, 3, DType::float32);
      for (const bool reused : {false, true})
        for (const DType precision : {DType::float32, DType::bfloat16}) {
          CAPTURE(std::string(name_of(type)));
          CAPTURE(rows);
          const auto run = [&](const Tensor& weight) {
            return differentiated(x, [&](const Tensor& p) {
              const MatmulPrecision scope(precision);
              std::optional<WeightReuse> reuse;
              if (reused) reuse.emplace();
              return linear(p, weight, bias);
            });
          };
          const QuantizedRun a = run(w), b = run(numbers);
          CHECK(close(a.y, b.y));
          CHECK(close(a.dx, b.dx, 1e-4, 1e-4));
        }
      Parameter frozen(w.clone());
      const Tensor narrow = linear(x.to(DType::bfloat16), frozen, bias, DType::bfloat16);
      CHECK(close(narrow.to(DType::float32), linear(x.to(DType::bfloat16), numbers, bias), 1e-2, 1e-2));
    }
}

TEST_CASE("linear_cross_entropy: a quantized weight gives the loss and the gradient of its numbers") {
  for (const DType type : kQuantizedTypes)
    for (const Reduction reduction : {Reduction::mean, Reduction::none}) {
      const Tensor w = random_blocks({100, 64}, type, 4), numbers = w.to(DType::float32),
                   x = normal({9, 64}, 5, DType::float32), targets = test::random_ids({9}, 100, 6);
      const auto run = [&](const Tensor& weight) {
        return differentiated(x, [&](const Tensor& p) {
          return linear_cross_entropy(p, weight, Tensor(), targets, {.reduction = reduction});
        });
      };
      const QuantizedRun a = run(w), b = run(numbers);
      CHECK(close(a.y, b.y));
      CHECK(close(a.dx, b.dx, 1e-4, 1e-5));
    }
}

TEST_CASE("embedding: rows of a quantized table are its numbers") {
  for (const DType type : kQuantizedTypes) {
    const Tensor table = random_blocks({20, 64}, type, 7), ids = test::random_ids({3, 5}, 20, 8);
    CHECK(same_bits(embedding(ids, table), embedding(ids, table.to(DType::float32))));
    CHECK(same_bits(embedding(ids, table.slice(0, 0, 20)), embedding(ids, table)));
    Tape tape;
    const Parameter frozen(table.clone());
    CHECK(same_bits(embedding(ids, frozen), embedding(ids, table)));
  }
}

TEST_CASE("quantized: ops that do not read quantized tensors refuse them by name") {
  const Tensor w = random_blocks({64, 64}, DType::q4_1, 9), x = normal({4, 64}, 10, DType::float32);
  const std::string part = "[64, 64] q4_1";
  CHECK(contains(error_of([&] { matmul(x, w); }), part));
  CHECK(contains(error_of([&] { feed_forward(x, w, Tensor(), w, Tensor(), Activation::relu); }), part));
  CHECK(contains(error_of([&] { linear(x.to(DType::float64), w, Tensor()); }), part));
  CHECK(contains(error_of([&] { linear(x, w.t(), Tensor()); }), part));
  CHECK(contains(error_of([&] { linear(w, x, Tensor()); }), part));
  const Tensor ids = test::random_ids({3}, 64, 1);
  const std::function<Tensor()> ops[] = {[&] { return sum(w); }, [&] { return relu(w); }, [&] { return w + x; },
                                         [&] { return index_select(w, 0, ids); },
                                         [&] {
                                           return where(Tensor::ones({64, 64}, DType::bool8), w, w);
                                         }};
  for (const auto& op : ops) {
    const std::string error = error_of(op);
    CAPTURE(error);
    CHECK(contains(error, "q4_1"));
  }
  CHECK(same_bits(concatenate({w, w}, 0).to(DType::float32),
                  concatenate({w.to(DType::float32), w.to(DType::float32)}, 0)));
}
