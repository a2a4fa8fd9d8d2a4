// embedding: rows, gradients with repeated ids and padding_idx, dtypes and errors.
#include <heed/autograd/embedding.hpp>
#include <heed/autograd/tape.hpp>

#include "tests/autograd/fused_support.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {
using List = std::vector<Tensor>;
}

TEST_CASE("embedding reads rows") {
  const Tensor w = Tensor::from({0, 1, 10, 11, 20, 21}, {3, 2});
  const Tensor i = Tensor::from<std::int32_t>({2, 0, 2, 1}, {2, 2});
  CHECK(same_bits(embedding(i, w), Tensor::from({20, 21, 0, 1, 20, 21, 10, 11}, {2, 2, 2})));
  CHECK(same_bits(embedding(i.t(), w), Tensor::from({20, 21, 20, 21, 0, 1, 10, 11}, {2, 2, 2})));
  CHECK(same_bits(embedding(Tensor::scalar(1, DType::int32), w), Tensor::from({10, 11})));
  CHECK(same_bits(embedding(i, w, 2), embedding(i, w)));
  CHECK(same_bits(embedding(i, w.slice(1, 1, 2)), Tensor::from({21, 1, 21, 11}, {2, 2, 1})));
  CHECK(same_bits(embedding(Tensor::from<std::int32_t>({1, 0}), w.t()), Tensor::from({1, 11, 21, 0, 10, 20}, {2, 3})));
  CHECK(embedding(Tensor::zeros({0, 3}, DType::int32), w).shape() == Shape{0, 3, 2});
  CHECK(embedding(i, Tensor::zeros({3, 0})).shape() == Shape{2, 2, 0});
}

TEST_CASE("embedding passes gradcheck, with repeated and unused rows") {
  const Tensor i = Tensor::from<std::int32_t>({3, 0, 3, 3, 1}, {5});
  const Tensor w = normal({5, 3}, 1);
  gradcheck([&](const List& in) { return embedding(i, in[0]); }, {w});
  gradcheck([&](const List& in) { return embedding(i, embedding(i, in[0])); }, {w});
  gradcheck([&](const List& in) { return embedding(i, in[0].slice(1, 1, 3)); }, {w});
  gradcheck([&](const List& in) { return embedding(Tensor::from<std::int32_t>({2, 1, 2}), in[0].t()); }, {w});
}

TEST_CASE("embedding: gradients against plain loops at every width and level, padding_idx gets none") {
  on_each_level([] {
    for (DType dtype : {DType::float32, DType::float64}) {
      for (Index d : {1, 3, 7, 8, 9, 15, 16, 17, 33, 100}) {
        CAPTURE(d);
        const Tensor w = normal({11, d}, 2, dtype), i = Rng(3).integers({4, 6}, 0, 11),
                     dy = normal({4, 6, d}, 4, dtype);
        for (Index padding : {-1, 5, 5 - 11}) {
          const Run r =
              run([&](const List& in) { return embedding(i, in[0], padding == -1 ? std::optional<Index>() : padding); },
                  {w}, dy);
          std::vector<double> expected(static_cast<std::size_t>(11 * d));
          const std::vector<double> ds = dy.to_vector<double>(), index = i.to_vector<double>();
          for (std::size_t k = 0; k < 24; ++k)
            for (std::size_t j = 0; j < static_cast<std::size_t>(d); ++j)
              if (padding == -1 || index[k] != 5)
                expected[static_cast<std::size_t>(index[k]) * static_cast<std::size_t>(d) + j] +=
                    ds[k * static_cast<std::size_t>(d) + j];
          CHECK(close(r.gradients[0], Tensor::from(expected, {11, d}), 1e-6, 1e-6));
        }
      }
    }
  });
}

TEST_CASE("embedding adds to an existing gradient") {
  Parameter w(Tensor::zeros({4, 2}));
  for (int pass = 0; pass < 2; ++pass) {
    Tape tape;
    const Tensor y = embedding(Tensor::from<std::int32_t>({1, 3, 1}), w);
    tape.backward(y, Tensor::ones({3, 2}));
  }
  CHECK(same_bits(w.grad(), Tensor::from({0, 0, 4, 4, 0, 0, 2, 2}, {4, 2})));
}

TEST_CASE("embedding's gradient has the same bits at any number of threads") {
  const Tensor w = normal({50, 200}, 5, DType::float32), i = Rng(6).integers({3000}, 0, 50),
               dy = normal({3000, 200}, 7, DType::float32);
  same_at_any_threads([&] {
    const Run r = run([&](const List& in) { return embedding(i, in[0]); }, {w}, dy);
    return List{r.y, r.gradients[0]};
  });
}

TEST_CASE("embedding: rows of bfloat16 weights are returned in float32") {
  const Tensor w = normal({50, 33}, 5, DType::float32).to(DType::bfloat16), i = Rng(6).integers({2, 7}, 0, 50);
  CHECK(same_bits(embedding(i, w), embedding(i, w.to(DType::float32))));
  CHECK(same_bits(embedding(i, w.slice(1, 3, 9)), embedding(i, w.to(DType::float32).slice(1, 3, 9))));
  CHECK(embedding(i, w).dtype() == DType::float32);
}

TEST_CASE("embedding: errors") {
  const Tensor w = Tensor::zeros({3, 2}), i = Tensor::from<std::int32_t>({0, 2, 1, 3}, {2, 2});
  CHECK(contains(error_of([&] { embedding(i, w); }),
                 "embedding: indices[1, 1] is 3; it must be in [0, 3) (embedding_test.cpp:"));
  CHECK(contains(error_of([&] { embedding(Tensor::scalar(-1, DType::int32), w); }),
                 "embedding: indices[] is -1; it must be in [0, 3)"));
  CHECK(contains(error_of([&] { embedding(Tensor::zeros({2}), w); }),
                 "embedding: indices are [2] float32; they must be int32"));
  CHECK(contains(error_of([&] { embedding(i, Tensor::zeros({3})); }),
                 "embedding: weight is [3] float32; it must be [V, D], float32, float64 or bfloat16"));
  const auto of_narrow = [] {
    Parameter narrow(Tensor::zeros({3, 2}, DType::bfloat16));
    const Tape tape;
    embedding(Tensor::from<std::int32_t>({0, 2}), narrow);
  };
  CHECK(contains(error_of(of_narrow),
                 "embedding: weight is [3, 2] bfloat16; if it requires a gradient, it must be float32 or"));
  CHECK(contains(error_of([&] { embedding(i, w, 3); }),
                 "embedding: padding_idx is 3 and weight is [3, 2] float32; padding_idx must be in [-3, 3)"));
}
