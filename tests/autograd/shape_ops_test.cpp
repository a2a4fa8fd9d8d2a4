// concatenate, stack, split, tril, triu, repeat and flip: values, gradients and errors.
#include <heed/autograd/norms.hpp>
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/random.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

// Axes, indices and sizes are integers. Other types are not converted.
template <class A>
concept WholeOfAny =
    requires(const Tensor& x, A a) { concatenate({x, x}, a); } ||
    requires(const Tensor& x, A a) { stack({x, x}, a); } ||
    requires(const std::vector<Tensor>& x, A a) { concatenate(x, a); } ||
    requires(const std::vector<Tensor>& x, A a) { stack(x, a); } || requires(const Tensor& x, A a) { split(x, a); } ||
    requires(const Tensor& x, A a) { split(x, 1, a); } || requires(const Tensor& x, A a) { split(x, {a}); } ||
    requires(const Tensor& x, A a) { split(x, {1, 2}, a); } || requires(const Tensor& x, A a) { tril(x, a); } ||
    requires(const Tensor& x, A a) { triu(x, a); } || requires(const Tensor& x, A a) { flip(x, a); } ||
    requires(const Tensor& x, A a) { repeat(x, {a}); } || requires(const Tensor& x, A a) { gather(x, a, x); } ||
    requires(const Tensor& x, A a) { scatter_add(x, a, x, x); } ||
    requires(const Tensor& x, A a) { index_select(x, a, x); } || requires(const Tensor& x, A a) { one_hot(x, a); } ||
    requires(const Tensor& x, A a) { softmax(x, a); } || requires(const Tensor& x, A a) { log_softmax(x, a); };
static_assert(!WholeOfAny<double> && !WholeOfAny<float> && !WholeOfAny<bool>);
template <class A>
concept WholeOfAll = requires(const Tensor& x, A a) {
  concatenate({x, x}, a), stack({x, x}, a), split(x, a), split(x, 1, a), split(x, {a}), tril(x, a), triu(x, a);
  flip(x, a), flip(x, {0, a}), repeat(x, {a}), gather(x, a, x), scatter_add(x, a, x, x), index_select(x, a, x);
  one_hot(x, a), softmax(x, a), log_softmax(x, a);
};
static_assert(WholeOfAll<int> && WholeOfAll<Index>);
static_assert(requires(const std::vector<Tensor>& x) { concatenate(x), concatenate(x, 1), stack(x, -1); });

TEST_CASE("concatenate puts tensors one after the other") {
  const Tensor a = Tensor::from({1, 2, 3, 4}, {2, 2}), b = Tensor::from({5, 6}, {2, 1}),
               c = Tensor::from({7, 8}, {1, 2});
  CHECK(concatenate({a, b, a}, 1).to_vector<double>() == std::vector<double>{1, 2, 5, 1, 2, 3, 4, 6, 3, 4});
  CHECK(concatenate({a, c}).to_vector<double>() == std::vector<double>{1, 2, 3, 4, 7, 8});
  CHECK(concatenate({a, b}, -1).shape() == Shape{2, 3});
  CHECK(concatenate({a.t(), c}, 0).to_vector<double>() == std::vector<double>{1, 3, 2, 4, 7, 8});
  CHECK(concatenate({a, Tensor::zeros({0, 2})}, 0).to_vector<double>() == std::vector<double>{1, 2, 3, 4});
  const Tensor ids = concatenate({Tensor::arange(2), Tensor::arange(3)});
  CHECK(ids.dtype() == DType::int32);
  CHECK(ids.to_vector<double>() == std::vector<double>{0, 1, 0, 1, 2});
}

