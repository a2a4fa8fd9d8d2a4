// Shared parts of composed mechanisms, against plain loops.
#include <cmath>
#include <heed/layers/attention/detail/compositions.hpp>

#include "tests/support.hpp"

using namespace heed;
using namespace heed::detail;

TEST_CASE("compositions: each head is projected by its own matrix, and keys by those of the heads that share them") {
  const Tensor x = test::normal({2, 4, 3, 5}, 1), k = test::normal({2, 2, 3, 5}, 2), W = test::normal({4, 6, 5}, 3);
  const Tensor heads = project_heads("op", x, W), keys = project_keys("op", k, W);
  CHECK(heads.shape() == Shape{2, 4, 3, 6});
  CHECK(keys.shape() == Shape{2, 4, 3, 6});
  const auto product = [&](const Tensor& rows, Index b, Index head, Index of, Index t, Index a) {
    double sum = 0;
    for (Index d = 0; d < 5; ++d) sum += W.at({head, a, d}) * rows.at({b, of, t, d});
    return sum;
  };
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 4; ++h)
      for (Index t = 0; t < 3; ++t)
        for (Index a = 0; a < 6; ++a) {
          CHECK(heads.at({b, h, t, a}) == doctest::Approx(product(x, b, h, h, t, a)));
          CHECK(keys.at({b, h, t, a}) == doctest::Approx(product(k, b, h, h / 2, t, a)));
        }
}

TEST_CASE("compositions: heads are repeated once per query head that shares them, or returned as they are") {
  const Tensor x = test::normal({2, 2, 3, 4});
  CHECK(repeat_heads(x, 2).shares_storage(x));
  const Tensor y = repeat_heads(x, 6);
  CHECK(y.shape() == Shape{2, 6, 3, 4});
  for (Index h = 0; h < 6; ++h) CHECK(test::same_bits(y.select(1, h), x.select(1, h / 3)));
}

TEST_CASE("compositions: initial parameters are uniform within 1 / sqrt(number of terms of their sums)") {
  Rng rng(1);
  const Parameter p = uniform_parameter({100, 16}, 16, rng);
  double max_abs = 0, square = 0;
  for (const double v : p.to_vector<double>()) max_abs = std::max(max_abs, std::abs(v)), square += v * v / 1600;
  CHECK(max_abs <= 0.25);
  CHECK(max_abs > 0.24);
  CHECK(std::abs(square - 0.25 * 0.25 / 3) < 0.002);
}

TEST_CASE("compositions: additive attention equals its formula, normalised and with a bias too") {
  const Tensor q = test::normal({1, 2, 3, 4}, 1), k = test::normal({1, 1, 5, 4}, 2), v = test::normal({1, 1, 5, 2}, 3);
  const Tensor W = test::normal({2, 6, 4}, 4), U = test::normal({2, 6, 4}, 5), score = test::normal({2, 6}, 6);
  const Tensor gain = test::normal({2}, 7), bias = test::normal({2, 6}, 8);
  for (const bool normalised : {false, true}) {
    const Additive additive{W, U, score, normalised ? gain : Tensor(), normalised ? bias : Tensor()};
    const AttentionCall call{.causal = true};
    const Tensor y = additive.apply_mapped(q, additive.map_keys(k, call), v, call);
    for (Index h = 0; h < 2; ++h)
      for (Index i = 0; i < 3; ++i) {
        double length = 0;
        for (Index a = 0; a < 6; ++a) length += score.at({h, a}) * score.at({h, a});
        std::vector<double> weights;
        double total = 0;
        for (Index j = 0; j <= i + 2; ++j) {  // the last query is aligned with the last key
          double s = 0;
          for (Index a = 0; a < 6; ++a) {
            double t = normalised ? bias.at({h, a}) : 0;
            for (Index d = 0; d < 4; ++d)
              t += W.at({h, a, d}) * q.at({0, h, i, d}) + U.at({h, a, d}) * k.at({0, 0, j, d});
            s += (normalised ? gain.at({h}) * score.at({h, a}) / std::sqrt(length) : score.at({h, a})) * std::tanh(t);
          }
          weights.push_back(std::exp(s));
          total += weights.back();
        }
        for (Index d = 0; d < 2; ++d) {
          double expected = 0;
          for (std::size_t j = 0; j < weights.size(); ++j)
            expected += weights[j] / total * v.at({0, 0, static_cast<Index>(j), d});
          CHECK(y.at({0, h, i, d}) == doctest::Approx(expected));
        }
      }
  }
}
