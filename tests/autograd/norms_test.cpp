// layer_norm, rms_norm and normalize: values, gradients, precision at extreme magnitudes, and errors.
#include <heed/autograd/elementwise.hpp>
#include <heed/autograd/norms.hpp>
#include <heed/autograd/tape.hpp>
#include <limits>

#include "tests/autograd/fused_support.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using List = std::vector<Tensor>;

Tensor layer(const List& in) { return layer_norm(in[0], in[1], in[2], 1e-3); }
Tensor rms(const List& in) { return rms_norm(in[0], in[1], 1e-3); }

// Plain loops over rows in float64: y, and the gradients of x, weight and bias.
List naive(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& dy, double eps, bool centred) {
  const Index n = x.dim(-1), rows = x.rows();
  const std::vector<double> xs = x.to_vector<double>(), ws = weight.to_vector<double>(), bs = bias.to_vector<double>(),
                            ds = dy.to_vector<double>();
  std::vector<double> y(xs.size()), dx(xs.size()), dw(ws.size()), db(bs.size());
  for (Index r = 0; r < rows; ++r) {
    const auto at = [&](Index j) { return static_cast<std::size_t>(r * n + j); };
    double mean = 0, square = 0, g_mean = 0, gn_mean = 0;
    const auto count = static_cast<double>(n);
    for (Index j = 0; centred && j < n; ++j) mean += xs[at(j)] / count;
    for (Index j = 0; j < n; ++j) square += (xs[at(j)] - mean) * (xs[at(j)] - mean) / count;
    const double rstd = 1 / std::sqrt(square + eps);
    for (Index j = 0; j < n; ++j) {
      const double normal = (xs[at(j)] - mean) * rstd, w = ws[static_cast<std::size_t>(j)];
      y[at(j)] = normal * w + bs[static_cast<std::size_t>(j)];
      dw[static_cast<std::size_t>(j)] += ds[at(j)] * normal;
      db[static_cast<std::size_t>(j)] += ds[at(j)];
      g_mean += centred ? ds[at(j)] * w / count : 0;
      gn_mean += ds[at(j)] * w * normal / count;
    }
    for (Index j = 0; j < n; ++j) {
      const double normal = (xs[at(j)] - mean) * rstd;
      dx[at(j)] = rstd * (ds[at(j)] * ws[static_cast<std::size_t>(j)] - g_mean - normal * gn_mean);
    }
  }
  return {Tensor::from(y, x.shape()), Tensor::from(dx, x.shape()), Tensor::from(dw, weight.shape()),
          Tensor::from(db, bias.shape())};
}

void check_width(Index rows, Index n, DType dtype, double tolerance) {
  CAPTURE(n);
  CAPTURE(rows);
  const auto seed = static_cast<std::uint64_t>(1000 * rows + n);
  const Tensor x = normal({rows, n}, seed, dtype), w = normal({n}, seed + 1, dtype), b = normal({n}, seed + 2, dtype),
               dy = normal({rows, n}, seed + 3, dtype);
  for (const bool centred : {true, false}) {
    const Tensor shift = centred ? b : Tensor::zeros({n}, dtype);
    const List expected = naive(x, w, shift, dy, 1e-3, centred);
    const Run got = run(centred ? layer : rms, centred ? List{x, w, b} : List{x, w}, dy);
    CHECK(worst(got.y, expected[0], tolerance, tolerance) <= 1);
    // For small n, rstd may reach 1 / sqrt(eps) = 32, and dx is a difference of terms of that magnitude.
    CHECK(worst(got.gradients[0], expected[1], tolerance, 30 * tolerance) <= 1);
    CHECK(worst(got.gradients[1], expected[2], tolerance, tolerance * static_cast<double>(rows)) <= 1);
    if (centred) CHECK(worst(got.gradients[2], expected[3], tolerance, tolerance * static_cast<double>(rows)) <= 1);
  }
}

}  // namespace

