// cross_entropy against PyTorch and plain loops: ignored targets, smoothing, class weights, extreme logits.
#include <heed/autograd/losses.hpp>
#include <heed/autograd/tape.hpp>

#include "tests/autograd/fused_support.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using List = std::vector<Tensor>;

Run run_cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& o,
                      const Tensor& dy = {}) {
  return run([&](const List& in) { return cross_entropy(in[0], targets, o); }, {logits}, dy);
}

const char* name_of(Reduction r) { return r == Reduction::none ? "none" : r == Reduction::mean ? "mean" : "sum"; }

// The definition in float64, row by row and without reduction: losses, and gradients for dy.
List naive(const Tensor& logits, const Tensor& targets, double s, const Tensor& weight, const Tensor& dy) {
  const auto n = static_cast<std::size_t>(logits.dim(-1)), rows = static_cast<std::size_t>(logits.rows());
  const std::vector<double> x = logits.to_vector<double>(), w = weight.to_vector<double>(), ds = dy.to_vector<double>(),
                            t = targets.to_vector<double>();
  std::vector<double> loss(rows), dx(rows * n);
  for (std::size_t r = 0; r < rows; ++r) {
    if (t[r] < 0) continue;
    double sum = 0, top = -kInf;
    for (std::size_t c = 0; c < n; ++c) top = std::max(top, x[r * n + c]);
    for (std::size_t c = 0; c < n; ++c) sum += std::exp(x[r * n + c] - top);
    const double lse = top + std::log(sum);
    const auto target = static_cast<std::size_t>(t[r]);
    for (std::size_t c = 0; c < n; ++c) {
      const double share =
          (c == target ? 1 - s : 0) * w[target] + s / static_cast<double>(n) * w[c];  // factor of -log p_c in the loss
      if (share == 0) continue;
      loss[r] += share * (lse - x[r * n + c]);
      for (std::size_t k = 0; k < n; ++k)
        dx[r * n + k] += ds[r] * share * (std::exp(x[r * n + k] - lse) - (k == c ? 1 : 0));
    }
  }
  return {Tensor::from(loss, targets.shape()), Tensor::from(dx, logits.shape())};
}

}  // namespace

TEST_CASE("cross_entropy equals PyTorch's: ignored targets, smoothing, class weights, reductions") {
  const Tensor logits = torch("logits"), targets = torch("targets").to(DType::int32), dy = torch("dy_rows");
  for (const bool weighted : {false, true}) {
    for (const char* smoothing : {"0.0", "0.2", "1.0"}) {
      for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
        const std::string name =
            std::string("cross_entropy ") + (weighted ? "weighted " : "") + smoothing + " " + name_of(reduction);
        CAPTURE(name);
        const Tensor weight = weighted ? torch("class_weight") : Tensor();
        const CrossEntropyOptions o{.label_smoothing = std::stod(smoothing), .weight = weight, .reduction = reduction};
        const Run r = run_cross_entropy(logits, targets, o, dy);
        CHECK(close(r.y, torch(name), 1e-12, 1e-12));
        CHECK(close(r.gradients[0], torch(name + ".d0"), 1e-12, 1e-12));
      }
    }
  }
}

TEST_CASE("cross_entropy at every width and level, against plain loops in float64") {
  on_each_float_level([] {
    for (DType dtype : {DType::float32, DType::float64}) {
      const double tolerance = dtype == DType::float32 ? 2e-6 : 1e-14;
      for (Index c : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65, 130, 2048, 2049, 5000}) {
        CAPTURE(c);
        const Tensor x = Rng(static_cast<std::uint64_t>(c)).normal({2, 3, c}, 0, 4, dtype),
                     dy = normal({2, 3}, 1, dtype);
        const Tensor t = Rng(2).integers({2, 3}, 0, c), w = Rng(3).uniform({c}, 0.1, 2, dtype);
        for (const double s : {0., 0.3}) {
          if (c > 130 && s > 0) continue;  // the naive gradient takes quadratic time
          const List expected = naive(x, t, s, s > 0 ? w : Tensor::ones({c}), dy);
          const Run got = run_cross_entropy(
              x, t, {.label_smoothing = s, .weight = s > 0 ? w : Tensor(), .reduction = Reduction::none}, dy);
          CHECK(worst(got.y, expected[0], tolerance, 4 * tolerance) <= 1);
          CHECK(worst(got.gradients[0], expected[1], tolerance, 4 * tolerance) <= 1);
        }
      }
    }
  });
}

TEST_CASE("cross_entropy passes gradcheck") {
  const Tensor x = normal({2, 3, 4}, 1), t = Tensor::from<std::int32_t>({0, 3, -7, 1, 1, 2}, {2, 3}),
               w = Tensor::from<double>({0.5, 1, 2, 0.1});
  for (const Reduction r : {Reduction::none, Reduction::mean, Reduction::sum}) {
    gradcheck([&](const List& in) { return cross_entropy(in[0], t, {.ignore_index = -7, .reduction = r}); }, {x});
    gradcheck(
        [&](const List& in) {
          return cross_entropy(in[0], t, {.ignore_index = -7, .label_smoothing = 0.3, .weight = w, .reduction = r});
        },
        {x});
  }
  gradcheck(
      [&](const List& in) {
        return cross_entropy(in[0].transpose(1, 2), Tensor::from<std::int32_t>({0, 2, 1, 1, 2, 0, 0, 1}, {2, 4}));
      },
      {x});
}