TEST_CASE("concatenate of more tensors than an op has inputs") {
  std::vector<Tensor> parts, all;
  Rng rng(1);
  for (int i = 0; i < 150; ++i) parts.push_back(rng.normal({2, 1 + i % 3}, 0, 1, DType::float64));
  const Tensor y = concatenate(parts, 1);
  Index at = 0;
  for (const Tensor& x : parts) {
    CHECK(test::same_bits(y.slice(1, at, at + x.dim(1)), x));
    at += x.dim(1);
  }
  Tape tape;
  for (Tensor& x : parts) all.push_back(tape.watch(x));
  const Tensor result = concatenate(all, 1);
  tape.backward(result, y);
  bool same = true;
  for (std::size_t i = 0; i < all.size(); ++i) same = same && test::same_bits(tape.grad(all[i]), parts[i]);
  CHECK(same);
}

TEST_CASE("concatenate, stack and split pass gradcheck") {
  Rng rng(2);
  const Tensor a = rng.normal({2, 3, 4}, 0, 1, DType::float64), b = rng.normal({2, 1, 4}, 0, 1, DType::float64);
  gradcheck([](const std::vector<Tensor>& in) { return concatenate({in[0], in[1], in[0]}, 1); }, {a, b});
  gradcheck(
      [](const std::vector<Tensor>& in) {
        return concatenate({in[0].transpose(0, 2), in[0].transpose(0, 2)}, 0);
      },
      {a});
  for (const int axis : {0, 1, 3, -1, -4}) {
    gradcheck(
        [axis](const std::vector<Tensor>& in) {
          return stack({in[0], in[1], in[0]}, axis);
        },
        {a, rng.normal({2, 3, 4}, 0, 1, DType::float64)});
  }
  gradcheck(
      [](const std::vector<Tensor>& in) {
        const std::vector<Tensor> parts = split(in[0], 3, 2);
        return concatenate({parts[1], parts[0], parts[1]}, 2);
      },
      {a});
}

TEST_CASE("concatenate computes only the gradients that are needed") {
  const Tensor a = Tensor::ones({2}), b = Tensor::ones({3});
  Tape tape;
  const Tensor x = tape.watch(b);
  tape.backward(concatenate({a, x, a}), Tensor::from({1, 2, 3, 4, 5, 6, 7}));
  CHECK(tape.grad(x).to_vector<double>() == std::vector<double>{3, 4, 5});
}

TEST_CASE("stack makes a new axis, split takes views") {
  const Tensor a = Tensor::from({1, 2}), b = Tensor::from({3, 4});
  CHECK(stack({a, b}).to_vector<double>() == std::vector<double>{1, 2, 3, 4});
  CHECK(stack({a, b}, 1).to_vector<double>() == std::vector<double>{1, 3, 2, 4});
  CHECK(stack({Tensor::scalar(1), Tensor::scalar(2)}).shape() == Shape{2});
  const Tensor x = Tensor::arange(7);
  const std::vector<Tensor> parts = split(x, 3);
  CHECK(parts.size() == 3);
  CHECK(parts[2].to_vector<double>() == std::vector<double>{6});
  CHECK(parts[1].shares_storage(x));
  const std::vector<Index> sizes = {2, 0, 5};
  CHECK(split(x.view({1, 7}), sizes, 1)[2].to_vector<double>() ==
        split(x.view({1, 7}), {2, 0, 5}, 1)[2].to_vector<double>());
  const std::vector<Tensor> sized = split(x.view({1, 7}), {2, 0, 5}, 1);
  CHECK(sized[1].shape() == Shape{1, 0});
  CHECK(sized[2].to_vector<double>() == std::vector<double>{2, 3, 4, 5, 6});
}