TEST_CASE("layer_norm and rms_norm equal PyTorch's, values and gradients") {
  const Tensor x = torch("x"), w = torch("gain"), b = torch("shift"), dy = torch("dy");
  const Run got = run(layer, {x, w, b}, dy);
  CHECK(close(got.y, torch("layer_norm"), 1e-12, 1e-12));
  for (int i = 0; i < 3; ++i)
    CHECK(close(got.gradients[static_cast<std::size_t>(i)], torch("layer_norm.d" + std::to_string(i)), 1e-12, 1e-12));
  const Run plain = run([](const List& in) { return layer_norm(in[0], Tensor(), Tensor()); }, {x}, dy);
  CHECK(close(plain.y, torch("layer_norm plain"), 1e-12, 1e-12));
  CHECK(close(plain.gradients[0], torch("layer_norm plain.d0"), 1e-12, 1e-12));
  const Run root = run(rms, {x, w}, dy);
  CHECK(close(root.y, torch("rms_norm"), 1e-12, 1e-12));
  CHECK(close(root.gradients[0], torch("rms_norm.d0"), 1e-12, 1e-12));
  CHECK(close(root.gradients[1], torch("rms_norm.d1"), 1e-12, 1e-12));
}

TEST_CASE("layer_norm and rms_norm at every width and level, against plain loops in float64") {
  on_each_level([] {
    for (Index n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130}) {
      for (Index rows : {1, 3, 4, 9}) {
        check_width(rows, n, DType::float32, 2e-6);
        check_width(rows, n, DType::float64, 1e-14);
      }
    }
    check_width(700, 129, DType::float32, 2e-6);  // several blocks of rows
  });
}

TEST_CASE("layer_norm and rms_norm pass gradcheck") {
  const Tensor x = normal({2, 3, 5}, 1), w = normal({5}, 2), b = normal({5}, 3);
  gradcheck(layer, {x, w, b});
  gradcheck(rms, {x, w});
  gradcheck([](const List& in) { return layer_norm(in[0], in[1], Tensor()); }, {x, w});
  gradcheck([](const List& in) { return layer_norm(in[0], Tensor(), in[1]); }, {x, b});
  gradcheck([](const List& in) { return layer_norm(in[0].transpose(0, 2), in[1], in[1]); }, {x, normal({2}, 4)});
  gradcheck([](const List& in) { return layer_norm(layer_norm(in[0], in[1], in[2]), in[1], in[2]); }, {x, w, b});
  gradcheck([](const List& in) { return rms_norm(in[0].expand({4, 5}), Tensor()); }, {b});
}

// Only the saved normalized values are rounded, so the error of each gradient is at most one rounding of each value.
TEST_CASE("layer_norm and rms_norm keep bfloat16 for their gradients under MatmulPrecision, on each level") {
  on_each_level([] {
    for (const Index n : {1, 5, 16, 37, 128})
      for (const bool centred : {true, false}) {
        CAPTURE(n);
        CAPTURE(centred);
        const Index rows = 7;
        const Tensor x = normal({rows, n}, 1, DType::float32) + 100.0 * (centred && n > 1),
                     w = normal({n}, 2, DType::float32),
                     b = centred ? normal({n}, 3, DType::float32) : Tensor::zeros({n}),
                     dy = normal({rows, n}, 4, DType::float32);
        const List expected = naive(x, w, b, dy, 1e-3, centred);
        const List in = centred ? List{x, w, b} : List{x, w};
        const auto made = [&](DType operands) {
          const MatmulPrecision precision(operands);
          return run(centred ? layer : rms, in, dy);
        };
        const Run got = made(DType::bfloat16), wide = made(DType::float32);
        CHECK(same_bits(got.y, wide.y));
        // n| <= sqrt(width), and n occurs twice in dx = rstd (g - mean(g) - n mean(g n))
        const double unit = 0x1p-8 * std::sqrt(static_cast<double>(n));
        CHECK(worst(got.gradients[0], expected[1], 0x1p-7, n == 1 ? 64 * unit : 4 * unit) <= 1);
        CHECK(worst(got.gradients[1], expected[2], 0x1p-8, static_cast<double>(rows) * unit) <= 1);
        if (n > 1) CHECK(!same_bits(got.gradients[1], wide.gradients[1]));
        if (centred) CHECK(same_bits(got.gradients[2], wide.gradients[2]));
      }
  });
  const Tensor x = normal({32, 64}, 1, DType::float32);
  Tape tape;
  const MatmulPrecision precision(DType::bfloat16);
  const Tensor y = rms_norm(tape.watch(x), Tensor());
  CHECK(tape.saved_bytes() == 32 * 64 * 2 + 32 * 4);
}

