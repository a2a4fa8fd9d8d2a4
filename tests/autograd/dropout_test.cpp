// dropout: the documented mask, its share and mean, gradients and errors.
#include <heed/autograd/attention.hpp>
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/tape.hpp>
#include <limits>

#include "tests/autograd/fused_support.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using List = std::vector<Tensor>;

// The documented mask, element by element.
bool kept(std::uint64_t seed, std::uint64_t position, Index element, double p) {
  const auto e = static_cast<std::uint64_t>(element);
  const auto words = philox(seed, position + e / 64 * 16 + e % 16, 0);
  return words[e % 64 / 16] >= static_cast<std::uint32_t>(std::round(p * 0x1p32));
}

}  // namespace

TEST_CASE("dropout: the mask is a function of the counter, at every size and level, in both dtypes") {
  on_each_float_level([] {
    for (const DType dtype : {DType::float32, DType::float64}) {
      for (const Index n : {0, 1, 3, 4, 7, 15, 16, 17, 63, 64, 65, 200}) {
        CAPTURE(n);
        manual_seed(0x123456789abcdefull);
        const std::uint64_t start = 0xfffffff5ull;  // the low word of the counter overflows within the first group
        default_rng().set_position(start);
        const Tensor x = normal({n}, 1, dtype), dy = normal({n}, 2, dtype);
        const Run r = run([](const List& in) { return dropout(in[0], 0.3); }, {x}, dy);
        CHECK(default_rng().position() == start + static_cast<std::uint64_t>((n + 63) / 64 * 16));
        Tensor mask = Tensor::empty({n}, DType::float64);
        for (Index i = 0; i < n; ++i)
          mask.mutable_data<double>()[i] = kept(0x123456789abcdefull, start, i, 0.3) ? 1 / 0.7 : 0;
        double worst_y = 0, worst_dx = 0;
        for (Index i = 0; i < n; ++i) {
          worst_y = std::max(worst_y, std::fabs(r.y.at({i}) - x.at({i}) * mask.at({i})));
          worst_dx = std::max(worst_dx, std::fabs(r.gradients[0].at({i}) - dy.at({i}) * mask.at({i})));
        }
        CHECK(worst_y <= (dtype == DType::float32 ? 5e-7 : 1e-15));
        CHECK(worst_dx <= (dtype == DType::float32 ? 5e-7 : 1e-15));
      }
    }
  });
}

TEST_CASE("dropout drops the given share, different elements at each call, and keeps the mean") {
  manual_seed(3);
  const Tape tape;
  const Index n = 200000;
  const Tensor x = Tensor::ones({n});
  for (const double p : {0.1, 0.5, 0.9}) {
    const std::vector<double> y = dropout(x, p).to_vector<double>(), z = dropout(x, p).to_vector<double>();
    double dropped = 0, both = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      dropped += y[i] == 0;
      both += y[i] == 0 && z[i] == 0;
      if (y[i] != 0) REQUIRE(y[i] == doctest::Approx(1 / (1 - p)));
    }
    const auto deviation = [&](double q) { return std::sqrt(q * (1 - q) * static_cast<double>(n)); };
    CHECK(std::fabs(dropped - p * static_cast<double>(n)) < 4 * deviation(p));
    CHECK(std::fabs(both - p * p * static_cast<double>(n)) < 4 * deviation(p * p));
  }
}

TEST_CASE("dropout passes everything through in evaluation, outside of training and at p = 0") {
  const Tensor x = normal({5}, 4);
  CHECK(dropout(x, 0.5).shares_storage(x));
  const Tape tape;
  const std::uint64_t position = default_rng().position();
  CHECK(dropout(x, 0).shares_storage(x));
  {
    const Evaluation guard;
    CHECK(dropout(x, 0.5).shares_storage(x));
  }
  CHECK(default_rng().position() == position);
  CHECK_FALSE(dropout(x, 0.5).shares_storage(x));
}

TEST_CASE("dropout passes gradcheck with views and repeated uses, and recompute draws the same mask") {
  const Tensor x = normal({4, 5}, 5);
  gradcheck([](const List& in) { return dropout(in[0], 0.4); }, {x});
  gradcheck([](const List& in) { return dropout(dropout(in[0].t(), 0.2), 0.2); }, {x});
  gradcheck([](const List& in) { return dropout(in[0].expand({6, 5}), 0.5); }, {normal({5}, 6)});
  manual_seed(7);
  const Run plain = run([](const List& in) { return dropout(in[0], 0.4); }, {x}, Tensor::ones({4, 5}, DType::float64));
  manual_seed(7);
  const Run again =
      run([](const List& in) { return recompute([](const List& y) { return dropout(y[0], 0.4); }, {in[0]}); }, {x},
          Tensor::ones({4, 5}, DType::float64));
  CHECK(same_bits(plain.y, again.y));
  CHECK(same_bits(plain.gradients[0], again.gradients[0]));
}

TEST_CASE("dropout has the same bits at any number of threads, and dropped elements are 0, even infinite ones") {
  const Tensor x = normal({50000}, 8, DType::float32);
  same_at_any_threads([&] {
    manual_seed(9);
    const Run r = run([](const List& in) { return dropout(in[0], 0.1); }, {x}, x);
    return List{r.y, r.gradients[0]};
  });
  const Tape tape;
  for (double v : dropout(Tensor::full({100}, std::numeric_limits<double>::infinity()), 0.5).to_vector<double>())
    CHECK((v == 0 || std::isinf(v)));
}

TEST_CASE("dropout with p = 1 gives zeros and zero gradients, even for infinite elements") {
  Tensor x = normal({70}, 1, DType::float32);
  x.fill_(kInf);
  const Run r = run([](const List& in) { return dropout(in[0], 1); }, {normal({70})},
                    Tensor::ones({70}, DType::float64));
  CHECK(same_bits(r.y, Tensor::zeros({70}, DType::float64)));
  CHECK(same_bits(r.gradients[0], Tensor::zeros({70}, DType::float64)));
  const Tape tape;
  CHECK(same_bits(dropout(x, 1), Tensor::zeros({70})));
  const Tensor q = normal({2, 2, 5, 4}, 2, DType::float32);
  CHECK(same_bits(attention(q, q, q, {.dropout = 1}), Tensor::zeros(q.shape())));
}

TEST_CASE("dropout: errors") {
  const Tensor x = Tensor::ones({2});
  CHECK(contains(error_of([&] { dropout(x, 1.5); }), "dropout: p is 1.5; it must be in [0, 1] (dropout_test.cpp:"));
  CHECK(contains(error_of([&] { dropout(x, -0.1); }), "dropout: p is -0.1; it must be in [0, 1]"));
  CHECK(contains(error_of([&] { dropout(x, std::nan("")); }), "dropout: p is nan"));
  CHECK(contains(error_of([&] { dropout(x.to(DType::int32), 0.1); }),
                 "dropout: x is [2] int32; it must be float32 or float64"));
}
