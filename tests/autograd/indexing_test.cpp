// gather, scatter_add, index_select and one_hot: values, gradients, negative and wrong indices.
#include <heed/autograd/shape_ops.hpp>
#include <heed/autograd/tape.hpp>
#include <heed/core/parallel.hpp>
#include <heed/core/random.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

namespace {

Index offset_of(const Shape& shape, const std::vector<Index>& at) {
  Index offset = 0;
  for (int a = 0; a < shape.rank(); ++a) offset = offset * shape[a] + at[static_cast<std::size_t>(a)];
  return offset;
}

// Calls f(index in x, index in `index`) for each element of `index`, in row-major order.
template <class F>
void naive(const Tensor& x, int axis, const Tensor& index, F f) {
  const auto at = index.to_vector<double>();
  for (Index i = 0; i < index.numel(); ++i) {
    std::vector<Index> place(static_cast<std::size_t>(x.rank()));
    Index rest = i;
    for (int a = x.rank() - 1; a >= 0; --a) {
      place[static_cast<std::size_t>(a)] = rest % index.shape()[a];
      rest /= index.shape()[a];
    }
    place[static_cast<std::size_t>(axis)] = static_cast<Index>(at[static_cast<std::size_t>(i)]);
    f(offset_of(x.shape(), place), i);
  }
}

Tensor naive_gather(const Tensor& x, int axis, const Tensor& index) {
  const auto from = x.to_vector<double>();
  std::vector<double> y(static_cast<std::size_t>(index.numel()));
  naive(x, axis, index, [&](Index p, Index i) { y[static_cast<std::size_t>(i)] = from[static_cast<std::size_t>(p)]; });
  return Tensor::from(y, index.shape());
}

Tensor naive_scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& source) {
  auto y = x.to_vector<double>();
  const auto from = source.to_vector<double>();
  naive(x, axis, index, [&](Index p, Index i) { y[static_cast<std::size_t>(p)] += from[static_cast<std::size_t>(i)]; });
  return Tensor::from(y, x.shape());
}

}  // namespace

TEST_CASE("gather and scatter_add agree with plain loops over any axis and shape") {
  Rng rng(1);
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const Shape& shape :
         {Shape{5}, Shape{4, 6}, Shape{3, 300}, Shape{2, 3, 4}, Shape{3, 2, 2, 5}, Shape{2, 5, 700}}) {
      const Tensor x = rng.normal(shape, 0, 1, dtype);
      for (int axis = 0; axis < shape.rank(); ++axis) {
        for (const Index n : {1, 3, 9}) {
          const Tensor index = rng.integers(shape.with(axis, n), 0, shape[axis]),
                       source = rng.normal(index.shape(), 0, 1, dtype);
          CHECK(test::close(gather(x, axis, index), naive_gather(x, axis, index), 0, 0));
          CHECK(
              test::close(scatter_add(x, axis, index, source), naive_scatter_add(x, axis, index, source), 1e-5, 1e-6));
        }
      }
    }
  }
  // Fewer rows than x has, and strided arguments.
  const Tensor x = rng.normal({6, 5}), index = rng.integers({2, 7}, 0, 5);
  CHECK(test::close(gather(x, 1, index), naive_gather(x, 1, index), 0, 0));
  CHECK(test::close(gather(x.t(), 0, index.t()), naive_gather(x, 1, index).t(), 0, 0));
  CHECK(gather(Tensor::arange(5), 0, Tensor::from<std::int32_t>({4, 0})).to_vector<double>() ==
        std::vector<double>{4, 0});
}

TEST_CASE("index_select takes slices in any order, repeated too") {
  Rng rng(2);
  const Tensor x = rng.normal({4, 5, 6}), index = Tensor::from<std::int32_t>({3, 0, 3});
  for (int axis = 0; axis < 3; ++axis) {
    const Tensor y = index_select(x, axis, index);
    for (int i = 0; i < 3; ++i)
      CHECK(test::same_bits(y.select(axis, i), x.select(axis, static_cast<Index>(index.at({i})))));
    CHECK(test::same_bits(index_select(x.transpose(0, 2), axis, index),
                          index_select(x.transpose(0, 2).clone(), axis, index)));
  }
  CHECK(index_select(x, 1, Tensor::zeros({0}, DType::int32)).shape() == Shape{4, 0, 6});
  CHECK(index_select(Tensor::zeros({0, 3}), 1, index.slice(0, 1, 2)).shape() == Shape{0, 1});
}