TEST_CASE("layer_norm: views, one row, no rows, a single needed gradient") {
  const Tensor x = normal({6, 4}, 5), w = normal({6}, 6), b = normal({6}, 7);
  CHECK(same_bits(layer_norm(x.t(), w, b), layer_norm(x.t().clone(), w, b)));
  CHECK(same_bits(layer_norm(x.select(1, 2), w, b), layer_norm(x.t().clone(), w, b)[2]));
  CHECK(layer_norm(Tensor::zeros({0, 6}, DType::float64), w, b).shape() == Shape{0, 6});
  const Run none = run(layer, {Tensor::zeros({0, 6}, DType::float64), w, b}, Tensor::zeros({0, 6}, DType::float64));
  CHECK(same_bits(none.gradients[1], Tensor::zeros({6}, DType::float64)));
  const Tensor y = x.t().clone(), dy = normal({4, 6}, 8);
  const Run all = run(layer, {y, w, b}, dy);
  CHECK(same_bits(run([&](const List& in) { return layer_norm(y, in[0], b, 1e-3); }, {w}, dy).gradients[0],
                  all.gradients[1]));
  CHECK(same_bits(run([&](const List& in) { return layer_norm(y, w, in[0], 1e-3); }, {b}, dy).gradients[0],
                  all.gradients[2]));
  CHECK(same_bits(run([&](const List& in) { return layer_norm(in[0], w, b, 1e-3); }, {y}, dy).gradients[0],
                  all.gradients[0]));
}

TEST_CASE("layer_norm: equal elements, and a NaN that stays in its row") {
  const Tensor w = Tensor::ones({3}), b = Tensor::from({1, 2, 3});
  CHECK(same_bits(layer_norm(Tensor::full({3}, 1e6), w, b), b));
  Tensor x = normal({5, 3}, 9, DType::float32);
  const Tensor clean = layer_norm(x, w, b);
  x.mutable_data<float>()[4] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = layer_norm(x, w, b);
  for (Index r : {0, 2, 3, 4}) CHECK(same_bits(y[r], clean[r]));
  for (double v : y[1].to_vector<double>()) CHECK(std::isnan(v));
  x.mutable_data<float>()[4] = std::numeric_limits<float>::infinity();
  for (double v : layer_norm(x, w, b)[1].to_vector<double>()) CHECK(std::isnan(v));
}

namespace {

// float32 values whose mean is `far` times their deviation.
Tensor far_rows(Index rows, Index n, double far) {
  Tensor x = normal({rows, n}, static_cast<std::uint64_t>(n), DType::float64);
  for (Index i = 0; i < x.numel(); ++i) x.mutable_data<double>()[i] += far;
  return x.to(DType::float32);
}

}  // namespace

TEST_CASE("layer_norm keeps the precision of values far from 0, on each level") {
  on_each_level([] {
    for (const Index n : {2, 4, 15, 16, 17, 100, 1000}) {
      CAPTURE(n);
      const Tensor x = far_rows(5, n, 1e6), w = normal({n}, 1, DType::float32), b = normal({n}, 2, DType::float32),
                   dy = normal({5, n}, 3, DType::float32);
      const List expected = naive(x, w, b, dy, 1e-3, true);
      const Run got = run(layer, {x, w, b}, dy);
      CHECK(worst(got.y, expected[0], 4e-6, 4e-6) <= 1);
      for (std::size_t i = 0; i < 3; ++i)
        CHECK(worst(got.gradients[i], expected[i + 1], 1e-5, n == 2 ? 1e-3 : 2e-5) <= 1);
    }
    const Tensor four = Tensor::from({1e7, 1e7 + 1, 1e7 + 2, 1e7 + 3});
    CHECK(close(layer_norm(four, Tensor(), Tensor(), 0), Tensor::from({-1.3416408, -0.4472136, 0.4472136, 1.3416408})));
  });
}

