// The types in which files of other programs store numbers, and the conversion of such numbers to and from tensors.
// Readers of file formats return a StoredTensor per tensor; load() converts it. Writers call store().
//
// Example:
//
//   const Tensor x = Tensor::from({0.5, -1, 0.1, 65504}, {2, 2});
//   const std::vector<std::byte> bytes = store(x, StoredType::f16);  // 8 bytes
//   const Tensor y = load({"x", x.shape(), StoredType::f16, bytes});
//   std::cout << name_of(y.dtype()) << ' ' << y.at({1, 0}) << '\n';  // float32 0.0999756
#pragma once
#include <cstddef>
#include <heed/core/tensor.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// Types in which files store numbers, little-endian.
enum class StoredType {
  f64,
  f32,
  f16,  // IEEE 754's binary16
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,  // a byte, true if it is not 0
  // ggml's quantized types. A block of neighbours along the last axis has integers and their scale as f16.
  q8_0,  // 32 integers of 8 bits
  q4_0,  // 32 of 4 bits, around 0
  q4_1,  // 32 of 4 bits, and the minimum as f16
  q4_k,  // 256 of 4 bits; each 32 have their own scale and minimum, of 6 bits
  q6_k   // 256 of 6 bits, around 0; each 16 have their own scale, of 8 bits
};

// The name by which safetensors and GGUF files call the type: "F32", "BF16", "BOOL", "Q4_K".
std::string_view name_of(StoredType type);
std::optional<StoredType> stored_type_named(std::string_view name);  // nullopt for any other name

// The size of a block: 32 or 256 numbers for a quantized type, else one number.
Index items_per_block(StoredType type);
Index bytes_per_block(StoredType type);
inline bool is_quantized(StoredType type) { return items_per_block(type) > 1; }

// The bytes of a tensor. nullopt if the number overflows, if a size is negative or if the last axis is not a whole
// number of blocks.
std::optional<std::size_t> stored_bytes(StoredType type, const Shape& shape);

// The dtype to which load() converts a type by default: float64 for f64, bfloat16 for bf16, float32 for f32, f16 and
// the quantized types, int32 for integers, bool8 for boolean.
DType dtype_for(StoredType type);
// The type that stores a dtype unchanged: f32 for float32, boolean for bool8, q4_1 for q4_1.
StoredType stored_type_for(DType dtype);
// The quantized dtype that holds the blocks of a type; none for q4_k, q6_k and all that are not quantized.
std::optional<DType> quantized_dtype(StoredType type);

// A tensor in a file: a view of its bytes.
struct StoredTensor {
  std::string name = {};                  // in the file; unique there
  Shape shape = {};                       // the last axis is contiguous
  StoredType type = StoredType::f32;      // of its numbers
  std::span<const std::byte> bytes = {};  // of any alignment; valid as long as the object that read the file
};

// The tensor with its own memory, computed on all threads. `dtype` is by default dtype_for(type). Quantized numbers are
// equal, bit by bit, to those that ggml computes from the file.
//
// A quantized `dtype` takes the blocks as they are, or is q8_0 and is rounded to as by store().
//
// Floating types are rounded to nearest, ties to even. Another `dtype` is reached through dtype_for(type), so integers
// pass through int32; float64 goes to bfloat16 through float32. Throws Error, which names the tensor, if the number of
// bytes is not stored_bytes(), if an integer does not fit int32, if a finite number would become infinite, or if int32
// or bool8 cannot hold a number exactly.
Tensor load(const StoredTensor& stored, std::optional<DType> dtype = {});

// The elements of x in row-major order, converted to a type: f64, f32, f16, bf16, i64, i32, boolean or q8_0, or the
// blocks of a quantized x in its own type. Rounds as
// load() does. q8_0 has, per block of 32 numbers, the scale max|x| / 127 as f16, and the numbers divided by the scale
// before it became f16, rounded to nearest, ties away from zero; these are ggml's bytes.
//
// Throws Error for another type, if x is undefined, if the type cannot hold a number (as in load()), and for q8_0 also
// if a number is not finite, the scale overflows f16, or the last axis is not a multiple of 32.
std::vector<std::byte> store(const Tensor& x, StoredType type);

}  // namespace heed
