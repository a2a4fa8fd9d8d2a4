// NumPy's .npy files.
#pragma once
#include <filesystem>
#include <heed/core/tensor.hpp>

namespace heed {

// float32, float64, int32 and bool8 keep their type; bfloat16 is an Error (NumPy has none): convert first.
void save_npy(const std::filesystem::path& file, const Tensor& x);

// Reads those types, C order, little-endian. Throws Error for a missing, foreign, truncated or unsuitable file.
Tensor load_npy(const std::filesystem::path& file);

}  // namespace heed
