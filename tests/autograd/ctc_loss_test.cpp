// ctc_loss against PyTorch and against the sum over all paths: lengths, blanks, sequences without a path, extremes.
#include <cmath>
#include <heed/autograd/losses.hpp>
#include <heed/autograd/norms.hpp>

#include "tests/autograd/fused_support.hpp"
#include "tests/core/levels.hpp"

using namespace heed;
using namespace heed::test;

namespace {

using List = std::vector<Tensor>;

// The labels of a path: equal neighbours merged, then blanks removed.
std::vector<std::int32_t> labels_of(const std::vector<std::int32_t>& path, std::int32_t blank) {
  std::vector<std::int32_t> labels;
  for (std::size_t t = 0; t < path.size(); ++t)
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) labels.push_back(path[t]);
  return labels;
}

// -log P of the labels, and its derivative by each log probability: the sum over all paths of a sequence [T, C].
List over_all_paths(const Tensor& log_probs, const std::vector<std::int32_t>& labels, std::int32_t blank) {
  const Index steps = log_probs.dim(0), classes = log_probs.dim(1);
  const std::vector<double> p = log_probs.to_vector<double>();
  std::vector<double> share(p.size());
  std::vector<std::int32_t> path(static_cast<std::size_t>(steps));
  double total = 0;
  for (bool more = true; more;) {
    if (labels_of(path, blank) == labels) {
      double sum = 0;
      const auto each = [&](const auto& f) {
        for (std::size_t t = 0; t < path.size(); ++t)
          f(p[t * static_cast<std::size_t>(classes) + static_cast<std::size_t>(path[t])],
            share[t * static_cast<std::size_t>(classes) + static_cast<std::size_t>(path[t])]);
      };
      each([&](double x, double&) { sum += x; });
      total += std::exp(sum);
      each([&](double, double& s) { s += std::exp(sum); });
    }
    more = false;
    for (std::int32_t& c : path) {
      c = (c + 1) % static_cast<std::int32_t>(classes);
      if (c != 0) {
        more = true;
        break;
      }
    }
  }
  for (double& s : share) s /= -total;
  return {Tensor::scalar(-std::log(total), DType::float64), Tensor::from(share, log_probs.shape())};
}

Tensor log_probs_of(const Shape& shape, std::uint64_t seed, DType dtype = DType::float64) {
  return log_softmax(Rng(seed).normal(shape, 0, 2, dtype), -1);
}

}  // namespace

TEST_CASE("ctc_loss equals PyTorch's of log_softmax: lengths, blanks, reductions") {
  const Named all = stored_tensors("ctc_torch.json");
  const auto ints = [&](const char* name) { return all.at(name).to(DType::int32); };
  for (const auto& [reduction, shown] :
       {std::pair{Reduction::none, "none"}, {Reduction::mean, "mean"}, {Reduction::sum, "sum"}})
    for (const Index blank : {0, 5})
      for (const bool zero : {false, true}) {
        const std::string name = std::string(shown) + " " + std::to_string(blank) + " " + (zero ? "zero" : "plain");
        CAPTURE(name);
        const Index n = zero ? 4 : 3;  // no path fits the last sequence
        const auto first = [n](const Tensor& x) { return x.slice(0, 0, n); };
        Tensor targets = first(ints("targets")).dense();
        if (blank == 5)
          for (Index i = 0; i < targets.numel(); ++i)
            targets.mutable_data<std::int32_t>()[i] = (targets.mutable_data<std::int32_t>()[i] + 5) % 6;
        const CtcOptions o{.blank = blank, .zero_infinity = zero, .reduction = reduction};
        const Run r = run(
            [&](const List& in) {
              return ctc_loss(log_softmax(in[0], -1), targets, first(ints("input_lengths")),
                              first(ints("target_lengths")), o);
            },
            {first(all.at("logits")).dense()}, first(all.at("dy")));
        CHECK(close(r.y, all.at(name), 1e-12, 1e-12));
        CHECK(close(r.gradients[0], all.at(name + ".d"), 1e-12, 1e-12));
      }
}

TEST_CASE("ctc_loss sums over all paths, at every level") {
  on_each_float_level([] {
    for (const DType dtype : {DType::float32, DType::float64}) {
      const double tolerance = dtype == DType::float32 ? 3e-6 : 1e-13;
      for (const Index steps : {1, 2, 3, 5, 7})
        for (const std::vector<std::int32_t>& labels :
             {std::vector<std::int32_t>{}, {2}, {0, 2}, {2, 2}, {0, 2, 0}, {2, 0, 0}}) {
          if (steps < static_cast<Index>(labels.size()) + (labels.size() > 1 ? 1 : 0)) continue;
          CAPTURE(steps);
          const auto count = static_cast<Index>(labels.size());
          const Tensor x = log_probs_of({1, steps, 3}, static_cast<std::uint64_t>(steps), dtype),
                       targets = count == 0 ? Tensor::zeros({1, 0}, DType::int32) : Tensor::from(labels, {1, count});
          const List expected = over_all_paths(x[0], labels, 1);
          const Run r = run(
              [&](const List& in) {
                return ctc_loss(in[0], targets, {}, {}, {.blank = 1, .reduction = Reduction::sum});
              },
              {x});
          CHECK(worst(r.y, expected[0], tolerance, tolerance) <= 1);
          CHECK(worst(r.gradients[0], expected[1].view({1, steps, 3}), tolerance, tolerance) <= 1);
        }
    }
  });
}