TEST_CASE("layer_norm, rms_norm and normalize are correct if squares overflow or underflow, on each level") {
  on_each_level([] {
    const Tensor dy = normal({1, 3}, 3);
    for (const double size : {1e-42, 1e-30, 1e15, 1e20, 1e37, 1e38}) {
      CAPTURE(size);
      const bool rough = size < 1e-38;  // subnormal: few digits
      const Tensor x = Tensor::from({2 * size, -size, 0}, {1, 3}), x64 = x.to(DType::float64);
      const double tolerance = rough ? 1e-2 : 2e-6;
      const auto same = [&](const std::function<Tensor(const List&)>& f) {
        const Run got = run(f, {x}, dy.to(DType::float32)),
                  expected = run(f, {x64}, dy.to(DType::float32).to(DType::float64));
        CHECK(worst(got.y, expected.y, tolerance, tolerance) <= 1);
        if (rough) return;  // 1 / size is infinite
        Tensor a = got.gradients[0].to(DType::float64), b = expected.gradients[0];
        CHECK(worst(a * size, b * size, tolerance, tolerance) <= 1);
      };
      same([](const List& in) { return layer_norm(in[0], Tensor(), Tensor(), 1e-5); });
      same([](const List& in) { return rms_norm(in[0], Tensor(), 1e-6); });
      if (rough) continue;
      same([](const List& in) { return layer_norm(in[0], Tensor(), Tensor(), 0); });
      same([](const List& in) { return rms_norm(in[0], Tensor(), 0); });
      same([](const List& in) { return normalize(in[0]); });
    }
    const Tensor wide = Tensor::from<double>({1e200, 0, 0}, {3});
    CHECK(close(layer_norm(wide, Tensor(), Tensor()),
                Tensor::from<double>({std::sqrt(2.), -std::sqrt(.5), -std::sqrt(.5)}), 1e-12));
    CHECK(close(normalize(wide), Tensor::from<double>({1, 0, 0}), 1e-12));
    for (const double v : rms_norm(Tensor::from({kInf, 1}), Tensor()).to_vector<double>()) CHECK(std::isnan(v));
  });
}

TEST_CASE("normalize, and norms without an eps, are right for rows of subnormal numbers, on each level") {
  on_each_level([] {
    for (const DType dtype : {DType::float32, DType::float64}) {
      const bool wide = dtype == DType::float64;
      const double size = wide ? 1e-315 : 1e-41, digits = wide ? 1e-12 : 5e-6;
      const Tensor units = Tensor::from<double>({3, -1, 0.5, 0, 0, 0, 2, 1, -2}, {3, 3});
      // Gradients have the magnitude of 1 / size, so a small dy keeps them finite.
      const double small = wide ? 1e-10 : 1e-5;
      const Tensor x = (units * size).to(dtype),
                   dy = (Tensor::from<double>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3}) * small).to(dtype);
      // The same rows scaled by an exact power of two; their derivatives are smaller by the same factor.
      const double unit = wide ? 0x1p1000 : 0x1p130;
      const Tensor larger = x.to(DType::float64) * unit;
      const auto same = [&](const std::function<Tensor(const List&)>& f, Index rows) {
        const Run got = run(f, {x.slice(0, 0, rows)}, dy.slice(0, 0, rows)),
                  expected = run(f, {larger.slice(0, 0, rows)}, dy.to(DType::float64).slice(0, 0, rows));
        const double scale = max(abs(expected.gradients[0])).item();
        CHECK(worst(got.y.to(DType::float64), expected.y, digits, digits) <= 1);
        CHECK(worst(got.gradients[0].to(DType::float64) / unit, expected.gradients[0], digits, digits * scale) <= 1);
      };
      same([](const List& in) { return normalize(in[0]); }, 3);
      same([](const List& in) { return rms_norm(in[0], Tensor(), 0); }, 1);  // a row of zeros gives 0 / 0
      same([](const List& in) { return layer_norm(in[0], Tensor(), Tensor(), 0); }, 1);
    }
  });
}

TEST_CASE("normalize of single elements is their sign, whose gradient is 0, on each level") {
  on_each_level([] {
    for (const DType dtype : {DType::float32, DType::float64}) {
      const Tensor x = normal({1000, 1}, 3, dtype);
      const Run r = run([](const List& in) { return normalize(in[0]); }, {x}, Tensor::ones({1000, 1}, dtype));
      Index wrong = 0;
      for (Index i = 0; i < 1000; ++i) wrong += r.y.at({i, 0}) != (x.at({i, 0}) < 0 ? -1 : 1);
      CHECK(wrong == 0);
      CHECK(same_bits(r.gradients[0], Tensor::zeros({1000, 1}, dtype)));
    }
    const std::vector<double> y = normalize(Tensor::from({0, -0.0, NAN, 1e-20, -1e30}, {5, 1})).to_vector<double>();
    CHECK((y[0] == 0 && y[1] == 0 && std::isnan(y[2]) && y[3] == 1 && y[4] == -1));
  });
}

