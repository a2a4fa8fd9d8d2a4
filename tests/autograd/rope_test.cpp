// rope: rotation by position at all widths, decoding offsets, gradients, bits and errors.
#include <heed/autograd/embedding.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/dry_run.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>

#include "tests/core/levels.hpp"
#include "tests/support.hpp"

using namespace heed;
using namespace heed::test;

namespace {

// Rotates pair by pair, as complex numbers.
Tensor naive_rope(const Tensor& x, const RopeOptions& o) {
  const Tensor from = x.to(DType::float64).dense();
  Tensor y = from.clone();
  const Index length = x.dim(-2), width = x.dim(-1), dims = o.dims == 0 ? width : o.dims;
  for (Index row = 0; row < from.numel() / width; ++row)
    for (Index i = 0; i < dims / 2; ++i) {
      const Index a = o.interleaved ? 2 * i : i, b = o.interleaved ? 2 * i + 1 : i + dims / 2;
      const double angle = static_cast<double>(o.offset + row % length) *
                           std::pow(o.base, -2 * static_cast<double>(i) / static_cast<double>(dims));
      const double* u = from.ptr<double>() + row * width;
      y.ptr<double>()[row * width + a] = u[a] * std::cos(angle) - u[b] * std::sin(angle);
      y.ptr<double>()[row * width + b] = u[b] * std::cos(angle) + u[a] * std::sin(angle);
    }
  return y;
}

}  // namespace

TEST_CASE("rope turns each pair by its position, at all widths, on each level") {
  on_each_float_level([] {
    for (Index width : {2, 4, 6, 8, 14, 16, 18, 30, 32, 34, 62, 64, 66, 128}) {
      const Tensor x = Rng(1).normal({2, 3, 7, width}, 0, 1, DType::float64);
      for (const bool interleaved : {false, true}) {
        const RopeOptions cases[] = {{.interleaved = interleaved},
                                     {.base = 500, .offset = 300, .interleaved = interleaved},
                                     {.offset = 2, .dims = (width / 4) * 2, .interleaved = interleaved}};
        for (const RopeOptions& o : cases) {
          CAPTURE(width);
          CHECK(worst(rope(x, o), naive_rope(x, o), 0, 1e-13) < 1);
          CHECK(worst(rope(x.to(DType::float32), o), naive_rope(x, o), 0, 2e-6) < 1);
        }
      }
    }
  });
}

TEST_CASE("rope: scores depend on distances, and decoding continues where the prompt ended") {
  const Tensor x = Rng(1).normal({1, 1, 12, 16}, 0, 1, DType::float64);
  const Tensor same = x.slice(2, 0, 1).expand({1, 1, 12, 16}).dense();
  const auto dot = [](const Tensor& a, const Tensor& b) {
    double sum = 0;
    const auto u = a.to_vector<double>(), v = b.to_vector<double>();
    for (std::size_t i = 0; i < u.size(); ++i) sum += u[i] * v[i];
    return sum;
  };
  const Tensor y = rope(same);
  CHECK(std::fabs(dot(y[0][0][2], y[0][0][5]) - dot(y[0][0][8], y[0][0][11])) < 1e-12);
  CHECK(same_bits(rope(x).slice(2, 7, 12), rope(x.slice(2, 7, 12), {.offset = 7})));
}

TEST_CASE("rope passes gradcheck, through views too, and the gradient undoes the rotation") {
  const Tensor x = Rng(1).normal({2, 5, 2, 6}, 0, 1, DType::float64);
  for (const bool interleaved : {false, true}) {
    const RopeOptions o{.offset = 3, .dims = 4, .interleaved = interleaved};
    gradcheck([&](const std::vector<Tensor>& in) { return rope(in[0], o); }, {x});
    gradcheck([&](const std::vector<Tensor>& in) { return rope(in[0].transpose(1, 2), o); }, {x});
    gradcheck([&](const std::vector<Tensor>& in) { return rope(in[0].transpose(2, 3).slice(3, 0, 2), {.dims = 2}); },
              {x});
    gradcheck([&](const std::vector<Tensor>& in) { return rope(in[0].unsqueeze(0).unsqueeze(0), o); }, {x});
  }
}

