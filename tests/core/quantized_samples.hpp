// Quantized tensors with random blocks, for tests.
#pragma once
#include <cstring>
#include <heed/core/float16.hpp>
#include <heed/core/random.hpp>
#include <heed/core/tensor.hpp>

namespace heed::test {

inline constexpr DType kQuantizedTypes[] = {DType::q8_0, DType::q4_0, DType::q4_1};

// Blocks with random integers, and scales and minima in +-0.02.
inline Tensor random_blocks(const Shape& shape, DType type, std::uint64_t seed) {
  const Tensor x = Tensor::empty(shape, type);
  const auto size = bytes_of(type, kBlockNumbers), all = bytes_of(type, x.numel());
  Rng rng(seed);
  const Tensor bytes = rng.uniform({static_cast<Index>(all)}, 0, 256);
  const std::size_t scales = type == DType::q4_1 ? 2 : 1;
  const Tensor numbers = rng.uniform({static_cast<Index>(2 * all / size + 2)}, -0.02, 0.02);
  auto* to = static_cast<std::uint8_t*>(x.memory());
  for (std::size_t i = 0; i < all; ++i) to[i] = static_cast<std::uint8_t>(bytes.ptr<float>()[i]);
  for (std::size_t block = 0; block < all / size; ++block)
    for (std::size_t s = 0; s < scales; ++s) {
      const std::uint16_t bits = detail::to_float16(numbers.ptr<float>()[2 * block + s]);
      std::memcpy(to + block * size + 2 * s, &bits, sizeof bits);
    }
  return x;
}

}  // namespace heed::test