TEST_CASE("concatenate, stack and split: errors name the wrong argument") {
  const Tensor a = Tensor::zeros({2, 3}), b = Tensor::zeros({2, 4});
  CHECK(contains(error_of([&] {
                   concatenate({a, b}, 0);
                 }),
                 "concatenate: tensor 0 is [2, 3] float32 but tensor 1 is [2, 4] float32; dtypes and shapes must be "
                 "the same except along axis 0"));
  CHECK(contains(error_of([&] { concatenate({a, b}, 0); }), "shape_ops_test.cpp:"));
  CHECK(contains(error_of([&] { concatenate({a, a.to(DType::float64)}, 0); }), "tensor 1 is [2, 3] float64"));
  CHECK(contains(error_of([&] { concatenate({a, b}, 2); }), "concatenate: axis is 2"));
  CHECK(contains(error_of([&] { concatenate(std::vector<Tensor>{}, 0); }), "concatenate: no tensors were given"));
  CHECK(
      contains(error_of([&] {
                 stack({a, b});
               }),
               "stack: tensor 0 is [2, 3] float32 but tensor 1 is [2, 4] float32; dtypes and shapes must be the same"));
  CHECK(contains(error_of([&] { stack({a, a}, 3); }), "stack: axis is 3"));
  CHECK(contains(error_of([&] { stack(std::vector<Tensor>{}); }),
                 "stack: no tensors were given; there must be at least one"));
  CHECK(contains(error_of([&] { stack({Tensor(), a}); }), "stack: tensor 0 is undefined; it must have values"));
  CHECK(contains(error_of([&] { split(a, {-1, 4}, 1); }), "split: a size is -1; it must be 0 or more"));
  CHECK(contains(error_of([&] { split(a, 0); }), "split: size is 0; it must be 1 or more"));
  CHECK(contains(error_of([&] {
                   split(a, {1, 3}, 1);
                 }),
                 "split: the sizes add up to 4 but x is [2, 3] float32; they must add up to 3, the size of axis 1"));
}

TEST_CASE("tril and triu keep one side of the diagonal") {
  Rng rng(3);
  for (const Shape& shape : {Shape{3, 5}, Shape{5, 3}, Shape{2, 4, 4}, Shape{1, 1}, Shape{0, 3}}) {
    const Tensor x = rng.normal(shape);
    for (Index diagonal = -6; diagonal <= 6; ++diagonal) {
      const Tensor low = tril(x, diagonal), high = triu(x, diagonal);
      const auto all = x.to_vector<double>(), a = low.to_vector<double>(), b = high.to_vector<double>();
      bool same = true;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const Index column = static_cast<Index>(i) % shape.back(),
                    row = static_cast<Index>(i) / shape.back() % shape[-2];
        same =
            same && a[i] == (column - row <= diagonal ? all[i] : 0) && b[i] == (column - row >= diagonal ? all[i] : 0);
      }
      CHECK(same);
    }
  }
  CHECK(tril(Tensor::ones({2, 2}, DType::bool8)).to_vector<double>() == std::vector<double>{1, 0, 1, 1});
  CHECK(tril(Tensor::full({2, 2}, std::nan(""))).at({0, 1}) == 0);
  CHECK(test::same_bits(tril(Tensor::arange(4).view({2, 2}).t()), Tensor::from<std::int32_t>({0, 0, 1, 3}, {2, 2})));
  const Tensor x = rng.normal({2, 3, 4}, 0, 1, DType::float64);
  gradcheck([](const std::vector<Tensor>& in) { return tril(in[0], 1); }, {x});
  gradcheck([](const std::vector<Tensor>& in) { return triu(in[0].transpose(0, 2)); }, {x});
  CHECK(contains(error_of([] { tril(Tensor::zeros({3})); }), "tril: x is [3] float32; it must have 2 axes or more"));
}