TEST_CASE("layer_norm has the same bits at any number of threads") {
  const Tensor x = normal({1500, 96}, 10, DType::float32), w = normal({96}, 11, DType::float32),
               b = normal({96}, 12, DType::float32);
  const Tensor dy = normal({1500, 96}, 13, DType::float32);
  same_at_any_threads([&] {
    const Run r = run(layer, {x, w, b}, dy), s = run(rms, {x, w}, dy);
    return List{r.y, r.gradients[0], r.gradients[1], r.gradients[2], s.y, s.gradients[0], s.gradients[1]};
  });
}

TEST_CASE("layer_norm and rms_norm: errors") {
  const Tensor x = Tensor::ones({2, 4}), w = Tensor::ones({4}), wrong = Tensor::ones({3});
  CHECK(contains(error_of([&] { layer_norm(x, wrong, w); }),
                 "layer_norm: x is [2, 4] float32 but weight is [3] float32; it must be [4] float32 (norms_test.cpp:"));
  CHECK(contains(error_of([&] { layer_norm(x, w, Tensor::ones({4}, DType::float64)); }),
                 "but bias is [4] float64; it must be [4] float32"));
  CHECK(contains(error_of([&] { layer_norm(x.to(DType::int32), w, w); }),
                 "layer_norm: x is [2, 4] int32; it must be float32 or float64"));
  CHECK(contains(error_of([&] { layer_norm(Tensor::scalar(1), w, w); }),
                 "it must have a last axis of 1 element or more"));
  CHECK(contains(error_of([&] {
                   layer_norm(Tensor::ones({2, 0}), Tensor(), Tensor());
                 }),
                 "it must have a last axis of 1 element or more"));
  CHECK(contains(error_of([&] { layer_norm(x, w, w, -1); }), "layer_norm: eps is -1; it must not be negative"));
  CHECK(contains(error_of([&] { layer_norm(Tensor(), w, w); }), "layer_norm: x is "));
  CHECK(contains(error_of([&] { rms_norm(x, wrong); }),
                 "rms_norm: x is [2, 4] float32 but weight is [3] float32; it must be [4] float32"));
  CHECK(contains(error_of([&] { rms_norm(x.to(DType::bfloat16), w); }),
                 "rms_norm: x is [2, 4] bfloat16; it must be float32 or float64"));
}

TEST_CASE("normalize gives vectors of length 1, and zeros with zero gradient for zero vectors, on each level") {
  on_each_level([] {
    for (const Index n : {1, 2, 3, 7, 8, 9, 16, 17, 33, 100}) {
      CAPTURE(n);
      const Tensor x = normal({5, n}, 3), dy = normal({5, n}, 4);
      Tensor expected = Tensor::zeros({5, n}, DType::float64), gradient = Tensor::zeros({5, n}, DType::float64);
      for (Index r = 0; r < 5; ++r) {
        if (r == 2) x.slice(0, 2, 3).fill_(0);
        double *row = x.ptr<double>() + r * n, *y = expected.ptr<double>() + r * n, *d = dy.ptr<double>() + r * n;
        double length = 0, along = 0;
        for (Index j = 0; j < n; ++j) length += row[j] * row[j];
        if (length == 0) continue;
        length = std::sqrt(length);
        for (Index j = 0; j < n; ++j) along += (y[j] = row[j] / length) * d[j];
        for (Index j = 0; j < n; ++j) gradient.ptr<double>()[r * n + j] = (d[j] - y[j] * along) / length;
      }
      const auto f = [](const List& in) { return normalize(in[0]); };
      const Run doubles = run(f, {x}, dy), floats = run(f, {x.to(DType::float32)}, dy.to(DType::float32));
      CHECK(close(doubles.y, expected, 1e-14, 1e-15));
      CHECK(close(doubles.gradients[0], gradient, 1e-13, 1e-14));
      CHECK(close(floats.y, expected, 1e-6, 1e-7));
      // The direction of a single element is constant, so its gradient is 0 except for rounding, which 1 / |x|
      // enlarges.
      CHECK(close(floats.gradients[0], gradient, 1e-5, n == 1 ? 1e-5 : 3e-6));
      for (const double scale : {1e-15, 1e15})
        CHECK(close(normalize((x * scale).to(DType::float32)), expected, 1e-6, 1e-7));
    }
  });
  gradcheck([](const List& in) { return normalize(in[0]); }, {normal({2, 3, 5}, 1)});
  CHECK(normalize(Tensor::ones({0, 3})).shape() == Shape{0, 3});
}
