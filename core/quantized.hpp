// Blocks of ggml's quantized types, as in GGUF files, and copies of quantized tensors. Internal: load() and store() of
// io/stored_tensor.hpp and Tensor::to() check sizes and run on all threads.
//
// A number is computed as in ggml's reference functions, with the same bits: all products of a block's scales and
// integers are exact in float32, except the last product of q6_k and the last sum of q4_k and q4_1, which round once.
#pragma once
#include <cstddef>
#include <heed/core/dtype.hpp>
#include <heed/core/tensor.hpp>

namespace heed::detail {

// Each reads `count` blocks, of any alignment, and writes their numbers to y. The bytes of a block, in order:
//  - q8_0 [34]: scale d as f16; 32 integers q as int8. A number is d * q.
//  - q4_0 [18]: d; 16 bytes with q[i] in the lower half of byte i and q[i + 16] in the upper. A number is d * (q - 8).
//  - q4_1 [20]: d; minimum m as f16; 16 bytes as in q4_0. A number is d * q + m.
//  - q4_k [144]: d; m; 12 bytes with 6 bits of scale s and of minimum t for each run of 32 numbers; 32 bytes for each
//    two runs, the first in the lower halves. A number is d * s * q - m * t.
//  - q6_k [210]: the lower 4 bits of all q, 128 bytes; the upper 2 bits, 64 bytes; a scale s as int8 for each run of 16
//    numbers; d. A number is d * s * (q - 32).
void read_q8_0(const std::byte* blocks, Index count, float* y);  // y: [count, 32]
void read_q4_0(const std::byte* blocks, Index count, float* y);  // y: [count, 32]
void read_q4_1(const std::byte* blocks, Index count, float* y);  // y: [count, 32]
void read_q4_k(const std::byte* blocks, Index count, float* y);  // y: [count, 256]
void read_q6_k(const std::byte* blocks, Index count, float* y);  // y: [count, 256]

// Writes one block of q8_0 (34 bytes) for 32 numbers. Returns false, and writes nothing, if a number is not finite or
// the scale overflows f16.
bool write_q8_0(const float* x, std::byte* block);

// Reads `count` blocks of a quantized dtype.
void read_blocks(DType type, const std::byte* blocks, Index count, float* y);

// Whether x has the layout that copies and products of quantized tensors read: rows that are contiguous and begin with
// a block.
bool has_whole_rows(const Tensor& x);

// copy_values() if one of the tensors is quantized: unpacks, copies whole rows of one type, or rounds to q8_0. Throws
// Error for other types, for parts of blocks, and for a number that q8_0 cannot hold.
void copy_quantized(Tensor& to, const Tensor& from);

}  // namespace heed::detail
