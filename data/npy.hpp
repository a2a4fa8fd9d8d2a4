// Reads and writes NumPy's .npy files.
//
// Example:
//
//   save_npy("x.npy", Tensor::arange(6).reshape({2, 3}));
//   const Tensor x = load_npy("x.npy");  // int32 [2, 3]
#pragma once
#include <filesystem>
#include <heed/core/tensor.hpp>

namespace heed {

// Writes x as float32, float64, int32 or bool8. Throws Error for bfloat16, which NumPy lacks: convert x first. The file
// is written as file.tmp, synced and renamed, so that a failure keeps the old file.
void save_npy(const std::filesystem::path& file, const Tensor& x);

// Reads a little-endian file in C order. float32, float64, int32 and bool8 keep their type. All other integer types,
// such as NumPy's default int64, become int32, and float16 becomes float32. Throws Error if the file is missing,
// truncated, not a .npy file of version 1 or of another type, or if an integer does not fit int32.
Tensor load_npy(const std::filesystem::path& file);

}  // namespace heed
