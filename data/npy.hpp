// NumPy's .npy files.
//
// Example:
//
//   save_npy("x.npy", Tensor::arange(6).reshape({2, 3}));
//   const Tensor x = load_npy("x.npy");  // int32 [2, 3]
#pragma once
#include <filesystem>
#include <heed/core/tensor.hpp>

namespace heed {

// float32, float64, int32 and bool8 keep their type; bfloat16 is an Error (NumPy has none): convert first. The file is
// written as file.tmp, synced and renamed: a failure leaves the old file as it was.
void save_npy(const std::filesystem::path& file, const Tensor& x);

// Reads those types, and others as what holds them: NumPy's int64, which its whole numbers are, and all shorter and
// unsigned ones as int32, float16 as float32. C order, little-endian. Throws Error for a missing, foreign, truncated or
// unsuitable file, and for a whole number that does not fit int32.
Tensor load_npy(const std::filesystem::path& file);

}  // namespace heed