TEST_CASE("ctc_loss passes gradcheck") {
  const Tensor x = log_probs_of({3, 6, 4}, 1),
               targets = Tensor::from<std::int32_t>({1, 1, 3, 2, 3, 0, 0, 0, 0}, {3, 3}),
               steps = Tensor::from<std::int32_t>({6, 4, 5}), labels = Tensor::from<std::int32_t>({3, 2, 0});
  for (const Reduction r : {Reduction::none, Reduction::mean, Reduction::sum})
    gradcheck([&](const List& in) { return ctc_loss(in[0], targets, steps, labels, {.reduction = r}); }, {x});
}

TEST_CASE("ctc_loss: many steps, small probabilities, and no path") {
  const Index steps = 2000, count = 300;
  const Tensor far = log_probs_of({1, steps, 50}, 3) - 1000., targets = Rng(4).integers({1, count}, 1, 50);
  const double loss = ctc_loss(far, targets, {}, {}, {.reduction = Reduction::sum}).item();
  const double near = ctc_loss(far + 1000., targets, {}, {}, {.reduction = Reduction::sum}).item();
  CHECK(loss - near == doctest::Approx(1000. * steps).epsilon(1e-12));

  const Tensor x = log_probs_of({2, 3, 4}, 5), same = Tensor::from<std::int32_t>({1, 1, 1, 2, 3, 2}, {2, 3});
  CHECK(std::isinf(ctc_loss(x, same).item()));
  const Run r = run([&](const List& in) { return ctc_loss(in[0], same, {}, {}, {.zero_infinity = true}); }, {x});
  CHECK(same_bits(r.gradients[0][0], Tensor::zeros({3, 4}, DType::float64)));
  CHECK(r.y.item() == ctc_loss(x, same, {}, {}, {.zero_infinity = true, .reduction = Reduction::none})[1].item() / 6);
  const Run none =
      run([&](const List& in) { return ctc_loss(in[0], same, {}, {}, {.reduction = Reduction::sum}); }, {x});
  CHECK(std::isnan(none.gradients[0].to_vector<double>()[1]));
}

TEST_CASE("ctc_loss has the same bits at any number of threads") {
  const Tensor x = log_probs_of({5, 40, 20}, 6, DType::float32), targets = Rng(7).integers({5, 9}, 1, 20);
  same_at_any_threads([&] {
    const Run r = run([&](const List& in) { return ctc_loss(in[0], targets); }, {x});
    return List{r.y, r.gradients[0]};
  });
}

TEST_CASE("ctc_loss: errors") {
  const Tensor x = log_probs_of({2, 5, 4}, 1), targets = Tensor::ones({2, 3}, DType::int32);
  const auto five_six = Tensor::from<std::int32_t>({5, 6}), three = Tensor::from<std::int32_t>({3});
  check_errors({
      {"ctc_loss: log_probs are [5, 4] float64; they must be [N, T, C], float32 or", [&] { ctc_loss(x[0], targets); }},
      {"but targets are [3] int32; they must be [2, S] int32", [&] { ctc_loss(x, targets[0]); }},
      {"ctc_loss: blank is 4; it must be one of the 4 classes", [&] { ctc_loss(x, targets, {}, {}, {.blank = 4}); }},
      {"ctc_loss: targets[0, 0] is 1; it must be in [0, 4) and not the blank, 1",
       [&] { ctc_loss(x, targets, {}, {}, {.blank = 1}); }},
      {"ctc_loss: targets[0, 0] is 4; it must be in [0, 4) and not the blank, 0", [&] { ctc_loss(x, targets + 3); }},
      {"ctc_loss: input_lengths[1] is 6; it must be in [0, 5]", [&] { ctc_loss(x, targets, five_six); }},
      {"ctc_loss: target_lengths are [1] int32; they must be [2] int32", [&] { ctc_loss(x, targets, {}, three); }},
      {"ctc_loss: the reduction is batch_mean; it must be none, mean or sum",
       [&] { ctc_loss(x, targets, {}, {}, {.reduction = Reduction::batch_mean}); }},
  });
}