TEST_CASE("gather, scatter_add and index_select pass gradcheck, with equal indices too") {
  Rng rng(3);
  const Tensor x = rng.normal({3, 4, 2}, 0, 1, DType::float64);
  for (int axis = 0; axis < 3; ++axis) {
    const Tensor index = rng.integers(x.shape().with(axis, 5), 0, x.dim(axis)),
                 source = rng.normal(index.shape(), 0, 1, DType::float64);
    gradcheck([axis](const std::vector<Tensor>& in) { return gather(in[0], axis, in[1]); }, {x, index});
    gradcheck([axis](const std::vector<Tensor>& in) { return scatter_add(in[0], axis, in[1], in[2]); },
              {x, index, source});
    const Tensor few = Tensor::from<std::int32_t>({1, 0, 1, 1});
    gradcheck([axis](const std::vector<Tensor>& in) { return index_select(in[0], axis, in[1]); }, {x, few});
    // The same input twice: the second derivative is added to the first.
    gradcheck(
        [](const std::vector<Tensor>& in) {
          return scatter_add(gather(in[0].transpose(0, 1), 0, in[1]), 0, in[1],
                             gather(in[0].transpose(0, 1), 0, in[1]));
        },
        {x, rng.integers({4, 3, 2}, 0, 4)});
  }
}

TEST_CASE("scatter_add of equal indices has the same bits at any number of threads") {
  Rng rng(4);
  const Tensor x = rng.normal({50, 600}), rows = rng.integers({3000, 600}, 0, 50),
               columns = rng.integers({50, 9000}, 0, 600);
  const Tensor tall = rng.normal(rows.shape()), wide = rng.normal(columns.shape()), few = rng.integers({4000}, 0, 50),
               dy = rng.normal({4000, 600});
  std::vector<Tensor> first;
  for (const int n : {1, 2, 3, 8}) {
    set_threads(n);
    Tape tape;
    const Tensor in = tape.watch(x);
    tape.backward(index_select(in, 0, few), dy);
    const std::vector<Tensor> got = {scatter_add(x, 0, rows, tall), scatter_add(x, 1, columns, wide), tape.grad(in)};
    if (first.empty()) first = got;
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(test::same_bits(got[i], first[i]));
  }
  set_threads(0);
}

TEST_CASE("negative indices count from the end, forward and backward, and scalars have an axis") {
  const Tensor x = test::normal({4, 5}), source = test::normal({4, 3}, 2);
  const Tensor from_end = Tensor::from<std::int32_t>({-1, 0, -5, 4, -2, 2, -1, -1, 1, 0, 3, -4}, {4, 3});
  const Tensor from_0 = where(from_end < 0, from_end + 5, from_end);
  const Tensor line = Tensor::from<std::int32_t>({-1, 2, -4}), line_0 = Tensor::from<std::int32_t>({3, 2, 0});
  const auto both = [&](const std::vector<Tensor>& in, const Tensor& places, const Tensor& few) {
    return sum(gather(in[0], 1, places) * in[1]) + sum(square(scatter_add(in[0], 1, places, in[1]))) +
           sum(square(index_select(in[0], 0, few) * 3));
  };
  std::vector<Tensor> gradients;
  for (const bool negative : {false, true}) {
    Tape tape;
    const std::vector<Tensor> in = {tape.watch(x), tape.watch(source)};
    const Tensor y = both(in, negative ? from_end : from_0, negative ? line : line_0);
    tape.backward(y);
    gradients.insert(gradients.end(), {y, tape.grad(in[0]), tape.grad(in[1])});
  }
  for (std::size_t i = 0; i < 3; ++i) CHECK(test::same_bits(gradients[i], gradients[i + 3]));
  const Tensor two = Tensor::scalar(2), zero = Tensor::scalar(0, DType::int32);
  CHECK(gather(two, -1, zero).shape() == Shape{});
  CHECK(gather(two, 0, zero).item() == 2);
  CHECK(scatter_add(two, 0, zero, Tensor::scalar(3)).item() == 5);
}

