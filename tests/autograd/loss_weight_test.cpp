// weighted_mean, and the weights by which losses of batches are joined.
#include <heed/autograd/detail/loss_weight.hpp>
#include <heed/heed.hpp>

#include "tests/autograd/fused_support.hpp"

using namespace heed;
using detail::LossWeights;
using test::close;
using test::contains;
using test::error_of;

namespace {

const Tensor& stored(const std::string& name) {
  static const test::Named all = test::stored_tensors("weighted_torch.json");
  const auto found = all.find(name);
  REQUIRE_MESSAGE(found != all.end(), name);
  return found->second;
}

// The weight of the loss that f computes; -1 if the loss has none.
double weight_of(const std::function<Tensor()>& f) {
  const LossWeights weights;
  const Tensor y = f();
  return weights.of("test", y.item(), -1);
}

std::string refusal_of(const std::function<Tensor()>& f) {
  return error_of([&] { weight_of(f); });
}

}  // namespace

TEST_CASE("weighted_mean equals PyTorch's sum(values * weights) / sum(weights), for weights, rows and masks") {
  for (const std::string name : {"weights", "rows", "mask"}) {
    CAPTURE(name);
    const Tensor w = name == "mask" ? stored(name).to(DType::bool8) : stored(name);
    const test::Run r = test::run([&](const auto& in) { return weighted_mean(in[0], w); }, {stored("values")});
    CHECK(close(r.y, stored("mean " + name), 1e-14, 1e-15));
    CHECK(close(r.gradients[0], stored("mean " + name + ".d"), 1e-14, 1e-15));
  }
  const Tensor v = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  CHECK(weighted_mean(v, Tensor::from<std::int32_t>({3, 1}, {2, 1})).item() == 2);
  CHECK(weighted_mean(v, Tensor::scalar(2.0)).item() == 2.5);
  CHECK(weighted_mean(v.to(DType::bfloat16), Tensor::from<float>({1, 0, 0, 1}, {2, 2})).item() == 2.5);
}

TEST_CASE("weighted_mean: if the weights sum to 0, the mean and its gradient are 0 for any values") {
  const Tensor v = Tensor::from<float>({1, NAN, INFINITY}, {3});
  const test::Run r = test::run([](const auto& in) { return weighted_mean(in[0], Tensor::zeros({3})); }, {v});
  CHECK(r.y.item() == 0);
  CHECK(test::same_bits(r.gradients[0], Tensor::zeros({3})));
  CHECK(weighted_mean(Tensor::zeros({0, 2}), Tensor::ones({1, 2})).item() == 0);
  CHECK(weighted_mean(Tensor::zeros({0, 2}), Tensor::ones({0, 1})).item() == 0);
}

TEST_CASE("loss weights: the divisor of each kind of mean") {
  const Tensor logits = Rng(1).normal({4, 3}), targets = Tensor::from<std::int32_t>({0, 2, -100, 1}),
               w = Tensor::from<float>({0.5, 1, 4}), x = Rng(2).normal({4, 2}), y = Rng(3).normal({4, 2});
  const Tensor weight = Rng(4).normal({3, 2});
  CHECK(weight_of([&] { return cross_entropy(logits, targets, {.weight = w}); }) == 5.5);
  CHECK(weight_of([&] { return cross_entropy(logits, targets, {.label_smoothing = 0.1, .weight = w}); }) == 5.5);
  CHECK(weight_of([&] { return cross_entropy(logits, targets); }) == 3);
  CHECK(weight_of([&] { return cross_entropy(logits, targets, {.ignore_index = -100}); }) == 3);
  CHECK(weight_of([&] { return linear_cross_entropy(x, weight, Tensor(), targets, {.weight = w}); }) == 5.5);
  CHECK(weight_of([&] { return linear_cross_entropy(x, weight, Tensor(), targets); }) == 3);
  CHECK(weight_of([&] { return binary_cross_entropy_with_logits(x, sigmoid(y), {.weight = x.detach()}); }) == 8);
  CHECK(weight_of([&] { return weighted_mean(square(x - y), Tensor::from<float>({1, 0, 2, 0.5}, {4, 1})); }) == 7);
  CHECK(weight_of([&] { return weighted_loss(mse_loss(x, y), 2.5); }) == 2.5);
  // A loss that is not a weighted mean has no weight, nor has a mean that is taken outside the loss op.
  CHECK(weight_of([&] { return mse_loss(x, y); }) == -1);
  CHECK(weight_of([&] { return binary_cross_entropy_with_logits(x, sigmoid(y)); }) == -1);
  CHECK(weight_of([&] { return cross_entropy(logits, targets, {.weight = w, .reduction = Reduction::sum}); }) == -1);
  CHECK(weight_of([&] { return mean(cross_entropy(logits, targets, {.weight = w, .reduction = Reduction::none})); }) ==
        -1);
  // A mean over targets whose weights sum to 0.
  CHECK(weight_of([&] { return cross_entropy(logits, Tensor::full({4}, -100, DType::int32)); }) == 0);
  CHECK(weight_of([&] { return cross_entropy(logits, targets, {.weight = Tensor::zeros({3})}); }) == 0);
}

