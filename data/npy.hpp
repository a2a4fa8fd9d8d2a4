// Reads and writes NumPy's .npy files.
//
// Example:
//
//   save_npy("x.npy", Tensor::arange(6).reshape({2, 3}));
//   const Tensor x = load_npy("x.npy");  // int32 [2, 3]
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <heed/core/tensor.hpp>
#include <span>
#include <string>

namespace heed {

// Writes x as float32, float64, int32 or bool8. Throws Error for bfloat16, which NumPy lacks: convert x first. The file
// is written as file.tmp, synced and renamed, so that a failure keeps the old file.
void save_npy(const std::filesystem::path& file, const Tensor& x);

// Reads a little-endian file in C order. float32, float64, int32 and bool8 keep their type. All other integer types,
// such as NumPy's default int64, become int32, and float16 becomes float32. Throws Error if the file is missing,
// truncated, not a .npy file of version 1 or of another type, if it has more than 8 axes, or if an integer does not fit
// int32.
Tensor load_npy(const std::filesystem::path& file);

// Reads the bytes of a .npy file in memory, which messages call `name`. Otherwise as load_npy().
Tensor parse_npy(std::span<const std::byte> bytes, const std::string& name);

namespace detail {

// Copies the next `count` bytes of a file to `to`. Throws Error if it cannot.
using NextBytes = std::function<void(void* to, std::size_t count)>;

// Reads a .npy file of `size` bytes in order, and never more than `size` bytes. Errors begin with `what`, such as
// "load_npy: x.npy".
Tensor read_npy(const NextBytes& next, std::uintmax_t size, const std::string& what);

}  // namespace detail

}  // namespace heed