TEST_CASE("rope: same bits at any number of threads, empty tensors, errors") {
  const Tensor x = Rng(1).normal({4, 8, 200, 64});
  set_threads(1);
  const Tensor one = rope(x);
  for (int n : {2, 3, 8}) {
    set_threads(n);
    CHECK(same_bits(rope(x), one));
  }
  set_threads(0);
  CHECK(rope(Tensor::zeros({2, 0, 4})).shape() == Shape{2, 0, 4});
  CHECK(rope(Tensor::zeros({3, 0})).shape() == Shape{3, 0});
  const auto refuses = [](auto&& run, const std::string& part) { CHECK(contains(error_of(run), part)); };
  refuses([] { rope(Tensor::zeros({4})); }, "rope: x is [4] float32; it must be [..., length, width]");
  refuses([] { rope(Tensor::zeros({4, 4}, DType::int32)); }, "it must be float32 or float64");
  refuses([] { rope(Tensor::zeros({4, 3})); }, "dims is 3; dims must be even");
  refuses([] { rope(Tensor::zeros({4, 4}), {.dims = 6}); }, "dims must be even and at most the size of the last axis");
  refuses(
      [] {
        rope(Tensor::zeros({4, 4}), {.offset = -1});
      },
      "offset is -1; offset must be 0 or more, and all positions below 2^31");
  refuses([] { rope(Tensor::zeros({4, 4}), {.base = 0}); }, "base is 0; it must be positive");
}

TEST_CASE("rope: one offset per element of the first axis equals separate calls, gradients too") {
  const Tensor x = Rng(1).normal({3, 2, 5, 8}, 0, 1, DType::float64);
  const std::vector<std::int32_t> offsets = {0, 7, 300};
  const RopeOptions together{.offsets = Tensor::from(offsets, {3})};
  const Tensor y = rope(x, together);
  for (Index b = 0; b < 3; ++b) CHECK(same_bits(y[b], rope(x[b], {.offset = offsets[static_cast<std::size_t>(b)]})));
  gradcheck([&](const std::vector<Tensor>& in) { return rope(in[0], together); }, {x});
  check_errors({
      {"rope: x is [3, 2, 5, 8] float64, offset is 0 and offsets are [2] int32; x must have 3 axes or "
       "more, offsets must be int32 [3], one per entry of the first axis, and offset must be 0",
       [&] { rope(x, {.offsets = Tensor::zeros({2}, DType::int32)}); }},
      {"offset is 4 and offsets are [3] int32", [&] { rope(x, {.offset = 4, .offsets = together.offsets}); }},
      {"rope: offsets[1] is -2; it must be 0 or more",
       [&] {
         rope(x, {.offsets = Tensor::from<std::int32_t>({0, -2, 1}, {3})});
       }},
  });
}

TEST_CASE("rope: one position per row equals separate calls, gradients too, on each level") {
  const Tensor x = Rng(1).normal({2, 3, 5, 8}, 0, 1, DType::float64);
  const std::vector<std::int32_t> places = {0, 1, 0, 300, 2, 7, 7, 0, 1, 2};
  const RopeOptions together{.positions = Tensor::from(places, {2, 5})};
  on_each_level([&] {
    for (const bool interleaved : {false, true}) {
      RopeOptions o = together;
      o.interleaved = interleaved, o.dims = 6;
      const Tensor y = rope(x, o);
      for (Index n = 0; n < 10; ++n) {
        const auto row = [&](const Tensor& of) { return of[n / 5].slice(1, n % 5, n % 5 + 1); };
        CHECK(same_bits(
            row(y).dense(),
            rope(row(x), {.offset = places[static_cast<std::size_t>(n)], .dims = 6, .interleaved = interleaved})));
      }
    }
  });
  gradcheck([&](const std::vector<Tensor>& in) { return rope(in[0], together); }, {x});
  gradcheck([&](const std::vector<Tensor>& in) { return rope(in[0].transpose(1, 2), together); },
            {x.transpose(1, 2).dense()});
  CHECK(rope(Tensor::zeros({0, 3, 5, 8}), {.positions = Tensor::zeros({0, 5}, DType::int32)}).numel() == 0);
  check_errors({
      {"rope: x is [2, 3, 5, 8] float64 and positions are [2, 4] int32; x must be [batch, heads, length, width], "
       "positions [batch, length] int32, and there must be no offset",
       [&] {
         rope(x, {.positions = Tensor::zeros({2, 4}, DType::int32)});
       }},
      {"rope: x is [3, 5, 8] float64 and positions are", [&] { rope(x[0], {.positions = together.positions}); }},
      {"there must be no offset", [&] { rope(x, {.offset = 1, .positions = together.positions}); }},
      {"there must be no offset",
       [&] { rope(x, {.offsets = Tensor::zeros({2}, DType::int32), .positions = together.positions}); }},
      {"rope: positions[3] is -1; it must be 0 or more",
       [&] {
         rope(x, {.positions = Tensor::from<std::int32_t>({0, 0, 0, -1, 0, 0, 0, 0, 0, 0}, {2, 5})});
       }},
  });
}

TEST_CASE("rope: angles that a dry run requests first are computed for later real runs") {
  const RopeOptions o{.base = 12345};  // no other test uses this base
  const Tensor x = normal({1, 1, 300, 16}, 1, DType::float32);
  detail::dry_run([&] { rope(x, o); });
  CHECK(close(rope(x, o), naive_rope(x, o).to(DType::float32), 1e-4, 1e-4));
}