TEST_CASE("loss weights: losses of several parts") {
  const Tensor logits = Rng(1).normal({4, 3}), all = Tensor::from<std::int32_t>({0, 2, 2, 1}),
               some = Tensor::from<std::int32_t>({0, 2, -100, 1}), w = Tensor::from<float>({0.5, 1, 4});
  const auto weighted = [&](const Tensor& t) { return cross_entropy(logits, t, {.weight = w}); };
  const auto plain = [&](const Tensor& t) { return cross_entropy(logits, t); };
  // Parts without weights do not count, because no part is the loss. Parts with equal weights have that weight
  // together.
  CHECK(weight_of([&] { return plain(all) + plain(some); }) == -1);
  CHECK(weight_of([&] { return plain(all) + 0.1 * mse_loss(logits, logits * 2); }) == -1);
  CHECK(weight_of([&] { return 2 * weighted(some) + plain(all); }) == 5.5);
  CHECK(weight_of([&] { return weighted(some) + 0.5 * weighted(some); }) == 5.5);
  // Other losses may be computed in the same scope.
  CHECK(weight_of([&] { return weighted(all), weighted(some); }) == 5.5);
  CHECK(weight_of([&] { return weighted(some), plain(some); }) == 3);
  CHECK(weight_of([&] { return weighted_loss(weighted(all) + weighted(some), 7); }) == 7);
  const std::string end =
      ", so batches cannot be combined; return weighted_loss(loss, weight) with the weight of the whole loss";
  CHECK(refusal_of([&] {
          const Tensor first = weighted(all);
          return first + weighted(some);
        }) ==
        "test: the loss of a batch has parts with the weights 9.5 and 5.5" + end);
  CHECK(refusal_of([&] {
          const Tensor first = weighted_loss(plain(all), 2);
          return first + weighted_loss(plain(some), 3);
        }) == "test: the loss of a batch has parts with the weights 2 and 3" + end);
}

TEST_CASE("loss weights: an inner scope takes the weights noted within it, and backward notes none") {
  const Tensor logits = Rng(1).normal({4, 3}), targets = Tensor::from<std::int32_t>({0, 2, 2, 1});
  const LossWeights outer;
  CHECK(weight_of([&] { return cross_entropy(logits, targets); }) == 4);
  CHECK(outer.of("test", cross_entropy(logits, targets, {.ignore_index = 0}).item(), -1) == 3);
  // A function that recompute runs again in backward counts as one loss.
  CHECK(weight_of([&] {
          Tape tape;
          const Tensor x = tape.watch(logits);
          const auto weighted = [&](const std::vector<Tensor>& in) {
            return cross_entropy(in[0], targets, {.weight = Tensor::from<float>({1, 2, 3})});
          };
          const Tensor y = recompute(weighted, {x});
          tape.backward(y);
          return y.detach();
        }) == 9);
}

TEST_CASE("weighted_mean and weighted_loss: errors") {
  const Tensor v = Tensor::zeros({2, 3});
  Parameter p{Tensor::ones({2, 3})};
  test::check_errors({
      {"weighted_mean: values are [2, 3] int32; they must be floating", [&] { weighted_mean(v.to(DType::int32), v); }},
      {"weighted_mean: values are [2, 3] float32 but weights are [2] float32; weights must broadcast to the shape of "
       "values",
       [&] { weighted_mean(v, Tensor::ones({2})); }},
      {"weights must broadcast to the shape of values",
       [&] {
         weighted_mean(v, Tensor::ones({4, 2, 3}));
       }},
      {"weights must broadcast to the shape of values", [&] { weighted_mean(v, Tensor()); }},
      {"weighted_mean: the weights require a gradient, which is not defined; detach() them",
       [&] {
         const Tape tape;
         weighted_mean(v, p);
       }},
      {"weighted_mean: a weight is -1; weights must be finite and 0 or more",
       [&] {
         weighted_mean(v, Tensor::full({2, 3}, -1));
       }},
      {"weighted_mean: a weight is nan; weights must be finite and 0 or more",
       [&] {
         weighted_mean(v, Tensor::full({2, 3}, NAN));
       }},
      {"weighted_loss: the loss is [2, 3] float32; it must be one number", [&] { weighted_loss(v, 1); }},
      {"weighted_loss: the weight is -2; it must be finite and 0 or more",
       [&] { weighted_loss(Tensor::scalar(1.0), -2); }},
      {"weighted_loss: the weight is inf; it must be finite and 0 or more",
       [&] { weighted_loss(Tensor::scalar(1.0), INFINITY); }},
  });
}