TEST_CASE("repeat and flip") {
  const Tensor x = Tensor::from({1, 2, 3, 4}, {2, 2});
  CHECK(repeat(x, {1, 2}).to_vector<double>() == std::vector<double>{1, 2, 1, 2, 3, 4, 3, 4});
  CHECK(repeat(x, {2, 1}).to_vector<double>() == std::vector<double>{1, 2, 3, 4, 1, 2, 3, 4});
  CHECK(repeat(x.t(), {3, 1, 2}).shape() == Shape{3, 2, 4});
  CHECK(repeat(x.t(), {1, 2}).to_vector<double>() == std::vector<double>{1, 3, 1, 3, 2, 4, 2, 4});
  CHECK(repeat(x, {0, 2}).shape() == Shape{0, 4});
  CHECK(!repeat(x, {1, 1}).shares_storage(x));
  CHECK(repeat(x.t(), {2, 1, 1}).is_contiguous());
  CHECK(repeat(Tensor::scalar(5), {3}).to_vector<double>() == std::vector<double>{5, 5, 5});
  CHECK(flip(x, std::vector<int>{-2}).to_vector<double>() == std::vector<double>{3, 4, 1, 2});
  CHECK(flip(Tensor::scalar(3), 0).item() == 3);
  CHECK(flip(x, {0}).to_vector<double>() == std::vector<double>{3, 4, 1, 2});
  CHECK(flip(x.t(), {0, -1}).to_vector<double>() == std::vector<double>{4, 2, 3, 1});
  CHECK(flip(Tensor::zeros({0, 2}), {0}).shape() == Shape{0, 2});
  Rng rng(4);
  const Tensor v = rng.normal({2, 3, 4}, 0, 1, DType::float64);
  gradcheck([](const std::vector<Tensor>& in) { return repeat(in[0].transpose(0, 1), {2, 1, 3, 2}); }, {v});
  gradcheck([](const std::vector<Tensor>& in) { return repeat(in[0], {1, 1, 1}); }, {v});
  gradcheck([](const std::vector<Tensor>& in) { return flip(in[0].transpose(0, 1), {0, 2}); }, {v});
  CHECK(contains(error_of([&] { repeat(x, {2}); }),
                 "repeat: the counts are [2] but x is [2, 2] float32; there must be at least one count per axis"));
  CHECK(contains(error_of([&] { repeat(x, {2, -1}); }), "each must be 0 or more"));
  CHECK(contains(error_of([&] { flip(x, {}); }), "flip: no axes were given"));
  CHECK(contains(error_of([&] { flip(x, {2}); }), "flip: axis is 2"));
}

TEST_CASE("split_heads and merge_heads: columns as heads and back") {
  const Index B = 2, T = 3, H = 4, D = 5;
  const Tensor x = Tensor::arange(B * T * H * D, DType::float64).view({B, T, H * D}), heads = split_heads(x, H);
  CHECK(heads.shape() == Shape{B, H, T, D});
  CHECK(heads.shares_storage(x));
  for (Index h = 0; h < H; ++h) CHECK(heads.at({1, h, 2, 3}) == x.at({1, 2, h * D + 3}));
  CHECK(merge_heads(heads).shares_storage(x));
  CHECK(test::same_bits(merge_heads(heads), x));
  CHECK(test::same_bits(merge_heads(heads.contiguous()), x));
  CHECK(split_heads(x.slice(2, 2, 8), 3).shares_storage(x));
  CHECK(split_heads(Tensor::zeros({0, 3, 4}), 2).shape() == Shape{0, 2, 3, 2});
  gradcheck([](const std::vector<Tensor>& in) { return split_heads(in[0].slice(2, 0, 12), 3); }, {x});
  gradcheck([](const std::vector<Tensor>& in) { return merge_heads(in[0]); }, {heads.contiguous()});
  test::check_errors({
      {"split_heads: x is [2, 3, 20] float64 and heads is 3; x must be [batch, positions, width], and heads must "
       "divide "
       "width",
       [&] { split_heads(x, 3); }},
      {"split_heads: x is [2, 3, 20] float64 and heads is 0", [&] { split_heads(x, 0); }},
      {"split_heads: x is [2, 4, 3, 5] float64 and heads is 1", [&] { split_heads(heads, 1); }},
      {"merge_heads: x is [2, 3, 20] float64; it must be [batch, heads, positions, size]", [&] { merge_heads(x); }},
  });
}
