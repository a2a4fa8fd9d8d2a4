// Tensors and xtensor arrays, and .npy files.
#include <filesystem>
#include <fstream>
#include <heed/core/array.hpp>
#include <heed/core/npy.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xview.hpp>

#include "tests/support.hpp"

using namespace heed;
using test::contains;
using test::error_of;

TEST_CASE("an array of a tensor shares its memory") {
  Tensor x = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  const std::uint64_t version = x.version();
  x.array<float>() = xt::sqrt(x.array<float>()) * 2;
  CHECK(x.version() > version);
  CHECK(x.at({1, 0}) == doctest::Approx(4));
  const Tensor& constant = x;
  const xt::xarray<float> sums = xt::sum(constant.array<float>(), {1}, xt::evaluation_strategy::immediate);
  CHECK(sums(0) == doctest::Approx(2 * (1 + std::sqrt(2.0) + std::sqrt(3.0))));
  CHECK(contains(error_of([&] { x.array<double>(); }), "x is [2, 3] float32; data<T>() of a T for float64"));
  CHECK(contains(error_of([&] { x.t().array<float>(); }), "needs a contiguous tensor"));
}

TEST_CASE("a tensor of an expression") {
  const Tensor y(xt::linspace<double>(0, 1, 5) + 1);
  CHECK(y.dtype() == DType::float64);
  CHECK(y.to_vector<double>() == std::vector<double>{1, 1.25, 1.5, 1.75, 2});
  const xt::xarray<int> a = {{1, 2, 3}, {4, 5, 6}};
  CHECK(Tensor(xt::transpose(a)).shape() == Shape{3, 2});
  CHECK(Tensor(xt::transpose(a)).at({2, 0}) == 3);
  CHECK(Tensor(xt::view(a, 1, xt::all())).to_vector<int>() == std::vector<int>{4, 5, 6});
  CHECK(Tensor(a > 3).dtype() == DType::bool8);
}

TEST_CASE(".npy files come back, and damaged ones are refused") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("heed_npy_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto file = folder / "x.npy";
  for (const Tensor& x : {Tensor::from({1.5, -2, 3, 4}, {2, 2}), Tensor::from<double>({1, 2, 3}), Tensor::from<std::int32_t>({7, -8}, {1, 2}),
                          Tensor::from<bool>({1, 0, 1}), Tensor::scalar(3), Tensor::zeros({0, 4}), Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3}).t()}) {
    save_npy(file, x);
    CHECK(test::same_bits(load_npy(file), x));
  }
  CHECK(contains(error_of([&] { save_npy(file, Tensor::ones({2}, DType::bfloat16)); }), "it must be float32, float64, int32 or bool8"));
  CHECK(contains(error_of([&] { save_npy(folder / "none" / "x.npy", Tensor::ones({2})); }), "cannot be written"));
  CHECK(contains(error_of([&] { load_npy(folder / "missing.npy"); }), "cannot be read: No such file"));
  save_npy(file, Tensor::ones({100}));
  const auto size = std::filesystem::file_size(file);
  for (std::uintmax_t n = 0; n < size; n += 7) {
    save_npy(file, Tensor::ones({100}));
    std::filesystem::resize_file(file, n);
    CHECK(!error_of([&] { load_npy(file); }).empty());
  }
  std::ofstream(file) << "this is text, and long enough to hold a header";
  CHECK(contains(error_of([&] { load_npy(file); }), "is not a .npy file"));
  std::filesystem::remove_all(folder);
}
