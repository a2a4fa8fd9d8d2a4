// Quantized tensors: sizes, views, copies, conversion, and what is refused.
#include <heed/core/members.hpp>
#include <heed/core/quantized.hpp>
#include <sstream>

#include "tests/core/quantized_samples.hpp"
#include "tests/support.hpp"

using namespace heed;
using heed::test::contains, heed::test::error_of, heed::test::kQuantizedTypes, heed::test::random_blocks,
    heed::test::same_bits;

namespace {

// The numbers of x, block by block.
Tensor numbers_of(const Tensor& x) {
  Tensor y = Tensor::empty(x.shape());
  detail::read_blocks(x.dtype(), static_cast<const std::byte*>(x.memory()), x.numel() / kBlockNumbers, y.ptr<float>());
  return y;
}

}  // namespace

TEST_CASE("quantized: a tensor has the memory of its blocks, and converts to the numbers that ggml computes") {
  const std::size_t sizes[] = {34, 18, 20};
  for (int i = 0; i < 3; ++i) {
    const DType type = kQuantizedTypes[i];
    const Tensor x = random_blocks({5, 96}, type, 1), y = numbers_of(x);
    CHECK(x.storage()->bytes == 15 * sizes[i]);
    CHECK(bytes_of(type, 96) == 3 * sizes[i]);
    CHECK(same_bits(x.to(DType::float32), y));
    CHECK(same_bits(x.slice(0, 1, 4).to(DType::float32), y.slice(0, 1, 4)));
    CHECK(same_bits(x.slice(0, 0, 5, 2).to(DType::float32), y.slice(0, 0, 5, 2).contiguous()));
    CHECK(same_bits(x.select(0, 3).to(DType::float32), y.select(0, 3)));
    CHECK(same_bits(x.t().to(DType::float32), y.t().contiguous()));
    CHECK(same_bits(x.to(DType::bfloat16), y.to(DType::bfloat16)));
    CHECK(same_bits(x.to(DType::float64), y.to(DType::float64)));
    std::ostringstream text, of_numbers;
    text << x.slice(0, 0, 1), of_numbers << y.slice(0, 0, 1);
    CHECK(text.str() == of_numbers.str().substr(0, of_numbers.str().rfind(' ') + 1) + std::string(name_of(type)));
  }
}

TEST_CASE("quantized: copies keep the blocks, in any order of the rows") {
  for (const DType type : kQuantizedTypes) {
    const Tensor x = random_blocks({2, 6, 64}, type, 2), y = numbers_of(x);
    CHECK(same_bits(numbers_of(x.clone()), y));
    const Tensor turned = x.transpose(0, 1).contiguous();
    CHECK(turned.dtype() == type);
    CHECK(same_bits(numbers_of(turned), y.transpose(0, 1).contiguous()));
    Tensor part = Tensor::zeros({4, 64}, type);
    part.slice(0, 1, 3).copy_(x[1].slice(0, 2, 4));
    CHECK(same_bits(numbers_of(part.slice(0, 1, 3).contiguous()), y[1].slice(0, 2, 4).contiguous()));
    CHECK(test::close(numbers_of(part)[3], Tensor::zeros({64}), 0, 1e-30));
  }
}

TEST_CASE("quantized: q8_0 rounds each block of 32 numbers to its scale") {
  const Tensor x = test::normal({7, 64}, 3, DType::float32), q = x.to(DType::q8_0), y = q.to(DType::float32);
  CHECK(q.dtype() == DType::q8_0);
  for (Index i = 0; i < x.numel(); i += 32) {
    float largest = 0, worst = 0;
    for (Index j = i; j < i + 32; ++j) {
      largest = std::max(largest, std::abs(x.ptr<float>()[j]));
      worst = std::max(worst, std::abs(x.ptr<float>()[j] - y.ptr<float>()[j]));
    }
    CHECK(worst <= largest / 127 * 0.57f);  // half a step, and the rounding of the scale to a float16
  }
  CHECK(same_bits(y.to(DType::q8_0).to(DType::float32), y));
  CHECK(same_bits(test::normal({64, 7}, 3, DType::float32).t().to(DType::q8_0).to(DType::float32),
                  test::normal({64, 7}, 3, DType::float32).t().contiguous().to(DType::q8_0).to(DType::float32)));
}

TEST_CASE("quantized: a parameter is frozen") {
  Parameter p(random_blocks({4, 32}, DType::q8_0, 4));
  CHECK_FALSE(p.requires_grad());
  p.requires_grad_(false);
  CHECK(contains(error_of([&] { p.requires_grad_(true); }), "is q8_0, which is not trained"));
}

TEST_CASE("quantized: single numbers and parts of blocks are refused") {
  const Tensor x = random_blocks({32, 64}, DType::q4_0, 5);
  const auto refused = [](const auto& f) { return contains(error_of(f), "whose numbers are in blocks of 32"); };
  CHECK(refused([&] { return x.at({0, 0}); }));
  CHECK(refused([&] { return x.select(1, 0).to(DType::float32); }));
  CHECK(refused([&] { return x.slice(1, 16, 48).to(DType::float32); }));
  CHECK(refused([&] { return size_of(x.dtype()); }));
  CHECK(refused([&] { return x.t().contiguous(); }));
  CHECK(refused([&] { return x.raw(); }));
  CHECK(refused([&] { return Tensor::ones({32}, DType::q8_0); }));
  CHECK(contains(
      error_of([] {
        return Tensor::empty({4, 40}, DType::q8_0);
      }),
      "shape is [4, 40] and the dtype is q8_0, whose rows are blocks; the last axis must be a multiple of 32"));
  CHECK(contains(error_of([&] { return x.to(DType::q8_0).to(DType::q4_0); }), "cannot be converted to q4_0"));
  CHECK(contains(error_of([] { return Tensor::full({32}, test::kInf).to(DType::q8_0); }), "that q8_0 cannot hold"));
}