TEST_CASE("errors of indexing give the wrong index and its position") {
  const Tensor x = Tensor::zeros({4, 5});
  CHECK(contains(error_of([&] {
                   gather(x, 1, Tensor::from<std::int32_t>({0, 1, 5, 2}, {2, 2}));
                 }),
                 "gather: index[1, 0] is 5; it must be in [-5, 5) (indexing_test.cpp:"));
  CHECK(contains(error_of([&] {
                   index_select(x, 0, Tensor::from<std::int32_t>({0, -5}));
                 }),
                 "index_select: index[1] is -5; it must be in [-4, 4)"));
  CHECK(contains(error_of([&] {
                   scatter_add(x, 0, Tensor::full({1, 5}, 4, DType::int32), Tensor::zeros({1, 5}));
                 }),
                 "scatter_add: index[0, 0] is 4; it must be in [-4, 4)"));
  CHECK(contains(error_of([&] {
                   gather(x, 0, Tensor::zeros({1, 5}));
                 }),
                 "gather: index is [1, 5] float32; it must be int32"));
  CHECK(contains(error_of([&] { gather(x, 0, Tensor::zeros({5}, DType::int32)); }),
                 "gather: x is [4, 5] float32 and index is [5] int32"));
  CHECK(contains(error_of([&] {
                   gather(x, 0, Tensor::zeros({1, 6}, DType::int32));
                 }),
                 "no larger than x except along axis 0"));
  CHECK(contains(error_of([&] { index_select(x, 0, Tensor::zeros({1, 1}, DType::int32)); }), "it must have one axis"));
  CHECK(contains(error_of([&] {
                   scatter_add(x, 0, Tensor::zeros({1, 5}, DType::int32), Tensor::zeros({2, 5}));
                 }),
                 "the shapes must be the same"));
  CHECK(contains(error_of([&] {
                   scatter_add(x, 0, Tensor::zeros({1, 5}, DType::int32), Tensor::zeros({1, 5}, DType::float64));
                 }),
                 "both must be float32 or both float64"));
  CHECK(contains(error_of([&] { gather(Tensor::scalar(1), 0, Tensor::zeros({1}, DType::int32)); }),
                 "gather: axis is 0 but x is [] float32"));
}

TEST_CASE("one_hot marks the classes") {
  const Tensor index = Tensor::from<std::int32_t>({2, 0, 1, 2}, {2, 2}), y = one_hot(index, 3);
  CHECK(y.shape() == Shape{2, 2, 3});
  CHECK(y.dtype() == DType::float32);
  CHECK(y.to_vector<double>() == std::vector<double>{0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1});
  CHECK(test::same_bits(one_hot(index.t(), 3), y.transpose(0, 1)));
  for (const DType dtype : {DType::float64, DType::int32, DType::bool8, DType::bfloat16}) {
    CHECK(one_hot(index, 3, dtype).dtype() == dtype);
    CHECK(one_hot(index, 3, dtype).to_vector<double>() == y.to_vector<double>());
  }
  CHECK(one_hot(Tensor::scalar(1, DType::int32), 2).to_vector<double>() == std::vector<double>{0, 1});
  CHECK(one_hot(Tensor::zeros({0}, DType::int32), 2).shape() == Shape{0, 2});
  CHECK(contains(error_of([&] { one_hot(index, 2); }), "one_hot: index[0, 0] is 2; it must be in [0, 2)"));
  CHECK(contains(error_of([&] { one_hot(index, 0); }), "one_hot: classes is 0; it must be 1 or more"));
  CHECK(contains(error_of([&] { one_hot(y, 3); }), "one_hot: index is [2, 2, 3] float32; it must be int32"));
}