TEST_CASE("cross_entropy: ignored, empty and single targets") {
  const Tensor x = normal({3, 4}, 2, DType::float32), none = Tensor::full({3}, -100, DType::int32);
  const Run mean = run_cross_entropy(x, none, {});
  CHECK(std::isnan(mean.y.item()));  // as in PyTorch: 0 / 0
  CHECK(same_bits(mean.gradients[0], Tensor::zeros({3, 4})));
  CHECK(cross_entropy(x, none, {.reduction = Reduction::sum}).item() == 0);
  CHECK(std::isnan(cross_entropy(Tensor::zeros({0, 4}), Tensor::zeros({0}, DType::int32)).item()));
  CHECK(cross_entropy(Tensor::zeros({4}), Tensor::scalar(2, DType::int32)).item() == doctest::Approx(std::log(4.)));
  CHECK(cross_entropy(Tensor::from({7.}), Tensor::scalar(0, DType::int32)).item() == 0);
  // ignore_index may be a valid class.
  CHECK(cross_entropy(x, Tensor::from<std::int32_t>({1, 2, 1}), {.ignore_index = 1}).item() ==
        cross_entropy(x[1], Tensor::scalar(2, DType::int32)).item());
}

TEST_CASE("cross_entropy: large, infinite and NaN logits") {
  on_each_float_level([] {
    const Tensor t = Tensor::from<std::int32_t>({1});
    const auto loss = [&](std::initializer_list<double> x) {
      return cross_entropy(Tensor::from(x, {1, static_cast<Index>(x.size())}), t).item();
    };
    CHECK(loss({1e30, 1e30}) == doctest::Approx(std::log(2.)));
    CHECK(loss({-1e30, 0}) == 0);
    CHECK(loss({-kInf, 3}) == 0);
    CHECK(loss({3, -kInf}) == kInf);
    CHECK(std::isnan(loss({-kInf, -kInf})));
    CHECK(std::isnan(loss({kInf, 0})));
    CHECK(std::isnan(loss({NAN, 0})));
    CHECK(std::isnan(loss({0, 0, NAN})));
    CHECK(std::isnan(loss({-kInf, -kInf, NAN})));
    // Minus infinity, as masks produce it, in more than one whole block of the row.
    Tensor x = Tensor::full({1, 5000}, -kInf);
    x.mutable_data<float>()[1] = 2;
    x.mutable_data<float>()[4500] = 2;
    const Run r = run_cross_entropy(x, t, {});
    CHECK(r.y.item() == doctest::Approx(std::log(2.)));
    CHECK(r.gradients[0].at({0, 1}) == doctest::Approx(-0.5));
    CHECK(r.gradients[0].at({0, 4500}) == doctest::Approx(0.5));
    CHECK(r.gradients[0].at({0, 0}) == 0);
  });
}

TEST_CASE("cross_entropy has the same bits at any number of threads") {
  const Tensor x = normal({700, 65}, 3, DType::float32), t = Rng(4).integers({700}, 0, 65);
  same_at_any_threads([&] {
    const Run r = run_cross_entropy(x, t, {.label_smoothing = 0.1});
    return List{r.y, r.gradients[0]};
  });
}

TEST_CASE("cross_entropy: errors") {
  const Tensor x = Tensor::zeros({2, 3, 4}), t = Tensor::from<std::int32_t>({0, 1, 2, 3, 4, 0}, {2, 3}),
               good = Tensor::zeros({2, 3}, DType::int32);
  CHECK(contains(
      error_of([&] { cross_entropy(x, t); }),
      "cross_entropy: targets[1, 1] is 4; it must be in [0, 4) or ignore_index, -100 (cross_entropy_test.cpp:"));
  CHECK(contains(error_of([&] { cross_entropy(x, good.t()); }),
                 "cross_entropy: logits are [2, 3, 4] float32 but targets are [3, 2] int32; targets must have the "
                 "shape of logits without its last axis"));
  CHECK(contains(error_of([&] {
                   cross_entropy(x, Tensor::zeros({2, 3}));
                 }),
                 "cross_entropy: targets are [2, 3] float32; they must be int32"));
  CHECK(contains(error_of([&] { cross_entropy(good, good); }),
                 "cross_entropy: logits are [2, 3] int32; they must be float32 or float64"));
  CHECK(contains(error_of([&] {
                   cross_entropy(Tensor::zeros({2, 3, 0}), good);
                 }),
                 "cross_entropy: there are no classes"));
  CHECK(contains(error_of([&] { cross_entropy(x, good, {.label_smoothing = 1.5}); }),
                 "cross_entropy: label_smoothing is 1.5; it must be in [0, 1]"));
  CHECK(contains(error_of([&] { cross_entropy(x, good, {.weight = Tensor::ones({3})}); }),
                 "cross_entropy: the class weights are [3] float32; they must be [4] float32"));
  CHECK(contains(error_of([&] { cross_entropy(x, good, {.reduction = Reduction::batch_mean}); }),
                 "it must be none, mean or sum"));
  const Parameter weight(Tensor::ones({4}));
  const Tape tape;
  CHECK(contains(error_of([&] { cross_entropy(x, good, {.weight = weight}); }),
                 "the class weights require a gradient, which is not defined; detach() them"));
}
